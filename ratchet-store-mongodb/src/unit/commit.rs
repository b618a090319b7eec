//! Recording outcomes with all their consequences.

use bson::doc;
use std::time::Duration;

use ratchet_api::{
    EdgeState, Effect, End, Ending, ExecutionResult, Fingerprint, HandBackReason, JobId, JobStatus, Outcome,
    Owner, Recorded, Run, StoreResult, Timestamp, Verdict,
};

use super::Unit;
use crate::clock::instant;
use crate::codec::{EdgeDoc, ExecutionDoc, date, millis, uuid};

/// The message for a running job without a queue part, which only another program could have removed.
const QUEUE_STATE_GONE: &str = "CorruptRow: the queue part of this job is gone";

impl Unit<'_> {
    pub(crate) async fn commit(&mut self, owner: &Owner, outcomes: &[&Outcome]) -> StoreResult<Vec<Verdict>> {
        let ids: Vec<_> = outcomes.iter().map(|outcome| outcome.id).collect();
        self.load_jobs(ids.iter().copied()).await?;
        self.load_consequences(&ids).await?;
        let mut verdicts = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            verdicts.push(self.commit_one(owner, outcome).await?);
        }
        Ok(verdicts)
    }

    async fn commit_one(&mut self, owner: &Owner, outcome: &Outcome) -> StoreResult<Verdict> {
        let id = outcome.id;
        let fence = outcome.fence.version();
        let Some(job) = self.job(id).filter(|job| job.is_held_by(owner) && job.fence == fence) else {
            if self.job(id).is_some_and(|job| job.status == JobStatus::Running && job.queue.is_none()) {
                self.end_corrupt(id, QUEUE_STATE_GONE).await?;
            }
            let recorded = self.was_recorded(owner, outcome).await?;
            return Ok(if recorded { Verdict::AlreadyRecorded } else { Verdict::LeaseLost });
        };
        if job.cancel_requested() {
            let ending = ending(outcome.run, job.queue_wait(), self.now);
            self.record(owner, outcome, ExecutionResult::Canceled);
            self.end(id, JobStatus::Canceled, ending, &mut Recorded::default()).await?;
            return Ok(Verdict::CanceledInstead);
        }
        let decides = matches!(outcome.end, End::Succeeded { .. } | End::DeadLetter { .. });
        if decides && job.edge_count > outcome.edges_seen {
            let edges = self.edges_from(id).into_iter().map(EdgeDoc::read).collect();
            return Ok(Verdict::EdgesChanged { edges, edge_count: job.edge_count });
        }
        let mut led_to = Recorded::default();
        match &outcome.end {
            End::Succeeded { .. } | End::DeadLetter { .. } | End::Canceled { .. } => {
                self.apply_edge_effects(outcome, &mut led_to).await?;
                self.finish_job(owner, outcome, &mut led_to).await?;
            }
            End::Retry { .. } | End::HandBack { .. } | End::Park { .. } => {
                self.give_back(owner, outcome, &mut led_to);
            }
        }
        for effect in &outcome.effects {
            if let Effect::Submit(submission) = effect {
                led_to.submitted.push(self.submit(submission).await?);
            }
        }
        Ok(Verdict::Recorded(led_to))
    }

    /// Ends an unrunnable job as FAILED. `error` contains nothing of the document, which was not sanitized.
    pub(crate) async fn end_corrupt(&mut self, id: JobId, error: &'static str) -> StoreResult<()> {
        self.load_jobs([id]).await?;
        let now = self.now;
        let Some(job) = self.job_mut(id).filter(|job| !job.status.is_terminal()) else { return Ok(()) };
        tracing::error!(job = %id, error, "job dead-lettered: its document is damaged");
        job.last_error = Some(error.to_owned());
        job.fingerprint = Some(Fingerprint::of("", "CorruptRow", error).as_str().to_owned());
        self.end(id, JobStatus::Failed, Ending::at(now), &mut Recorded::default()).await
    }

    /// Whether this very outcome is in the job's history.
    async fn was_recorded(&mut self, owner: &Owner, outcome: &Outcome) -> StoreResult<bool> {
        let Some(job) = self.job(outcome.id) else { return Ok(false) };
        let fence = outcome.fence.version();
        let is_it = |row: &ExecutionDoc| row.fence == fence && row.owner == owner.as_str();
        if job.history.iter().any(is_it) || !job.spilled {
            return Ok(job.history.iter().any(is_it));
        }
        let from = self.store.collections.executions.clone();
        let id = doc! { "job": uuid(outcome.id), "fence": fence };
        let found = self.read::<ExecutionDoc>(&from, doc! { "_id": id }).await?;
        Ok(found.iter().any(|held| is_it(&held.doc)))
    }

    async fn apply_edge_effects(&mut self, outcome: &Outcome, led_to: &mut Recorded) -> StoreResult<()> {
        let mut hopeless = Vec::new();
        for effect in &outcome.effects {
            let (child, decided) = match effect {
                Effect::Satisfy(child) => (*child, EdgeState::Satisfied),
                Effect::Refuse(child) => (*child, EdgeState::Refused),
                Effect::Submit(_) => continue,
            };
            hopeless.extend(self.decide(outcome.id, child, decided, led_to));
        }
        self.cancel_hopeless(hopeless, led_to).await
    }

    /// Ends the job.
    async fn finish_job(
        &mut self,
        owner: &Owner,
        outcome: &Outcome,
        led_to: &mut Recorded,
    ) -> StoreResult<()> {
        let now = self.now;
        let Some(job) = self.job_mut(outcome.id) else { return Ok(()) };
        let mut ending = ending(outcome.run, job.queue_wait(), now);
        let (status, result) = match &outcome.end {
            End::DeadLetter { error, reason } => {
                job.attempts = job.attempts.saturating_add(reason.consumes_attempt().into());
                job.crash_count = job.crash_count.saturating_add(outcome.is_crash().into());
                job.last_error = Some(error.message.as_str().to_owned());
                job.fingerprint = Some(error.fingerprint.as_str().to_owned());
                (JobStatus::Failed, ExecutionResult::Failed)
            }
            End::Canceled { reason } => {
                job.cancel_reason = Some(reason.as_str().to_owned());
                (JobStatus::Canceled, ExecutionResult::Canceled)
            }
            End::Succeeded { result } => {
                ending.result = result.clone();
                job.last_error = None;
                (JobStatus::Succeeded, ExecutionResult::Succeeded)
            }
            End::Retry { .. } | End::HandBack { .. } | End::Park { .. } => return Ok(()),
        };
        self.record(owner, outcome, result);
        self.end(outcome.id, status, ending, led_to).await
    }

    /// Makes the job PENDING again.
    fn give_back(&mut self, owner: &Owner, outcome: &Outcome, led_to: &mut Recorded) {
        let now = self.now;
        let Some(job) = self.job_mut(outcome.id) else { return };
        let (delay, result) = match &outcome.end {
            End::Retry { delay, error } => {
                job.attempts = job.attempts.saturating_add(1);
                job.last_error = Some(error.message.as_str().to_owned());
                (*delay, Some(ExecutionResult::Failed))
            }
            End::HandBack { delay, reason: HandBackReason::Crashed } => {
                job.crash_count = job.crash_count.saturating_add(1);
                if let Some(error) = &outcome.crash {
                    job.last_error = Some(error.message.as_str().to_owned());
                }
                (*delay, Some(ExecutionResult::Crashed))
            }
            End::HandBack { delay, .. } => (*delay, outcome.run.map(|_| ExecutionResult::Snoozed)),
            End::Park { .. } => (Duration::ZERO, outcome.run.map(|_| ExecutionResult::Snoozed)),
            End::Succeeded { .. } | End::DeadLetter { .. } | End::Canceled { .. } => return,
        };
        if let Some(result) = result {
            self.record(owner, outcome, result);
        }
        self.free_permits(outcome.id);
        if let Some(job) = self.job_mut(outcome.id) {
            job.enter(JobStatus::Pending);
            if let Some(queue) = &mut job.queue {
                queue.parked_on = outcome.parked_on().map(ToString::to_string);
            }
            job.progress = None;
            job.scheduled_time = match outcome.end.keeps_due() {
                true => job.scheduled_time.min(date(now)),
                false => date(now + delay),
            };
            led_to.next_due = Some(instant(job.scheduled_time));
        }
    }

    /// Writes the history row that proves this outcome.
    fn record(&mut self, owner: &Owner, outcome: &Outcome, result: ExecutionResult) {
        let now = self.now;
        let times = ending(outcome.run, None, now);
        let error = outcome.error();
        let Some(job) = self.job_mut(outcome.id) else { return };
        job.history.push(ExecutionDoc {
            fence: outcome.fence.version(),
            owner: owner.to_string(),
            result,
            attempt: job.attempts,
            started_at: times.started_at.map(date),
            recorded_at: date(now),
            duration_ms: times.duration().map(millis),
            error_class: error.map(|error| error.class.as_str().to_owned()),
            error: error.map(|error| error.message.as_str().to_owned()),
        });
    }

    /// Whether the job is held by this owner under this fence.
    pub(super) fn is_held(&self, id: JobId, owner: &Owner, fence: i64) -> bool {
        self.job(id).is_some_and(|job| job.is_held_by(owner) && job.fence == fence)
    }
}

/// An ending at `now`, with the run counted back from it.
fn ending(run: Option<Run>, queue_wait: Option<Duration>, now: Timestamp) -> Ending {
    let mut ending = Ending::at(now);
    ending.queue_wait = queue_wait;
    if let Some(run) = run {
        let started = now - run.started_ago;
        ending.started_at = Some(started);
        ending.ended_at = Some((started + run.ran_for).min(now));
    }
    ending
}
