//! Manual control: cancel, pause, resume, retry, pick up.

use std::collections::{HashMap, VecDeque};

use async_trait::async_trait;
use ratchet_api::store::{
    CancelVerdict, JobPauseStore, JobRetryStore, PauseVerdict, ResumeVerdict, RetryVerdict, Target,
};
use ratchet_api::{
    EdgeState, Ending, JobId, JobStatus, QueueName, Recorded, Sanitized, StoreResult, Timestamp,
};

use crate::MemoryStore;
use crate::state::{Row, State};

#[async_trait]
impl JobPauseStore for MemoryStore {
    async fn pause(&self, jobs: &[Target]) -> StoreResult<Vec<PauseVerdict>> {
        Ok(self.transaction(|state, _| jobs.iter().map(|target| state.pause(*target)).collect()))
    }

    async fn resume(&self, jobs: &[Target]) -> StoreResult<Vec<ResumeVerdict>> {
        Ok(self.transaction(|state, _| jobs.iter().map(|target| state.resume(*target)).collect()))
    }

    async fn set_queue_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<bool> {
        Ok(self.transaction(|state, _| match paused {
            true => state.paused_queues.insert(queue.clone()),
            false => state.paused_queues.remove(queue),
        }))
    }

    async fn paused_queues(&self) -> StoreResult<Vec<QueueName>> {
        Ok(self.transaction(|state, _| state.paused_queues.iter().cloned().collect()))
    }
}

#[async_trait]
impl JobRetryStore for MemoryStore {
    async fn retry(&self, jobs: &[Target]) -> StoreResult<Vec<RetryVerdict>> {
        Ok(self.transaction(|state, now| jobs.iter().map(|target| state.retry(*target, now)).collect()))
    }
}

/// Whether the caller saw another version of the job.
fn is_stale(target: Target, row: &Row) -> bool {
    target.fence.is_some_and(|fence| fence != row.job.fence)
}

impl State {
    pub(crate) fn cancel(&mut self, target: Target, reason: &Sanitized, now: Timestamp) -> CancelVerdict {
        let id = target.id;
        let Some(row) = self.jobs.get_mut(&id) else { return CancelVerdict::Unknown };
        if is_stale(target, row) {
            return CancelVerdict::Stale(row.status());
        }
        if row.status().is_terminal() {
            return CancelVerdict::AlreadyEnded(row.status());
        }
        row.job.cancel_reason = Some(reason.as_str().to_owned());
        let mut led_to = Recorded::default();
        if row.job.status != JobStatus::Running {
            self.end(id, JobStatus::Canceled, Ending::at(now), now, &mut led_to);
            return CancelVerdict::Canceled { dependents: led_to.canceled };
        }
        row.cancel_requested = true;
        let hopeless = self.decide_open_edges(id, now, &mut led_to);
        self.cancel_hopeless(hopeless, now, &mut led_to);
        CancelVerdict::Requested { dependents: led_to.canceled }
    }

    fn pause(&mut self, target: Target) -> PauseVerdict {
        let Some(row) = self.jobs.get(&target.id) else { return PauseVerdict::Unknown };
        let origin = row.status();
        if is_stale(target, row) {
            return PauseVerdict::Stale(origin);
        }
        match origin {
            JobStatus::Paused => return PauseVerdict::AlreadyPaused,
            JobStatus::Pending => {}
            JobStatus::Failed => {
                if let Some(holder) = self.holder(row.job.spec.business_key.as_ref(), None) {
                    return PauseVerdict::KeyTaken { holder };
                }
                self.reserve_key(target.id);
            }
            _ => return PauseVerdict::NotPausable(origin),
        }
        if let Some(row) = self.jobs.get_mut(&target.id) {
            row.enter(JobStatus::Paused);
            row.job.paused_from = Some(origin);
            row.set_aside = row.job.ending.take();
        }
        PauseVerdict::Paused
    }

