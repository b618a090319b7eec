//! A lane: one task with one connection that inserts jobs and takes them to their end, through the store or by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use futures::future::try_join_all;
use ratchet_api::store::{ClaimRequest, JobStore, Loaded};
use ratchet_api::{End, Inserted, JobClaim, NewJob, NodeInfo, Outcome, Owner, Run, Submission, Verdict};

use crate::job::payload;

/// The run that outcomes report.
pub(crate) const RUN: Run = Run { started_ago: Duration::from_millis(2), ran_for: Duration::from_millis(1) };

/// The steps of a job's life. The lane holds claimed jobs until they are committed.
#[async_trait]
pub(crate) trait Lane: Send {
    /// Builds jobs before the insert, so that building them is not measured.
    fn prepare(&mut self, jobs: usize, batch: usize) -> Result<()>;

    /// Inserts the next batch; returns the number of jobs.
    async fn insert(&mut self) -> Result<usize>;

    /// Claims up to `limit` jobs; returns how many.
    async fn claim(&mut self, limit: usize) -> Result<usize>;

    /// Reads the claimed jobs.
    async fn load(&mut self) -> Result<()>;

    /// Records the success of the claimed jobs.
    async fn commit(&mut self) -> Result<()>;

    /// Records their success and claims the next ones; returns how many.
    async fn commit_and_claim(&mut self, limit: usize) -> Result<usize>;
}

/// Lanes that work at the same time.
pub(crate) type Lanes = Vec<Box<dyn Lane>>;

/// Runs `work` on every lane, each in a task of its own.
pub(crate) async fn together<T, F>(lanes: &mut Lanes, work: impl Fn(Box<dyn Lane>) -> F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<(Box<dyn Lane>, T)>> + Send + 'static,
{
    let tasks: Vec<_> = lanes.drain(..).map(|lane| tokio::spawn(work(lane))).collect();
    let mut answers = Vec::new();
    for done in try_join_all(tasks).await? {
        let (lane, answer) = done?;
        lanes.push(lane);
        answers.push(answer);
    }
    Ok(answers)
}

/// Inserts all prepared jobs; returns how many.
pub(crate) async fn insert_all(lane: &mut dyn Lane) -> Result<usize> {
    let mut inserted = 0;
    loop {
        match lane.insert().await? {
            0 => return Ok(inserted),
            more => inserted += more,
        }
    }
}

/// Stores a backlog batch by batch, so that little of it is in memory at a time.
pub(crate) async fn fill(lane: &mut dyn Lane, jobs: usize, batch: usize) -> Result<()> {
    for begun in (0..jobs).step_by(batch) {
        lane.prepare(batch.min(jobs - begun), batch)?;
        insert_all(lane).await?;
    }
    Ok(())
}

/// A lane that works through the store.
pub(crate) struct StoreLane {
    store: Arc<dyn JobStore>,
    owner: Owner,
    ready: VecDeque<Vec<Submission>>,
    held: Vec<JobClaim>,
}

impl StoreLane {
    pub(crate) async fn join(store: Arc<dyn JobStore>) -> Result<Self> {
        const LEASE: Duration = Duration::from_secs(24 * 3600);
        let owner = Owner::incarnate("bench");
        store.join(&NodeInfo::new(owner.clone()), LEASE).await?;
        Ok(Self { store, owner, ready: VecDeque::new(), held: Vec::new() })
    }

    fn outcomes(&self) -> Vec<Outcome> {
        let succeeded = |claim: &JobClaim| {
            let mut outcome = Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
            outcome.run = Some(RUN);
            outcome
        };
        self.held.iter().map(succeeded).collect()
    }
}

#[async_trait]
impl Lane for StoreLane {
    fn prepare(&mut self, jobs: usize, batch: usize) -> Result<()> {
        let payload = payload()?;
        let submission = || Submission::single(NewJob::new(payload.clone()));
        let jobs: Vec<Submission> = std::iter::repeat_with(submission).take(jobs).collect();
        self.ready = jobs.chunks(batch).map(<[_]>::to_vec).collect();
        Ok(())
    }

    async fn insert(&mut self) -> Result<usize> {
        let Some(batch) = self.ready.pop_front() else { return Ok(0) };
        let inserted = self.store.insert(&batch).await?;
        ensure!(inserted.iter().all(|verdict| *verdict == Inserted::New), "a job was not stored");
        Ok(inserted.len())
    }

    async fn claim(&mut self, limit: usize) -> Result<usize> {
        self.held = self.store.claim(&ClaimRequest::new(self.owner.clone(), limit)).await?;
        Ok(self.held.len())
    }

    async fn load(&mut self) -> Result<()> {
        let loaded = self.store.load(&self.owner, &self.held).await?;
        ensure!(loaded.iter().all(|loaded| matches!(loaded, Loaded::Job(..))), "a job was not loaded");
        Ok(())
    }

    async fn commit(&mut self) -> Result<()> {
        recorded(&self.store.commit(&self.owner, &self.outcomes()).await?)
    }

    async fn commit_and_claim(&mut self, limit: usize) -> Result<usize> {
        let request = ClaimRequest::new(self.owner.clone(), limit);
        let (verdicts, claims) = self.store.commit_and_claim(&self.owner, &self.outcomes(), &request).await?;
        self.held = claims;
        recorded(&verdicts)?;
        Ok(self.held.len())
    }
}

fn recorded(verdicts: &[Verdict]) -> Result<()> {
    ensure!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Recorded(_))), "an outcome was refused");
    Ok(())
}
