//! Recovery of the jobs of dead nodes: this node becomes their owner, and their attempts end like any other.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::store::Loaded;
use ratchet_api::{DeadReason, HandBackReason, JobClaim, JobFailure, Owner, ParkedOn, StoreResult};
use tokio::sync::{OnceCell, watch};
use tokio::time::sleep;
use tracing::Instrument as _;

use crate::coordinator::load;
use crate::engine::{Engine, retry_while_leased};
use crate::outage::Outage;
use crate::running::Running;
use crate::task::{Stop, bury, bury_corrupt, settle_unrun, span};

/// The reason why no node runs a job that is RUNNING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphaned<'o> {
    /// No crash: it was never begun, its node lives, or its node was stopping.
    Released,
    /// Its node died.
    Crashed {
        /// Which one, if that is known.
        owner: Option<&'o Owner>,
        /// Whether it held this job and no other.
        alone: bool,
    },
}

/// The decision about a job whose node died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It runs again.
    Released,
    /// It runs again, and the crash counts.
    Crashed,
    /// It died with too many nodes, and nothing else can have killed the last one.
    Dead,
    /// It was canceled meanwhile.
    Canceled,
}

fn fate(claim: &JobClaim, orphaned: Orphaned<'_>, crash_limit: u32) -> Fate {
    match orphaned {
        _ if claim.cancel_requested => Fate::Canceled,
        Orphaned::Crashed { alone: true, .. } if claim.crash_count >= crash_limit => Fate::Dead,
        Orphaned::Crashed { .. } => Fate::Crashed,
        Orphaned::Released => Fate::Released,
    }
}

/// Takes over the jobs of owners that the heartbeat finds dead, until this life is over.
pub(crate) async fn run(engine: Arc<Engine>) {
    let (mut found, options) = (engine.dead.subscribe(), &engine.node.options.node);
    let (mut rest, outage) = (Duration::ZERO, engine.outage("takeover"));
    forget(&engine, engine.past()).await;
    while let Some(dead) = next(&engine, &mut found, rest).await {
        let (own, others): (Vec<_>, Vec<_>) = dead.into_iter().partition(|owner| engine.is_past_life(owner));
        let stopping = OnceCell::new();
        for owner in &own {
            take_over(&engine, owner, true, &stopping, &outage).await;
        }
        for owner in &others {
            take_over(&engine, owner, false, &stopping, &outage).await;
        }
        forget(&engine, &own).await;
        // The heartbeat brings news after one more beat.
        rest = options.recovery_interval.saturating_sub(options.beat);
    }
}

/// The nodes that had announced that they stop. If one of them is dead, it was ended from outside, or ended while
/// bodies went on that cannot be stopped: no job made it crash.
async fn stopping_nodes(engine: &Engine) -> Vec<Owner> {
    let nodes = retry_while_leased(engine, "nodes", || engine.node.store.nodes()).await.unwrap_or_default();
    nodes.into_iter().filter(|node| node.draining).map(|node| node.info.owner).collect()
}

/// The dead owners found after a rest; `None` once this life is over.
async fn next(
    engine: &Engine,
    found: &mut watch::Receiver<Vec<Owner>>,
    rest: Duration,
) -> Option<Vec<Owner>> {
    let news = async {
        sleep(rest).await;
        found.changed().await.ok()?;
        // Every node hears of them: the first one to act leaves the others nothing to do.
        sleep((engine.node.options.node.beat / 10).mul_f64(rand::random())).await;
        Some(found.borrow_and_update().clone())
    };
    tokio::select! {
        () = engine.over() => None,
        dead = news => dead,
    }
}

/// Removes earlier lives of this node from the list of nodes, unless they still hold jobs.
async fn forget(engine: &Engine, past: &[Owner]) {
    for owner in past {
        retry_while_leased(engine, "leave", || engine.node.store.leave(owner)).await;
    }
}

/// Takes over the jobs of this owner in batches. If its process `lives_on`, none of them made it crash.
async fn take_over(
    engine: &Engine,
    dead: &Owner,
    lives_on: bool,
    stopping: &OnceCell<Vec<Owner>>,
    outage: &Outage,
) {
    let limit = engine.node.options.node.recovery_limit as usize;
    let mut first = true;
    let mut blameless = lives_on;
    while engine.takes_work() {
        let taken = take(engine, dead, limit).await;
        outage.note(&taken);
        let Ok(taken) = taken else { return };
        let count = taken.len();
        if count > 0 {
            engine.node.plugs.metrics.tell(|sink| sink.recovered(count));
            match lives_on {
                true => {
                    tracing::info!(node = %engine.owner, before = %dead, count, "this node takes its own jobs back");
                }
                false => {
                    tracing::warn!(node = %engine.owner, %dead, count, "jobs of a dead node are taken over");
                }
            }
            // This does not matter for a node that held no jobs.
            if first && !lives_on {
                blameless = stopping.get_or_init(|| stopping_nodes(engine)).await.contains(dead);
            }
        }
        let orphaned = match blameless {
            true => Orphaned::Released,
            false => Orphaned::Crashed { owner: Some(dead), alone: first && count == 1 },
        };
        settle(engine, taken, orphaned).await;
        if count < limit {
            return;
        }
        first = false;
    }
}

