//! Records that a store keeps beside the jobs: batches, schedules, history, logs, locks, permits, alerts, archive.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    BatchId, BusinessKey, Fence, Fingerprint, JobId, JobPayload, JobPriority, JobStatus, JobType, JsonText,
    LockName, Owner, QueueName, ResourceName, Sanitized, Tag, Timestamp,
};

/// A batch and its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// The batch, and with it its parent job.
    pub id: BatchId,
    /// Its progress.
    pub progress: BatchProgress,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When its last child ended; set once and never changed.
    pub completed_at: Option<Timestamp>,
}

impl Batch {
    /// A batch that has just been stored.
    pub const fn new(id: BatchId, progress: BatchProgress, created_at: Timestamp) -> Self {
        Self { id, progress, created_at, completed_at: None }
    }
}

/// The progress of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchProgress {
    /// Children so far.
    pub total: u64,
    /// Children that succeeded.
    pub completed: u64,
    /// Children that failed or were canceled.
    pub failed: u64,
    /// Whether no more children can be added.
    pub closed: bool,
}

impl BatchProgress {
    /// A batch of `total` children none of which has ended.
    pub const fn new(total: u64, closed: bool) -> Self {
        Self { total, completed: 0, failed: 0, closed }
    }

    /// Whether every child has ended and no more will come.
    pub const fn is_complete(&self) -> bool {
        self.closed && self.completed.saturating_add(self.failed) >= self.total
    }

    /// Share of children that succeeded, in percent; 100 for an empty batch.
    pub const fn percent_done(&self) -> u64 {
        match self.completed.saturating_mul(100).checked_div(self.total) {
            Some(percent) => percent,
            None => 100,
        }
    }

    /// Share of ended children that succeeded; 1 if none has ended.
    pub fn success_rate(&self) -> f64 {
        match self.completed.saturating_add(self.failed) {
            0 => 1.0,
            ended => self.completed as f64 / ended as f64,
        }
    }
}

/// The metrics of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchMetrics {
    /// Children so far.
    pub child_count: u64,
    /// Children that succeeded.
    pub success_count: u64,
    /// Children that failed or were canceled.
    pub failure_count: u64,
    /// Sum of the last run of each ended child.
    pub child_execution: Duration,
    /// From the batch's creation to its completion, once complete.
    pub total_duration: Option<Duration>,
}

impl BatchMetrics {
    /// The time that the batch took beyond its children's own time, once complete; zero if they ran side by side.
    pub fn overhead(&self) -> Option<Duration> {
        self.total_duration.map(|total| total.saturating_sub(self.child_execution))
    }
}

/// The schedule of a recurring master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recurrence {
    /// The cron expression.
    pub cron: String,
    /// The IANA time zone it is read in.
    pub zone: String,
    /// When it fires next; `None` if never again.
    pub next_fire: Option<Timestamp>,
}

impl Recurrence {
    /// A schedule that fires next at `next_fire`.
    pub fn new(cron: impl Into<String>, zone: impl Into<String>, next_fire: Option<Timestamp>) -> Self {
        Self { cron: cron.into(), zone: zone.into(), next_fire }
    }
}

/// The progress that a running body reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all, if known.
    pub total: Option<u64>,
    /// A short message.
    pub message: Option<String>,
}

/// One recorded attempt. Keyed by job and fence: its presence proves that an outcome was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Execution {
    /// The job.
    pub job: JobId,
    /// The fence under which it ran.
    pub fence: Fence,
    /// The node that ran it, or recovered it.
    pub owner: Owner,
    /// How it ended.
    pub result: ExecutionResult,
    /// Failures of the job up to and including this one.
    pub attempt: u32,
    /// When the body started; `None` if it did not.
    pub started_at: Option<Timestamp>,
    /// When the outcome was recorded.
    pub recorded_at: Timestamp,
    /// How long the body ran.
    pub duration: Option<Duration>,
    /// The error class.
    pub error_class: Option<String>,
    /// The sanitized error.
    pub error: Option<String>,
}

