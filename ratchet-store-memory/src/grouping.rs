//! Batches, permits and locks: what groups and limits jobs.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{
    BatchMetricsStore, BatchStore, Closed, JobPage, LockStore, PageRequest, Permit, PermitRequest,
    ResourcePermitStore,
};
use ratchet_api::{
    Batch, BatchId, BatchMetrics, JobStatus, LockLease, LockName, Owner, Recorded, ResourceLimit,
    ResourceUse, StoreError, StoreResult, Timestamp,
};

use crate::MemoryStore;
use crate::state::{Lock, State};

#[async_trait]
impl BatchStore for MemoryStore {
    async fn find_batches(&self, batches: &[BatchId]) -> StoreResult<Vec<Option<Batch>>> {
        Ok(self.transaction(|state, _| {
            batches.iter().map(|id| state.batches.get(id).map(|row| row.batch.clone())).collect()
        }))
    }

    async fn close_batch(&self, batch: BatchId) -> StoreResult<Closed> {
        Ok(self.transaction(|state, now| {
            let Some(row) = state.batches.get_mut(&batch) else { return Closed::Unknown };
            if row.batch.progress.closed {
                return Closed::AlreadyClosed;
            }
            row.batch.progress.closed = true;
            let progress = row.batch.progress;
            state.complete_batch(batch, now, &mut Recorded::default());
            Closed::Closed(progress)
        }))
    }

    async fn batch_children(
        &self,
        batch: BatchId,
        status: Option<JobStatus>,
        page: &PageRequest,
    ) -> StoreResult<JobPage> {
        Ok(self.transaction(|state, _| {
            let wanted = |row: &&crate::state::Row| {
                row.job.spec.batch == Some(batch) && status.is_none_or(|status| row.status() == status)
            };
            let after = |row: &&crate::state::Row| page.after.is_none_or(|after| row.job.spec.id > after);
            crate::query::page_of(state.jobs.values().filter(wanted).filter(after), page.limit)
        }))
    }
}

#[async_trait]
impl BatchMetricsStore for MemoryStore {
    async fn batch_metrics(&self, batch: BatchId) -> StoreResult<Option<BatchMetrics>> {
        Ok(self.transaction(|state, _| {
            let row = state.batches.get(&batch)?;
            let mut metrics = BatchMetrics::default();
            metrics.child_count = row.batch.progress.total;
            metrics.success_count = row.batch.progress.completed;
            metrics.failure_count = row.batch.progress.failed;
            metrics.child_execution = row.child_execution;
            metrics.total_duration = row.batch.completed_at.map(|end| end.since(row.batch.created_at));
            Some(metrics)
        }))
    }
}

#[async_trait]
impl ResourcePermitStore for MemoryStore {
    async fn acquire(&self, owner: &Owner, requests: &[PermitRequest]) -> StoreResult<Vec<Permit>> {
        Ok(self
            .transaction(|state, _| requests.iter().map(|request| state.acquire(owner, request)).collect()))
    }

    async fn configure_resource(&self, limit: &ResourceLimit) -> StoreResult<()> {
        self.transaction(|state, _| state.resources.insert(limit.name.clone(), limit.clone()));
        Ok(())
    }

    async fn resources(&self) -> StoreResult<Vec<ResourceUse>> {
        Ok(self.transaction(|state, _| {
            let holders =
                |name| state.permits.iter().filter(move |(of, _)| of == name).map(|(_, job)| *job).collect();
            state
                .resources
                .values()
                .map(|limit| ResourceUse::new(limit.clone(), holders(&limit.name)))
                .collect()
        }))
    }
}

impl State {
    fn acquire(&mut self, owner: &Owner, request: &PermitRequest) -> Permit {
        let held = self
            .jobs
            .get(&request.id)
            .is_some_and(|row| row.is_held_by(owner) && row.job.fence == request.fence);
        if !held {
            return Permit::Lost;
        }
        let Some(limit) = self.resources.get(&request.resource) else { return Permit::Unknown };
        let permit = (request.resource.clone(), request.id);
        let in_use = self.permits.iter().filter(|(resource, _)| *resource == request.resource).count();
        if !self.permits.contains(&permit) && in_use >= limit.max_concurrent as usize {
            return Permit::Full { retry_in: limit.retry_delay };
        }
        self.permits.insert(permit);
        Permit::Granted
    }
}

#[async_trait]
impl LockStore for MemoryStore {
    async fn try_lock(
        &self,
        name: &LockName,
        ttl: Duration,
        owner: &Owner,
    ) -> StoreResult<Option<LockLease>> {
        if ttl.is_zero() {
            return Err(StoreError::invalid("try_lock", "a lock needs a time to live above zero"));
        }
        Ok(self.transaction(|state, now| {
            let unheld = || Lock { holder: None, term: 0, taken: now, expires: now };
            let lock = state.locks.entry(name.clone()).or_insert_with(unheld);
            let holder = lock.holder.as_ref().filter(|_| lock.runs(now));
            match holder {
                Some(holder) if holder != owner => return None,
                Some(_) => {}
                None => lock.term += 1,
            }
            lock.holder = Some(owner.clone());
            lock.extend(now, ttl);
            Some(LockLease { name: name.clone(), owner: owner.clone(), term: lock.term })
        }))
    }

    async fn renew_lock(&self, lease: &LockLease, ttl: Duration) -> StoreResult<bool> {
        Ok(self.transaction(|state, now| {
            state.held_lock(lease, now).map(|lock| lock.extend(now, ttl)).is_some()
        }))
    }

    async fn unlock(&self, lease: &LockLease) -> StoreResult<bool> {
        Ok(self
            .transaction(|state, now| state.held_lock(lease, now).map(|lock| lock.holder = None).is_some()))
    }
}

impl State {
    /// The lock, if it is still held under this lease.
    fn held_lock(&mut self, lease: &LockLease, now: Timestamp) -> Option<&mut Lock> {
        let lock = self.locks.get_mut(&lease.name)?;
        let held = lock.holder.as_ref() == Some(&lease.owner) && lock.term == lease.term && lock.runs(now);
        held.then_some(lock)
    }
}

impl Lock {
    /// Whether the lock has not expired. It counts as expired, too, if `taken` is further ahead than the lock was to
    /// last: the clock went back.
    fn runs(&self, now: Timestamp) -> bool {
        self.expires > now && self.taken.since(now) <= self.expires.since(self.taken)
    }

    fn extend(&mut self, now: Timestamp, ttl: Duration) {
        (self.taken, self.expires) = (now, now + ttl);
    }
}
