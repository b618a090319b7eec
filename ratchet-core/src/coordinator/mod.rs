//! Taking claims over and running them.

pub(crate) mod slots;

use std::sync::Arc;

use ratchet_api::{HandBackReason, JobClaim};
use tokio_util::task::TaskTracker;

use crate::engine::{Engine, insist};
use crate::outcome::{Conclusion, bare};
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

    /// Begins an attempt at each. A claim for which there is no slot after all goes back untouched.
    pub(crate) async fn accept(&self, claims: Vec<JobClaim>) {
        let mut unwanted = Vec::new();
        for claim in claims {
            match self.engine.slots.take(&claim.queue).filter(|_| self.engine.drain.takes_work()) {
                Some(slot) => {
                    let queue = claim.queue.clone();
                    // From now on, not from when it is first polled: whoever reconciles must see it.
                    let running = self.engine.begin(claim.id);
                    let attempt = Attempt { engine: Arc::clone(&self.engine), claim, slot, running };
                    let attempt = self.attempts.track_future(attempt.run());
                    self.engine.plugs.executor.spawn(&queue, Box::pin(attempt));
                }
                None => unwanted.push(claim),
            }
        }
        self.hand_back(unwanted).await;
    }

    async fn hand_back(&self, claims: Vec<JobClaim>) {
        for claim in claims {
            let released =
                Conclusion::HandBack { delay: std::time::Duration::ZERO, reason: HandBackReason::Released };
            let outcome = bare(&claim, &released, None);
            insist(&self.engine, "hand_back", || self.engine.commits.send(outcome.clone())).await;
        }
    }

    /// Completes when no attempt is under way. Nothing may be accepted any more.
    pub(crate) async fn idle(&self) {
        self.attempts.close();
        self.attempts.wait().await;
    }
}
