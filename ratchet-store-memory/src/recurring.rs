//! Schedules, and changes of jobs that do not end them.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{JobBatchStatusStore, NewRecurring, ProgressReport, RecurringStore, SavedRecurring};
use ratchet_api::{
    BusinessKey, Due, Job, JobClaim, JobId, JobStatus, Needs, NewJob, Owner, ParkedOn, QueueName, Sanitized,
    StoreError, StoreResult, Tag, Timestamp,
};

use crate::MemoryStore;
use crate::state::{Row, State};

#[async_trait]
impl RecurringStore for MemoryStore {
    async fn save_recurring(&self, recurring: &NewRecurring) -> StoreResult<SavedRecurring> {
        let Some(key) = recurring.spec.business_key.clone() else {
            return Err(StoreError::invalid(
                "save_recurring",
                "a schedule is known by its business key, and this has none",
            ));
        };
        Ok(self.transaction(|state, now| state.save_recurring(&key, recurring, now)))
    }

    async fn due_recurring(&self, limit: usize) -> StoreResult<Vec<Job>> {
        Ok(self.transaction(|state, now| {
            let fire = |row: &Row| row.job.recurrence.as_ref().and_then(|recurrence| recurrence.next_fire);
            let is_due = |row: &&Row| fire(row).is_some_and(|at| at <= now);
            let corrupt = |row: &&Row| is_due(row) && row.unreadable.is_some();
            let corrupt: Vec<_> = state.active_masters().filter(corrupt).map(|row| row.job.spec.id).collect();
            for id in corrupt {
                state.end_corrupt(id, now);
            }
            let mut due: Vec<_> = state.active_masters().filter(is_due).collect();
            due.sort_by_key(|row| (fire(row), row.job.spec.id));
            due.into_iter().take(limit).map(Row::view).collect()
        }))
    }
}

impl State {
    pub(crate) fn active_masters(&self) -> impl Iterator<Item = &Row> {
        self.jobs.values().filter(|row| row.is_master() && row.job.status == JobStatus::Pending)
    }

    fn save_recurring(&mut self, key: &BusinessKey, new: &NewRecurring, now: Timestamp) -> SavedRecurring {
        let Some(holder) = self.holders.get(key).copied() else {
            return SavedRecurring::Created(self.create_recurring(new, now));
        };
        let Some(row) = self.jobs.get_mut(&holder).filter(|row| row.is_master()) else {
            return SavedRecurring::KeyTaken { holder };
        };
        let mut spec = new.spec.clone();
        spec.id = holder;
        spec.caller_principal = row.job.spec.caller_principal.take();
        row.job.spec = spec;
        if let Some(old) = row
            .job
            .recurrence
            .as_mut()
            .filter(|old| old.cron != new.recurrence.cron || old.zone != new.recurrence.zone)
        {
            *old = new.recurrence.clone();
        }
        SavedRecurring::Updated(holder)
    }

    fn create_recurring(&mut self, new: &NewRecurring, now: Timestamp) -> JobId {
        let id = new.spec.id;
        let mut job = NewJob::new(new.spec.payload.clone());
        job.spec = new.spec.clone();
        job.due = Due::NOW;
        job.needs = Needs::All;
        let mut master = Job::pending(job, 0, now);
        master.recurrence = Some(new.recurrence.clone());
        self.jobs.insert(id, Row::new(master));
        self.reserve_key(id);
        id
    }

    /// Ends every live schedule that `asked` accepts. Returns their ids.
    fn cancel_masters(
        &mut self,
        reason: &Sanitized,
        now: Timestamp,
        asked: impl Fn(&Row) -> bool,
    ) -> Vec<JobId> {
        let live = |row: &&Row| row.is_master() && !row.job.status.is_terminal() && asked(row);
        let ids: Vec<_> = self.jobs.values().filter(live).map(|row| row.job.spec.id).collect();
        for id in &ids {
            self.cancel((*id).into(), reason, now);
        }
        ids
    }
}

#[async_trait]
impl JobBatchStatusStore for MemoryStore {
    async fn pick_up(&self, owner: &Owner, jobs: &[JobId]) -> StoreResult<Vec<JobClaim>> {
        Ok(self.transaction(|state, now| state.take(owner, jobs, now)))
    }

    async fn pick_up_parked(
        &self,
        owner: &Owner,
        queue: &QueueName,
        on: &ParkedOn,
        limit: usize,
    ) -> StoreResult<Vec<JobClaim>> {
        Ok(self.transaction(|state, now| {
            let asked = |row: &Row| row.job.spec.queue == *queue && row.job.parked_on.as_ref() == Some(on);
            let limit = if state.paused_queues.contains(queue) { 0 } else { limit };
            let ids: Vec<_> =
                state.claimable(now, asked).into_iter().take(limit).map(|job| job.spec.id).collect();
            state.take(owner, &ids, now)
        }))
    }

    async fn pick_up_unreachable(&self, owner: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        Ok(self.transaction(|state, now| {
            let limit = if state.is_alive(owner, now) { limit } else { 0 };
            let unreachable = |row: &&mut Row| row.unreachable && row.job.status == JobStatus::Pending;
            let rows = state.jobs.values_mut().filter(unreachable).take(limit);
            rows.map(|row| row.pick(owner, now)).collect()
        }))
    }

    async fn report_progress(&self, reports: &[ProgressReport]) -> StoreResult<Vec<bool>> {
        Ok(self.transaction(|state, _| {
            let mut keep = |report: &ProgressReport| {
                let running =
                    |row: &&mut Row| row.job.status == JobStatus::Running && row.job.fence == report.fence;
                let row = state.jobs.get_mut(&report.id).filter(running);
                row.map(|row| row.job.progress = Some(report.progress())).is_some()
            };
            reports.iter().map(&mut keep).collect()
        }))
    }

    async fn cancel_recurring_by_key(&self, key: &BusinessKey, reason: &Sanitized) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| {
            state.cancel_masters(reason, now, |row| row.job.spec.business_key.as_ref() == Some(key)).len()
                as u64
        }))
    }

    async fn cancel_recurring_by_tag(&self, tag: &Tag, reason: &Sanitized) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| {
            state.cancel_masters(reason, now, |row| row.job.spec.tags.contains(tag)).len() as u64
        }))
    }

    async fn cancel_undeclared_recurring(
        &self,
        declared: &Tag,
        keep: &[BusinessKey],
        older_than: Duration,
        reason: &Sanitized,
    ) -> StoreResult<Vec<JobId>> {
        if keep.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.transaction(|state, now| {
            state.cancel_masters(reason, now, |row| {
                let spec = &row.job.spec;
                spec.tags.contains(declared)
                    && spec.business_key.as_ref().is_some_and(|key| !keep.contains(key))
                    && now.since(row.job.created_at) > older_than
            })
        }))
    }
}
