//! A store whose archive can be held up and whose locks can be taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{ArchiveFilter, ArchiveStore, JobStore, LockStore, Retention};
use ratchet_api::{ArchivedJob, LockLease, LockName, Owner, StoreError, StoreErrorKind, StoreResult};
use tokio::sync::watch;

/// A store whose calls are observed.
pub(super) struct Watched {
    inner: Arc<dyn JobStore>,
    watch: Arc<Watch>,
}

/// The result of a lock renewal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    Granted,
    Refused,
    /// No answer ever comes.
    Silent,
}

/// The controls of a watched store, and its observations.
pub(super) struct Watch {
    pub(super) open: watch::Sender<bool>,
    pub(super) renewal: watch::Sender<Renewal>,
    /// Every how many replies of the archive one is lost; 0 loses none.
    pub(super) loses: AtomicUsize,
    pub(super) begun: watch::Sender<usize>,
    pub(super) ended: watch::Sender<usize>,
    pub(super) renewed: watch::Sender<usize>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            open: watch::Sender::new(true),
            renewal: watch::Sender::new(Renewal::Granted),
            loses: AtomicUsize::new(0),
            begun: watch::Sender::new(0),
            ended: watch::Sender::new(0),
            renewed: watch::Sender::new(0),
        }
    }
}

impl Watch {
    /// Creates a watch whose archive is held up.
    pub(super) fn shut() -> Arc<Self> {
        let watch = Self::default();
        watch.open.send_replace(false);
        Arc::new(watch)
    }
}

/// Wraps a store in a watch.
pub(super) fn watched(inner: Arc<dyn JobStore>, watch: &Arc<Watch>) -> Arc<dyn JobStore> {
    Arc::new(Watched { inner, watch: Arc::clone(watch) })
}

/// Waits until the count reaches `often`.
pub(super) async fn seen(count: &watch::Sender<usize>, often: usize) {
    count.subscribe().wait_for(|count| *count >= often).await.expect("it is counted");
}

#[async_trait]
impl ArchiveStore for Watched {
    async fn archive(&self, retention: &Retention, limit: usize) -> StoreResult<u64> {
        self.watch.begun.send_modify(|count| *count += 1);
        let _ = self.watch.open.subscribe().wait_for(|open| *open).await;
        let moved = self.inner.archive(retention, limit).await?;
        assert!(moved <= limit as u64);
        self.watch.ended.send_modify(|count| *count += 1);
        match self.watch.loses.load(Ordering::SeqCst) {
            every if every > 0 && (*self.watch.ended.borrow()).is_multiple_of(every) => {
                Err(StoreError::new(StoreErrorKind::Transient, "archive", "the reply was lost"))
            }
            _ => Ok(moved),
        }
    }
    async fn archived(&self, filter: &ArchiveFilter, limit: usize) -> StoreResult<Vec<ArchivedJob>> {
        self.inner.archived(filter, limit).await
    }
    async fn purge_archive(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        self.inner.purge_archive(retention, limit).await
    }
}

#[async_trait]
impl LockStore for Watched {
    async fn try_lock(
        &self,
        name: &LockName,
        ttl: Duration,
        owner: &Owner,
    ) -> StoreResult<Option<LockLease>> {
        self.inner.try_lock(name, ttl, owner).await
    }
    async fn renew_lock(&self, lease: &LockLease, ttl: Duration) -> StoreResult<bool> {
        let renewal = *self.watch.renewal.borrow();
        self.watch.renewed.send_modify(|count| *count += 1);
        match renewal {
            Renewal::Granted => self.inner.renew_lock(lease, ttl).await,
            Renewal::Refused => Ok(false),
            Renewal::Silent => std::future::pending().await,
        }
    }
    async fn unlock(&self, lease: &LockLease) -> StoreResult<bool> {
        if *self.watch.renewal.borrow() == Renewal::Silent {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "unlock", "it is dead"));
        }
        self.inner.unlock(lease).await
    }
}

ratchet_api::delegate_store!(Watched => inner:
    StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, NodeStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore,
    BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
