//! The coordinator, which accepts claims and runs them.

pub(crate) mod rate_limit;
pub(crate) mod slots;
mod turnover;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::store::Loaded;
use ratchet_api::{HandBackReason, JobClaim, ParkedOn};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use self::slots::SlotTicket;
use self::turnover::longest_wait;
use crate::cluster::recovery::{self, Orphaned};
use crate::engine::{Engine, retry_while_leased};
use crate::outcome::{About, Conclusion, Edges};
use crate::running::Running;
use crate::task::{Attempt, Recording, announce, permits_ahead, span};

/// Runs claimed jobs.
pub(crate) struct Coordinator {
    engine: Arc<Engine>,
    attempts: TaskTracker,
}

impl Coordinator {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, attempts: TaskTracker::new() }
    }

    /// Begins an attempt at each claim. One for which there is no place after all is handed back unchanged.
    pub(crate) async fn accept(&self, claims: Vec<JobClaim>) {
        self.accept_from(claims, None).await;
    }

    /// Begins an attempt at each of these suspects, which were parked on `parked_on` because they may have killed a
    /// node.
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
            // From now on, not from when it is first polled: a reconciliation must see it.
            let running = self.engine.node.running.begin_suspect(claim.id, claim.fence, suspect.cloned());
            match self.engine.node.slots.take(&claim.queue).filter(|_| self.engine.takes_work()) {
                Some(ticket) => {
                    places.push((running, ticket));
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

/// Loads the jobs that were claimed together with one call, and runs each.
async fn begin(
    engine: Arc<Engine>,
    attempts: TaskTracker,
    claims: Vec<JobClaim>,
    places: Vec<(Running, SlotTicket)>,
) {
    let loaded = load(&engine, &claims).await;
    let permits = permits_ahead(&engine, &claims, &loaded).await;
    // The runtime runs the task that was spawned last before the others.
    let last = claims.last().filter(|_| claims.len() > 1).map(|claim| claim.id);
    for (((claim, (running, ticket)), loaded), permit) in
        claims.into_iter().zip(places).zip(loaded).zip(permits)
    {
        let queue = claim.queue.clone();
        let attempt = Attempt { engine: Arc::clone(&engine), claim, loaded, permit, ticket, running };
        let gives_way = last == Some(attempt.claim.id);
        let attempt = attempts.track_future(async move {
            if gives_way {
                tokio::task::yield_now().await;
            }
            run(attempt).await;
        });
        engine.node.execution.executor.spawn(&queue, Box::pin(attempt));
    }
}

/// Reads the jobs that were claimed, and with them whether they were canceled meanwhile: one call for all.
pub(crate) async fn load(engine: &Engine, claims: &[JobClaim]) -> Vec<Loaded> {
    let loaded = retry_while_leased(engine, "load", || engine.node.store.load(&engine.owner, claims)).await;
    loaded.unwrap_or_else(|| vec![Loaded::Lost; claims.len()])
}

/// Runs a job as soon as it has a slot. A job that waits too long for it, or that still waits when the node drains, is
/// handed back unchanged, if the node still holds its lease.
async fn run(mut attempt: Attempt) {
    let longest = longest_wait(attempt.engine.node.options.node.lease);
    let slot = tokio::select! {
        biased;
        slot = attempt.ticket.slot_within(longest) => slot,
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
    let recording = Recording { about, edges, conclusion, run: None, ticket: None };
    let recorded = async {
        if let Some(taken) = recording.offer(engine).await {
            announce(engine, about, &taken.conclusion, &taken.verdict).await;
        }
    };
    recorded.instrument(span(engine, claim)).await;
}
