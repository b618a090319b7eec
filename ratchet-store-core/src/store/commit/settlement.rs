//! Outcomes as columns, for the statement that records them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use ratchet_api::{
    End, ErrorRecord, ExecutionResult, Fence, JobId, JobStatus, Outcome, Owner, StoreResult, Timestamp,
    whole_millis,
};

use crate::store::lock_rows::ids_of;
use crate::store::row::{Cells, read_all};
use crate::store::session::Session;
use crate::store::values::delay_millis;

/// The longest run that is recorded, also for a body that started longer ago: counted back further, PostgreSQL's
/// calendar ends.
const LONGEST_RUN: i64 = 100 * 365 * 24 * 3_600_000;

/// The arrays that `commit/settle.sql` takes.
#[derive(Default)]
pub(crate) struct Settlement<'a> {
    ids: Vec<JobId>,
    fences: Vec<i64>,
    ends: Vec<Option<&'static str>>,
    /// `None` for a job that keeps its due time.
    delays: Vec<Option<i64>>,
    failures: Vec<i64>,
    crashes: Vec<i64>,
    history: Vec<Option<&'static str>>,
    started_ago: Vec<Option<i64>>,
    ran_for: Vec<Option<i64>>,
    results: Vec<Option<&'a str>>,
    errors: Vec<Option<&'a str>>,
    error_classes: Vec<Option<&'a str>>,
    fingerprints: Vec<Option<&'a str>>,
    /// The reason of a cancel, or the `ParkedOn` of a job that parks.
    reasons: Vec<Option<Cow<'a, str>>>,
}

/// The status in which an outcome ends its job; `None` if the job waits again.
pub(crate) fn ended_as(end: &End) -> Option<JobStatus> {
    match end {
        End::Succeeded { .. } => Some(JobStatus::Succeeded),
        End::DeadLetter { .. } => Some(JobStatus::Failed),
        End::Canceled { .. } => Some(JobStatus::Canceled),
        End::Retry { .. } | End::HandBack { .. } | End::Park { .. } => None,
    }
}

/// How long the body ran, in whole milliseconds, at most as long as since it started.
pub(crate) fn ran_millis(outcome: &Outcome) -> i64 {
    outcome.run.map_or(0, |run| run_millis(run.ran_for).min(run_millis(run.started_ago)))
}

pub(super) fn run_millis(duration: Duration) -> i64 {
    whole_millis(duration).min(LONGEST_RUN)
}

