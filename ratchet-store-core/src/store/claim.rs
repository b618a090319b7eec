//! Claiming jobs.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{ClaimRequest, JobClaimStore};
use ratchet_api::{JobClaim, JobId, Outcome, Owner, ParkedOn, QueueLimit, QueueName, StoreResult, Verdict};

use super::SqlStore;
use crate::driver::Row;
use crate::store::commit::commit_all;
use crate::store::lock_rows::ids_of;
use crate::store::row::{self, read_if_readable, read_readable};
use crate::store::session::Session;
use crate::store::values::row_limit;

/// The maximum number of tries of one claim, if it found heads that other nodes were claiming at that moment. Each try
/// reads further than the one before, by as many heads as the claim takes: by then the other nodes have moved on, or it
/// finds the jobs behind theirs.
const LOOKS: usize = 4;

/// The number of claims after such a claim that start with the second try, because the contention is likely to last.
const CROWDED: u32 = 16;

#[async_trait]
impl JobClaimStore for SqlStore {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        self.write("claim", |session| Box::pin(claim(session, request))).await
    }

    /// Uses one transaction, and so one wait for the disk instead of two.
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
    let parkings = &session.store().parkings;
    let (mut pulled, mut wanted): (Vec<_>, Vec<_>) =
        request.queues.iter().cloned().partition(|part| parkings.has(&part.queue));
    let (limits, mut claims) = (wanted.clone(), Vec::new());
    let at_once = wanted.iter().map(|part| bounded(part.limit)).max().unwrap_or_default();
    let first_look = if wanted.is_empty() { LOOKS as i64 } else { session.store().crowd.first_look() };
    for look in first_look..LOOKS as i64 {
        let mut found = claim_once(session, request, &wanted, look * at_once).await?;
        claims.append(&mut found.claims);
        let part = |place: &i64| limits.get(usize::try_from(*place).ok()?.checked_sub(1)?).cloned();
        for part in found.parked.iter().filter_map(part) {
            if !pulled.contains(&part) {
                session.store().parkings.insert(&part.queue);
                pulled.push(part);
            }
        }
        if found.missed <= 0 {
            break;
        }
        session.store().crowd.met();
        subtract(&mut wanted, &claims, &limits);
    }
    let mut taken_on = Vec::new();
    for part in &pulled {
        claims.extend(pull(session, request, part, &mut taken_on).await?);
    }
    claims.sort_by_cached_key(|claim| rank(claim, request));
    Ok(claims)
}

/// The queues that had parked jobs when they were last read: claims leave them to `pull` at once.
#[derive(Debug, Default)]
pub(super) struct Parkings(Mutex<BTreeSet<QueueName>>);

impl Parkings {
    fn has(&self, queue: &QueueName) -> bool {
        self.queues().contains(queue)
    }

    fn insert(&self, queue: &QueueName) {
        self.queues().insert(queue.clone());
    }

    fn remove(&self, queue: &QueueName) {
        self.queues().remove(queue);
    }

    fn queues(&self) -> MutexGuard<'_, BTreeSet<QueueName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether other nodes were claiming the same heads lately: the number of claims that still expect them there.
#[derive(Debug, Default)]
pub(super) struct Crowd(AtomicU32);

impl Crowd {
    fn met(&self) {
        self.0.store(CROWDED, Ordering::Relaxed);
    }

    /// The number of the try with which a claim begins.
    fn first_look(&self) -> i64 {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        i64::from(left.is_ok())
    }
}

/// The order of a claim: queues as they were requested, and in each the best job first.
fn rank(claim: &JobClaim, request: &ClaimRequest) -> impl Ord + use<> {
    let queue = request.queues.iter().position(|part| part.queue == claim.queue);
    let waited = claim.picked_at.since(claim.scheduled_time);
    let boosted = claim.priority.boosted(waited, request.boost_interval);
    (queue, Reverse(boosted), claim.scheduled_time, claim.id)
}

/// Reduces the limits by the claims: `wanted` is the rest.
fn subtract(wanted: &mut [QueueLimit], claims: &[JobClaim], limits: &[QueueLimit]) {
    for (left, part) in wanted.iter_mut().zip(limits) {
        left.limit =
            part.limit.saturating_sub(claims.iter().filter(|claim| claim.queue == part.queue).count());
    }
}

/// The result of one claim statement.
#[derive(Default)]
struct Found {
    claims: Vec<JobClaim>,
    /// How many more jobs it would have taken, had other nodes not held them.
    missed: i64,
    /// The positions, counted from 1, of queues with parked jobs from which it took nothing.
    parked: Vec<i64>,
}

/// Runs one claim statement, which reads `spare` heads beyond the limit.
async fn claim_once(
    session: &mut Session<'_>,
    request: &ClaimRequest,
    wanted: &[QueueLimit],
    spare: i64,
) -> StoreResult<Found> {
    let op = session.op();
    let mut found = Found::default();
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
                Some(count) => {
                    found.missed = count;
                    found.parked = cells.must_opt(op, "parked")?.unwrap_or_default();
                }
                None => found.claims.extend(read_if_readable(op, CLAIMED, cells, row::claim)),
            }
            Ok(())
        })
        .await?;
    Ok(found)
}