impl Execution {
    /// A record without run and error.
    pub const fn new(
        job: JobId,
        fence: Fence,
        owner: Owner,
        result: ExecutionResult,
        attempt: u32,
        recorded_at: Timestamp,
    ) -> Self {
        Self {
            job,
            fence,
            owner,
            result,
            attempt,
            started_at: None,
            recorded_at,
            duration: None,
            error_class: None,
            error: None,
        }
    }
}

/// How an attempt ended, in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ExecutionResult {
    /// The body returned.
    Succeeded,
    /// The body failed; tried again or not.
    Failed,
    /// The job was canceled.
    Canceled,
    /// The body asked to be called again later.
    Snoozed,
    /// The node died.
    Crashed,
}

impl ExecutionResult {
    /// Every result.
    pub const ALL: [Self; 5] = [Self::Succeeded, Self::Failed, Self::Canceled, Self::Snoozed, Self::Crashed];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Canceled => "CANCELED",
            Self::Snoozed => "SNOOZED",
            Self::Crashed => "CRASHED",
        }
    }
}

impl fmt::Display for ExecutionResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ExecutionResult {
    type Err = crate::UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|result| result.as_str() == text)
            .ok_or_else(|| crate::UnknownValue { what: "execution result", value: text.to_owned() })
    }
}

/// The level of a line of a job's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    /// Every step.
    Trace,
    /// For developers.
    Debug,
    /// For operators.
    Info,
    /// Worth attention.
    Warn,
    /// Something failed.
    Error,
}

impl LogLevel {
    /// Every level, quietest first.
    pub const ALL: [Self; 5] = [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error];

    /// The stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

impl std::str::FromStr for LogLevel {
    type Err = crate::UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or_else(|| crate::UnknownValue { what: "log level", value: text.to_owned() })
    }
}

/// A line to be added to a job's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLogLine {
    /// The job.
    pub job: JobId,
    /// The attempt that wrote it.
    pub fence: Fence,
    /// Its level.
    pub level: LogLevel,
    /// Its text.
    pub message: Sanitized,
}

/// A line of a job's log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// Its place in the job's log; later lines have higher numbers.
    pub seq: u64,
    /// The attempt that wrote it.
    pub fence: Fence,
    /// When it was stored.
    pub at: Timestamp,
    /// Its level.
    pub level: LogLevel,
    /// Its text.
    pub message: String,
}

impl LogLine {
    /// A stored line.
    pub const fn new(seq: u64, fence: Fence, at: Timestamp, level: LogLevel, message: String) -> Self {
        Self { seq, fence, at, level, message }
    }
}

/// A held lock, as needed to renew and to release it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockLease {
    /// The name of the lock.
    pub name: LockName,
    /// The holder.
    pub owner: Owner,
    /// The term of the holder: each change of holder raises it.
    pub term: i64,
}

/// How many jobs may use a resource at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceLimit {
    /// The resource.
    pub name: ResourceName,
    /// The most jobs at once.
    pub max_concurrent: u32,
    /// How long a job waits before it asks again.
    pub retry_delay: Duration,
}

impl ResourceLimit {
    /// A limit with the usual 5 s before asking again.
    pub const fn new(name: ResourceName, max_concurrent: u32) -> Self {
        Self { name, max_concurrent, retry_delay: Duration::from_secs(5) }
    }
}

/// A resource and the jobs that use it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceUse {
    /// The limit.
    pub limit: ResourceLimit,
    /// The jobs that hold a permit.
    pub holders: Vec<JobId>,
}

impl ResourceUse {
    /// A resource with its holders.
    pub const fn new(limit: ResourceLimit, holders: Vec<JobId>) -> Self {
        Self { limit, holders }
    }
}

/// A dead-letter alert to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDlqAlert {
    /// The job.
    pub job: JobId,
    /// The hash of the error: the same error of the same job is not recorded twice within the window.
    pub error_hash: String,
    /// The group of like errors: one alert for all jobs is sent within the window.
    pub fingerprint: Fingerprint,
    /// How long an alert suppresses those like it.
    pub window: Duration,
}

/// The result of recording an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alerted {
    /// A record was written: this job has not had this error within the window.
    pub recorded: bool,
    /// An alert should be sent: none with this fingerprint was sent within the window.
    pub notify: bool,
    /// Records with this fingerprint since an alert was last sent, this one included.
    pub count: u64,
}

