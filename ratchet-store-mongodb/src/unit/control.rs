//! Control by hand: cancel, pause, resume, retry; and the other changes of a unit: schedules, batches, permits.

use std::collections::{HashMap, VecDeque};

use bson::Document;
use ratchet_api::store::{
    CancelVerdict, Closed, NewRecurring, PauseVerdict, Permit, PermitRequest, ResumeVerdict, RetryVerdict,
    SavedRecurring, Target,
};
use ratchet_api::{
    BatchId, EdgeState, Ending, JobId, JobStatus, NewJob, Owner, Recorded, Sanitized, StoreResult,
};

use super::{Held, Unit};
use crate::codec::{JobDoc, PermitId, RecurrenceDoc, SpecDoc, date, duration, job_id, millis, uuid};

/// Whether the caller saw another version of the job.
fn is_stale(target: Target, job: &JobDoc) -> bool {
    target.fence.is_some_and(|fence| fence.version() != job.fence)
}

impl Unit<'_> {
    /// Reads the targets and all that may follow from them, in the same few calls for one and for many.
    async fn load_targets(&mut self, targets: &[Target]) -> StoreResult<()> {
        let ids: Vec<JobId> = targets.iter().map(|target| target.id).collect();
        self.load_jobs(ids.iter().copied()).await?;
        self.load_consequences(&ids).await
    }

    pub(crate) async fn cancel(
        &mut self,
        jobs: &[Target],
        reason: &Sanitized,
    ) -> StoreResult<Vec<CancelVerdict>> {
        self.load_targets(jobs).await?;
        let mut verdicts = Vec::with_capacity(jobs.len());
        for target in jobs {
            verdicts.push(self.cancel_one(*target, reason).await?);
        }
        Ok(verdicts)
    }

    async fn cancel_one(&mut self, target: Target, reason: &Sanitized) -> StoreResult<CancelVerdict> {
        let (id, now) = (target.id, self.now);
        let Some(job) = self.job_mut(id) else { return Ok(CancelVerdict::Unknown) };
        let status = job.visible_status();
        if is_stale(target, job) {
            return Ok(CancelVerdict::Stale(status));
        }
        if status.is_terminal() {
            return Ok(CancelVerdict::AlreadyEnded(status));
        }
        job.cancel_reason = Some(reason.as_str().to_owned());
        let mut led_to = Recorded::default();
        if job.status != JobStatus::Running {
            self.end(id, JobStatus::Canceled, Ending::at(now), &mut led_to).await?;
            return Ok(CancelVerdict::Canceled { dependents: led_to.canceled });
        }
        if let Some(queue) = job.queue.as_mut() {
            queue.cancel_requested = true;
        }
        self.load_consequences(&[id]).await?;
        let hopeless = self.decide_open_edges(id, &mut led_to)?;
        self.cancel_hopeless(hopeless, &mut led_to).await?;
        Ok(CancelVerdict::Requested { dependents: led_to.canceled })
    }

    pub(crate) async fn pause(&mut self, jobs: &[Target]) -> StoreResult<Vec<PauseVerdict>> {
        self.load_jobs(jobs.iter().map(|target| target.id)).await?;
        let failed = |job: &&JobDoc| job.status == JobStatus::Failed;
        let keys =
            jobs.iter().filter_map(|target| self.job(target.id).filter(failed)?.spec.business_key.clone());
        let keys = keys.collect();
        self.load_holders(keys).await?;
        jobs.iter().map(|target| self.pause_one(*target)).collect()
    }

    fn pause_one(&mut self, target: Target) -> StoreResult<PauseVerdict> {
        let Some(job) = self.job(target.id) else { return Ok(PauseVerdict::Unknown) };
        let origin = job.visible_status();
        if is_stale(target, job) {
            return Ok(PauseVerdict::Stale(origin));
        }
        match origin {
            JobStatus::Paused => return Ok(PauseVerdict::AlreadyPaused),
            JobStatus::Pending => {}
            JobStatus::Failed => {
                if let Some(holder) = self.holder(job.spec.business_key.as_deref(), None) {
                    return Ok(PauseVerdict::KeyTaken { holder });
                }
                self.come_to_life(target.id);
            }
            _ => return Ok(PauseVerdict::NotPausable(origin)),
        }
        if let Some(job) = self.job_mut(target.id) {
            job.enter(JobStatus::Paused);
            job.paused_from = Some(origin);
            job.set_aside = job.ending.take();
        }
        Ok(PauseVerdict::Paused)
    }

    pub(crate) async fn resume(&mut self, jobs: &[Target]) -> StoreResult<Vec<ResumeVerdict>> {
        self.load_jobs(jobs.iter().map(|target| target.id)).await?;
        Ok(jobs.iter().map(|target| self.resume_one(*target)).collect())
    }

    fn resume_one(&mut self, target: Target) -> ResumeVerdict {
        let Some(job) = self.job_mut(target.id) else { return ResumeVerdict::Unknown };
        if is_stale(target, job) {
            return ResumeVerdict::Stale(job.visible_status());
        }
        let (JobStatus::Paused, Some(origin)) = (job.status, job.paused_from) else {
            return ResumeVerdict::NotPaused(job.visible_status());
        };
        job.enter(origin);
        job.ending = job.set_aside.take();
        if origin.is_terminal() {
            job.queue = None;
        }
        ResumeVerdict::Resumed(origin)
    }

    pub(crate) async fn retry(&mut self, jobs: &[Target]) -> StoreResult<Vec<RetryVerdict>> {
        self.load_targets(jobs).await?;
        let keys = jobs.iter().filter_map(|target| self.job(target.id)?.spec.business_key.clone());
        self.load_holders(keys.collect()).await?;
        let mut verdicts = Vec::with_capacity(jobs.len());
        for target in jobs {
            verdicts.push(self.retry_one(*target).await?);
        }
        Ok(verdicts)
    }

    async fn retry_one(&mut self, target: Target) -> StoreResult<RetryVerdict> {
        let Some(job) = self.job(target.id) else { return Ok(RetryVerdict::Unknown) };
        let status = job.visible_status();
        if is_stale(target, job) {
            return Ok(RetryVerdict::Stale(status));
        }
        if status != JobStatus::Failed {
            return Ok(RetryVerdict::NotFailed(status));
        }
        let reopened = self.refused_because_of(target.id).await?;
        let revived: Vec<JobId> = reopened.iter().flat_map(|(_, _, revived)| *revived).collect();
        let all: Vec<JobId> = std::iter::once(target.id).chain(revived.iter().copied()).collect();
        let keyed = |id: &JobId| Some((*id, self.job(*id)?.spec.business_key.clone()?));
        let keys: Vec<(JobId, String)> = all.iter().filter_map(keyed).collect();
        self.load_holders(
            keys.iter().filter(|(id, _)| *id != target.id).map(|(_, key)| key.clone()).collect(),
        )
        .await?;
        let mut reserved = HashMap::new();
        for (id, key) in keys {
            if let Some(holder) = self.holder(Some(&key), None).or_else(|| reserved.insert(key, id)) {
                return Ok(RetryVerdict::KeyTaken { holder });
            }
        }
        self.load_batches(
            all.iter().filter_map(|id| self.job(*id)?.spec.batch).map(job_id).collect::<Vec<_>>(),
        )
        .await?;
        for id in &all {
            self.revive(*id)?;
        }
        for (parent, child, _) in reopened {
            self.reopen(parent, child);
        }
        let now = self.now;
        if let Some(job) = self.job_mut(target.id) {
            job.attempts = 0;
            job.crash_count = 0;
            job.last_error = None;
            job.scheduled_time = date(now);
            job.fingerprint = None;
        }
        Ok(RetryVerdict::Retried { revived })
    }

    /// The refused edges that a retry of `id` reopens, nearest first, each with the child if that waits again.
    ///
    /// A child waits again if it was canceled by refusals and the reopened edges give it back enough open parents.
    async fn refused_because_of(&mut self, id: JobId) -> StoreResult<Vec<(JobId, JobId, Option<JobId>)>> {
        let mut reopened: Vec<(JobId, JobId, Option<JobId>)> = Vec::new();
        let mut queue = VecDeque::from([id]);
        while let Some(parent) = queue.pop_front() {
            self.load_consequences(&[parent]).await?;
            let refused = self.edges_from(parent).into_iter().filter(|edge| edge.state == EdgeState::Refused);
            let children: Vec<_> = refused.map(|edge| edge.child()).collect();
            for child in children {
                let regained = 1 + reopened.iter().filter(|(_, other, _)| *other == child).count() as u32;
                let revived = self.job(child).is_some_and(|job| {
                    job.status == JobStatus::Canceled
                        && job.refused
                        && job.open_parents + regained == job.blocked_by
                });
                reopened.push((parent, child, revived.then_some(child)));
                if revived {
                    queue.push_back(child);
                }
            }
        }
        Ok(reopened)
    }

    /// Makes an ended job PENDING again.
    fn revive(&mut self, id: JobId) -> StoreResult<()> {
        self.come_to_life(id);
        let Some(job) = self.job_mut(id) else { return Ok(()) };
        job.enter(JobStatus::Pending);
        job.refused = false;
        job.cancel_reason = None;
        let ran_for =
            job.ending.take().and_then(|ending| Ending::from(ending).duration()).unwrap_or_default();
        let batch = job.spec.batch.map(job_id);
        if let Some(held) = batch.and_then(|batch| self.batches.get_mut(&batch)) {
            held.doc.failed = held.doc.failed.saturating_sub(1);
            held.doc.child_execution_ms = held.doc.child_execution_ms.saturating_sub(millis(ran_for));
        }
        Ok(())
    }

    /// Gives an ended job its queue part back, and with it the business key.
    ///
    /// An unreadable job type fails none of the others: the next claim of the job finds it and ends the job again.
    fn come_to_life(&mut self, id: JobId) {
        if let Some(job) = self.job_mut(id) {
            let job_type = job.spec.job_type.parse().unwrap_or_default();
            job.queue = Some(job.new_queue_part(job_type));
        }
    }

    fn reopen(&mut self, parent: JobId, child: JobId) {
        if let Some(held) = self.edges.get_mut(&(parent, child)) {
            held.doc.state = EdgeState::Open;
        }
        if let Some(job) = self.job_mut(child) {
            job.open_parents = job.open_parents.saturating_add(1);
        }
    }

    pub(crate) async fn close_batch(&mut self, batch: BatchId) -> StoreResult<Closed> {
        let id = batch.parent();
        self.load_batches([id]).await?;
        self.load_jobs([id]).await?;
        let Some(held) = self.batches.get_mut(&id) else { return Ok(Closed::Unknown) };
        if held.doc.closed {
            return Ok(Closed::AlreadyClosed);
        }
        held.doc.closed = true;
        let progress = held.doc.progress();
        self.complete_batch(id, &mut Recorded::default());
        Ok(Closed::Closed(progress))
    }

    pub(crate) async fn save_recurring(
        &mut self,
        key: &str,
        new: &NewRecurring,
    ) -> StoreResult<SavedRecurring> {
        self.load_holders(vec![key.to_owned()]).await?;
        let Some(holder) = self.holder(Some(key), None) else {
            return Ok(SavedRecurring::Created(self.create_recurring(new)));
        };
        let Some(master) = self.job_mut(holder).filter(|job| job.is_master()) else {
            return Ok(SavedRecurring::KeyTaken { holder });
        };
        let mut spec = SpecDoc::from(&new.spec);
        spec.caller_principal = master.spec.caller_principal.take();
        master.spec = spec;
        let saved = RecurrenceDoc::from(&new.recurrence);
        if let Some(old) =
            master.recurrence.as_mut().filter(|old| old.cron != saved.cron || old.zone != saved.zone)
        {
            *old = saved;
        }
        Ok(SavedRecurring::Updated(holder))
    }

    fn create_recurring(&mut self, new: &NewRecurring) -> JobId {
        let id = new.spec.id;
        let mut job = NewJob::new(new.spec.payload.clone());
        job.spec = new.spec.clone();
        let mut master = JobDoc::pending(&job, 0, self.now);
        master.recurrence = Some((&new.recurrence).into());
        master.queue = Some(master.new_queue_part(new.spec.job_type));
        self.jobs.insert(id, Held::new(master));
        id
    }

    /// Cancels live schedules that match. Returns their ids.
    pub(crate) async fn cancel_masters(
        &mut self,
        filter: Document,
        reason: &Sanitized,
    ) -> StoreResult<Vec<JobId>> {
        let ids = self.load_masters(filter).await?;
        for id in &ids {
            self.cancel_one((*id).into(), reason).await?;
        }
        Ok(ids)
    }

    pub(crate) async fn acquire(
        &mut self,
        owner: &Owner,
        requests: &[PermitRequest],
    ) -> StoreResult<Vec<Permit>> {
        self.load_jobs(requests.iter().map(|request| request.id)).await?;
        self.load_limits(requests.iter().map(|request| request.resource.to_string()).collect()).await?;
        Ok(requests.iter().map(|request| self.acquire_one(owner, request)).collect())
    }

    fn acquire_one(&mut self, owner: &Owner, request: &PermitRequest) -> Permit {
        if !self.is_held(request.id, owner, request.fence.version()) {
            return Permit::Lost;
        }
        let resource = request.resource.to_string();
        let Some(limit) = self.limits.get(&resource).map(|held| held.doc.clone()) else {
            return Permit::Unknown;
        };
        let Some(queue) = self.job_mut(request.id).and_then(|job| job.queue.as_mut()) else {
            return Permit::Lost;
        };
        if queue.permits.contains(&resource) {
            return Permit::Granted;
        }
        if limit.in_use >= i64::from(limit.max_concurrent) {
            return Permit::Full { retry_in: duration(limit.retry_delay_ms) };
        }
        queue.permits.push(resource.clone());
        if let Some(held) = self.limits.get_mut(&resource) {
            held.doc.in_use = held.doc.in_use.saturating_add(1);
        }
        self.permits.push(PermitId { resource, job: uuid(request.id) });
        Permit::Granted
    }
}
