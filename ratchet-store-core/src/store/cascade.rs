//! The cascade of ended jobs: edges are decided, children released or canceled, and so on; batches are counted and
//! completed.
//!
//! Breadth first, one level per round, so that the number of statements grows with the depth and not with the number of
//! jobs.

use std::collections::{BTreeMap, HashMap, HashSet};

use ratchet_api::{BatchId, BatchProgress, Edge, EdgeState, JobId, JobStatus, StoreResult, Timestamp};

use crate::store::batch::{LockedBatch, lock_batches, update_batches};
use crate::store::lock_rows::{ids_of, lock_rows};
use crate::store::row::{self, Cells, read_all, read_readable};
use crate::store::session::Session;

/// The consequences of one cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct LedTo {
    pub(crate) released: Vec<JobId>,
    pub(crate) canceled: Vec<JobId>,
    pub(crate) batch: Option<BatchProgress>,
}

/// One edge to decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    pub(crate) parent: JobId,
    pub(crate) child: JobId,
    pub(crate) state: EdgeState,
    /// The position of the outcome (or control) that decides it.
    pub(crate) cause: usize,
}

/// The cascade of one call.
pub(crate) struct Cascade {
    now: Timestamp,
    led_to: Vec<LedTo>,
    counts: BTreeMap<BatchId, Count>,
}

/// Children of one batch that ended in this call.
#[derive(Default)]
struct Count {
    completed: u64,
    failed: u64,
    ran_ms: i64,
    last_cause: usize,
    /// The causes whose result contains the progress of the batch.
    askers: Vec<usize>,
}

/// The reason why waiting jobs are canceled.
#[derive(Clone, Copy, Default)]
pub(crate) struct Calling<'a> {
    pub(crate) reason: Option<&'a str>,
    /// A parent refused, so a retry of that parent brings the job back.
    pub(crate) cascaded: bool,
    pub(crate) superseded_by: Option<JobId>,
}

impl Cascade {
    /// Begins the cascade of a call with this many causes.
    pub(crate) fn new(now: Timestamp, causes: usize) -> Self {
        Self { now, led_to: vec![LedTo::default(); causes], counts: BTreeMap::new() }
    }

    /// Counts a job of this batch that ended by its own outcome, whose result will contain the progress of the batch.
    pub(crate) fn count_outcome(&mut self, cause: usize, batch: BatchId, status: JobStatus, ran_ms: i64) {
        let count = self.count(cause, batch, status);
        count.ran_ms = count.ran_ms.saturating_add(ran_ms);
        count.askers.push(cause);
    }

    fn count(&mut self, cause: usize, batch: BatchId, status: JobStatus) -> &mut Count {
        let count = self.counts.entry(batch).or_default();
        match status {
            JobStatus::Succeeded => count.completed += 1,
            _ => count.failed += 1,
        }
        count.last_cause = cause;
        count
    }

    /// Decides the edges of ended jobs: those in `told` as it says, and all others that are still open by their
    /// parent's status.
    pub(crate) async fn decide_open(
        &mut self,
        session: &mut Session<'_>,
        ended: &HashMap<JobId, (JobStatus, usize)>,
        told: Vec<Decision>,
    ) -> StoreResult<()> {
        if ended.is_empty() {
            return Ok(());
        }
        let edges = edges_from(session, ended.keys()).await?;
        let open = edges.iter().filter(|edge| edge.state == EdgeState::Open).filter_map(|edge| {
            let (status, cause) = *ended.get(&edge.parent)?;
            let state = edge.decided_by(status).unwrap_or(EdgeState::Refused);
            Some(Decision { parent: edge.parent, child: edge.child, state, cause })
        });
        // Of two decisions about one edge the first counts.
        self.decide(session, told.into_iter().chain(open).collect()).await
    }

    /// Decides edges that are open, and everything that follows.
    pub(crate) async fn decide(
        &mut self,
        session: &mut Session<'_>,
        mut decisions: Vec<Decision>,
    ) -> StoreResult<()> {
        while !decisions.is_empty() {
            let decided = decide_edges(session, &decisions).await?;
            let hopeless = self.settle_children(session, &decided).await?;
            self.end_waiting(session, &hopeless, Calling { cascaded: true, ..Calling::default() }).await?;
            for (id, cause) in &hopeless {
                self.led_to[*cause].canceled.push(*id);
            }
            decisions = refusals(session, &hopeless).await?;
        }
        Ok(())
    }

