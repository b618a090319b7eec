//! Old jobs, out of the way.

use std::time::Duration;

use async_trait::async_trait;

use crate::{ArchivedJob, BusinessKey, JobId, StoreResult, TargetName};

/// Which jobs are old enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Succeeded and canceled jobs stay for this long.
    pub ended: Duration,
    /// Dead letters stay for this long, so that they can still be retried.
    pub failed: Duration,
}

/// Which archived jobs to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveFilter {
    /// Only this target.
    pub target: Option<TargetName>,
    /// Only this business key.
    pub business_key: Option<BusinessKey>,
    /// Only those older than this one: the last of the page before.
    pub before: Option<JobId>,
}

/// The archive.
#[async_trait]
pub trait ArchiveStore: Send + Sync + 'static {
    /// Moves up to `limit` ended jobs past their retention into the archive; answers how many.
    ///
    /// # Contract
    /// - `archive.moves`: a job is either live-or-ended in the jobs, or in the archive, never both and never neither;
    ///   its history, logs, tags, edges and batch go with it or away, its idempotency key stays used.
    /// - `archive.retention`: only ended jobs past the retention of their status, by the store's clock, at most `limit`, in
    ///   whichever order costs the store least.
    /// - `archive.batch`: a child stays as long as its batch is not complete.
    async fn archive(&self, retention: &Retention, limit: usize) -> StoreResult<u64>;

    /// Reads the archive, newest first.
    ///
    /// # Contract
    /// - `archive.found`: an archived job keeps its call, keys, tags, attempts, error, result and times.
    async fn archived(&self, filter: &ArchiveFilter, limit: usize) -> StoreResult<Vec<ArchivedJob>>;

    /// Removes up to `limit` records that were archived more than `retention` ago; answers how many.
    ///
    /// # Contract
    /// - `archive.purge`: only records past the retention go, at most `limit`.
    async fn purge_archive(&self, retention: Duration, limit: usize) -> StoreResult<u64>;
}
