//! Taking jobs.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{ClaimRequest, JobClaimStore};
use ratchet_api::{JobClaim, JobId, Outcome, Owner, QueueLimit, StoreResult, Verdict};

use super::SqlStore;
use crate::driver::Row;
use crate::store::commit::commit_all;
use crate::store::hold::ids_of;
use crate::store::row::{self, read_if_readable, read_readable};
use crate::store::session::Session;
use crate::store::values::row_limit;

/// How often a claim looks, if it found heads that other nodes were taking at that moment. Each time it looks as much
/// further as a claim takes: by then their takers have moved on, or it finds what lies behind theirs.
const LOOKS: usize = 4;

/// After such a claim so many others look further at once, for the others will be about again.
const CROWDED: u32 = 16;

#[async_trait]
impl JobClaimStore for SqlStore {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        self.write("claim", |session| Box::pin(claim(session, request))).await
    }

    /// One transaction, and so one wait for the disk instead of two.
    async fn commit_and_claim(
        &self,
        owner: &Owner,
        outcomes: &[Outcome],
        request: &ClaimRequest,
    ) -> StoreResult<(Vec<Verdict>, Vec<JobClaim>)> {
        if outcomes.is_empty() {
            return Ok((Vec::new(), self.claim(request).await?));
        }
        let both = self.transaction("commit_and_claim", |session| {
            Box::pin(async move {
                let verdicts = commit_all(session, owner, outcomes).await?;
                Ok((verdicts, claim(session, request).await?))
            })
        });
        both.await
    }

    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        self.read("owned", |session| Box::pin(owned(session, owner))).await
    }
}

async fn claim(session: &mut Session<'_>, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
    let mut wanted = request.queues.clone();
    let at_once = request.queues.iter().map(|part| bounded(part.limit)).max().unwrap_or_default();
    let mut claims = Vec::new();
    for look in session.store().crowd.first_look()..LOOKS as i64 {
        let (more, missed) = claim_once(session, request, &wanted, look * at_once).await?;
        claims.extend(more);
        if missed <= 0 {
            break;
        }
        session.store().crowd.met();
        subtract(&mut wanted, &claims, &request.queues);
    }
    claims.sort_by_cached_key(|claim| rank(claim, request));
    Ok(claims)
}

/// Whether other nodes were taking the same heads lately.
#[derive(Debug, Default)]
pub(super) struct Crowd(AtomicU32);

impl Crowd {
    fn met(&self) {
        self.0.store(CROWDED, Ordering::Relaxed);
    }

    /// Which look a claim begins with.
    fn first_look(&self) -> i64 {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        i64::from(left.is_ok())
    }
}

/// The order of a claim: queues as they were asked for, and in each the best first.
fn rank(claim: &JobClaim, request: &ClaimRequest) -> impl Ord + use<> {
    let queue = request.queues.iter().position(|part| part.queue == claim.queue);
    let waited = claim.picked_at.since(claim.scheduled_time);
    let boosted = claim.priority.boosted(waited, request.boost_interval);
    (queue, Reverse(boosted), claim.scheduled_time, claim.id)
}

/// What is left to take.
fn subtract(wanted: &mut [QueueLimit], claims: &[JobClaim], limits: &[QueueLimit]) {
    for (left, part) in wanted.iter_mut().zip(limits) {
        left.limit =
            part.limit.saturating_sub(claims.iter().filter(|claim| claim.queue == part.queue).count());
    }
}

/// One statement, which reads so many heads beyond the limit. Answers also how many more there would have been, had others
/// not held them.
async fn claim_once(
    session: &mut Session<'_>,
    request: &ClaimRequest,
    wanted: &[QueueLimit],
    spare: i64,
) -> StoreResult<(Vec<JobClaim>, i64)> {
    let op = session.op();
    let (mut claims, mut missed) = (Vec::new(), 0);
    let claim = session.sql().claim.bind();
    claim
        .arg("now", session.store().now())
        .arg("owner", request.owner.as_str())
        .arg("queues", wanted.iter().map(|part| part.queue.as_str()).collect::<Vec<_>>())
        .arg("limits", wanted.iter().map(|part| bounded(part.limit)).collect::<Vec<_>>())
        .arg("boost_ms", request.boost_interval.map_or(0, boost_millis))
        .arg("spare", spare)
        .each(session, |cells| {
            match cells.must_opt(op, "missed")? {
                Some(count) => missed = count,
                None => claims.extend(read_if_readable(op, CLAIMED, cells, row::claim)),
            }
            Ok(())
        })
        .await?;
    Ok((claims, missed))
}

/// Claims. A row that does not even have an id or a fence is left with its owner; it must not hide its neighbours.
pub(crate) fn readable(op: &'static str, rows: &[Box<dyn Row>]) -> Vec<JobClaim> {
    read_readable(op, CLAIMED, rows, row::claim)
}

const CLAIMED: &str = "a claimed row";

async fn owned(session: &mut Session<'_>, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
    let owned = session.sql().owned.bind().arg("now", session.store().now());
    let rows = owned.arg("owner", owner.as_str()).rows(session).await?;
    Ok(readable(session.op(), &rows))
}

/// Takes these very jobs.
pub(crate) async fn pick_up(
    session: &mut Session<'_>,
    owner: &Owner,
    jobs: &[JobId],
) -> StoreResult<Vec<JobClaim>> {
    let pick_up = session.sql().pick_up.bind().arg("now", session.store().now());
    let rows = pick_up.arg("owner", owner.as_str()).arg("job_ids", ids_of(jobs)).rows(session).await?;
    Ok(readable(session.op(), &rows))
}

/// Takes jobs that no claim would ever find.
pub(crate) async fn pick_up_unreachable(
    session: &mut Session<'_>,
    owner: &Owner,
    limit: usize,
) -> StoreResult<Vec<JobClaim>> {
    let take = session.sql().unreachable.bind().arg("now", session.store().now());
    let rows = take.arg("owner", owner.as_str()).arg("lim", row_limit(limit)).rows(session).await?;
    let mut claims = readable(session.op(), &rows);
    for claim in &mut claims {
        claim.corrupt.get_or_insert_with(|| "no claim could ever have found it".to_owned());
    }
    Ok(claims)
}

/// As [`JobPriority::boosted`](ratchet_api::JobPriority::boosted) counts: less than a millisecond is no boost.
fn boost_millis(interval: Duration) -> i64 {
    i64::try_from(interval.as_millis()).unwrap_or(i64::MAX)
}

/// A limit that no table reaches, so that adding to it cannot overflow.
fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).min(i64::from(i32::MAX))
}
