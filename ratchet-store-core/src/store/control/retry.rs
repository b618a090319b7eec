//! Reviving dead letters, and with them what their failure had cancelled.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_api::store::{JobRetryStore, RetryVerdict, Target};
use ratchet_api::{BatchId, EdgeState, JobId, JobStatus, StoreError, StoreErrorKind, StoreResult, Timestamp};

use super::{again, hold_targets, is_stale};
use crate::store::SqlStore;
use crate::store::batch::{hold_batches, update_batches};
use crate::store::follow::edges_from;
use crate::store::hold::{Held, hold, ids_of};
use crate::store::info::present;
use crate::store::row::Cells;
use crate::store::session::Session;

/// How often keys that were lost to someone who is gone again are tried anew.
const ATTEMPTS: usize = 10;

#[async_trait]
impl JobRetryStore for SqlStore {
    async fn retry(&self, jobs: &[Target]) -> StoreResult<Vec<RetryVerdict>> {
        self.transaction("retry", |session| Box::pin(retry_all(session, jobs))).await
    }
}

async fn retry_all(session: &mut Session<'_>, targets: &[Target]) -> StoreResult<Vec<RetryVerdict>> {
    hold_targets(session, targets).await?;
    let now = present(session).await?;
    let mut verdicts = Vec::with_capacity(targets.len());
    for target in targets {
        verdicts.push(match again(session, target.id).await? {
            None => RetryVerdict::Unknown,
            Some(held) if is_stale(target, &held) => RetryVerdict::Stale(held.status()),
            Some(held) if held.status() != JobStatus::Failed => RetryVerdict::NotFailed(held.status()),
            Some(held) => retry_one(session, held, now).await?,
        });
    }
    Ok(verdicts)
}

async fn retry_one(
    session: &mut Session<'_>,
    dead_letter: Held,
    now: Timestamp,
) -> StoreResult<RetryVerdict> {
    let id = dead_letter.id;
    let Reopened { edges, revived } = refused_because_of(session, id).await?;
    let dependents: Vec<JobId> = revived.iter().map(|held| held.id).collect();
    let mut all = revived;
    all.push(dead_letter);
    let ids: Vec<JobId> = all.iter().map(|held| held.id).collect();

    session.raw("SAVEPOINT retry").await?;
    if let Some(holder) = reserve_keys(session, &ids, now).await? {
        session.raw("ROLLBACK TO SAVEPOINT retry").await?;
        return Ok(RetryVerdict::KeyTaken { holder });
    }
    session.raw("RELEASE SAVEPOINT retry").await?;
    let revive = session.sql().revive.bind().arg("paused", false).arg("job_ids", ids_of(&ids));
    revive.arg("now", now).run(session).await?;
    let start_over = session.sql().start_over.bind().arg("job_id", id);
    start_over.arg("now", now).run(session).await?;
    if !edges.is_empty() {
        let reopen =
            session.sql().reopen_edges.bind().arg("parents", ids_of(edges.iter().map(|(parent, _)| parent)));
        reopen.arg("children", ids_of(edges.iter().map(|(_, child)| child))).run(session).await?;
    }
    uncount(session, &all).await?;
    Ok(RetryVerdict::Retried { revived: dependents })
}

/// What opens again with a dead letter.
#[derive(Default)]
struct Reopened {
    edges: Vec<(JobId, JobId)>,
    /// Jobs that wait again, nearest first.
    revived: Vec<Held>,
}

/// Follows refused edges from a dead letter. A child waits again if it was cancelled by refusals and the edges that
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
        let held = hold(session, &children).await?;
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

/// Reserves the business keys of ended jobs again. Answers a live holder of one of them, if there is one; then some
/// of the keys may be reserved, and the caller goes back.
pub(super) async fn reserve_keys(
    session: &mut Session<'_>,
    jobs: &[JobId],
    now: Timestamp,
) -> StoreResult<Option<JobId>> {
    let mut open = jobs.to_vec();
    // A key may be freed between losing it and looking who holds it; not for ever.
    for _ in 0..ATTEMPTS {
        let reserve = session.sql().reserve_keys.bind().arg("now", now);
        let taken = reserve.arg("job_ids", ids_of(&open)).rows(session).await?;
        open.clear();
        for row in &taken {
            let (cells, op) = (Cells(row), session.op());
            let key: String = cells.must(op, "business_key")?;
            let find = session.sql().find_by_business_key.bind().arg("business_key", key.as_str());
            if let Some(holder) = find.rows(session).await?.first() {
                return Cells(holder).must(op, "job_id").map(Some);
            }
            open.push(cells.must(op, "job_id")?);
        }
        if open.is_empty() {
            return Ok(None);
        }
    }
    Err(StoreError::new(
        StoreErrorKind::Transient,
        session.op(),
        "keys change hands faster than they can be taken",
    ))
}

/// Takes revived children off the failed ones of their batches. A batch that was completed stays so.
async fn uncount(session: &mut Session<'_>, jobs: &[Held]) -> StoreResult<()> {
    let ids: Vec<BatchId> = jobs.iter().filter_map(|held| held.batch).collect();
    let mut batches = hold_batches(session, &ids).await?;
    for batch in &mut batches {
        for revived in jobs.iter().filter(|held| held.batch == Some(batch.id)) {
            batch.progress.failed = batch.progress.failed.saturating_sub(1);
            batch.ran_ms -= revived.ran_ms();
        }
    }
    update_batches(session, &batches).await
}
