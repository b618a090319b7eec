//! Jobs whose rows are not damaged: all of them must succeed.

use ratchet_api::store::JobStore;
use ratchet_api::{BatchId, Condition, Edge, JobId, JobStatus, NewBatch, NewJob, Submission, Tag};

use crate::stage::{Stage, call, named};

#[derive(Default)]
pub(crate) struct Innocents {
    jobs: Vec<JobId>,
}

impl Innocents {
    /// Stores some more jobs: single ones, with a dependent, in a batch, with keys and tags, with a permit.
    pub(crate) async fn submit(&mut self, stage: &Stage) {
        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(Submission::single(NewJob::new(call())));
            all.push(chain());
            all.push(batch());
            all.push(Submission::single(busy()));
        }
        stage.submit(&all).await;
        self.jobs.extend(all.iter().flat_map(|one| &one.jobs).map(|job| job.spec.id));
    }

    pub(crate) fn ids(&self) -> &[JobId] {
        &self.jobs
    }

    /// Returns the jobs that have not succeeded.
    pub(crate) async fn left(&self, store: &dyn JobStore) -> Vec<(JobId, Option<JobStatus>)> {
        let found = store.find(&self.jobs).await.expect("they can be read");
        let statuses = found.into_iter().map(|job| job.map(|job| job.status));
        let all = self.jobs.iter().copied().zip(statuses);
        all.filter(|(_, status)| *status != Some(JobStatus::Succeeded)).collect()
    }
}

fn chain() -> Submission {
    let (parent, child) = (NewJob::new(call()), NewJob::new(call()));
    let mut both = Submission::default();
    both.edges = vec![Edge::new(parent.spec.id, child.spec.id, Condition::Success)];
    both.jobs = vec![parent, child];
    both
}

fn batch() -> Submission {
    let parent = NewJob::new(call());
    let child = || {
        let mut child = NewJob::new(call());
        child.spec.batch = Some(BatchId::of(parent.spec.id));
        child
    };
    let mut all = Submission::default();
    all.jobs = vec![parent.clone(), child(), child()];
    all.batch = Some(NewBatch { closed: true });
    all
}

fn busy() -> NewJob {
    let mut job = NewJob::new(call());
    let name = job.spec.id.to_string();
    job.spec.business_key = Some(named(&name));
    job.spec.idempotency_key = Some(named(&name));
    job.spec.tags = vec![Tag::new(name).expect("a tag")];
    job.spec.resource = Some(named("shared"));
    job
}
