//! Jobs: what is submitted, stored and claimed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Backoff, BatchId, BusinessKey, Fence, IdempotencyKey, InvalidName, JobId, JobStatus, JsonText,
    MethodName, Owner, ParkedOn, Progress, QueueName, Recurrence, ResourceName, Tag, TargetName, Timestamp,
    UnknownValue,
};

/// The priority of a job. Waiting raises the effective priority, so nothing starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobPriority {
    /// 0.
    Lowest,
    /// 1.
    Low,
    /// 2, the default.
    #[default]
    Normal,
    /// 3.
    High,
    /// 4: a submission wakes idle nodes even if the job is not due yet.
    Critical,
}

impl JobPriority {
    /// Every priority, lowest first.
    pub const ALL: [Self; 5] = [Self::Lowest, Self::Low, Self::Normal, Self::High, Self::Critical];

    /// The stored number.
    pub const fn ordinal(self) -> i16 {
        self as i16
    }

    /// Reads a stored number.
    pub fn from_ordinal(ordinal: i16) -> Result<Self, UnknownValue> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.ordinal() == ordinal)
            .ok_or_else(|| UnknownValue { what: "job priority", value: ordinal.to_string() })
    }

    /// The priority after waiting: one step up for each whole `boost_interval`; no interval, no boost.
    ///
    /// ```
    /// use ratchet_api::JobPriority;
    /// use std::time::Duration;
    ///
    /// let quarter = Duration::from_secs(15 * 60);
    /// assert_eq!(JobPriority::Lowest.boosted(Duration::from_secs(75 * 60), Some(quarter)), 5);
    /// assert_eq!(JobPriority::Critical.boosted(Duration::ZERO, Some(quarter)), 4);
    /// ```
    pub fn boosted(self, waited: Duration, boost_interval: Option<Duration>) -> i64 {
        let steps = match boost_interval.map(|interval| interval.as_millis()) {
            None | Some(0) => 0,
            Some(interval) => i64::try_from(waited.as_millis() / interval).unwrap_or(i64::MAX / 2),
        };
        i64::from(self.ordinal()) + steps
    }
}

/// The role of a job. It is informational: any job that is due and not blocked can be claimed, except schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobType {
    /// A job on its own.
    #[default]
    Single,
    /// A schedule: never claimed, makes a single job at each fire.
    Recurring,
    /// Runs when the children of its batch have ended.
    BatchParent,
    /// One item of a batch.
    BatchChild,
    /// Follows another job.
    ChainStep,
    /// Follows another job if a condition holds.
    WorkflowBranch,
    /// Follows several jobs.
    WorkflowJoin,
    /// Submitted by an outcome to report it.
    Callback,
}

impl JobType {
    /// Every type.
    pub const ALL: [Self; 8] = [
        Self::Single,
        Self::Recurring,
        Self::BatchParent,
        Self::BatchChild,
        Self::ChainStep,
        Self::WorkflowBranch,
        Self::WorkflowJoin,
        Self::Callback,
    ];

    /// The stored name, at most 16 bytes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Single => "SINGLE",
            Self::Recurring => "RECURRING",
            Self::BatchParent => "BATCH_PARENT",
            Self::BatchChild => "BATCH_CHILD",
            Self::ChainStep => "CHAIN_STEP",
            Self::WorkflowBranch => "WORKFLOW_BRANCH",
            Self::WorkflowJoin => "WORKFLOW_JOIN",
            Self::Callback => "CALLBACK",
        }
    }
}

impl fmt::Display for JobType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for JobType {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|job_type| job_type.as_str() == text)
            .ok_or_else(|| UnknownValue { what: "job type", value: text.to_owned() })
    }
}

/// The call of a job: a registered target, one of its methods, and the arguments as JSON.
///
/// Stored as one JSON text; target and method are kept beside it so that jobs can be found by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPayload {
    target: TargetName,
    method: MethodName,
    text: JsonText,
}

/// Formats a method as `target.method`, as people write it and as nodes list the methods that they can run.
pub fn call_name(target: &TargetName, method: &MethodName) -> String {
    format!("{target}.{method}")
}

impl JobPayload {
    /// A call of `method` on `target`; `args` is a JSON array and goes into the text as it is.
    ///
    /// ```
    /// use ratchet_api::{JobPayload, JsonText};
    ///
    /// let call = JobPayload::new("billing.PaymentService", "process", &JsonText::parse("[42]").unwrap())?;
    /// assert_eq!(call.text().as_str(), r#"{"target":"billing.PaymentService","method":"process","args":[42]}"#);
    /// # Ok::<(), ratchet_api::InvalidName>(())
    /// ```
    pub fn new(target: &str, method: &str, args: &JsonText) -> Result<Self, InvalidName> {
        let (target, method) = (TargetName::new(target)?, MethodName::new(method)?);
        let quoted = |name: &str| serde_json::Value::from(name).to_string();
        let text = format!(
            r#"{{"target":{},"method":{},"args":{args}}}"#,
            quoted(target.as_str()),
            quoted(method.as_str())
        );
        Ok(Self { target, method, text: JsonText::from_stored(text) })
    }