    /// Lowers the counters of children; returns the children that can no longer be released.
    async fn settle_children(
        &mut self,
        session: &mut Session<'_>,
        decided: &[Decision],
    ) -> StoreResult<Vec<(JobId, usize)>> {
        let mut changes: Vec<Change> = Vec::new();
        for decision in decided {
            let satisfied = i64::from(decision.state == EdgeState::Satisfied);
            match changes.iter_mut().find(|change| change.child == decision.child) {
                Some(change) => change.add(satisfied, decision.cause),
                None => changes.push(Change {
                    child: decision.child,
                    decided: 1,
                    satisfied,
                    cause: decision.cause,
                }),
            }
        }
        let settled = apply_changes(session, &changes, self.now).await?;
        let mut hopeless = Vec::new();
        for change in &changes {
            match settled.get(&change.child) {
                Some(Settled { released: true, .. }) => self.led_to[change.cause].released.push(change.child),
                Some(Settled { hopeless: true, .. }) => hopeless.push((change.child, change.cause)),
                _ => {}
            }
        }
        Ok(hopeless)
    }

    /// Ends locked jobs that wait as CANCELED. The caller decides their edges.
    pub(crate) async fn end_waiting(
        &mut self,
        session: &mut Session<'_>,
        jobs: &[(JobId, usize)],
        calling: Calling<'_>,
    ) -> StoreResult<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let ended = session.sql().end_waiting.bind();
        let ended = ended
            .arg("job_ids", ids_of(jobs.iter().map(|(id, _)| id)))
            .arg("now", self.now)
            .arg("reason", calling.reason)
            .arg("cascaded", calling.cascaded)
            .arg("superseded_by", calling.superseded_by);
        let causes: HashMap<JobId, usize> = jobs.iter().copied().collect();
        for row in ended.rows(session).await? {
            let (cells, op) = (Cells(&row), session.op());
            let id: JobId = cells.must(op, "job_id")?;
            let batch: Option<BatchId> = cells.must_opt(op, "batch_id")?;
            let paused_from: Option<JobStatus> = cells.must_opt(op, "paused_from_status")?;
            // A paused dead letter was counted when it failed.
            if let Some(batch) = batch.filter(|_| paused_from != Some(JobStatus::Failed)) {
                self.count(causes.get(&id).copied().unwrap_or_default(), batch, JobStatus::Canceled);
            }
        }
        Ok(())
    }

    /// Counts ended children, each batch once, and completes batches. Returns the consequences of each cause.
    pub(crate) async fn finish(mut self, session: &mut Session<'_>) -> StoreResult<Vec<LedTo>> {
        if self.counts.is_empty() {
            return Ok(self.led_to);
        }
        let ids: Vec<BatchId> = self.counts.keys().copied().collect();
        let mut batches = lock_batches(session, &ids).await?;
        let mut completed = Vec::new();
        for batch in &mut batches {
            let Some(count) = self.counts.get(&batch.id) else { continue };
            batch.progress.completed = batch.progress.completed.saturating_add(count.completed);
            batch.progress.failed = batch.progress.failed.saturating_add(count.failed);
            batch.ran_ms = count.ran_ms;
            if batch.complete(self.now) {
                completed.push((batch.id, count.last_cause));
            }
            for asker in &count.askers {
                self.led_to[*asker].batch = Some(batch.progress);
            }
        }
        update_batches(session, &batches).await?;
        self.release_parents(session, &completed).await?;
        Ok(self.led_to)
    }

    /// Writes a locked batch that the caller changed, and releases its parent if the batch is complete now.
    pub(crate) async fn update_batch(
        &mut self,
        session: &mut Session<'_>,
        mut batch: LockedBatch,
    ) -> StoreResult<()> {
        let completed = batch.complete(self.now);
        update_batches(session, std::slice::from_ref(&batch)).await?;
        if completed {
            self.release_parents(session, &[(batch.id, 0)]).await?;
        }
        Ok(())
    }

    async fn release_parents(
        &mut self,
        session: &mut Session<'_>,
        completed: &[(BatchId, usize)],
    ) -> StoreResult<()> {
        if completed.is_empty() {
            return Ok(());
        }
        let parents: Vec<JobId> = completed.iter().map(|(batch, _)| batch.parent()).collect();
        lock_rows(session, &parents).await?;
        let changes: Vec<Change> = completed
            .iter()
            .map(|(batch, cause)| Change { child: batch.parent(), decided: 1, satisfied: 1, cause: *cause })
            .collect();
        let settled = apply_changes(session, &changes, self.now).await?;
        for change in changes {
            if settled.get(&change.child).is_some_and(|settled| settled.released) {
                self.led_to[change.cause].released.push(change.child);
            }
        }
        Ok(())
    }
}

