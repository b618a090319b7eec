//! Taking claims over and running them.

mod pace;
pub(crate) mod slots;
mod turnover;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::{HandBackReason, JobClaim};
use tokio_util::task::TaskTracker;

use self::slots::Place;
use crate::cluster::recovery;
use crate::engine::Engine;
use crate::outcome::{Conclusion, Edges};
use crate::running::Running;
use crate::task::record::Recording;
use crate::task::{Attempt, load};

/// Runs claimed jobs.
pub(crate) struct Coordinator {
    engine: Arc<Engine>,
    attempts: TaskTracker,
}

impl Coordinator {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, attempts: TaskTracker::new() }
    }

    /// Begins an attempt at each. A claim for which there is no place after all goes back untouched.
    pub(crate) async fn accept(&self, claims: Vec<JobClaim>) {
        // A row that cannot be read has no body to run: it needs no slot.
        let (corrupt, claims): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.corrupt.is_some());
        if !corrupt.is_empty() {
            let (engine, taken) = (Arc::clone(&self.engine), recovery::begin(&self.engine, corrupt));
            self.attempts
                .spawn(async move { recovery::settle(&engine, taken, HandBackReason::Released).await });
        }
        let (mut begun, mut places, mut unwanted) =
            (Vec::with_capacity(claims.len()), Vec::new(), Vec::new());
        for claim in claims {
            match self.engine.slots.take(&claim.queue).filter(|_| self.engine.takes_work()) {
                Some(place) => {
                    // From now on, not from when it is first polled: whoever reconciles must see it.
                    places.push((self.engine.running.begin(claim.id, claim.fence), place));
                    begun.push(claim);
                }
                None => unwanted.push(claim),
            }
        }
        if !begun.is_empty() {
            self.attempts.spawn(begin(Arc::clone(&self.engine), self.attempts.clone(), begun, places));
        }
        join_all(unwanted.iter().map(|claim| hand_back(&self.engine, claim))).await;
    }

    /// Completes when no attempt is under way. Nothing may be accepted any more.
    pub(crate) async fn idle(&self) {
        self.attempts.close();
        self.attempts.wait().await;
    }
}

/// Reads what was claimed together by one call, and runs each.
async fn begin(
    engine: Arc<Engine>,
    attempts: TaskTracker,
    claims: Vec<JobClaim>,
    places: Vec<(Running, Place)>,
) {
    let loaded = load(&engine, &claims).await;
    for ((claim, (running, place)), loaded) in claims.into_iter().zip(places).zip(loaded) {
        let queue = claim.queue.clone();
        let attempt = Attempt { engine: Arc::clone(&engine), claim, loaded, place, running };
        let attempt = attempts.track_future(run(attempt));
        engine.plugs.executor.spawn(&queue, Box::pin(attempt));
    }
}

/// Runs a job as soon as it has a slot. One that still waits for it when the node drains goes back untouched, if the node
/// may still say so.
async fn run(mut attempt: Attempt) {
    let slot = tokio::select! {
        biased;
        slot = attempt.place.slot() => slot,
        () = attempt.engine.over() => return hand_back(&attempt.engine, &attempt.claim).await,
    };
    attempt.run(slot).await;
}

async fn hand_back(engine: &Engine, claim: &JobClaim) {
    let conclusion = Conclusion::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
    let edges = Edges::counted(claim);
    Recording { claim, job: None, edges, conclusion, run: None, place: None }.offer(engine).await;
}