    /// Reassembles a payload from its stored parts.
    pub fn from_stored(target: TargetName, method: MethodName, text: JsonText) -> Self {
        Self { target, method, text }
    }

    /// The target's stable name.
    pub fn target(&self) -> &TargetName {
        &self.target
    }

    /// The method's name.
    pub fn method(&self) -> &MethodName {
        &self.method
    }

    /// The called method as `target.method`, as people write it.
    ///
    /// ```
    /// use ratchet_api::{JobPayload, JsonText};
    ///
    /// let call = JobPayload::new("billing.PaymentService", "process", &JsonText::parse("[42]").unwrap())?;
    /// assert_eq!(call.call_name(), "billing.PaymentService.process");
    /// # Ok::<(), ratchet_api::InvalidName>(())
    /// ```
    pub fn call_name(&self) -> String {
        call_name(&self.target, &self.method)
    }

    /// The whole text that is stored.
    pub fn text(&self) -> &JsonText {
        &self.text
    }
}

/// The specification of a job. Does not change once the job is stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobSpec {
    /// Its id, made by the submitter, so that a repeated insert is recognised.
    pub id: JobId,
    /// Its role.
    pub job_type: JobType,
    /// The queue it waits in.
    pub queue: QueueName,
    /// Its priority.
    pub priority: JobPriority,
    /// The call.
    pub payload: JobPayload,
    /// A JSON object that the body reads through its context.
    pub params: Option<JsonText>,
    /// How many failures are followed by another attempt.
    pub max_retries: u32,
    /// How long to wait before the next attempt.
    pub backoff: Backoff,
    /// How long one attempt may take; `None` for the node's
    /// [`default_timeout`](crate::options::TimeoutOptions::default_timeout).
    pub timeout: Option<Duration>,
    /// The job is not started after this.
    pub expires_at: Option<Timestamp>,
    /// The key under which it is submitted only once, for ever.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The key that only one live job holds at a time.
    pub business_key: Option<BusinessKey>,
    /// The resource of which it needs a permit to run.
    pub resource: Option<ResourceName>,
    /// Labels to find it by.
    pub tags: Vec<Tag>,
    /// The principal that submitted it.
    pub caller_principal: Option<String>,
    /// The W3C trace context of the submitter.
    pub trace_context: Option<String>,
    /// Called once it has succeeded.
    pub on_success: Option<JobPayload>,
    /// Called once it has failed for good.
    pub on_failure: Option<JobPayload>,
    /// The batch whose child it is.
    pub batch: Option<BatchId>,
}

impl JobSpec {
    /// A job with a new id and every option at its default.
    pub fn new(payload: JobPayload) -> Self {
        Self::with_id(JobId::generate(), payload)
    }

    /// A job with this id and every option at its default: for stores, which read jobs that have one.
    pub fn with_id(id: JobId, payload: JobPayload) -> Self {
        Self {
            id,
            job_type: JobType::default(),
            queue: QueueName::default(),
            priority: JobPriority::default(),
            payload,
            params: None,
            max_retries: 0,
            backoff: Backoff::None,
            timeout: None,
            expires_at: None,
            idempotency_key: None,
            business_key: None,
            resource: None,
            tags: Vec::new(),
            caller_principal: None,
            trace_context: None,
            on_success: None,
            on_failure: None,
            batch: None,
        }
    }
}

/// When a job becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This long after the store's present.
    After(Duration),
    /// At this instant; one in the past means now, and the job counts as waiting since then.
    At(Timestamp),
}

impl Due {
    /// As soon as it is stored.
    pub const NOW: Self = Self::After(Duration::ZERO);

    /// The instant, given the store's present.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::After(delay) => now + delay,
            Self::At(instant) => instant,
        }
    }
}

/// How many of its parents a waiting job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Needs {
    /// All of them.
    #[default]
    All,
    /// This many. Any one is `AtLeast(1)`.
    AtLeast(u32),
}

impl Needs {
    /// The number needed out of `parents`; more than there are can never be met and is refused at insert.
    pub const fn of(self, parents: u32) -> u32 {
        match self {
            Self::All => parents,
            Self::AtLeast(needed) => needed,
        }
    }
}