    fn resume(&mut self, target: Target) -> ResumeVerdict {
        let Some(row) = self.jobs.get_mut(&target.id) else { return ResumeVerdict::Unknown };
        if is_stale(target, row) {
            return ResumeVerdict::Stale(row.status());
        }
        let (JobStatus::Paused, Some(origin)) = (row.job.status, row.job.paused_from) else {
            return ResumeVerdict::NotPaused(row.status());
        };
        row.enter(origin);
        row.job.ending = row.set_aside.take();
        if origin.is_terminal() {
            self.free_key(target.id);
        }
        ResumeVerdict::Resumed(origin)
    }

    fn retry(&mut self, target: Target, now: Timestamp) -> RetryVerdict {
        let Some(row) = self.jobs.get(&target.id) else { return RetryVerdict::Unknown };
        if is_stale(target, row) {
            return RetryVerdict::Stale(row.status());
        }
        if row.status() != JobStatus::Failed {
            return RetryVerdict::NotFailed(row.status());
        }
        let reopened = self.refused_because_of(target.id);
        let revived: Vec<JobId> = reopened.iter().flat_map(|(_, _, revived)| *revived).collect();
        let all = || std::iter::once(&target.id).chain(&revived);
        let mut reserved = HashMap::new();
        for id in all() {
            let Some(key) = self.jobs.get(id).and_then(|row| row.job.spec.business_key.as_ref()) else {
                continue;
            };
            if let Some(holder) = self.holder(Some(key), None).or_else(|| reserved.insert(key, *id)) {
                return RetryVerdict::KeyTaken { holder };
            }
        }
        for id in all() {
            self.revive(*id);
        }
        for (parent, child, _) in reopened {
            self.reopen(parent, child);
        }
        if let Some(row) = self.jobs.get_mut(&target.id) {
            row.job.attempts = 0;
            row.job.crash_count = 0;
            row.job.last_error = None;
            row.job.scheduled_time = now;
            row.fingerprint = None;
        }
        RetryVerdict::Retried { revived }
    }

    /// The refused edges that reopen if `id` does, nearest first, each with the child if it then waits again.
    ///
    /// A child waits again if it was canceled by refusals and the reopened edges give it back enough open parents.
    fn refused_because_of(&self, id: JobId) -> Vec<(JobId, JobId, Option<JobId>)> {
        let mut reopened: Vec<(JobId, JobId, Option<JobId>)> = Vec::new();
        let mut queue = VecDeque::from([id]);
        while let Some(parent) = queue.pop_front() {
            for edge in self.edges.iter().filter(|e| e.parent == parent && e.state == EdgeState::Refused) {
                let regained =
                    1 + reopened.iter().filter(|(_, child, _)| *child == edge.child).count() as u32;
                let revived = self.jobs.get(&edge.child).is_some_and(|child| {
                    child.job.status == JobStatus::Canceled
                        && child.refused
                        && child.job.open_parents + regained == child.job.blocked_by
                });
                reopened.push((parent, edge.child, revived.then_some(edge.child)));
                if revived {
                    queue.push_back(edge.child);
                }
            }
        }
        reopened
    }

    /// Puts an ended job back to wait.
    fn revive(&mut self, id: JobId) {
        let Some(row) = self.jobs.get_mut(&id) else { return };
        row.enter(JobStatus::Pending);
        row.refused = false;
        row.job.cancel_reason = None;
        let ran_for = row.job.ending.take().and_then(|ending| ending.duration()).unwrap_or_default();
        if let Some(batch) = row.job.spec.batch.and_then(|batch| self.batches.get_mut(&batch)) {
            batch.batch.progress.failed -= 1;
            batch.child_execution -= ran_for;
        }
        self.reserve_key(id);
    }

    fn reopen(&mut self, parent: JobId, child: JobId) {
        for edge in self.edges.iter_mut().filter(|edge| edge.parent == parent && edge.child == child) {
            edge.state = EdgeState::Open;
        }
        if let Some(row) = self.jobs.get_mut(&child) {
            row.job.open_parents += 1;
        }
    }
}