/// Claims from a queue in which jobs are parked: a rare case, so it has a statement of its own. `taken_on` lists the
/// resources and methods that the jobs taken by this call so far were parked on.
async fn pull(
    session: &mut Session<'_>,
    request: &ClaimRequest,
    part: &QueueLimit,
    taken_on: &mut Vec<String>,
) -> StoreResult<Vec<JobClaim>> {
    let op = session.op();
    let mut claims = Vec::new();
    for look in session.store().crowd.first_look()..LOOKS as i64 {
        let (before, mut missed, mut none_parked) = (taken_on.clone(), 0, false);
        let pull = session.sql().pull.bind();
        pull.arg("now", session.store().now())
            .arg("owner", request.owner.as_str())
            .arg("queue", part.queue.as_str())
            .arg("lim", bounded(part.limit.saturating_sub(claims.len())))
            .arg("boost_ms", request.boost_interval.map_or(0, boost_millis))
            .arg("spare", look * bounded(part.limit))
            // The last try hands out what it finds and parks nothing: a caller that gets less than it asked for
            // concludes that there is no more.
            .arg("park", look + 1 < LOOKS as i64)
            .arg("taken_on", &before)
            .each(session, |cells| {
                match cells.must_opt(op, "missed")? {
                    Some(count) => {
                        missed = count;
                        none_parked = cells.must_opt(op, "none_parked")?.unwrap_or_default();
                    }
                    None => {
                        claims.extend(read_if_readable(op, CLAIMED, cells, row::claim));
                        // A cell that cannot be read names no resource.
                        taken_on.extend(cells.opt("parked_on").unwrap_or_default());
                    }
                }
                Ok(())
            })
            .await?;
        if none_parked {
            session.store().parkings.remove(&part.queue);
        }
        if missed <= 0 {
            break;
        }
        session.store().crowd.met();
    }
    Ok(claims)
}

/// Reads claims. A row without a readable id or fence is left with its owner; it must not hide its neighbours.
pub(crate) fn readable(op: &'static str, rows: &[Box<dyn Row>]) -> Vec<JobClaim> {
    read_readable(op, CLAIMED, rows, row::claim)
}

const CLAIMED: &str = "a claimed row";

async fn owned(session: &mut Session<'_>, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
    let owned = session.sql().owned.bind().arg("now", session.store().now());
    let rows = owned.arg("owner", owner.as_str()).rows(session).await?;
    Ok(readable(session.op(), &rows))
}

/// Claims exactly these jobs.
pub(crate) async fn pick_up(
    session: &mut Session<'_>,
    owner: &Owner,
    jobs: &[JobId],
) -> StoreResult<Vec<JobClaim>> {
    let pick_up = session.sql().pick_up.bind().arg("now", session.store().now());
    let rows = pick_up.arg("owner", owner.as_str()).arg("job_ids", ids_of(jobs)).rows(session).await?;
    Ok(readable(session.op(), &rows))
}

/// Claims jobs that are parked on `on`.
pub(crate) async fn pick_up_parked(
    session: &mut Session<'_>,
    owner: &Owner,
    queue: &QueueName,
    on: &ParkedOn,
    limit: usize,
) -> StoreResult<Vec<JobClaim>> {
    let on = on.to_string();
    let take = session.sql().pick_up_parked.bind().arg("now", session.store().now());
    let take = take.arg("owner", owner.as_str()).arg("queue", queue.as_str()).arg("parked_on", on.as_str());
    let rows = take.arg("lim", row_limit(limit)).rows(session).await?;
    Ok(readable(session.op(), &rows))
}

/// Claims jobs that no ordinary claim would ever find.
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

/// Converts the interval as [`JobPriority::boosted`](ratchet_api::JobPriority::boosted) counts it: less than a
/// millisecond is no boost.
fn boost_millis(interval: Duration) -> i64 {
    i64::try_from(interval.as_millis()).unwrap_or(i64::MAX)
}

/// Caps a limit at a number that no table reaches, so that adding to it cannot overflow.
fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).min(i64::from(i32::MAX))
}