/// A job to be stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewJob {
    /// The specification.
    pub spec: JobSpec,
    /// When it becomes due.
    pub due: Due,
    /// How many of the edges that lead to it must be satisfied.
    pub needs: Needs,
}

impl NewJob {
    /// A job that is due at once and waits for all of its parents, if it gets any.
    pub fn new(payload: JobPayload) -> Self {
        JobSpec::new(payload).into()
    }
}

impl From<JobSpec> for NewJob {
    fn from(spec: JobSpec) -> Self {
        Self { spec, due: Due::NOW, needs: Needs::All }
    }
}

/// A stored job, as one read saw it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Job {
    /// The specification.
    pub spec: JobSpec,
    /// Its status. CANCELED from the moment a cancel of the running job was accepted.
    pub status: JobStatus,
    /// The version of the row that was read.
    pub fence: Fence,
    /// When it was stored, by the store's clock.
    pub created_at: Timestamp,
    /// When it is, or was last, due.
    pub scheduled_time: Timestamp,
    /// Failures so far; a manual retry starts again at 0.
    pub attempts: u32,
    /// Nodes that died while they ran it.
    pub crash_count: u32,
    /// The owner that runs it.
    pub picked_by: Option<Owner>,
    /// When that owner claimed it.
    pub picked_at: Option<Timestamp>,
    /// The reason why claims skip it, if it is parked.
    pub parked_on: Option<ParkedOn>,
    /// The status that a paused job resumes with: PENDING or FAILED.
    pub paused_from: Option<JobStatus>,
    /// The newest error, already sanitized.
    pub last_error: Option<String>,
    /// Why it was canceled, if it was.
    pub cancel_reason: Option<String>,
    /// Parents that must still be satisfied.
    pub blocked_by: u32,
    /// Parents that are not decided yet.
    pub open_parents: u32,
    /// The number of edges from this job that were ever stored, including those that were removed with their child.
    pub edge_count: u32,
    /// The parent of its first edge.
    pub depends_on: Option<JobId>,
    /// The job that replaced it.
    pub superseded_by: Option<JobId>,
    /// The progress that its body reported.
    pub progress: Option<Progress>,
    /// How it ended, once it has.
    pub ending: Option<Ending>,
    /// Its schedule, if it is a recurring master.
    pub recurrence: Option<Recurrence>,
}

impl Job {
    /// A freshly stored job.
    pub fn pending(new: NewJob, parents: u32, now: Timestamp) -> Self {
        Self {
            scheduled_time: new.due.resolve(now),
            blocked_by: new.needs.of(parents),
            open_parents: parents,
            spec: new.spec,
            status: JobStatus::Pending,
            fence: Fence::FIRST,
            created_at: now,
            attempts: 0,
            crash_count: 0,
            picked_by: None,
            picked_at: None,
            parked_on: None,
            paused_from: None,
            last_error: None,
            cancel_reason: None,
            edge_count: 0,
            depends_on: None,
            superseded_by: None,
            progress: None,
            ending: None,
            recurrence: None,
        }
    }
}

/// The times and the result of an ended job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ending {
    /// When the outcome was recorded.
    pub terminated_at: Timestamp,
    /// When the last body started; `None` if none ever did.
    pub started_at: Option<Timestamp>,
    /// When the last body ended.
    pub ended_at: Option<Timestamp>,
    /// The time from due to claimed.
    pub queue_wait: Option<Duration>,
    /// The return value of the body.
    pub result: Option<JsonText>,
}

impl Ending {
    /// An ending without a run.
    pub fn at(terminated_at: Timestamp) -> Self {
        Self { terminated_at, started_at: None, ended_at: None, queue_wait: None, result: None }
    }

    /// How long the last body ran.
    pub fn duration(&self) -> Option<Duration> {
        Some(self.ended_at?.since(self.started_at?))
    }
}

/// A claimed job with few fields, read from its hot row alone.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobClaim {
    /// The job.
    pub id: JobId,
    /// The fence that its owner must present with every write.
    pub fence: Fence,
    /// The queue it came from.
    pub queue: QueueName,
    /// Its role.
    pub job_type: JobType,
    /// Its priority.
    pub priority: JobPriority,
    /// When it was due.
    pub scheduled_time: Timestamp,
    /// When it was claimed.
    pub picked_at: Timestamp,
    /// Failures so far.
    pub attempts: u32,
    /// Nodes that died while they held it, so far.
    pub crash_count: u32,
    /// How many failures are followed by another attempt.
    pub max_retries: u32,
    /// How long the attempt may take.
    pub timeout: Option<Duration>,
    /// Its business key.
    pub business_key: Option<BusinessKey>,
    /// The number of edges from it that were ever stored, including those that were removed with their child.
    pub edge_count: u32,
    /// Whether its cancel was requested since it was claimed.
    pub cancel_requested: bool,
    /// Whether it is past its `expires_at` and must not be started: commit [`End::Canceled`](crate::End::Canceled).
    pub expired: bool,
    /// The problem with a row that cannot be read; the other fields hold what could be read. Commit
    /// [`End::DeadLetter`](crate::End::DeadLetter) with the class `CorruptRow`.
    pub corrupt: Option<String>,
}

