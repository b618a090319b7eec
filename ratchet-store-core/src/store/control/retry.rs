//! Retrying dead letters, and with them the jobs that their failure had canceled.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use ratchet_api::store::{JobRetryStore, RetryVerdict, Target};
use ratchet_api::{BatchId, EdgeState, JobId, JobStatus, StoreError, StoreErrorKind, StoreResult, Timestamp};

use super::{is_stale, lock_targets};
use crate::store::SqlStore;
use crate::store::batch::{lock_batches, update_batches};
use crate::store::cascade::edges_from;
use crate::store::info::present;
use crate::store::lock_rows::{LockedJob, ids_of, lock_rows};
use crate::store::row::Cells;
use crate::store::session::Session;

/// The number of tries to reserve keys whose holder was gone again when it was looked up.
const ATTEMPTS: usize = 10;

#[async_trait]
impl JobRetryStore for SqlStore {
    async fn retry(&self, jobs: &[Target]) -> StoreResult<Vec<RetryVerdict>> {
        self.transaction("retry", |session| Box::pin(retry_all(session, jobs))).await
    }
}

async fn retry_all(session: &mut Session<'_>, targets: &[Target]) -> StoreResult<Vec<RetryVerdict>> {
    let mut verdicts = Vec::with_capacity(targets.len());
    let mut held = lock_targets(session, targets).await?;
    let now = present(session).await?;
    let refusers = refusers(session, &held).await?;
    while let Some(rest) = targets.get(verdicts.len()..).filter(|rest| !rest.is_empty()) {
        if !verdicts.is_empty() {
            // An earlier target may have revived others.
            held = lock_targets(session, rest).await?;
        }
        let run = &rest[..independent(rest, &refusers)];
        verdicts.extend(match run {
            [only] if refusers.contains(&only.id) => vec![retry_one(session, only, &held, now).await?],
            run => retry_run(session, run, &held, now).await?,
        });
    }
    Ok(verdicts)
}

/// The dead letters among these that refused an edge.
async fn refusers(
    session: &mut Session<'_>,
    held: &HashMap<JobId, LockedJob>,
) -> StoreResult<HashSet<JobId>> {
    let dead = held.values().filter(|held| held.status() == JobStatus::Failed).map(|held| &held.id);
    let dead = ids_of(dead);
    if dead.is_empty() {
        return Ok(HashSet::new());
    }
    let edges = edges_from(session, &dead).await?;
    let refused = edges.iter().filter(|edge| edge.state == EdgeState::Refused);
    Ok(refused.map(|edge| edge.parent).collect())
}

/// How many of the first targets can be retried at once: none of them changes the state that another one finds.
fn independent(targets: &[Target], refusers: &HashSet<JobId>) -> usize {
    let mut met = HashSet::new();
    let dependent = |target: &Target| !met.insert(target.id) || refusers.contains(&target.id);
    targets.iter().position(dependent).map_or(targets.len(), |place| place.max(1))
}

/// Decides the effect of a retry on a job, unless another job holds its key.
fn judge(target: &Target, held: Option<&LockedJob>) -> RetryVerdict {
    let Some(held) = held else { return RetryVerdict::Unknown };
    match held.status() {
        status if is_stale(target, held) => RetryVerdict::Stale(status),
        JobStatus::Failed => RetryVerdict::Retried { revived: Vec::new() },
        status => RetryVerdict::NotFailed(status),
    }
}

/// Retries dead letters that revive no other job.
async fn retry_run(
    session: &mut Session<'_>,
    run: &[Target],
    held: &HashMap<JobId, LockedJob>,
    now: Timestamp,
) -> StoreResult<Vec<RetryVerdict>> {
    let mut verdicts: Vec<RetryVerdict> =
        run.iter().map(|target| judge(target, held.get(&target.id))).collect();
    let retried = |verdict: &RetryVerdict| matches!(verdict, RetryVerdict::Retried { .. });
    let dead = run.iter().zip(&verdicts).filter(|(_, verdict)| retried(verdict));
    let dead: Vec<JobId> = dead.map(|(target, _)| target.id).collect();
    let taken = reserve_keys(session, &dead, now).await?;
    for (target, verdict) in run.iter().zip(&mut verdicts) {
        if let Some(holder) = taken.get(&target.id) {
            *verdict = RetryVerdict::KeyTaken { holder: *holder };
        }
    }
    let free = dead.iter().filter(|id| !taken.contains_key(id));
    let free: Vec<LockedJob> = free.filter_map(|id| held.get(id)).cloned().collect();
    bring_back(session, &free, &ids_of(free.iter().map(|held| &held.id)), now).await?;
    Ok(verdicts)
}

