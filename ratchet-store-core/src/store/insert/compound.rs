//! Submissions of several jobs, or that refer to stored jobs or batches: one at a time.

use std::collections::HashMap;

use ratchet_api::{
    BatchId, Edge, Fire, Inserted, InvalidSubmission, JobId, JobStatus, Refusal, StoreError, StoreErrorKind,
    StoreResult, Submission, Timestamp,
};

use super::columns::{JobColumns, Waits};
use super::plain::{Obstacle, look, store};
use crate::store::batch::{LockedBatch, lock_batches};
use crate::store::cascade::{Calling, Cascade, Decision};
use crate::store::info::present;
use crate::store::lock_rows::{LockedJob, RowState, ids_of, lock_rows};
use crate::store::row::Cells;
use crate::store::session::Session;

/// The number of tries of a submission that loses a key between check and write.
const ATTEMPTS: usize = 10;

/// Stores one valid submission as a whole, or returns why not.
pub(crate) async fn insert(session: &mut Session<'_>, submission: &Submission) -> StoreResult<Inserted> {
    let now = present(session).await?;
    for _ in 0..ATTEMPTS {
        let around = match Around::look(session, submission).await? {
            Ok(around) => around,
            Err(answer) => return Ok(answer),
        };
        session.raw("SAVEPOINT submission").await?;
        if around.write(session, submission, now).await? {
            session.raw("RELEASE SAVEPOINT submission").await?;
            return Ok(Inserted::New);
        }
        session.raw("ROLLBACK TO SAVEPOINT submission").await?;
    }
    Err(StoreError::new(
        StoreErrorKind::Transient,
        session.op(),
        "keys change hands faster than jobs can be stored",
    ))
}

/// The stored jobs and batches that a submission refers to, locked, and with no objection to it.
struct Around {
    head: JobId,
    jobs: HashMap<JobId, LockedJob>,
    batches: Vec<LockedBatch>,
}

impl Around {
    async fn look(session: &mut Session<'_>, submission: &Submission) -> StoreResult<Result<Self, Inserted>> {
        let columns = columns(submission);
        let Some(head) = submission.id() else {
            return Ok(Err(Inserted::Refused(Refusal::Invalid(InvalidSubmission::Empty))));
        };
        let outside: Vec<JobId> = outside_jobs(submission).collect();
        let jobs = lock_rows(session, &outside).await?;
        let obstacles = look(session, &columns).await?;
        if let Err(answer) = check_known(submission, head, &obstacles) {
            return Ok(Err(answer));
        }
        if let Some(fire) = &submission.fire
            && let Err(answer) = check_fire(session, fire, &jobs).await?
        {
            return Ok(Err(answer));
        }
        let batches = lock_batches(session, &outside_batches(submission, head)).await?;
        let around = Self { head, jobs, batches };
        Ok(around.check(submission, &obstacles).map(|()| around))
    }

    fn check(&self, submission: &Submission, obstacles: &[Obstacle]) -> Result<(), Inserted> {
        let refused = |refusal| Err(Inserted::Refused(refusal));
        if let Some(id) = submission.supersedes {
            let status = self.jobs.get(&id).filter(|held| !held.is_schedule()).map(LockedJob::status);
            if !matches!(status, Some(JobStatus::Pending | JobStatus::Paused)) {
                return refused(Refusal::NotReplaceable { id, status });
            }
        }
        for (job, obstacle) in submission.jobs.iter().zip(obstacles) {
            if let Some(holder) = obstacle.holder.filter(|holder| Some(*holder) != submission.supersedes) {
                return Err(Inserted::KeyTaken { holder });
            }
            match job
                .spec
                .batch
                .filter(|batch| *batch != BatchId::of(self.head) || submission.batch.is_none())
            {
                None => {}
                Some(id) => match self.batches.iter().find(|batch| batch.id == id) {
                    None => return refused(Refusal::UnknownBatch(id)),
                    Some(batch) if batch.progress.closed => return refused(Refusal::BatchClosed(id)),
                    Some(_) => {}
                },
            }
        }
        submission.edges.iter().try_for_each(|edge| self.check_edge(edge, submission))
    }