impl JobClaim {
    /// A claim of a job without options; the other fields follow from its row.
    pub fn new(
        id: JobId,
        fence: Fence,
        queue: QueueName,
        scheduled_time: Timestamp,
        picked_at: Timestamp,
    ) -> Self {
        Self {
            id,
            fence,
            queue,
            job_type: JobType::default(),
            priority: JobPriority::default(),
            scheduled_time,
            picked_at,
            attempts: 0,
            crash_count: 0,
            max_retries: 0,
            timeout: None,
            business_key: None,
            edge_count: 0,
            cancel_requested: false,
            expired: false,
            corrupt: None,
        }
    }

    /// The claim that a running job's row describes.
    pub fn of(job: &Job, now: Timestamp) -> Self {
        Self {
            id: job.spec.id,
            fence: job.fence,
            queue: job.spec.queue.clone(),
            job_type: job.spec.job_type,
            priority: job.spec.priority,
            scheduled_time: job.scheduled_time,
            picked_at: job.picked_at.unwrap_or(now),
            attempts: job.attempts,
            crash_count: job.crash_count,
            max_retries: job.spec.max_retries,
            timeout: job.spec.timeout,
            business_key: job.spec.business_key.clone(),
            edge_count: job.edge_count,
            cancel_requested: job.status == JobStatus::Canceled,
            expired: job.spec.expires_at.is_some_and(|at| at <= now),
            corrupt: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: S47
    #[test]
    fn priorities_are_stored_as_0_to_4() {
        assert_eq!(JobPriority::ALL.map(JobPriority::ordinal), [0, 1, 2, 3, 4]);
        for priority in JobPriority::ALL {
            assert_eq!(JobPriority::from_ordinal(priority.ordinal()), Ok(priority));
        }
        assert!(JobPriority::from_ordinal(5).is_err());
        assert!(JobPriority::from_ordinal(-1).is_err());
    }

    // shows: S41 S42
    #[test]
    fn waiting_raises_the_priority_by_whole_intervals() {
        let interval = Some(Duration::from_secs(900));
        for (priority, waited, effective) in [
            (JobPriority::Normal, 899, 2),
            (JobPriority::Normal, 900, 3),
            (JobPriority::Lowest, 4 * 900, 4),
            (JobPriority::Lowest, 5 * 900, 5),
        ] {
            assert_eq!(priority.boosted(Duration::from_secs(waited), interval), effective, "{waited} s");
        }
        assert_eq!(JobPriority::Low.boosted(Duration::from_secs(1_000_000), None), 1);
        assert_eq!(JobPriority::Low.boosted(Duration::MAX, Some(Duration::from_millis(1))), 1 + i64::MAX / 2);
    }

    #[test]
    fn type_names_round_trip_and_fit_their_column() {
        for job_type in JobType::ALL {
            assert_eq!(job_type.as_str().parse(), Ok(job_type));
            assert!(job_type.as_str().len() <= 16);
            assert_eq!(job_type.to_string(), job_type.as_str());
        }
        assert!("DLQ_ALERT".parse::<JobType>().is_err());
    }

    #[test]
    fn a_due_time_counts_from_the_stores_present() {
        let (now, named) = (Timestamp::from_millis(5_000), Timestamp::from_millis(3_000));
        assert_eq!(Due::NOW.resolve(now), now);
        assert_eq!(Due::After(Duration::from_secs(2)).resolve(now), Timestamp::from_millis(7_000));
        assert_eq!(Due::At(named).resolve(now), named);
    }

    #[test]
    fn a_join_needs_all_of_its_parents_unless_it_says_how_many() {
        assert_eq!((Needs::All.of(3), Needs::AtLeast(2).of(3)), (3, 2));
    }

    #[test]
    fn only_a_body_that_started_and_ended_has_run_for_some_time() {
        let at = Timestamp::from_millis;
        let mut ending = Ending::at(at(9_000));
        assert_eq!((ending.terminated_at, ending.duration()), (at(9_000), None));
        (ending.started_at, ending.ended_at) = (Some(at(2_000)), Some(at(8_000)));
        assert_eq!(ending.duration(), Some(Duration::from_secs(6)));
    }
}