/// A recorded alert.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DlqAlert {
    /// The job.
    pub job: JobId,
    /// The hash of the error.
    pub error_hash: String,
    /// The group of like errors.
    pub fingerprint: Fingerprint,
    /// When it was recorded.
    pub at: Timestamp,
}

impl DlqAlert {
    /// A stored alert.
    pub const fn new(job: JobId, error_hash: String, fingerprint: Fingerprint, at: Timestamp) -> Self {
        Self { job, error_hash, fingerprint, at }
    }
}

/// The archive record of a job, which remains after its retention.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ArchivedJob {
    /// Its id.
    pub id: JobId,
    /// How it ended.
    pub status: JobStatus,
    /// Its role.
    pub job_type: JobType,
    /// Its priority.
    pub priority: JobPriority,
    /// Its queue.
    pub queue: QueueName,
    /// Its call.
    pub payload: JobPayload,
    /// Its business key.
    pub business_key: Option<BusinessKey>,
    /// Its labels.
    pub tags: Vec<Tag>,
    /// Failures in all.
    pub attempts: u32,
    /// Its last error.
    pub last_error: Option<String>,
    /// Its return value.
    pub result: Option<JsonText>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it ended.
    pub terminated_at: Timestamp,
    /// When it was archived.
    pub archived_at: Timestamp,
}

impl ArchivedJob {
    /// The archive record of an ended job; `None` if it has not ended.
    pub fn of(job: crate::Job, now: Timestamp) -> Option<Self> {
        let ending = job.ending?;
        Some(Self {
            id: job.spec.id,
            status: job.status,
            job_type: job.spec.job_type,
            priority: job.spec.priority,
            queue: job.spec.queue,
            payload: job.spec.payload,
            business_key: job.spec.business_key,
            tags: job.spec.tags,
            attempts: job.attempts,
            last_error: job.last_error,
            result: ending.result,
            created_at: job.created_at,
            terminated_at: ending.terminated_at,
            archived_at: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_levels_round_trip_by_their_stored_names() {
        let names = ["SUCCEEDED", "FAILED", "CANCELED", "SNOOZED", "CRASHED"];
        assert_eq!(ExecutionResult::ALL.map(ExecutionResult::as_str), names);
        assert_eq!(names.map(str::parse), ExecutionResult::ALL.map(Ok));
        assert_eq!(ExecutionResult::Failed.to_string(), "FAILED");
        assert!("failed".parse::<ExecutionResult>().is_err());
        let names = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"];
        assert_eq!(LogLevel::ALL.map(LogLevel::as_str), names);
        assert_eq!(names.map(str::parse), LogLevel::ALL.map(Ok));
        assert!("info".parse::<LogLevel>().is_err());
    }

    fn progress(total: u64, completed: u64, failed: u64) -> BatchProgress {
        BatchProgress { total, completed, failed, closed: true }
    }

    #[test]
    fn a_batch_is_complete_once_it_is_closed_and_every_child_has_ended() {
        for (progress, complete) in [
            (progress(0, 0, 0), true),
            (progress(3, 2, 0), false),
            (progress(3, 2, 1), true),
            (BatchProgress { closed: false, ..progress(3, 2, 1) }, false),
        ] {
            assert_eq!(progress.is_complete(), complete, "{progress:?}");
        }
    }

    #[test]
    fn progress_is_told_as_shares() {
        for (progress, percent, rate) in [
            (progress(0, 0, 0), 100, 1.0),
            (progress(8, 0, 0), 0, 1.0),
            (progress(8, 3, 1), 37, 0.75),
            (progress(4, 0, 4), 0, 0.0),
        ] {
            assert_eq!((progress.percent_done(), progress.success_rate()), (percent, rate), "{progress:?}");
        }
    }

    #[test]
    fn overhead_is_what_a_complete_batch_took_beyond_its_children() {
        let seconds = Duration::from_secs;
        let overhead = |total_duration| {
            BatchMetrics { child_execution: seconds(4), total_duration, ..BatchMetrics::default() }.overhead()
        };
        assert_eq!(overhead(None), None);
        assert_eq!(overhead(Some(seconds(10))), Some(seconds(6)));
        assert_eq!(overhead(Some(seconds(1))), Some(Duration::ZERO));
    }
}
