//! Outcomes with all their consequences.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{CancelVerdict, JobTerminalStore, Target};
use ratchet_api::{
    EdgeState, Effect, End, Ending, Execution, ExecutionResult, Fingerprint, HandBackReason, JobId,
    JobStatus, Limits, Outcome, Owner, Recorded, Run, Sanitized, StoreResult, Timestamp, Verdict,
};

use crate::MemoryStore;
use crate::state::State;

#[async_trait]
impl JobTerminalStore for MemoryStore {
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        Ok(self.transaction(|state, now| {
            outcomes.iter().map(|outcome| state.commit(owner, outcome, &Limits::MAX, now)).collect()
        }))
    }

    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        Ok(self
            .transaction(|state, now| jobs.iter().map(|target| state.cancel(*target, reason, now)).collect()))
    }
}

impl State {
    fn commit(&mut self, owner: &Owner, outcome: &Outcome, limits: &Limits, now: Timestamp) -> Verdict {
        let id = outcome.id;
        let held = |row: &&crate::state::Row| row.is_held_by(owner) && row.job.fence == outcome.fence;
        let Some(row) = self.jobs.get(&id).filter(held) else {
            let recorded = self.executions.get(&(id, outcome.fence)).is_some_and(|row| row.owner == *owner);
            return if recorded { Verdict::AlreadyRecorded } else { Verdict::LeaseLost };
        };
        if row.cancel_requested {
            self.record(owner, outcome, ExecutionResult::Canceled, now);
            self.end(
                id,
                JobStatus::Canceled,
                ending(outcome.run, row_wait(self, id), now),
                now,
                &mut Recorded::default(),
            );
            return Verdict::CanceledInstead;
        }
        let decides = matches!(outcome.end, End::Succeeded { .. } | End::DeadLetter { .. });
        if decides && row.job.edge_count > outcome.edges_seen {
            let edge_count = row.job.edge_count;
            return Verdict::EdgesChanged { edges: self.edges_from(id), edge_count };
        }
        let mut led_to = Recorded::default();
        match &outcome.end {
            End::Succeeded { .. } | End::DeadLetter { .. } | End::Canceled { .. } => {
                self.apply_edge_effects(outcome, now, &mut led_to);
                self.finish(owner, outcome, now, &mut led_to);
            }
            End::Retry { .. } | End::HandBack { .. } | End::Park { .. } => {
                self.give_back(owner, outcome, now, &mut led_to);
            }
        }
        for effect in &outcome.effects {
            if let Effect::Submit(submission) = effect {
                led_to.submitted.push(self.insert(submission, limits, now));
            }
        }
        Verdict::Recorded(led_to)
    }

    fn apply_edge_effects(&mut self, outcome: &Outcome, now: Timestamp, led_to: &mut Recorded) {
        let mut hopeless = Vec::new();
        for effect in &outcome.effects {
            let (child, decided) = match effect {
                Effect::Satisfy(child) => (*child, EdgeState::Satisfied),
                Effect::Refuse(child) => (*child, EdgeState::Refused),
                Effect::Submit(_) => continue,
            };
            hopeless.extend(self.decide(outcome.id, child, decided, now, led_to));
        }
        self.cancel_hopeless(hopeless, now, led_to);
    }

    /// Ends the job.
    fn finish(&mut self, owner: &Owner, outcome: &Outcome, now: Timestamp, led_to: &mut Recorded) {
        let mut ending = ending(outcome.run, row_wait(self, outcome.id), now);
        let Some(row) = self.jobs.get_mut(&outcome.id) else { return };
        let (status, result) = match &outcome.end {
            End::DeadLetter { error, reason } => {
                row.job.attempts += u32::from(reason.consumes_attempt());
                row.job.crash_count += u32::from(outcome.is_crash());
                row.job.last_error = Some(error.message.as_str().to_owned());
                row.fingerprint = Some(error.fingerprint.clone());
                (JobStatus::Failed, ExecutionResult::Failed)
            }
            End::Canceled { reason } => {
                row.job.cancel_reason = Some(reason.as_str().to_owned());
                (JobStatus::Canceled, ExecutionResult::Canceled)
            }
            End::Succeeded { result } => {
                ending.result = result.clone();
                row.job.last_error = None;
                (JobStatus::Succeeded, ExecutionResult::Succeeded)
            }
            End::Retry { .. } | End::HandBack { .. } | End::Park { .. } => return,
        };
        self.record(owner, outcome, result, now);
        self.end(outcome.id, status, ending, now, led_to);
    }

    /// Ends a job as FAILED that nobody can run, because its row is damaged.
    pub(crate) fn end_corrupt(&mut self, id: JobId, now: Timestamp) {
        let Some(row) = self.jobs.get_mut(&id) else { return };
        let error = "CorruptRow: the row cannot be read";
        row.job.last_error = Some(error.to_owned());
        row.fingerprint = Some(Fingerprint::of("", "CorruptRow", error));
        self.end(id, JobStatus::Failed, Ending::at(now), now, &mut Recorded::default());
    }

    /// Puts the job back to wait.
    fn give_back(&mut self, owner: &Owner, outcome: &Outcome, now: Timestamp, led_to: &mut Recorded) {
        let Some(row) = self.jobs.get_mut(&outcome.id) else { return };
        let (delay, result) = match &outcome.end {
            End::Retry { delay, error } => {
                row.job.attempts += 1;
                row.job.last_error = Some(error.message.as_str().to_owned());
                (*delay, Some(ExecutionResult::Failed))
            }
            End::HandBack { delay, reason: HandBackReason::Crashed } => {
                row.job.crash_count += 1;
                if let Some(error) = &outcome.crash {
                    row.job.last_error = Some(error.message.as_str().to_owned());
                }
                (*delay, Some(ExecutionResult::Crashed))
            }
            End::HandBack { delay, .. } => (*delay, outcome.run.map(|_| ExecutionResult::Snoozed)),
            End::Park { .. } => (Duration::ZERO, outcome.run.map(|_| ExecutionResult::Snoozed)),
            End::Succeeded { .. } | End::DeadLetter { .. } | End::Canceled { .. } => return,
        };
        if let Some(result) = result {
            self.record(owner, outcome, result, now);
        }
        self.free_permits(outcome.id);
        if let Some(row) = self.jobs.get_mut(&outcome.id) {
            row.enter(JobStatus::Pending);
            row.job.parked_on = outcome.parked_on().cloned();
            row.job.progress = None;
            row.job.scheduled_time = match outcome.end.keeps_due() {
                true => row.job.scheduled_time.min(now),
                false => now + delay,
            };
            led_to.next_due = Some(row.job.scheduled_time);
        }
    }

    /// Writes the history row that proves this outcome.
    fn record(&mut self, owner: &Owner, outcome: &Outcome, result: ExecutionResult, now: Timestamp) {
        let attempt = self.jobs.get(&outcome.id).map_or(0, |row| row.job.attempts);
        let mut row = Execution::new(outcome.id, outcome.fence, owner.clone(), result, attempt, now);
        let times = ending(outcome.run, None, now);
        row.duration = times.duration();
        row.started_at = times.started_at;
        if let Some(error) = outcome.error() {
            row.error_class = Some(error.class.as_str().to_owned());
            row.error = Some(error.message.as_str().to_owned());
        }
        self.executions.insert((outcome.id, outcome.fence), row);
    }
}

/// The time from due to claimed.
fn row_wait(state: &State, id: JobId) -> Option<Duration> {
    let job = &state.jobs.get(&id)?.job;
    Some(job.picked_at?.since(job.scheduled_time))
}

/// An end at `now`, with the run counted back from it.
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
