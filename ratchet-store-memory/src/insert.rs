//! Storing submissions: everything is checked before anything is changed.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::JobBulkStore;
use ratchet_api::{
    Batch, BatchId, BatchProgress, Edge, EdgeState, Ending, Fire, Inserted, Job, JobId, JobStatus, Limits,
    NewJob, Recorded, Refusal, StoreResult, Submission, Timestamp,
};

use crate::MemoryStore;
use crate::state::{BatchRow, Row, State};

#[async_trait]
impl JobBulkStore for MemoryStore {
    async fn insert(&self, submissions: &[Submission]) -> StoreResult<Vec<Inserted>> {
        Ok(self.transaction(|state, now| {
            submissions.iter().map(|submission| state.insert(submission, &Limits::MAX, now)).collect()
        }))
    }

    async fn delete(&self, jobs: &[JobId]) -> StoreResult<u64> {
        Ok(self.transaction(|state, _| {
            jobs.iter().filter(|id| state.remove_ended(**id).is_some()).count() as u64
        }))
    }

    async fn purge_dead_letters(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        Ok(self.transaction(|state, now| {
            let is_old = |ending: &Ending| now.since(ending.terminated_at) > retention;
            let old: Vec<_> = state
                .jobs
                .values()
                .filter(|row| row.job.status == JobStatus::Failed)
                .filter(|row| row.job.ending.as_ref().is_some_and(is_old))
                .map(|row| row.job.spec.id)
                .take(limit)
                .collect();
            old.into_iter().filter(|id| state.remove_ended(*id).is_some()).count() as u64
        }))
    }
}

impl State {
    /// Stores one submission, or returns why not.
    pub(crate) fn insert(&mut self, submission: &Submission, limits: &Limits, now: Timestamp) -> Inserted {
        match self.check(submission, limits) {
            Err(answer) => answer,
            Ok(head) => {
                self.store(submission, head, now);
                Inserted::New
            }
        }
    }

    /// Checks everything that could refuse a submission. Returns the head's id.
    fn check(&self, submission: &Submission, limits: &Limits) -> Result<JobId, Inserted> {
        let refused = |refusal| Err(Inserted::Refused(refusal));
        if let Err(invalid) = submission.validate(limits) {
            return refused(Refusal::Invalid(invalid));
        }
        let head = submission.jobs[0].spec.id;
        if self.jobs.contains_key(&head) {
            return Err(Inserted::Existing(head));
        }
        for job in &submission.jobs {
            if self.jobs.contains_key(&job.spec.id) {
                return refused(Refusal::IdTaken(job.spec.id));
            }
            if let Some(first) = job.spec.idempotency_key.as_ref().and_then(|key| self.ledger.get(key)) {
                return Err(Inserted::Existing(*first));
            }
        }
        if let Some(fire) = &submission.fire {
            self.check_fire(fire)?;
        }
        if let Some(id) = submission.supersedes {
            let status = self.jobs.get(&id).filter(|row| !row.is_master()).map(Row::status);
            if !matches!(status, Some(JobStatus::Pending | JobStatus::Paused)) {
                return refused(Refusal::NotReplaceable { id, status });
            }
        }
        for job in &submission.jobs {
            if let Some(holder) = self.holder(job.spec.business_key.as_ref(), submission.supersedes) {
                return Err(Inserted::KeyTaken { holder });
            }
            self.check_batch(job, submission, head)?;
        }
        submission.edges.iter().try_for_each(|edge| self.check_edge(edge, submission))?;
        Ok(head)
    }

    fn check_fire(&self, fire: &Fire) -> Result<(), Inserted> {
        if self.fires.contains(&(fire.master, fire.instant)) {
            return Err(Inserted::AlreadyFired);
        }
        match self.jobs.get(&fire.master) {
            Some(row) if row.is_master() && row.job.status == JobStatus::Pending => Ok(()),
            _ => Err(Inserted::Refused(Refusal::MasterInactive(fire.master))),
        }
    }

    fn check_batch(&self, job: &NewJob, submission: &Submission, head: JobId) -> Result<(), Inserted> {
        let Some(batch) = job.spec.batch else { return Ok(()) };
        if submission.batch.is_some() && batch == BatchId::of(head) {
            return Ok(());
        }
        match self.batches.get(&batch) {
            None => Err(Inserted::Refused(Refusal::UnknownBatch(batch))),
            Some(row) if row.batch.progress.closed => Err(Inserted::Refused(Refusal::BatchClosed(batch))),
            Some(_) => Ok(()),
        }
    }

