//! The archive of old jobs.

use std::time::Duration;

use async_trait::async_trait;

use crate::{ArchivedJob, BusinessKey, JobId, StoreResult, TargetName};

/// How long ended jobs stay before they are archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Succeeded and canceled jobs stay for this long.
    pub ended: Duration,
    /// Dead letters stay for this long, so that they can still be retried.
    pub failed: Duration,
}

/// A filter for archived jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveFilter {
    /// Only this target.
    pub target: Option<TargetName>,
    /// Only this business key.
    pub business_key: Option<BusinessKey>,
    /// Only those older than this one, the last of the previous page.
    pub before: Option<JobId>,
}

/// The archive of ended jobs.
#[async_trait]
pub trait ArchiveStore: Send + Sync + 'static {
    /// Moves up to `limit` ended jobs past their retention into the archive; returns how many.
    ///
    /// # Contract
    /// - `archive.moves`: a job is either among the jobs, live or ended, or in the archive, never in both and never in
    ///   neither; its history, logs, tags, edges and batch are moved or deleted with it, its idempotency key stays
    ///   used.
    /// - `archive.retention`: only ended jobs past the retention of their status, by the store's clock, at most
    ///   `limit`, in whichever order costs the store least.
    /// - `archive.batch`: a child stays as long as its batch is not complete.
    async fn archive(&self, retention: &Retention, limit: usize) -> StoreResult<u64>;

    /// Reads the archive, newest first.
    ///
    /// # Contract
    /// - `archive.found`: an archived job keeps its call, keys, tags, attempts, error, result and times.
    async fn archived(&self, filter: &ArchiveFilter, limit: usize) -> StoreResult<Vec<ArchivedJob>>;

    /// Removes up to `limit` records that were archived more than `retention` ago; returns how many.
    ///
    /// # Contract
    /// - `archive.purge`: only records past the retention go, at most `limit`.
    async fn purge_archive(&self, retention: Duration, limit: usize) -> StoreResult<u64>;
}
