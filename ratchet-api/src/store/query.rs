//! Queries of command lines and dashboards.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Batch, BatchId, BusinessKey, DlqAlert, Edge, Execution, Fingerprint, Job, JobId, JobPriority, JobStatus,
    JobType, LogLine, MethodName, ParkedOn, QueueName, StoreResult, Tag, TargetName, Timestamp,
};

/// A filter for lists of jobs. Empty fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobFilter {
    /// In any of these states.
    pub statuses: Vec<JobStatus>,
    /// Of any of these types.
    pub types: Vec<JobType>,
    /// In this queue.
    pub queue: Option<QueueName>,
    /// Of this target.
    pub target: Option<TargetName>,
    /// Of this method.
    pub method: Option<MethodName>,
    /// With all of these tags.
    pub tags: Vec<Tag>,
    /// With this business key.
    pub business_key: Option<BusinessKey>,
    /// Submitted by this principal.
    pub caller_principal: Option<String>,
    /// Stored at or after this.
    pub created_from: Option<Timestamp>,
    /// Stored before this.
    pub created_until: Option<Timestamp>,
    /// Ended at or after this.
    pub ended_from: Option<Timestamp>,
    /// Ended before this.
    pub ended_until: Option<Timestamp>,
    /// Failed for good with this fingerprint, and not retried since.
    pub fingerprint: Option<Fingerprint>,
}

/// A request for one page of a list: the rows that follow a known id in the list's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The last id of the page before.
    pub after: Option<JobId>,
    /// The maximum number of rows.
    pub limit: usize,
}

impl PageRequest {
    /// The first page.
    pub const fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page starts; `None` if this was the last.
    pub next: Option<JobId>,
    /// Rows that cannot be read.
    pub unreadable: Vec<JobId>,
}

/// Everything known about one job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JobStory {
    /// The job.
    pub job: Job,
    /// Its attempts, oldest first.
    pub executions: Vec<Execution>,
    /// The first lines of its log.
    pub logs: Vec<LogLine>,
    /// Edges from the jobs that it waits for.
    pub parents: Vec<Edge>,
    /// Edges to the jobs that wait for it.
    pub dependents: Vec<Edge>,
    /// Alerts about it.
    pub alerts: Vec<DlqAlert>,
}

impl JobStory {
    /// A job about which nothing else is known.
    pub const fn of(job: Job) -> Self {
        Self {
            job,
            executions: Vec::new(),
            logs: Vec::new(),
            parents: Vec::new(),
            dependents: Vec::new(),
            alerts: Vec::new(),
        }
    }
}

/// The state of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueHealth {
    /// Whether its claims are paused.
    pub paused: bool,
    /// Due, unblocked and not parked.
    pub ready: u64,
    /// Due and unblocked, but parked.
    pub parked: u64,
    /// Not due yet, and unblocked.
    pub scheduled: u64,
    /// Waiting for parents.
    pub blocked: u64,
    /// Running.
    pub running: u64,
    /// Paused.
    pub set_aside: u64,
    /// Dead letters.
    pub failed: u64,
    /// How long the oldest ready job has waited.
    pub oldest_wait: Option<Duration>,
    /// Ready jobs by priority, lowest first.
    pub ready_by_priority: [u64; JobPriority::ALL.len()],
}

/// Dead letters with one fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterGroup {
    /// Their common fingerprint.
    pub fingerprint: Fingerprint,
    /// How many there are.
    pub count: u64,
    /// The target of the newest.
    pub target: TargetName,
    /// The error of the newest.
    pub error: String,
    /// The newest job.
    pub newest: JobId,
    /// When the newest ended.
    pub last_at: Timestamp,
}

impl DeadLetterGroup {
    /// A group of one.
    pub const fn new(
        fingerprint: Fingerprint,
        target: TargetName,
        error: String,
        newest: JobId,
        last_at: Timestamp,
    ) -> Self {
        Self { fingerprint, count: 1, target, error, newest, last_at }
    }
}

/// Jobs of one queue that are parked on one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// The queue.
    pub queue: QueueName,
    /// The reason why they are parked.
    pub on: ParkedOn,
    /// How many there are.
    pub jobs: u64,
    /// When the first of them was due.
    pub oldest: Timestamp,
}

/// Queries for people.
#[async_trait]
pub trait JobQueryStore: Send + Sync + 'static {
    /// Lists jobs, newest id first.
    ///
    /// # Contract
    /// - `query.filter`: exactly the jobs that match every field, by value and never by pattern.
    /// - `query.pages`: page after page, every matching job that stays as it is appears exactly once.
    /// - `query.unreadable`: a row that cannot be read is listed as unreadable and hides no other.
    async fn query_jobs(&self, filter: &JobFilter, page: &PageRequest) -> StoreResult<JobPage>;

    /// Everything about one job; `None` if it does not exist.
    ///
    /// # Contract
    /// - `query.story`: the job with its attempts, logs, edges and alerts.
    async fn job_story(&self, job: JobId) -> StoreResult<Option<JobStory>>;

    /// Every queue that has jobs or is paused, by name.
    ///
    /// # Contract
    /// - `query.health`: counts are those of the jobs at one moment; blocked and parked jobs are never ready.
    /// - `query.health_corrupt`: a queue whose name no job could have been given is listed by
    ///   [`QueueName::readable`], and no row keeps others from being counted.
    async fn queue_health(&self) -> StoreResult<Vec<(QueueName, QueueHealth)>>;

    /// The reasons why pending jobs are parked, by queue and text.
    ///
    /// # Contract
    /// - `query.parkings`: every parked job that is PENDING and unblocked is counted once; a row that cannot be read
    ///   hides no other.
    async fn parkings(&self) -> StoreResult<Vec<Parking>>;

    /// Dead letters by fingerprint, most first, at most `limit` groups.
    ///
    /// # Contract
    /// - `query.dead_letters`: every FAILED job is counted in exactly one group.
    /// - `query.dead_letters_corrupt`: a target that no job could have been given is shown by [`TargetName::readable`],
    ///   and hides no other group.
    async fn dead_letters(&self, limit: usize) -> StoreResult<Vec<DeadLetterGroup>>;

    /// Recurring masters that have not ended, by key.
    ///
    /// # Contract
    /// - `query.recurring`: active and paused masters with their next fire.
    async fn recurring(&self) -> StoreResult<Vec<Job>>;

    /// Batches, newest first, older than `after`, at most `limit`.
    ///
    /// # Contract
    /// - `query.batches`: every batch once, page after page.
    async fn batches(&self, after: Option<BatchId>, limit: usize) -> StoreResult<Vec<Batch>>;
}
