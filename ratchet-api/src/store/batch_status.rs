//! Pick-up of jobs, their progress, and the cancellation of schedules.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    BusinessKey, Fence, JobClaim, JobId, Owner, ParkedOn, Progress, QueueName, Sanitized, StoreResult, Tag,
};

/// A running job's report of its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressReport {
    /// The job.
    pub id: JobId,
    /// The fence of its claim.
    pub fence: Fence,
    /// Units done.
    pub done: u64,
    /// Units in all, if known.
    pub total: Option<u64>,
    /// A message about it.
    pub message: Option<Sanitized>,
}

impl ProgressReport {
    /// The progress that is stored.
    pub fn progress(&self) -> Progress {
        let message = self.message.as_ref().map(|message| message.as_str().to_owned());
        Progress { done: self.done, total: self.total, message }
    }
}

/// Non-terminal status changes, progress, and the cancellation of schedules.
#[async_trait]
pub trait JobBatchStatusStore: Send + Sync + 'static {
    /// Takes jobs of a queue that are parked on `on`, so that their new owner ends them, or runs them if they are
    /// suspects.
    ///
    /// # Contract
    /// - `pick_up.parked`: exactly jobs of this queue that are PENDING, due, unblocked and parked on `on`, at most
    ///   `limit` and lowest id first, and none of a paused queue; an owner without a running lease gets nothing.
    async fn pick_up_parked(
        &self,
        owner: &Owner,
        queue: &QueueName,
        on: &ParkedOn,
        limit: usize,
    ) -> StoreResult<Vec<JobClaim>>;

    /// Takes the named jobs if they are PENDING, due and unblocked; for tests, tools and single pick-ups.
    ///
    /// # Contract
    /// - `pick_up.same_rules`: the rules of `claim` hold, for the named jobs only, even if their queue is paused or
    ///   they are parked.
    async fn pick_up(&self, owner: &Owner, jobs: &[JobId]) -> StoreResult<Vec<JobClaim>>;

    /// Takes up to `limit` live jobs whose rows no claim and no recovery will ever find, so that their owner records
    /// their end. May read every live job: for maintenance, not for each poll.
    ///
    /// # Contract
    /// - `unreachable.taken`: a PENDING job whose queue or priority no claim can ask for becomes RUNNING for `owner`
    ///   under a raised fence and is marked `corrupt` with what is wrong.
    /// - `unreachable.owner`: a RUNNING job whose owner's name cannot be read is taken in the same way, unless `beat`
    ///   lists that owner as dead, so that it can be recovered.
    /// - `unreachable.only`: a job that a claim could take now or later is left alone.
    /// - `unreachable.lease`: an owner without a running lease gets nothing.
    async fn pick_up_unreachable(&self, owner: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>>;

    /// Records the progress of running jobs; `false` for each that is no longer held under its fence.
    ///
    /// # Contract
    /// - `progress.fenced`: only the present claim's report is kept, and it does not raise the fence.
    async fn report_progress(&self, reports: &[ProgressReport]) -> StoreResult<Vec<bool>>;

    /// Ends the active master with this business key; returns how many there were: 0 or 1.
    ///
    /// # Contract
    /// - `recurring.cancel`: a canceled master, paused or not, never fires again and frees its key; jobs it made go on.
    async fn cancel_recurring_by_key(&self, key: &BusinessKey, reason: &Sanitized) -> StoreResult<u64>;

    /// Ends every active master with this tag; returns how many.
    ///
    /// # Contract
    /// - `recurring.cancel_tag`: all masters with the tag, and nothing but masters.
    async fn cancel_recurring_by_tag(&self, tag: &Tag, reason: &Sanitized) -> StoreResult<u64>;

    /// Ends declared masters whose declaration has vanished: tagged `declared`, key not in `keep`, stored more than
    /// `older_than` ago. Returns their ids.
    ///
    /// # Contract
    /// - `recurring.reconcile`: masters in `keep`, younger ones and those without the tag stay; an empty `keep` cancels
    ///   nothing, because a node that knows no schedule cannot tell that they vanished.
    async fn cancel_undeclared_recurring(
        &self,
        declared: &Tag,
        keep: &[BusinessKey],
        older_than: Duration,
        reason: &Sanitized,
    ) -> StoreResult<Vec<JobId>>;
}
