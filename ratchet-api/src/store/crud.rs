//! Reading single jobs.

use async_trait::async_trait;

use crate::{BusinessKey, Edge, IdempotencyKey, Job, JobClaim, JobId, JobPayload, Owner, StoreResult};

/// The result of `load` for one claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded {
    /// The job, still held under this fence, and the edges that lead from it.
    Job(Box<Job>, Vec<Edge>),
    /// Still held, but its cancel was requested: do not start it.
    CancelRequested,
    /// The fence is lost: another owner has the job, or it has ended or is gone.
    Lost,
    /// The row cannot be read: it holds values that no version of this program writes. Other rows are not affected.
    Corrupt {
        /// The problem with it.
        problem: String,
        /// The failure callback of the job, if it can be read: it is submitted although the job cannot run.
        on_failure: Option<JobPayload>,
    },
}

/// Reads of single jobs. They are created by `insert`, changed by outcomes and controls, removed by `delete`.
#[async_trait]
pub trait JobCrudStore: Send + Sync + 'static {
    /// Reads in full the jobs that `owner` claimed, just before they run; one answer for each, in order. Fields that
    /// the claims hold already may be taken from them.
    ///
    /// # Contract
    /// - `load.fenced`: a job is given only to its present owner under the fence of its present claim; any other owner
    ///   or fence answers `Lost`.
    /// - `load.cancel`: a job whose cancel was requested answers `CancelRequested`.
    /// - `load.whole`: the job equals the one that `find` returns, whichever options it has.
    /// - `load.edges`: all edges that lead from the job come with it, by priority, then in the order they were stored.
    /// - `load.corrupt`: a row that cannot be read, or whose claim is marked `corrupt`, answers `Corrupt` for itself
    ///   alone, with its failure callback unless that cannot be read either; its stored text is not changed.
    async fn load(&self, owner: &Owner, claims: &[JobClaim]) -> StoreResult<Vec<Loaded>>;

    /// Reads jobs; `None` for each that does not exist, in order.
    ///
    /// # Contract
    /// - `find.present`: a committed change is seen by the next read on any connection.
    /// - `find.canceled_early`: a running job reports CANCELED from the moment its cancel was accepted.
    /// - `find.corrupt`: a row that cannot be read is an error of kind `Corrupt` that names it.
    async fn find(&self, jobs: &[JobId]) -> StoreResult<Vec<Option<Job>>>;

    /// The job that was submitted with this key, even if it was archived or deleted since.
    ///
    /// # Contract
    /// - `find_key.for_ever`: a used key answers the id of its first job for ever; keys compare by exact bytes.
    async fn find_by_idempotency_key(&self, key: &IdempotencyKey) -> StoreResult<Option<JobId>>;

    /// The live job or schedule that holds this business key.
    ///
    /// # Contract
    /// - `find_holder.live`: the holder while it is pending, running, paused or an active schedule; `None` once it has
    ///   ended.
    async fn find_active_by_business_key(&self, key: &BusinessKey) -> StoreResult<Option<JobId>>;
}
