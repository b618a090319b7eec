//! Invariants that hold after every race, whoever won.

use std::collections::{BTreeMap, BTreeSet};

use ratchet_api::store::JobStoreExt;
use ratchet_api::{BusinessKey, Job, JobId, JobStatus};

use crate::Peer;
use crate::fixture::text;

/// Everything that a race touched. The checks read it all back and compare each part with the jobs themselves.
pub(super) struct World<'a> {
    /// Every node that may hold a job.
    pub(super) nodes: &'a [Peer],
    /// Every job that was stored.
    pub(super) jobs: Vec<JobId>,
}

impl World<'_> {
    pub(super) async fn check(&self) {
        let jobs = self.read().await;
        for job in &jobs {
            check_state(job);
        }
        self.check_owners(&jobs).await;
        self.check_keys(&jobs).await;
        self.check_permits(&jobs).await;
        self.check_batches(&jobs).await;
    }

    /// Checks, ends every job that is still held, and checks again: nothing is stuck.
    pub(super) async fn check_and_settle(&self) {
        self.check().await;
        for node in self.nodes {
            node.store.reset_running(&node.owner).await.expect("reset_running answers");
        }
        let targets: Vec<_> = self.jobs.iter().map(|id| (*id).into()).collect();
        self.nodes[0].store.cancel(&targets, &text("swept up")).await.expect("cancel answers");
        self.check().await;
        assert!(self.read().await.iter().all(has_ended), "everything can be ended");
    }

    async fn read(&self) -> Vec<Job> {
        let found = self.nodes[0].store.find(&self.jobs).await.expect("find answers");
        found.into_iter().map(|job| job.expect("no job is lost")).collect()
    }

    /// Checks that a node owns exactly the jobs that name it.
    async fn check_owners(&self, jobs: &[Job]) {
        for node in self.nodes {
            let owned = node.store.owned(&node.owner).await.expect("owned answers");
            let owned: BTreeSet<_> = owned.iter().map(|claim| (claim.id, claim.fence)).collect();
            let named = jobs.iter().filter(|job| job.picked_by.as_ref() == Some(&node.owner));
            assert_eq!(owned, named.map(|job| (job.spec.id, job.fence)).collect(), "{}", node.owner);
        }
    }

    /// Checks that a business key is held by its one live job, or by nobody.
    async fn check_keys(&self, jobs: &[Job]) {
        let mut holders: BTreeMap<&BusinessKey, Vec<JobId>> = BTreeMap::new();
        for job in jobs {
            let Some(key) = &job.spec.business_key else { continue };
            holders.entry(key).or_default().extend(is_live(job).then_some(job.spec.id));
        }
        for (key, live) in holders {
            assert!(live.len() <= 1, "{key} is held by {live:?}");
            let holder = self.nodes[0].store.find_active_by_business_key(key).await.expect("the key answers");
            assert_eq!(holder, live.first().copied(), "{key}");
        }
    }

    /// Checks that only running jobs hold permits, one each, and no more than the limit.
    async fn check_permits(&self, jobs: &[Job]) {
        for used in self.nodes[0].store.resources().await.expect("resources answers") {
            let holders: BTreeSet<_> = used.holders.iter().copied().collect();
            assert_eq!(holders.len(), used.holders.len(), "each job holds one permit");
            assert!(holders.len() as u64 <= u64::from(used.limit.max_concurrent), "{used:?}");
            for job in jobs.iter().filter(|job| holders.contains(&job.spec.id)) {
                assert!(job.picked_by.is_some(), "{} holds a permit and does not run", job.spec.id);
            }
        }
    }

    /// Checks that counters equal the ended children, and that the parent waits exactly until the batch is complete.
    async fn check_batches(&self, jobs: &[Job]) {
        let batches: BTreeSet<_> = jobs.iter().filter_map(|job| job.spec.batch).collect();
        for id in batches {
            let found = self.nodes[0].store.find_batches(&[id]).await.expect("find_batches answers");
            let batch = found.into_iter().next().flatten().expect("the batch is stored");
            let children: Vec<_> = jobs.iter().filter(|job| job.spec.batch == Some(id)).collect();
            let count = |wanted: fn(&Job) -> bool| children.iter().filter(|job| wanted(job)).count() as u64;
            let progress = batch.progress;
            assert_eq!(progress.total, children.len() as u64);
            assert_eq!(progress.completed, count(|job| job.status == JobStatus::Succeeded));
            assert_eq!(progress.failed, count(|job| has_ended(job) && job.status != JobStatus::Succeeded));
            assert_eq!(batch.completed_at.is_some(), progress.is_complete(), "{progress:?}");
            let parent = jobs.iter().find(|job| job.spec.id == id.parent()).expect("the parent is stored");
            assert_eq!(parent.blocked_by == 0, progress.is_complete(), "{progress:?}");
        }
    }
}

/// Whether it waits, runs (also after a cancel was accepted) or is paused.
fn is_live(job: &Job) -> bool {
    !has_ended(job)
}

/// Whether it has ended for good: a canceled job whose owner has not yet recorded an outcome has not.
fn has_ended(job: &Job) -> bool {
    job.status.is_terminal() && job.picked_by.is_none()
}

/// Checks that a job is in exactly one state, with all that belongs to it.
fn check_state(job: &Job) {
    let (held, ended) = (job.picked_by.is_some(), job.ending.is_some());
    let consistent = match job.status {
        JobStatus::Pending => !held && !ended && job.paused_from.is_none(),
        JobStatus::Running => held && !ended,
        JobStatus::Succeeded | JobStatus::Failed => !held && ended,
        JobStatus::Paused => !held && job.paused_from.is_some(),
        JobStatus::Canceled => held != ended,
    };
    assert!(consistent, "{job:?}");
    assert_eq!(held, job.picked_at.is_some(), "{job:?}");
}