    fn check_edge(&self, edge: &Edge, submission: &Submission) -> Result<(), Inserted> {
        if submission.jobs.iter().any(|job| job.spec.id == edge.parent) {
            return Ok(());
        }
        match self.jobs.get(&edge.parent).filter(|row| !row.is_master()).map(Row::decides_as) {
            None => Err(Inserted::Refused(Refusal::UnknownParent(edge.parent))),
            Some(status) if status.is_terminal() && edge.decided_by(status).is_none() => {
                Err(Inserted::Refused(Refusal::ParentEnded(edge.parent)))
            }
            Some(_) => Ok(()),
        }
    }

    fn store(&mut self, submission: &Submission, head: JobId, now: Timestamp) {
        if let Some(fire) = &submission.fire {
            self.fires.insert((fire.master, fire.instant));
            if let Some(recurrence) =
                self.jobs.get_mut(&fire.master).and_then(|row| row.job.recurrence.as_mut())
            {
                recurrence.next_fire = fire.next_fire;
            }
        }
        if let Some(old) = submission.supersedes {
            self.supersede(old, head, now);
        }
        for new in &submission.jobs {
            let waits_for_batch = submission.batch.is_some() && new.spec.id == head;
            self.store_job(new, &submission.edges, waits_for_batch, now);
        }
        if let Some(batch) = submission.batch {
            let progress = BatchProgress::new(0, batch.closed);
            let id = BatchId::of(head);
            let batch = Batch::new(id, progress, now);
            self.batches.insert(id, BatchRow { batch, child_execution: Duration::ZERO });
        }
        for batch in submission.jobs.iter().filter_map(|job| job.spec.batch) {
            if let Some(row) = self.batches.get_mut(&batch) {
                row.batch.progress.total += 1;
            }
        }
        self.store_edges(&submission.edges, now);
        // A closed batch without children has nothing to wait for.
        self.complete_batch(BatchId::of(head), now, &mut Recorded::default());
    }

    fn supersede(&mut self, old: JobId, by: JobId, now: Timestamp) {
        if let Some(row) = self.jobs.get_mut(&old) {
            row.job.superseded_by = Some(by);
            row.job.cancel_reason = Some(format!("superseded by {by}"));
        }
        self.end(old, JobStatus::Canceled, Ending::at(now), now, &mut Recorded::default());
    }

    fn store_job(&mut self, new: &NewJob, edges: &[Edge], waits_for_batch: bool, now: Timestamp) {
        let id = new.spec.id;
        let mut parents = edges.iter().filter(|edge| edge.child == id);
        let depends_on = parents.clone().next().map(|edge| edge.parent);
        let mut job = Job::pending(new.clone(), parents.by_ref().count() as u32, now);
        job.depends_on = depends_on;
        job.blocked_by += u32::from(waits_for_batch);
        job.open_parents += u32::from(waits_for_batch);
        if let Some(key) = &job.spec.idempotency_key {
            self.ledger.insert(key.clone(), id);
        }
        self.jobs.insert(id, Row::new(job));
        self.reserve_key(id);
    }

    /// Stores all edges first: a child that is canceled at once must refuse its own.
    fn store_edges(&mut self, edges: &[Edge], now: Timestamp) {
        for edge in edges {
            if let Some(parent) = self.jobs.get_mut(&edge.parent) {
                parent.job.edge_count += 1;
            }
            let mut stored = edge.clone();
            stored.state = EdgeState::Open;
            self.edges.push(stored);
        }
        for edge in edges {
            let ended = self.jobs.get(&edge.parent).is_some_and(|parent| parent.decides_as().is_terminal());
            if ended {
                let mut led_to = Recorded::default();
                let hopeless = self.decide_open_edges(edge.parent, now, &mut led_to);
                self.cancel_hopeless(hopeless, now, &mut led_to);
            }
        }
        // The submitter's decision for ended parents holds only for this moment.
        for stored in self.edges.iter_mut().rev().take(edges.len()) {
            stored.if_ended = None;
        }
    }

    /// Removes an ended job, with everything tied to it but its idempotency key.
    pub(crate) fn remove_ended(&mut self, id: JobId) -> Option<Row> {
        self.jobs.get(&id).filter(|row| row.job.status.is_terminal())?;
        self.edges.retain(|edge| edge.parent != id && edge.child != id);
        self.executions.retain(|(job, _), _| *job != id);
        self.logs.retain(|(job, _), _| *job != id);
        self.alerts.retain(|alert| alert.job != id);
        self.batches.remove(&BatchId::of(id));
        self.jobs.remove(&id)
    }
}