    fn check_edge(&self, edge: &Edge, submission: &Submission) -> Result<(), Inserted> {
        if submission.jobs.iter().any(|job| job.spec.id == edge.parent) {
            return Ok(());
        }
        match self.jobs.get(&edge.parent).filter(|held| !held.is_schedule()).map(LockedJob::decides_as) {
            None => Err(Inserted::Refused(Refusal::UnknownParent(edge.parent))),
            Some(status) if status.is_terminal() && edge.decided_by(status).is_none() => {
                Err(Inserted::Refused(Refusal::ParentEnded(edge.parent)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Writes the whole submission; `false` if another job took a key since the check, so that the write must be
    /// undone.
    async fn write(
        mut self,
        session: &mut Session<'_>,
        submission: &Submission,
        now: Timestamp,
    ) -> StoreResult<bool> {
        let mut follow = Cascade::new(now, 1);
        if let Some(fire) = &submission.fire {
            note_fire(session, fire, self.head, now).await?;
        }
        if let Some(old) = submission.supersedes {
            self.supersede(session, &mut follow, old).await?;
            // Superseding may have ended a parent.
            self.jobs = lock_rows(session, &outside_jobs(submission).collect::<Vec<_>>()).await?;
        }
        let fates = store(session, &columns(submission), Some(now)).await?;
        if fates.iter().any(|fate| !fate.stored) {
            return Ok(false);
        }
        self.store_edges(session, &mut follow, &submission.edges).await?;
        self.count_children(session, &mut follow, submission, now).await?;
        follow.finish(session).await?;
        Ok(true)
    }

    async fn supersede(
        &self,
        session: &mut Session<'_>,
        follow: &mut Cascade,
        old: JobId,
    ) -> StoreResult<()> {
        let reason = format!("superseded by {}", self.head);
        let calling = Calling { reason: Some(&reason), superseded_by: Some(self.head), cascaded: false };
        follow.end_waiting(session, &[(old, 0)], calling).await?;
        follow.decide_open(session, &HashMap::from([(old, (JobStatus::Canceled, 0))]), Vec::new()).await
    }

    async fn store_edges(
        &self,
        session: &mut Session<'_>,
        follow: &mut Cascade,
        edges: &[Edge],
    ) -> StoreResult<()> {
        if edges.is_empty() {
            return Ok(());
        }
        let parts: Vec<_> = edges.iter().map(|edge| edge.condition.to_parts()).collect();
        let insert = session.sql().insert_edges.bind();
        insert
            .arg("parents", ids_of(edges.iter().map(|edge| &edge.parent)))
            .arg("children", ids_of(edges.iter().map(|edge| &edge.child)))
            .arg("conditions", parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
            .arg("expressions", parts.iter().map(|(_, e)| e.as_ref().map(|e| e.as_str())).collect::<Vec<_>>())
            .arg("priorities", edges.iter().map(|edge| edge.priority).collect::<Vec<_>>())
            .run(session)
            .await?;
        let ended =
            |edge: &&Edge| self.jobs.get(&edge.parent).is_some_and(|held| held.decides_as().is_terminal());
        let decisions = edges.iter().filter(ended).filter_map(|edge| {
            let state = edge.decided_by(self.jobs.get(&edge.parent)?.decides_as())?;
            Some(Decision { parent: edge.parent, child: edge.child, state, cause: 0 })
        });
        follow.decide(session, decisions.collect()).await
    }

    /// Adds children to the totals of their batches, new or open; a closed batch without children is complete.
    async fn count_children(
        &self,
        session: &mut Session<'_>,
        follow: &mut Cascade,
        submission: &Submission,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut batches = self.batches.clone();
        if let Some(batch) = submission.batch {
            let id = BatchId::of(self.head);
            let insert = session.sql().insert_batch.bind().arg("batch_id", self.head);
            insert.arg("closed", batch.closed).arg("now", now).run(session).await?;
            batches.extend(lock_batches(session, &[id]).await?);
        }
        for mut batch in batches {
            let children = submission.jobs.iter().filter(|job| job.spec.batch == Some(batch.id)).count();
            batch.progress.total = batch.progress.total.saturating_add(children as u64);
            follow.update_batch(session, batch).await?;
        }
        Ok(())
    }
}

fn outside_jobs(submission: &Submission) -> impl Iterator<Item = JobId> {
    let inside = |id: &JobId| submission.jobs.iter().any(|job| job.spec.id == *id);
    let parents = submission.edges.iter().map(|edge| edge.parent).filter(move |id| !inside(id));
    parents.chain(submission.supersedes).chain(submission.fire.map(|fire| fire.master))
}

fn outside_batches(submission: &Submission, head: JobId) -> Vec<BatchId> {
    let own = submission.batch.map(|_| BatchId::of(head));
    let mut batches: Vec<_> =
        submission.jobs.iter().filter_map(|job| job.spec.batch).filter(|batch| Some(*batch) != own).collect();
    batches.sort();
    batches.dedup();
    batches
}

fn check_known(submission: &Submission, head: JobId, obstacles: &[Obstacle]) -> Result<(), Inserted> {
    if obstacles.first().is_some_and(|obstacle| obstacle.known) {
        return Err(Inserted::Existing(head));
    }
    if let Some(first) = obstacles.iter().find_map(|obstacle| obstacle.first) {
        return Err(Inserted::Existing(first));
    }
    match submission.jobs.iter().zip(obstacles).find(|(_, obstacle)| obstacle.known) {
        Some((job, _)) => Err(Inserted::Refused(Refusal::IdTaken(job.spec.id))),
        None => Ok(()),
    }
}

async fn check_fire(
    session: &mut Session<'_>,
    fire: &Fire,
    jobs: &HashMap<JobId, LockedJob>,
) -> StoreResult<Result<(), Inserted>> {
    let has_fired = session.sql().has_fired.bind().arg("master_id", fire.master);
    let row = has_fired.arg("instant", fire.instant).row(session).await?;
    if Cells(&row).must(session.op(), "fired")? {
        return Ok(Err(Inserted::AlreadyFired));
    }
    let active =
        matches!(jobs.get(&fire.master), Some(LockedJob { place: RowState::Schedule { paused: false }, .. }));
    Ok(if active { Ok(()) } else { Err(Inserted::Refused(Refusal::MasterInactive(fire.master))) })
}

async fn note_fire(session: &mut Session<'_>, fire: &Fire, head: JobId, now: Timestamp) -> StoreResult<()> {
    let fired = session.sql().fired.bind();
    fired
        .arg("master_id", fire.master)
        .arg("instant", fire.instant)
        .arg("job_id", head)
        .arg("now", now)
        .arg("next_fire", fire.next_fire)
        .run(session)
        .await?;
    Ok(())
}

fn columns(submission: &Submission) -> JobColumns<'_> {
    let mut columns = JobColumns::default();
    for (place, job) in submission.jobs.iter().enumerate() {
        let mut parents = submission.edges.iter().filter(|edge| edge.child == job.spec.id).peekable();
        let depends_on = parents.peek().map(|edge| edge.parent);
        let parents = parents.count() as u32;
        // The parent of a batch also waits for the batch.
        let batch = u32::from(place == 0 && submission.batch.is_some());
        let waits =
            Waits { depends_on, blocked_by: job.needs.of(parents) + batch, open_parents: parents + batch };
        columns.push(job, waits);
    }
    columns
}
