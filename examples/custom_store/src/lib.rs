//! A store made of parts: locks of one's own, everything else from another store.
//!
//! A team that already runs a lock service would put it here. The guide is `docs/writing-a-store.md`; the proof that
//! the result is a store is `tests/tck.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{JobStore, LockStore, NodeStore};
use ratchet_api::{
    Beat, BeatReply, JobClaim, LockLease, LockName, Node, NodeInfo, Owner, StoreError, StoreResult, Timestamp,
};

/// Stands for a lock service that the team runs anyway. Clones talk to the same service.
#[derive(Clone, Default)]
pub struct LockService {
    locks: Arc<Mutex<HashMap<LockName, Held>>>,
}

struct Held {
    owner: Owner,
    term: i64,
    until: Timestamp,
}

/// Jobs in one place, locks in another.
pub struct CustomStore {
    jobs: Arc<dyn JobStore>,
    nodes: Nodes<dyn JobStore>,
    locks: LockService,
}

/// The nodes of the other store. When they find that its clock went back, the locks are mended too.
struct Nodes<S: ?Sized> {
    inner: Arc<S>,
    jobs: Arc<dyn JobStore>,
    locks: LockService,
}

impl CustomStore {
    /// A store that keeps its jobs in `jobs` and its locks in `locks`.
    pub fn new(jobs: Arc<dyn JobStore>, locks: LockService) -> Self {
        let nodes = Nodes { inner: Arc::clone(&jobs), jobs: Arc::clone(&jobs), locks: locks.clone() };
        Self { jobs, nodes, locks }
    }

    /// Looks at one lock at one instant: the store's, because the contract says that the store's clock decides.
    async fn at_lock<T>(
        &self,
        name: &LockName,
        look: impl FnOnce(&mut Option<Held>, Timestamp) -> T + Send,
    ) -> StoreResult<T> {
        let now = self.jobs.database_time().await?;
        let mut locks = self.locks.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = locks.remove(name);
        let answer = look(&mut held, now);
        if let Some(held) = held {
            locks.insert(name.clone(), held);
        }
        Ok(answer)
    }
}

impl LockService {
    /// A lock that would last for `by` or longer, but less than twice that, lasts that much shorter: it was taken before
    /// the clock went back.
    fn clock_went_back(&self, by: Duration, now: Timestamp) {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        for held in locks.values_mut() {
            let left = held.until.since(now);
            if left >= by && left < by * 2 {
                held.until = now + (left - by);
            }
        }
    }
}

impl Held {
    fn is_lease(&self, lease: &LockLease, now: Timestamp) -> bool {
        self.owner == lease.owner && self.term == lease.term && self.until > now
    }
}

#[async_trait]
impl LockStore for CustomStore {
    async fn try_lock(
        &self,
        name: &LockName,
        ttl: Duration,
        owner: &Owner,
    ) -> StoreResult<Option<LockLease>> {
        if ttl.is_zero() {
            return Err(StoreError::invalid("try_lock", "a lock needs a time to live above zero"));
        }
        self.at_lock(name, |held, now| {
            let term = match held {
                Some(other) if other.until > now && other.owner != *owner => return None,
                Some(mine) if mine.until > now => mine.term,
                Some(expired) => expired.term + 1,
                None => 1,
            };
            *held = Some(Held { owner: owner.clone(), term, until: now + ttl });
            Some(LockLease { name: name.clone(), owner: owner.clone(), term })
        })
        .await
    }

    async fn renew_lock(&self, lease: &LockLease, ttl: Duration) -> StoreResult<bool> {
        self.at_lock(&lease.name, |held, now| {
            let held = held.as_mut().filter(|held| held.is_lease(lease, now));
            held.map(|held| held.until = now + ttl).is_some()
        })
        .await
    }

    async fn unlock(&self, lease: &LockLease) -> StoreResult<bool> {
        // The entry stays, expired, so that the next holder gets a higher term.
        self.at_lock(&lease.name, |held, now| {
            let held = held.as_mut().filter(|held| held.is_lease(lease, now));
            held.map(|held| held.until = now).is_some()
        })
        .await
    }
}

#[async_trait]
impl<S: NodeStore + ?Sized> NodeStore for Nodes<S> {
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        let inner: Arc<dyn NodeStore> = self.inner.dedicated().await?.into();
        Ok(Box::new(Nodes { inner, jobs: Arc::clone(&self.jobs), locks: self.locks.clone() }))
    }
    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()> {
        self.inner.join(node, lease).await
    }
    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply> {
        self.inner.beat(beat).await
    }
    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        self.inner.recover(dead, to, limit).await
    }
    async fn leave(&self, owner: &Owner) -> StoreResult<bool> {
        self.inner.leave(owner).await
    }
    async fn nodes(&self) -> StoreResult<Vec<Node>> {
        self.inner.nodes().await
    }
    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64> {
        self.inner.purge_nodes(retention).await
    }
    async fn clock_went_back(&self, by: Duration, within: Duration, limit: usize) -> StoreResult<u64> {
        self.locks.clock_went_back(by, self.jobs.database_time().await?);
        self.inner.clock_went_back(by, within, limit).await
    }
}

ratchet_api::delegate_store!(CustomStore => nodes: NodeStore);
ratchet_api::delegate_store!(CustomStore => jobs:
    StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore,
    BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