/// Retries a dead letter, and revives the jobs that its failure had canceled.
async fn retry_one(
    session: &mut Session<'_>,
    target: &Target,
    held: &HashMap<JobId, LockedJob>,
    now: Timestamp,
) -> StoreResult<RetryVerdict> {
    let verdict = judge(target, held.get(&target.id));
    let (Some(dead_letter), RetryVerdict::Retried { .. }) = (held.get(&target.id), &verdict) else {
        return Ok(verdict);
    };
    let Reopened { edges, revived } = refused_because_of(session, dead_letter.id).await?;
    let dependents = ids_of(revived.iter().map(|held| &held.id));
    let mut all = revived;
    all.push(dead_letter.clone());

    session.raw("SAVEPOINT retry").await?;
    let taken = reserve_keys(session, &ids_of(all.iter().map(|held| &held.id)), now).await?;
    let by_nearness = std::iter::once(&dead_letter.id).chain(&dependents);
    if let Some(&holder) = by_nearness.filter_map(|id| taken.get(id)).next() {
        session.raw("ROLLBACK TO SAVEPOINT retry").await?;
        return Ok(RetryVerdict::KeyTaken { holder });
    }
    session.raw("RELEASE SAVEPOINT retry").await?;
    bring_back(session, &all, &[dead_letter.id], now).await?;
    let reopen =
        session.sql().reopen_edges.bind().arg("parents", ids_of(edges.iter().map(|(parent, _)| parent)));
    reopen.arg("children", ids_of(edges.iter().map(|(_, child)| child))).run(session).await?;
    Ok(RetryVerdict::Retried { revived: dependents })
}

/// Puts ended jobs back into the queue; those that were retried themselves start over.
async fn bring_back(
    session: &mut Session<'_>,
    jobs: &[LockedJob],
    retried: &[JobId],
    now: Timestamp,
) -> StoreResult<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let ids = ids_of(jobs.iter().map(|held| &held.id));
    let revive = session.sql().revive.bind().arg("paused", false).arg("job_ids", ids);
    revive.arg("now", now).run(session).await?;
    let start_over = session.sql().start_over.bind().arg("job_ids", ids_of(retried));
    start_over.arg("now", now).run(session).await?;
    uncount(session, jobs).await
}

/// The edges and jobs that reopen with a dead letter.
#[derive(Default)]
struct Reopened {
    edges: Vec<(JobId, JobId)>,
    /// Jobs that wait again, nearest first.
    revived: Vec<LockedJob>,
}

/// Follows refused edges from a dead letter. A child waits again if it was canceled by refusals and the edges that
/// open again give it back enough open parents; then its own edges open again as well.
async fn refused_because_of(session: &mut Session<'_>, id: JobId) -> StoreResult<Reopened> {
    let mut reopened = Reopened::default();
    let mut regained: HashMap<JobId, u32> = HashMap::new();
    let mut level = vec![id];
    while !level.is_empty() {
        let refused: Vec<_> = edges_from(session, &level)
            .await?
            .into_iter()
            .filter(|edge| edge.state == EdgeState::Refused)
            .map(|edge| (edge.parent, edge.child))
            .collect();
        let children: Vec<JobId> = refused.iter().map(|(_, child)| *child).collect();
        let held = lock_rows(session, &children).await?;
        level.clear();
        for (parent, child) in refused {
            reopened.edges.push((parent, child));
            let regained = regained.entry(child).or_default();
            *regained += 1;
            if let Some(held) = held.get(&child).filter(|held| held.waits_again_with(*regained)) {
                reopened.revived.push(held.clone());
                level.push(child);
            }
        }
    }
    Ok(reopened)
}

/// Reserves the business keys of ended jobs again. Returns the jobs that did not get theirs, each with the live job
/// that holds it.
pub(super) async fn reserve_keys(
    session: &mut Session<'_>,
    jobs: &[JobId],
    now: Timestamp,
) -> StoreResult<HashMap<JobId, JobId>> {
    let (mut open, mut taken) = (jobs.to_vec(), HashMap::new());
    // A key may be freed between losing it and looking up its holder, so it is tried again, but not for ever.
    for _ in 0..ATTEMPTS {
        if open.is_empty() {
            return Ok(taken);
        }
        let reserve = session.sql().reserve_keys.bind().arg("now", now);
        let lost = reserve.arg("job_ids", ids_of(&open)).rows(session).await?;
        open.clear();
        let mut holders: HashMap<String, Option<JobId>> = HashMap::new();
        for row in &lost {
            let (cells, op) = (Cells(row), session.op());
            let (id, key): (JobId, String) = (cells.must(op, "job_id")?, cells.must(op, "business_key")?);
            let holder = match holders.get(&key) {
                Some(known) => *known,
                None => *holders.entry(key.clone()).or_insert(holder(session, &key).await?),
            };
            match holder {
                Some(holder) => drop(taken.insert(id, holder)),
                None => open.push(id),
            }
        }
    }
    Err(StoreError::new(
        StoreErrorKind::Transient,
        session.op(),
        "keys change hands faster than they can be taken",
    ))
}

async fn holder(session: &mut Session<'_>, key: &str) -> StoreResult<Option<JobId>> {
    let rows = session.sql().find_by_business_key.bind().arg("business_key", key).rows(session).await?;
    let op = session.op();
    rows.first().map(|row| Cells(row).must(op, "job_id")).transpose()
}

/// Subtracts revived children from the failed ones of their batches. A completed batch stays completed.
async fn uncount(session: &mut Session<'_>, jobs: &[LockedJob]) -> StoreResult<()> {
    let ids: Vec<BatchId> = jobs.iter().filter_map(|held| held.batch).collect();
    let mut batches = lock_batches(session, &ids).await?;
    for batch in &mut batches {
        for revived in jobs.iter().filter(|held| held.batch == Some(batch.id)) {
            batch.progress.failed = batch.progress.failed.saturating_sub(1);
            batch.ran_ms = batch.ran_ms.saturating_sub(revived.ran_ms());
        }
    }
    update_batches(session, &batches).await
}
