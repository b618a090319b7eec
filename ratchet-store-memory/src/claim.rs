//! Claiming, and reading what was claimed.

use std::cmp::Reverse;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{ClaimRequest, JobClaimStore, JobCrudStore, Loaded};
use ratchet_api::{
    BusinessKey, IdempotencyKey, Job, JobClaim, JobId, Owner, StoreError, StoreResult, Timestamp,
};

use crate::MemoryStore;
use crate::parking::Room;
use crate::state::{Row, State};

#[async_trait]
impl JobClaimStore for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        Ok(self.transaction(|state, now| {
            let mut claims = Vec::new();
            let mut room = Room::of(state, &request.owner, now);
            for part in &request.queues {
                let mut best = state.claimable(now, |row| {
                    row.job.spec.queue == part.queue && !state.paused_queues.contains(&part.queue)
                });
                best.sort_by_key(|job| claim_order(job, request.boost_interval, now));
                let mine = best.into_iter().filter(|job| room.take(job)).take(part.limit);
                let ids: Vec<_> = mine.map(|job| job.spec.id).collect();
                claims.extend(state.take(&request.owner, &ids, now));
            }
            claims
        }))
    }

    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        Ok(self.transaction(|state, now| {
            let held = state.jobs.values().filter(|row| row.is_held_by(owner));
            held.map(|row| row.claim(now)).collect()
        }))
    }
}

/// The order of a claim: highest effective priority, then earliest due, then lowest id.
fn claim_order(job: &Job, boost: Option<Duration>, now: Timestamp) -> (Reverse<i64>, Timestamp, JobId) {
    let waited = now.since(job.scheduled_time);
    (Reverse(job.spec.priority.boosted(waited, boost)), job.scheduled_time, job.spec.id)
}

impl State {
    /// The jobs among those asked about that could run now.
    pub(crate) fn claimable(&self, now: Timestamp, asked: impl Fn(&Row) -> bool) -> Vec<&Job> {
        let due = |row: &&Row| row.is_unblocked() && row.job.scheduled_time <= now && asked(row);
        self.jobs.values().filter(due).map(|row| &row.job).collect()
    }

    /// Gives claimable jobs to an owner, if it is alive.
    pub(crate) fn take(&mut self, owner: &Owner, ids: &[JobId], now: Timestamp) -> Vec<JobClaim> {
        if !self.is_alive(owner, now) {
            return Vec::new();
        }
        let mut claims = Vec::new();
        for id in ids {
            let Some(row) = self.jobs.get_mut(id) else { continue };
            if !row.is_unblocked() || row.job.scheduled_time > now {
                continue;
            }
            claims.push(row.pick(owner, now));
        }
        claims
    }
}

#[async_trait]
impl JobCrudStore for MemoryStore {
    async fn load(&self, owner: &Owner, claims: &[JobClaim]) -> StoreResult<Vec<Loaded>> {
        Ok(self.transaction(|state, _| claims.iter().map(|claim| state.load(owner, claim)).collect()))
    }

    async fn find(&self, jobs: &[JobId]) -> StoreResult<Vec<Option<Job>>> {
        self.transaction(|state, _| {
            jobs.iter().map(|id| state.jobs.get(id).map(readable).transpose()).collect()
        })
    }

    async fn find_by_idempotency_key(&self, key: &IdempotencyKey) -> StoreResult<Option<JobId>> {
        Ok(self.transaction(|state, _| state.ledger.get(key).copied()))
    }

    async fn find_active_by_business_key(&self, key: &BusinessKey) -> StoreResult<Option<JobId>> {
        Ok(self.transaction(|state, _| state.holders.get(key).copied()))
    }
}

fn readable(row: &Row) -> StoreResult<Job> {
    match &row.unreadable {
        Some(problem) => Err(StoreError::corrupt("find", row.job.spec.id, problem)),
        None => Ok(row.view()),
    }
}

impl State {
    fn load(&self, owner: &Owner, claim: &JobClaim) -> Loaded {
        let held = |row: &&Row| row.job.picked_by.as_ref() == Some(owner) && row.job.fence == claim.fence;
        match self.jobs.get(&claim.id).filter(held) {
            None => Loaded::Lost,
            Some(row) if row.cancel_requested => Loaded::CancelRequested,
            Some(Row { unreadable: Some(problem), job, .. }) => {
                Loaded::Corrupt { problem: problem.clone(), on_failure: job.spec.on_failure.clone() }
            }
            Some(row) => Loaded::Job(Box::new(row.view()), self.edges_from(claim.id)),
        }
    }
}
