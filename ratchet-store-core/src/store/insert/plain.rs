//! Jobs on their own, many by one statement.

use ratchet_api::{Inserted, JobId, StoreError, StoreErrorKind, StoreResult, Timestamp};

use super::Placed;
use super::columns::{JobColumns, Waits};
use crate::store::row::{Cells, Problem, read_all};
use crate::store::session::Session;

/// The number of tries, because a key may be freed between losing it and looking up its holder, again and again.
const ATTEMPTS: usize = 10;

/// Whether something may have to be undone: a job with both kinds of key can get one and not the other.
pub(crate) fn needs_transaction(jobs: &[Placed<'_>]) -> bool {
    columns(jobs).any_with_both_keys()
}

/// Stores jobs of which no two share an id or a key.
pub(crate) async fn insert(
    session: &mut Session<'_>,
    jobs: &[Placed<'_>],
) -> StoreResult<Vec<(usize, Inserted)>> {
    let mut verdicts = Vec::with_capacity(jobs.len());
    let mut open = jobs.to_vec();
    for _ in 0..ATTEMPTS {
        let columns = columns(&open);
        let fates = store(session, &columns, session.store().now()).await?;
        let (stored, rest): (Vec<_>, Vec<_>) = open.iter().zip(&fates).partition(|(_, fate)| fate.stored);
        verdicts.extend(stored.into_iter().map(|((place, _), _)| (*place, Inserted::New)));
        if rest.is_empty() {
            return Ok(verdicts);
        }
        let rest: Vec<Placed<'_>> = rest.into_iter().map(|(job, _)| *job).collect();
        let obstacles = look(session, &self::columns(&rest)).await?;
        open.clear();
        for (job, obstacle) in rest.into_iter().zip(obstacles) {
            match obstacle.verdict(job.1.spec.id) {
                Some(verdict) => verdicts.push((job.0, verdict)),
                None => open.push(job),
            }
        }
        if open.is_empty() {
            return Ok(verdicts);
        }
    }
    Err(StoreError::new(
        StoreErrorKind::Transient,
        session.op(),
        "keys change hands faster than jobs can be stored",
    ))
}

fn columns<'a>(jobs: &[Placed<'a>]) -> JobColumns<'a> {
    let mut columns = JobColumns::default();
    for (_, job) in jobs {
        columns.push(job, Waits::default());
    }
    columns
}

/// The result of the insert statement for one job.
pub(crate) struct Fate {
    pub(crate) stored: bool,
    in_ledger: bool,
    has_key: bool,
}

/// Stores the jobs that can be stored, and leaves no key of the others behind.
pub(crate) async fn store(
    session: &mut Session<'_>,
    columns: &JobColumns<'_>,
    now: Option<Timestamp>,
) -> StoreResult<Vec<Fate>> {
    let rows = columns.bind(&session.sql().insert_jobs, now).rows(session).await?;
    let fate = |cells: Cells<'_>| -> Result<Fate, Problem> {
        let (stored, in_ledger) = (cells.get("stored")?, cells.get("in_ledger")?);
        Ok(Fate { stored, in_ledger, has_key: cells.get("has_key")? })
    };
    let fates = read_all(session.op(), &rows, fate)?;
    let left_behind = |fate: &Fate| !fate.stored && (fate.in_ledger || fate.has_key);
    let undone: Vec<JobId> =
        columns.job_ids.iter().zip(&fates).filter(|(_, fate)| left_behind(fate)).map(|(id, _)| *id).collect();
    if !undone.is_empty() {
        let undo = session.sql().undo_keys.bind();
        undo.arg("job_ids", undone)
            .arg("key_hashes", columns.key_hashes())
            .arg("business_keys", columns.business_keys.iter().copied().flatten().collect::<Vec<_>>())
            .run(session)
            .await?;
    }
    Ok(fates)
}

/// The stored rows that keep a job from being inserted.
#[derive(Debug)]
pub(crate) struct Obstacle {
    pub(crate) known: bool,
    pub(crate) first: Option<JobId>,
    pub(crate) holder: Option<JobId>,
}

impl Obstacle {
    /// The verdict on a single job; `None` if no obstacle is left.
    fn verdict(&self, id: JobId) -> Option<Inserted> {
        match self {
            Self { known: true, .. } => Some(Inserted::Existing(id)),
            Self { first: Some(first), .. } => Some(Inserted::Existing(*first)),
            Self { holder: Some(holder), .. } => Some(Inserted::KeyTaken { holder: *holder }),
            _ => None,
        }
    }
}

/// Reads the obstacles of jobs, in their order.
pub(crate) async fn look(session: &mut Session<'_>, columns: &JobColumns<'_>) -> StoreResult<Vec<Obstacle>> {
    let look = session.sql().look.bind();
    let rows = look
        .arg("job_ids", &columns.job_ids)
        .arg("key_hashes", columns.key_hashes())
        .arg("business_keys", &columns.business_keys)
        .rows(session)
        .await?;
    let obstacle = |cells: Cells<'_>| {
        Ok(Obstacle {
            known: cells.get("known")?,
            first: cells.opt("first_id")?,
            holder: cells.opt("holder")?,
        })
    };
    read_all(session.op(), &rows, obstacle)
}
