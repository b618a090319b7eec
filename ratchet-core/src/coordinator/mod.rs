//! Taking claims over and running them.

pub(crate) mod pace;
pub(crate) mod slots;
mod turnover;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::{HandBackReason, JobClaim, ParkedOn};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use self::slots::Place;
use self::turnover::longest_wait;
use crate::cluster::recovery::{self, Orphaned};
use crate::engine::Engine;
use crate::outcome::{About, Conclusion, Edges};
use crate::running::Running;
use crate::task::record::Recording;
use crate::task::{Attempt, announce, load, permits_ahead, span};

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
        self.accept_from(claims, None).await;
    }

    /// Begins an attempt at each of these, which were parked on this because they may have killed a node.
    pub(crate) async fn accept_suspects(&self, claims: Vec<JobClaim>, parked_on: &ParkedOn) {
        self.accept_from(claims, Some(parked_on)).await;
    }

    async fn accept_from(&self, claims: Vec<JobClaim>, suspect: Option<&ParkedOn>) {
        // A row that cannot be read has no body to run: it needs no slot.
        let (corrupt, claims): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|claim| claim.corrupt.is_some());
        if !corrupt.is_empty() {
            let (engine, taken) = (Arc::clone(&self.engine), recovery::begin(&self.engine, corrupt));
            self.attempts.spawn(async move { recovery::settle(&engine, taken, Orphaned::Released).await });
        }
        let (mut begun, mut places, mut unwanted) =
            (Vec::with_capacity(claims.len()), Vec::new(), Vec::new());
        for claim in claims {
            // From now on, not from when it is first polled: whoever reconciles must see it.
            let running = self.engine.running.begin_suspect(claim.id, claim.fence, suspect.cloned());
            match self.engine.slots.take(&claim.queue).filter(|_| self.engine.takes_work()) {
                Some(place) => {
                    places.push((running, place));
                    begun.push(claim);
                }
                None => unwanted.push((running, claim)),
            }
        }
        if !begun.is_empty() {
            self.attempts.spawn(begin(Arc::clone(&self.engine), self.attempts.clone(), begun, places));
        }
        join_all(unwanted.iter().map(|(_, claim)| hand_back(&self.engine, claim))).await;
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
    let permits = permits_ahead(&engine, &claims, &loaded).await;
    // The runtime begins what was spawned last before the rest.
    let last = claims.last().filter(|_| claims.len() > 1).map(|claim| claim.id);
    for (((claim, (running, place)), loaded), permit) in
        claims.into_iter().zip(places).zip(loaded).zip(permits)
    {
        let queue = claim.queue.clone();
        let attempt = Attempt { engine: Arc::clone(&engine), claim, loaded, permit, place, running };
        let gives_way = last == Some(attempt.claim.id);
        let attempt = attempts.track_future(async move {
            if gives_way {
                tokio::task::yield_now().await;
            }
            run(attempt).await;
        });
        engine.plugs.executor.spawn(&queue, Box::pin(attempt));
    }
}

/// Runs a job as soon as it has a slot. One that waits for it for too long, or still when the node drains, goes back
/// untouched, if the node may still say so.
async fn run(mut attempt: Attempt) {
    let longest = longest_wait(attempt.engine.options.node.lease);
    let slot = tokio::select! {
        biased;
        slot = attempt.place.slot_within(longest) => slot,
        () = attempt.engine.over() => None,
    };
    match slot {
        Some(slot) => _ = attempt.run(slot).await,
        None => hand_back(&attempt.engine, &attempt.claim).await,
    }
}

async fn hand_back(engine: &Engine, claim: &JobClaim) {
    let conclusion = Conclusion::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
    let (about, edges) = (About::claim(claim), Edges::counted(claim));
    let recording = Recording { about, edges, conclusion, run: None, place: None };
    let recorded = async {
        if let Some(taken) = recording.offer(engine).await {
            announce(engine, about, &taken.conclusion, &taken.verdict).await;
        }
    };
    recorded.instrument(span(engine, claim)).await;
}
