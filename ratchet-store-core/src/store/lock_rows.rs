//! Locks jobs before a control call or the end of another job changes them.

use std::collections::HashMap;

use ratchet_api::{BatchId, Fence, JobId, JobStatus, Owner, StoreResult};

use crate::store::corrupt::{QUEUE_ROW_GONE, end_corrupt};
use crate::store::row::{Cells, Problem, read_readable};
use crate::store::session::Session;

/// A job whose row is locked until the transaction ends.
#[derive(Clone, Debug)]
pub(crate) struct LockedJob {
    pub(crate) id: JobId,
    pub(crate) fence: Fence,
    pub(crate) place: RowState,
    pub(crate) batch: Option<BatchId>,
}

/// The state of a locked job, by the row that it is in.
#[derive(Clone, Debug)]
pub(crate) enum RowState {
    /// In the queue: pending, running or paused.
    Queue(Queued),
    /// A schedule, paused or not.
    Schedule { paused: bool },
    /// Ended.
    Ended(Ended),
}

/// An ended job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    status: JobStatus,
    /// Canceled because a parent refused.
    cascaded: bool,
    blocked_by: u32,
    open_parents: u32,
    /// How long its last body ran.
    ran_ms: i64,
}

/// The state of a queue row.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    /// As stored: RUNNING also after a cancel was accepted.
    pub(crate) status: JobStatus,
    pub(crate) picked_by: Option<Owner>,
    pub(crate) cancel_requested: bool,
    pub(crate) paused_from: Option<JobStatus>,
    pub(crate) edge_count: u32,
}

impl LockedJob {
    /// The status as readers see it.
    pub(crate) fn status(&self) -> JobStatus {
        match &self.place {
            RowState::Queue(queued) if queued.cancel_requested => JobStatus::Canceled,
            RowState::Queue(queued) => queued.status,
            RowState::Schedule { paused: true } => JobStatus::Paused,
            RowState::Schedule { paused: false } => JobStatus::Pending,
            RowState::Ended(ended) => ended.status,
        }
    }

    /// The status by which the job decides edges that lead from it: a paused dead letter counts as FAILED.
    pub(crate) fn decides_as(&self) -> JobStatus {
        match &self.place {
            RowState::Queue(Queued { paused_from: Some(JobStatus::Failed), .. }) => JobStatus::Failed,
            _ => self.status(),
        }
    }

    /// Whether a job that refusals had canceled waits again once it regains this many open parents. For a number that
    /// rises by one at a time, this is true once.
    pub(crate) fn waits_again_with(&self, regained: u32) -> bool {
        matches!(&self.place, RowState::Ended(ended) if ended.status == JobStatus::Canceled
            && ended.cascaded && ended.open_parents.checked_add(regained) == Some(ended.blocked_by))
    }

    /// How long the last body of an ended job ran.
    pub(crate) fn ran_ms(&self) -> i64 {
        match &self.place {
            RowState::Ended(ended) => ended.ran_ms,
            RowState::Queue(_) | RowState::Schedule { .. } => 0,
        }
    }

    pub(crate) fn is_schedule(&self) -> bool {
        matches!(self.place, RowState::Schedule { .. })
    }
}

/// Locks these jobs, in the order of their ids. Unknown ones are missing in the result.
pub(crate) async fn lock_rows(
    session: &mut Session<'_>,
    ids: &[JobId],
) -> StoreResult<HashMap<JobId, LockedJob>> {
    let mut held = lock_queued(session, ids).await?;
    let mut rest: Vec<JobId> = Vec::new();
    // A dead letter may be revived between the two reads; the next read then finds it in the queue.
    for _ in 0..3 {
        rest = ids.iter().copied().filter(|id| !held.contains_key(id)).collect();
        if rest.is_empty() {
            return Ok(held);
        }
        let (settled, moved) = lock_cold(session, &rest).await?;
        held.extend(settled);
        if moved.is_empty() {
            return Ok(held);
        }
        held.extend(lock_queued(session, &moved).await?);
        rest = moved;
        rest.retain(|id| !held.contains_key(id));
        if rest.is_empty() {
            return Ok(held);
        }
    }
    // Nobody can move these jobs while their rows are locked: their queue rows are missing.
    Box::pin(end_corrupt(session, &rest, QUEUE_ROW_GONE)).await?;
    held.extend(lock_cold(session, &rest).await?.0);
    Ok(held)
}

async fn lock_queued(session: &mut Session<'_>, ids: &[JobId]) -> StoreResult<HashMap<JobId, LockedJob>> {
    let rows = session.sql().lock_rows.bind().arg("job_ids", ids_of(ids)).rows(session).await?;
    let held = read_readable(session.op(), "a queue row", &rows, queued);
    Ok(held.into_iter().map(|held| (held.id, held)).collect())
}

/// Locks cold rows. Returns the jobs that have no queue row, and the ids of those that must have one.
async fn lock_cold(
    session: &mut Session<'_>,
    ids: &[JobId],
) -> StoreResult<(HashMap<JobId, LockedJob>, Vec<JobId>)> {
    let rows = session.sql().lock_cold.bind().arg("job_ids", ids_of(ids)).rows(session).await?;
    let (mut settled, mut moved) = (HashMap::new(), Vec::new());
    for (id, held) in read_readable(session.op(), "a job", &rows, cold) {
        match held {
            Some(held) => drop(settled.insert(id, held)),
            None => moved.push(id),
        }
    }
    Ok((settled, moved))
}

/// Reads a queue row. Damaged cells are passed over: the holder of the job must be able to end it.
fn queued(cells: Cells<'_>) -> Result<LockedJob, Problem> {
    let queued = Queued {
        status: cells.get("status")?,
        picked_by: cells.opt("picked_by").unwrap_or_default(),
        cancel_requested: cells.get("cancel_requested").unwrap_or_default(),
        paused_from: cells.opt("paused_from_status").unwrap_or_default(),
        edge_count: cells.clamped("edge_count"),
    };
    held(cells, RowState::Queue(queued))
}

fn cold(cells: Cells<'_>) -> Result<(JobId, Option<LockedJob>), Problem> {
    let place = match (cells.opt("terminal_status")?, cells.opt::<String>("rec_status")?.as_deref()) {
        (Some(status), _) => RowState::Ended(Ended {
            status,
            cascaded: cells.get("cancel_cascaded").unwrap_or_default(),
            blocked_by: cells.clamped("blocked_by"),
            open_parents: cells.clamped("open_parents"),
            ran_ms: cells.opt("ran_ms").ok().flatten().unwrap_or_default(),
        }),
        (None, Some(rec_status)) => RowState::Schedule { paused: rec_status == "P" },
        (None, None) => return Ok((cells.get("job_id")?, None)),
    };
    Ok((cells.get("job_id")?, Some(held(cells, place)?)))
}

fn held(cells: Cells<'_>, place: RowState) -> Result<LockedJob, Problem> {
    let batch = cells.opt("batch_id").unwrap_or_default();
    Ok(LockedJob { id: cells.get("job_id")?, fence: cells.get("version")?, place, batch })
}

pub(crate) fn ids_of<'a>(ids: impl IntoIterator<Item = &'a JobId>) -> Vec<JobId> {
    ids.into_iter().copied().collect()
}