async fn take(engine: &Engine, dead: &Owner, limit: usize) -> StoreResult<Vec<(Running, JobClaim)>> {
    let mut reply_lost = engine.takeover.lock().await;
    *reply_lost = true;
    let claims = engine.node.store.recover(std::slice::from_ref(dead), &engine.owner, limit).await?;
    *reply_lost = false;
    Ok(begin(engine, claims))
}

/// Registers these jobs as running on this node.
pub(crate) fn begin(engine: &Engine, claims: Vec<JobClaim>) -> Vec<(Running, JobClaim)> {
    claims.into_iter().map(|claim| (engine.node.running.begin(claim.id, claim.fence), claim)).collect()
}

/// Ends each of these attempts; how far they came is unknown. A job whose row cannot be read ends for good.
pub(crate) async fn settle(engine: &Engine, taken: Vec<(Running, JobClaim)>, orphaned: Orphaned<'_>) {
    suspect(engine, &taken, orphaned).await;
    let end = |(running, claim): (Running, JobClaim)| {
        let span = span(engine, &claim);
        async move { end(engine, &running, &claim, orphaned).await }.instrument(span)
    };
    join_all(taken.into_iter().map(end)).await;
}

/// Marks those that may have killed a node, now or before, as suspects. One call reads the methods of all.
async fn suspect(engine: &Engine, taken: &[(Running, JobClaim)], orphaned: Orphaned<'_>) {
    let crashed = u32::from(orphaned != Orphaned::Released);
    let suspects = taken.iter().map(|(_, claim)| claim).filter(|claim| claim.crash_count + crashed > 0);
    let suspects: Vec<JobClaim> = suspects.filter(|claim| claim.corrupt.is_none()).cloned().collect();
    if suspects.is_empty() {
        return;
    }
    for (claim, loaded) in suspects.iter().zip(load(engine, &suspects).await) {
        if let Loaded::Job(job, _) = loaded {
            let (crashes, method) = (claim.crash_count + crashed, job.spec.payload.call_name());
            engine.node.running.mark_suspect(claim.id, ParkedOn::Suspect { crashes, method });
        }
    }
}

async fn end(engine: &Engine, running: &Running, claim: &JobClaim, orphaned: Orphaned<'_>) {
    // An attempt of an earlier life of this node may not have ended yet.
    running.turn().await;
    if let Some(problem) = &claim.corrupt {
        return bury_corrupt(engine, claim, problem).await;
    }
    let crashes = claim.crash_count + 1;
    match fate(claim, orphaned, engine.node.options.node.crash_limit) {
        Fate::Canceled => {
            settle_unrun(engine, claim, Stop::Canceled("canceled while it ran on a node that died")).await;
        }
        Fate::Released => {
            let stop = Stop::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
            settle_unrun(engine, claim, stop).await;
        }
        Fate::Crashed => settle_unrun(engine, claim, Stop::Crashed(crashed(orphaned, crashes, ""))).await,
        Fate::Dead => {
            let failure = crashed(orphaned, crashes, ", which held no other job");
            bury(engine, running, claim, &failure, DeadReason::Crashed).await;
        }
    }
}

/// The failure that describes a crash; `more` is appended about the last node.
fn crashed(orphaned: Orphaned<'_>, crashes: u32, more: &str) -> JobFailure {
    let times = if crashes == 1 { "time" } else { "times" };
    let last = match orphaned {
        Orphaned::Crashed { owner: Some(owner), .. } => format!("; the last was '{owner}'{more}"),
        _ => String::new(),
    };
    JobFailure::new("Crashed", format!("crashed its node {crashes} {times}{last}"))
}

#[cfg(test)]
mod tests {
    use ratchet_api::{Fence, JobId, QueueName, Timestamp};

    use super::*;

    fn fate_of(crash_count: u32, cancel_requested: bool, orphaned: Orphaned<'_>) -> Fate {
        let now = Timestamp::from_millis(0);
        let mut claim = JobClaim::new(JobId::generate(), Fence::FIRST, QueueName::default(), now, now);
        (claim.crash_count, claim.cancel_requested) = (crash_count, cancel_requested);
        fate(&claim, orphaned, 3)
    }

    // shows: S136
    #[test]
    fn a_job_goes_back_until_it_died_with_more_nodes_than_are_allowed() {
        let crashed = Orphaned::Crashed { owner: None, alone: true };
        for crashes in 0..3 {
            assert_eq!(fate_of(crashes, false, crashed), Fate::Crashed, "{crashes}");
        }
        assert_eq!(fate_of(3, false, crashed), Fate::Dead);
        let in_company = Orphaned::Crashed { owner: None, alone: false };
        assert_eq!(fate_of(3, false, in_company), Fate::Crashed, "another one may have killed it");
        assert_eq!(fate_of(3, true, crashed), Fate::Canceled, "nobody wants it any more");
        assert_eq!(fate_of(3, false, Orphaned::Released), Fate::Released, "its node did not crash");
    }
}
