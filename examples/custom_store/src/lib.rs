//! A store composed of parts: locks of its own, everything else from another store.
//!
//! A team that already runs a lock service can plug it in like this. The guide is `docs/writing-a-store.md`; the proof
//! that the result is a store is `tests/tck.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{JobStore, LockStore};
use ratchet_api::{LockLease, LockName, Owner, StoreError, StoreResult, Timestamp};

/// A stand-in for a lock service that the team already runs. Clones talk to the same service.
#[derive(Clone, Default)]
pub struct LockService {
    locks: Arc<Mutex<HashMap<LockName, Held>>>,
}

struct Held {
    owner: Owner,
    term: i64,
    /// The time of the last acquisition or renewal.
    since: Timestamp,
    until: Timestamp,
}

/// A store with jobs in one place and locks in another.
pub struct CustomStore {
    jobs: Arc<dyn JobStore>,
    locks: LockService,
}

impl CustomStore {
    /// Creates a store that keeps its jobs in `jobs` and its locks in `locks`.
    pub fn new(jobs: Arc<dyn JobStore>, locks: LockService) -> Self {
        Self { jobs, locks }
    }

    /// Examines one lock at one instant: the store's, because the contract says that the store's clock decides.
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

impl Held {
    /// Whether the lock has not run out. A lock taken further ahead than its length has: the clock went back.
    fn runs(&self, now: Timestamp) -> bool {
        self.until > now && self.since.since(now) <= self.until.since(self.since)
    }

    fn is_lease(&self, lease: &LockLease, now: Timestamp) -> bool {
        self.owner == lease.owner && self.term == lease.term && self.runs(now)
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
                Some(other) if other.runs(now) && other.owner != *owner => return None,
                Some(mine) if mine.runs(now) => mine.term,
                Some(expired) => expired.term + 1,
                None => 1,
            };
            *held = Some(Held { owner: owner.clone(), term, since: now, until: now + ttl });
            Some(LockLease { name: name.clone(), owner: owner.clone(), term })
        })
        .await
    }

    async fn renew_lock(&self, lease: &LockLease, ttl: Duration) -> StoreResult<bool> {
        self.at_lock(&lease.name, |held, now| {
            let held = held.as_mut().filter(|held| held.is_lease(lease, now));
            held.map(|held| (held.since, held.until) = (now, now + ttl)).is_some()
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

ratchet_api::delegate_store!(CustomStore => jobs:
    StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore,
    BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
