//! Pausing of jobs, queues and schedules.

use async_trait::async_trait;

use crate::{JobId, JobStatus, QueueName, StoreResult};

use super::Target;

/// The verdict on a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseVerdict {
    /// It is PAUSED now.
    Paused,
    /// It was PAUSED already.
    AlreadyPaused,
    /// It is neither PENDING nor FAILED. Nothing was done.
    NotPausable(JobStatus),
    /// It had FAILED, and its business key is held by a live job by now. Nothing was done.
    KeyTaken {
        /// The job that holds it.
        holder: JobId,
    },
    /// It has another fence by now. Nothing was done.
    Stale(JobStatus),
    /// There is no such job.
    Unknown,
}

/// The verdict on a resume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResumeVerdict {
    /// It has its former status again: PENDING or FAILED.
    Resumed(JobStatus),
    /// It is not PAUSED. Nothing was done.
    NotPaused(JobStatus),
    /// It has another fence by now. Nothing was done.
    Stale(JobStatus),
    /// There is no such job.
    Unknown,
}

/// Pause and resume.
#[async_trait]
pub trait JobPauseStore: Send + Sync + 'static {
    /// Pauses jobs; one verdict for each, in order.
    ///
    /// # Contract
    /// - `pause.origin`: a PENDING or FAILED job, or an active schedule, becomes PAUSED, remembers its status and is
    ///   not claimed or fired.
    /// - `pause.idempotent`: pausing a PAUSED job changes nothing and is no error; nothing else can be paused.
    /// - `pause.key`: a paused job holds its business key; a FAILED one reserves it again, or is not paused.
    /// - `pause.waits_on`: parents of a paused job still decide its edges: it may be released or canceled meanwhile.
    /// - `pause.stale`: with a fence that is not the present one, nothing is done.
    async fn pause(&self, jobs: &[Target]) -> StoreResult<Vec<PauseVerdict>>;

    /// Resumes paused jobs; one verdict for each, in order.
    ///
    /// # Contract
    /// - `resume.origin`: a job that was PENDING is PENDING again with its due time, one that was FAILED is FAILED
    ///   again with its error, attempts and end, and frees its key; nothing else can be resumed.
    /// - `resume.stale`: with a fence that is not the present one, nothing is done.
    async fn resume(&self, jobs: &[Target]) -> StoreResult<Vec<ResumeVerdict>>;

    /// Pauses or resumes a queue in the whole cluster; `false` if that changed nothing.
    ///
    /// # Contract
    /// - `queue_pause.cluster`: from the moment it is paused until it is resumed, no connection claims from the queue;
    ///   jobs still go in, and running ones go on.
    async fn set_queue_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<bool>;

    /// The queues that are paused, by name.
    ///
    /// # Contract
    /// - `queue_pause.listed`: exactly the paused ones, in order of their names.
    async fn paused_queues(&self) -> StoreResult<Vec<QueueName>>;
}