/// The change of a child's counters.
struct Change {
    child: JobId,
    decided: i64,
    satisfied: i64,
    cause: usize,
}

impl Change {
    fn add(&mut self, satisfied: i64, cause: usize) {
        self.decided += 1;
        self.satisfied += satisfied;
        self.cause = cause;
    }
}

struct Settled {
    released: bool,
    hopeless: bool,
}

async fn apply_changes(
    session: &mut Session<'_>,
    changes: &[Change],
    now: Timestamp,
) -> StoreResult<HashMap<JobId, Settled>> {
    if changes.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = session.sql().settle_children.bind();
    let rows = rows
        .arg("children", ids_of(changes.iter().map(|change| &change.child)))
        .arg("decided", changes.iter().map(|change| change.decided).collect::<Vec<_>>())
        .arg("satisfied", changes.iter().map(|change| change.satisfied).collect::<Vec<_>>())
        .arg("now", now)
        .rows(session)
        .await?;
    let read = |cells: Cells<'_>| {
        Ok((
            cells.get("job_id")?,
            Settled { released: cells.get("released")?, hopeless: cells.get("hopeless")? },
        ))
    };
    Ok(read_all(session.op(), &rows, read)?.into_iter().collect())
}

/// Decides open edges; returns the decisions that took effect, in their order.
async fn decide_edges(session: &mut Session<'_>, decisions: &[Decision]) -> StoreResult<Vec<Decision>> {
    let mut seen = HashSet::new();
    let first: Vec<Decision> =
        decisions.iter().copied().filter(|d| seen.insert((d.parent, d.child))).collect();
    let rows = session.sql().decide_edges.bind();
    let rows = rows
        .arg("parents", ids_of(first.iter().map(|decision| &decision.parent)))
        .arg("children", ids_of(first.iter().map(|decision| &decision.child)))
        .arg("states", first.iter().map(|decision| decision.state.as_str()).collect::<Vec<_>>())
        .rows(session)
        .await?;
    let places = read_all(session.op(), &rows, |cells| cells.get::<u64>("place"))?;
    Ok(places.into_iter().filter_map(|place| first.get(place as usize - 1).copied()).collect())
}

/// The refusals that canceled jobs cause: each job refuses every open edge that leads from it.
async fn refusals(session: &mut Session<'_>, canceled: &[(JobId, usize)]) -> StoreResult<Vec<Decision>> {
    if canceled.is_empty() {
        return Ok(Vec::new());
    }
    let causes: HashMap<JobId, usize> = canceled.iter().copied().collect();
    let mut edges = edges_from(session, causes.keys()).await?;
    // Nearest first also within a level: in the order of the parents.
    edges.sort_by_key(|edge| canceled.iter().position(|(id, _)| *id == edge.parent));
    let open = edges.iter().filter(|edge| edge.state == EdgeState::Open);
    Ok(open
        .map(|edge| Decision {
            parent: edge.parent,
            child: edge.child,
            state: EdgeState::Refused,
            cause: causes.get(&edge.parent).copied().unwrap_or_default(),
        })
        .collect())
}

/// The edges that lead from these jobs, by priority, then in the order they were stored.
pub(crate) async fn edges_from<'i>(
    session: &mut Session<'_>,
    parents: impl IntoIterator<Item = &'i JobId>,
) -> StoreResult<Vec<Edge>> {
    let rows = session.sql().edges_from.bind().arg("parents", ids_of(parents)).rows(session).await?;
    Ok(read_readable(session.op(), "an edge", &rows, row::edge))
}
