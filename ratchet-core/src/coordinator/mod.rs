//! Taking claims over and running them.

mod pace;
pub(crate) mod slots;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::{HandBackReason, JobClaim};
use tokio_util::task::TaskTracker;

use self::slots::Place;
use crate::engine::{Engine, insist};
use crate::outcome::{Conclusion, bare};
use crate::running::Running;
use crate::task::Attempt;

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
        let mut unwanted = Vec::new();
        for claim in claims {
            match self.engine.slots.take(&claim.queue).filter(|_| self.engine.drain.takes_work()) {
                Some(place) => self.begin(claim, place),
                None => unwanted.push(claim),
            }
        }
        join_all(unwanted.iter().map(|claim| hand_back(&self.engine, claim))).await;
    }

    fn begin(&self, claim: JobClaim, place: Place) {
        let (engine, queue) = (Arc::clone(&self.engine), claim.queue.clone());
        // From now on, not from when it is first polled: whoever reconciles must see it.
        let running = engine.running.begin(claim.id, claim.fence);
        let attempt = self.attempts.track_future(attempt(engine, claim, place, running));
        self.engine.plugs.executor.spawn(&queue, Box::pin(attempt));
    }

    /// Completes when no attempt is under way. Nothing may be accepted any more.
    pub(crate) async fn idle(&self) {
        self.attempts.close();
        self.attempts.wait().await;
    }
}

/// Runs a job as soon as it has a slot. One that still waits for it when the node drains goes back untouched.
async fn attempt(engine: Arc<Engine>, claim: JobClaim, place: Place, running: Running) {
    let slot = tokio::select! {
        biased;
        slot = place.slot() => slot,
        () = engine.drain.begun() => return hand_back(&engine, &claim).await,
    };
    Attempt { engine, claim, slot, running }.run().await;
}

async fn hand_back(engine: &Engine, claim: &JobClaim) {
    let released = Conclusion::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
    let outcome = bare(claim, &released, None);
    insist(engine, "hand_back", || engine.exchange.commit(outcome.clone())).await;
}