impl<'a> Settlement<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds an outcome to be recorded as it is.
    pub(crate) fn push(&mut self, outcome: &'a Outcome) {
        let mut line = Line {
            ended_as: ended_as(&outcome.end),
            crashes: outcome.is_crash().into(),
            error: outcome.error(),
            reason: outcome.parked_on().map(|on| on.to_string().into()),
            ..Line::default()
        };
        match &outcome.end {
            End::Succeeded { result } => {
                line.history = Some(ExecutionResult::Succeeded);
                line.result = result.as_ref().map(|result| result.as_str());
            }
            End::Retry { delay, .. } => {
                line.delay = *delay;
                line.failures = 1;
                line.history = Some(ExecutionResult::Failed);
            }
            End::DeadLetter { reason, .. } => {
                line.failures = reason.consumes_attempt().into();
                line.history = Some(ExecutionResult::Failed);
            }
            End::HandBack { delay, .. } => {
                line.delay = *delay;
                line.history = match outcome.is_crash() {
                    true => Some(ExecutionResult::Crashed),
                    false => outcome.run.map(|_| ExecutionResult::Snoozed),
                };
            }
            End::Park { .. } => line.history = outcome.run.map(|_| ExecutionResult::Snoozed),
            End::Canceled { reason } => {
                line.history = Some(ExecutionResult::Canceled);
                line.reason = Some(reason.as_str().into());
            }
        }
        self.add(outcome, line);
    }

    /// Adds an outcome to be recorded as CANCELED: a cancel was requested while the body ran.
    pub(crate) fn push_canceled(&mut self, outcome: &'a Outcome) {
        let (ended_as, history) = (Some(JobStatus::Canceled), Some(ExecutionResult::Canceled));
        self.add(outcome, Line { ended_as, history, ..Line::default() });
    }

    fn add(&mut self, outcome: &'a Outcome, line: Line<'a>) {
        self.ids.push(outcome.id);
        self.fences.push(outcome.fence.version());
        self.ends.push(line.ended_as.map(JobStatus::as_str));
        self.delays.push((!outcome.end.keeps_due()).then(|| delay_millis(line.delay)));
        self.failures.push(line.failures);
        self.crashes.push(line.crashes);
        self.history.push(line.history.map(ExecutionResult::as_str));
        self.started_ago.push(outcome.run.map(|run| run_millis(run.started_ago)));
        self.ran_for.push(outcome.run.map(|run| run_millis(run.ran_for)));
        self.results.push(line.result);
        self.errors.push(line.error.map(|error| error.message.as_str()));
        self.error_classes.push(line.error.map(|error| error.class.as_str()));
        self.fingerprints.push(line.error.map(|error| error.fingerprint.as_str()));
        self.reasons.push(line.reason);
    }

    /// Runs the statement; returns for each recorded outcome when its job is due again, if it is.
    pub(crate) async fn record(
        &self,
        session: &mut Session<'_>,
        owner: &Owner,
        now: Option<Timestamp>,
        everything: bool,
    ) -> StoreResult<HashMap<JobId, Option<Timestamp>>> {
        let settle = session.sql().settle.bind();
        let rows = settle
            .arg("now", now.or_else(|| session.store().now()))
            .arg("job_ids", &self.ids)
            .arg("fences", &self.fences)
            .arg("ends", &self.ends)
            .arg("delays", &self.delays)
            .arg("failures", &self.failures)
            .arg("crashes", &self.crashes)
            .arg("history", &self.history)
            .arg("started_ago", &self.started_ago)
            .arg("ran_for", &self.ran_for)
            .arg("results", &self.results)
            .arg("errors", &self.errors)
            .arg("error_classes", &self.error_classes)
            .arg("fingerprints", &self.fingerprints)
            .arg("reasons", self.reasons.iter().map(Option::as_deref).collect::<Vec<_>>())
            .arg("owner", owner.as_str())
            .arg("everything", everything)
            .rows(session)
            .await?;
        let read = |cells: Cells<'_>| Ok((cells.get("job_id")?, cells.opt("next_due")?));
        Ok(read_all(session.op(), &rows, read)?.into_iter().collect())
    }
}

/// The column values of one outcome.
#[derive(Default)]
struct Line<'a> {
    ended_as: Option<JobStatus>,
    delay: Duration,
    failures: i64,
    crashes: i64,
    history: Option<ExecutionResult>,
    result: Option<&'a str>,
    error: Option<&'a ErrorRecord>,
    reason: Option<Cow<'a, str>>,
}

/// The outcomes among these that this owner recorded before.
pub(crate) async fn recorded_before(
    session: &mut Session<'_>,
    owner: &Owner,
    outcomes: &[(JobId, Fence)],
) -> StoreResult<Vec<(JobId, Fence)>> {
    if outcomes.is_empty() {
        return Ok(Vec::new());
    }
    let recorded = session.sql().recorded.bind();
    let rows = recorded
        .arg("job_ids", ids_of(outcomes.iter().map(|(id, _)| id)))
        .arg("fences", outcomes.iter().map(|(_, fence)| fence.version()).collect::<Vec<_>>())
        .arg("owner", owner.as_str())
        .rows(session)
        .await?;
    read_all(session.op(), &rows, |cells| Ok((cells.get("job_id")?, cells.get("fence")?)))
}
