//! Storing submissions: everything is read and checked before anything is changed.

use bson::doc;
use ratchet_api::{
    Edge, EdgeState, Ending, Fire, Inserted, JobId, JobStatus, Limits, NewJob, Recorded, Refusal,
    StoreResult, Submission,
};

use super::{Held, Unit};
use crate::codec::{BatchDoc, EdgeDoc, FireId, JobDoc, KeyDoc, date, job_id, key_hash, uuid};

/// An answer that refuses a submission.
type Objection = Inserted;

impl Unit<'_> {
    /// Stores submissions one after the other; a refused one leaves nothing behind.
    pub(crate) async fn insert(&mut self, submissions: &[&Submission]) -> StoreResult<Vec<Inserted>> {
        self.load_for(submissions).await?;
        let mut answers = Vec::with_capacity(submissions.len());
        for submission in submissions {
            answers.push(self.insert_one(submission).await?);
        }
        Ok(answers)
    }

    /// Reads everything that these submissions refer to, in one pass.
    async fn load_for(&mut self, submissions: &[&Submission]) -> StoreResult<()> {
        let specs = || submissions.iter().flat_map(|submission| &submission.jobs).map(|job| &job.spec);
        let parents = submissions.iter().flat_map(|submission| &submission.edges).map(|edge| edge.parent);
        let replaced = submissions.iter().filter_map(|submission| submission.supersedes);
        let masters = submissions.iter().filter_map(|submission| submission.fire.map(|fire| fire.master));
        let own = specs().map(|spec| spec.id);
        self.load_jobs(own.chain(parents).chain(replaced).chain(masters)).await?;
        self.load_keys(specs().filter_map(|spec| spec.idempotency_key.as_ref()).map(key_hash).collect())
            .await?;
        let keys = specs().filter_map(|spec| spec.business_key.as_ref()).map(ToString::to_string).collect();
        self.load_holders(keys).await?;
        self.load_batches(specs().filter_map(|spec| spec.batch).map(|batch| batch.parent())).await
    }

    /// Stores one submission, or returns why not. All that it refers to must have been read.
    async fn insert_one(&mut self, submission: &Submission) -> StoreResult<Inserted> {
        if let Err(invalid) = submission.validate(&Limits::MAX) {
            return Ok(Inserted::Refused(Refusal::Invalid(invalid)));
        }
        if let Some(objection) = self.object(submission).await? {
            return Ok(objection);
        }
        self.store(submission).await?;
        Ok(Inserted::New)
    }

    /// Stores a submission that comes with an outcome.
    pub(super) async fn submit(&mut self, submission: &Submission) -> StoreResult<Inserted> {
        self.load_for(&[submission]).await?;
        self.insert_one(submission).await
    }

    async fn object(&mut self, submission: &Submission) -> StoreResult<Option<Objection>> {
        let head = submission.jobs[0].spec.id;
        if self.job(head).is_some() {
            return Ok(Some(Inserted::Existing(head)));
        }
        let mut others = submission.jobs.iter().map(|job| job.spec.id);
        if let Some(taken) = others.find(|id| self.job(*id).is_some()) {
            return Ok(Some(Inserted::Refused(Refusal::IdTaken(taken))));
        }
        let used = submission.jobs.iter().filter_map(|job| job.spec.idempotency_key.as_ref());
        if let Some(key) = used.map(key_hash).find_map(|hash| self.keys.get(&hash.bytes)) {
            return Ok(Some(Inserted::Existing(job_id(key.doc.job))));
        }
        if let Some(fire) = &submission.fire
            && let Some(objection) = self.object_to_fire(fire).await?
        {
            return Ok(Some(objection));
        }
        Ok(self.check(submission, head).err())
    }

    async fn object_to_fire(&mut self, fire: &Fire) -> StoreResult<Option<Objection>> {
        let id = doc! { "master": uuid(fire.master), "instant": date(fire.instant) };
        let same =
            |other: &FireId| job_id(other.master) == fire.master && other.instant == date(fire.instant);
        let fires = self.store.collections.fires.clone();
        if self.fires.iter().any(same) || self.exists(&fires, id).await? {
            return Ok(Some(Inserted::AlreadyFired));
        }
        let active = |job: &JobDoc| job.is_master() && job.status == JobStatus::Pending;
        let inactive = !self.job(fire.master).is_some_and(active);
        Ok(inactive.then_some(Inserted::Refused(Refusal::MasterInactive(fire.master))))
    }

    fn check(&self, submission: &Submission, head: JobId) -> Result<(), Objection> {
        if let Some(id) = submission.supersedes {
            let status = self.job(id).filter(|job| !job.is_master()).map(JobDoc::visible_status);
            if !matches!(status, Some(JobStatus::Pending | JobStatus::Paused)) {
                return Err(Inserted::Refused(Refusal::NotReplaceable { id, status }));
            }
        }
        for job in &submission.jobs {
            let key = job.spec.business_key.as_ref().map(|key| key.as_str());
            if let Some(holder) = self.holder(key, submission.supersedes) {
                return Err(Inserted::KeyTaken { holder });
            }
            self.check_batch(job, submission, head)?;
        }
        submission.edges.iter().try_for_each(|edge| self.check_edge(edge, submission))
    }

    fn check_batch(&self, job: &NewJob, submission: &Submission, head: JobId) -> Result<(), Objection> {
        let Some(batch) = job.spec.batch else { return Ok(()) };
        if submission.batch.is_some() && batch.parent() == head {
            return Ok(());
        }
        match self.batches.get(&batch.parent()) {
            None => Err(Inserted::Refused(Refusal::UnknownBatch(batch))),
            Some(held) if held.doc.closed => Err(Inserted::Refused(Refusal::BatchClosed(batch))),
            Some(_) => Ok(()),
        }
    }

    fn check_edge(&self, edge: &Edge, submission: &Submission) -> Result<(), Objection> {
        if submission.jobs.iter().any(|job| job.spec.id == edge.parent) {
            return Ok(());
        }
        match self.job(edge.parent).filter(|parent| !parent.is_master()).map(JobDoc::decides_as) {
            None => Err(Inserted::Refused(Refusal::UnknownParent(edge.parent))),
            Some(status) if status.is_terminal() && edge.decided_by(status).is_none() => {
                Err(Inserted::Refused(Refusal::ParentEnded(edge.parent)))
            }
            Some(_) => Ok(()),
        }
    }

    async fn store(&mut self, submission: &Submission) -> StoreResult<()> {
        let head = submission.jobs[0].spec.id;
        if let Some(fire) = &submission.fire {
            self.fires.push(FireId { master: uuid(fire.master), instant: date(fire.instant) });
            if let Some(recurrence) = self.job_mut(fire.master).and_then(|master| master.recurrence.as_mut())
            {
                recurrence.next_fire = fire.next_fire.map(date);
            }
        }
        if let Some(old) = submission.supersedes {
            self.supersede(old, head).await?;
        }
        for new in &submission.jobs {
            let waits_for_batch = submission.batch.is_some() && new.spec.id == head;
            self.store_job(new, &submission.edges, waits_for_batch);
        }
        if let Some(batch) = submission.batch {
            self.asked_batches.insert(head);
            self.batches.insert(head, Held::new(BatchDoc::new(head, batch.closed, self.now)));
        }
        for batch in submission.jobs.iter().filter_map(|job| job.spec.batch) {
            if let Some(held) = self.batches.get_mut(&batch.parent()) {
                held.doc.total = held.doc.total.saturating_add(1);
            }
        }
        self.store_edges(&submission.edges, head).await?;
        // A closed batch without children has nothing to wait for.
        self.complete_batch(head, &mut Recorded::default());
        Ok(())
    }

    async fn supersede(&mut self, old: JobId, by: JobId) -> StoreResult<()> {
        if let Some(job) = self.job_mut(old) {
            job.superseded_by = Some(uuid(by));
            job.cancel_reason = Some(format!("superseded by {by}"));
        }
        self.end(old, JobStatus::Canceled, Ending::at(self.now), &mut Recorded::default()).await
    }

    fn store_job(&mut self, new: &NewJob, edges: &[Edge], waits_for_batch: bool) {
        let id = new.spec.id;
        let parents: Vec<_> = edges.iter().filter(|edge| edge.child == id).collect();
        let mut job = JobDoc::pending(new, parents.len() as u32, self.now);
        job.depends_on = parents.first().map(|edge| uuid(edge.parent));
        job.blocked_by += u32::from(waits_for_batch);
        job.open_parents += u32::from(waits_for_batch);
        if let Some(key) = &new.spec.idempotency_key {
            let hash = key_hash(key);
            let used = KeyDoc { hash: hash.clone(), job: job.id, created_at: date(self.now) };
            self.keys.insert(hash.bytes, Held::new(used));
        }
        self.asked_jobs.insert(id);
        self.asked_edges.insert(id);
        self.jobs.insert(id, Held::new(job));
    }

    /// Stores all edges first: a child that is canceled at once must refuse its own.
    async fn store_edges(&mut self, edges: &[Edge], head: JobId) -> StoreResult<()> {
        for (place, edge) in edges.iter().enumerate() {
            // An ended parent counts its edges too: a concurrent retry of it must conflict with this write.
            if let Some(parent) = self.job_mut(edge.parent) {
                parent.edge_count = parent.edge_count.saturating_add(1);
            }
            let stored = EdgeDoc::open(edge, head, place, self.now);
            self.edges.insert((edge.parent, edge.child), Held::new(stored));
        }
        for edge in edges {
            let ended = self.job(edge.parent).is_some_and(|parent| parent.decides_as().is_terminal());
            let open = self
                .edges
                .get(&(edge.parent, edge.child))
                .is_some_and(|held| held.doc.state == EdgeState::Open);
            if ended && open {
                let mut led_to = Recorded::default();
                let hopeless = self.decide_open_edges(edge.parent, &mut led_to)?;
                self.cancel_hopeless(hopeless, &mut led_to).await?;
            }
        }
        // The submitter's decision was for this moment only.
        for edge in edges {
            if let Some(held) = self.edges.get_mut(&(edge.parent, edge.child)) {
                held.doc.if_ended = None;
            }
        }
        Ok(())
    }
}
