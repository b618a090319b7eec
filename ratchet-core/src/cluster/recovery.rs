//! Taking over the jobs of nodes that died: they become this node's, and end like any other attempt.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::{DeadReason, HandBackReason, JobClaim, JobFailure, Owner, StoreResult};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::Instrument as _;

use crate::engine::{Engine, retry_while_leased};
use crate::running::Running;
use crate::task::{Stop, bury, bury_corrupt, settle_unrun};

/// What becomes of a job whose node died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It runs again.
    Back(HandBackReason),
    /// It died with too many nodes.
    Dead,
    /// It was called off meanwhile.
    Canceled,
}

fn fate(claim: &JobClaim, reason: HandBackReason, crash_limit: u32) -> Fate {
    match reason {
        _ if claim.cancel_requested => Fate::Canceled,
        HandBackReason::Crashed if claim.crash_count >= crash_limit => Fate::Dead,
        _ => Fate::Back(reason),
    }
}

/// Takes over what the heartbeat finds to be nobody's, until this life is over.
pub(crate) async fn run(engine: Arc<Engine>) {
    let (mut found, options) = (engine.dead.subscribe(), &engine.options.node);
    let mut rest = Duration::ZERO;
    forget(&engine, engine.past()).await;
    while let Some(dead) = next(&engine, &mut found, rest).await {
        let (own, others): (Vec<_>, Vec<_>) = dead.into_iter().partition(|owner| engine.was(owner));
        // This process lives, so none of its jobs made it crash.
        take_over(&engine, &own, HandBackReason::Released).await;
        take_over(&engine, &others, HandBackReason::Crashed).await;
        forget(&engine, &own).await;
        // A beat passes until there is news.
        rest = options.recovery_interval.saturating_sub(options.beat);
    }
}

/// Who is dead, after a rest; `None` once this life is over.
async fn next(
    engine: &Engine,
    found: &mut watch::Receiver<Vec<Owner>>,
    rest: Duration,
) -> Option<Vec<Owner>> {
    let news = async {
        sleep(rest).await;
        found.changed().await.ok()?;
        // Every node hears of them: whoever comes first leaves the others nothing to do.
        sleep((engine.options.node.beat / 10).mul_f64(rand::random())).await;
        Some(found.borrow_and_update().clone())
    };
    tokio::select! {
        () = engine.over() => None,
        dead = news => dead,
    }
}

/// Takes earlier lives of this node off the list, unless they still hold jobs.
async fn forget(engine: &Engine, past: &[Owner]) {
    for owner in past {
        retry_while_leased(engine, "leave", || engine.store.leave(owner)).await;
    }
}

/// Takes the jobs of these owners over, a part at a time.
async fn take_over(engine: &Engine, dead: &[Owner], reason: HandBackReason) {
    let limit = engine.options.node.recovery_limit as usize;
    while !dead.is_empty() && engine.takes_work() {
        match take(engine, dead, limit).await {
            Err(error) => return tracing::warn!(%error, ?dead, "jobs of dead nodes are not taken over yet"),
            Ok(taken) => {
                let count = taken.len();
                if count > 0 {
                    tracing::warn!(node = %engine.owner, ?dead, count, "jobs of dead nodes are taken over");
                }
                settle(engine, taken, reason).await;
                if count < limit {
                    return;
                }
            }
        }
    }
}

async fn take(engine: &Engine, dead: &[Owner], limit: usize) -> StoreResult<Vec<(Running, JobClaim)>> {
    let mut reply_lost = engine.takeover.lock().await;
    *reply_lost = true;
    let claims = engine.store.recover(dead, &engine.owner, limit).await?;
    *reply_lost = false;
    Ok(begin(engine, claims))
}

/// Notes that these jobs are in hands here.
pub(crate) fn begin(engine: &Engine, claims: Vec<JobClaim>) -> Vec<(Running, JobClaim)> {
    claims.into_iter().map(|claim| (engine.running.begin(claim.id, claim.fence), claim)).collect()
}

/// Ends each of these attempts, of which nobody knows how far they came. A job whose row cannot be read ends for good.
pub(crate) async fn settle(engine: &Engine, taken: Vec<(Running, JobClaim)>, reason: HandBackReason) {
    let end = |(running, claim): (Running, JobClaim)| {
        let span = tracing::error_span!("job", job = %claim.id, node = %engine.owner);
        async move { end(engine, &running, &claim, reason).await }.instrument(span)
    };
    join_all(taken.into_iter().map(end)).await;
}

async fn end(engine: &Engine, running: &Running, claim: &JobClaim, reason: HandBackReason) {
    // An attempt of an earlier life of this node may not have ended yet.
    running.turn().await;
    if let Some(problem) = &claim.corrupt {
        return bury_corrupt(engine, claim, problem).await;
    }
    match fate(claim, reason, engine.options.node.crash_limit) {
        Fate::Canceled => {
            settle_unrun(engine, claim, Stop::Canceled("cancelled while it ran on a node that died")).await;
        }
        Fate::Back(reason) => {
            tracing::warn!(?reason, crashes = claim.crash_count, "its node is gone; it goes back");
            settle_unrun(engine, claim, Stop::HandBack { delay: Duration::ZERO, reason }).await;
        }
        Fate::Dead => {
            let crashes = claim.crash_count + 1;
            let failure = JobFailure::new("Crashed", format!("crashed its node {crashes} times"));
            bury(engine, running, claim, &failure, DeadReason::Crashed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_api::{Fence, JobId, QueueName, Timestamp};

    use super::*;

    fn fate_of(crash_count: u32, cancel_requested: bool, reason: HandBackReason) -> Fate {
        let now = Timestamp::from_millis(0);
        let mut claim = JobClaim::new(JobId::generate(), Fence::FIRST, QueueName::default(), now, now);
        (claim.crash_count, claim.cancel_requested) = (crash_count, cancel_requested);
        fate(&claim, reason, 3)
    }

    // shows: S136
    #[test]
    fn a_job_goes_back_until_it_died_with_more_nodes_than_are_allowed() {
        use HandBackReason::{Crashed, Released};
        for crashes in 0..3 {
            assert_eq!(fate_of(crashes, false, Crashed), Fate::Back(Crashed), "{crashes}");
        }
        assert_eq!(fate_of(3, false, Crashed), Fate::Dead);
        assert_eq!(fate_of(3, true, Crashed), Fate::Canceled, "nobody wants it any more");
        assert_eq!(fate_of(3, false, Released), Fate::Back(Released), "its node did not crash");
    }
}
