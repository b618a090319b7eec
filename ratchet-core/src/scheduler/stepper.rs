//! A node that works only when it is told to.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::store::{ClaimRequest, Loaded};
use ratchet_api::{Beat, HandBackReason, JobClaim, Owner, StoreResult};

use super::hooks::Hooks;
use super::{Client, SchedulerBuilder, StartError, node};
use crate::cluster::lease::Lease;
use crate::cluster::recovery;
use crate::drain::Readiness;
use crate::engine::Engine;
use crate::task::{Attempt, load};

/// How long listeners may take to hear what happened in a step.
const HEARD: Duration = Duration::from_secs(5);

/// A node that works only when it is told to: nothing happens between two calls, and a call returns when everything
/// that was due is done. For tests, and for processes that run what is due and then end. It is also a [`Client`].
///
/// It knows no rate limits, for it would have to sleep.
pub struct Stepper {
    client: Client,
    engine: Arc<Engine>,
    hooks: Hooks,
}

impl Stepper {
    pub(super) async fn start(mut builder: SchedulerBuilder) -> Result<Self, StartError> {
        let hooks = Hooks::of(&mut builder);
        hooks.before_start().await?;
        for queue in builder.options.execution.queues.values_mut() {
            queue.rate_limit_per_minute = None;
        }
        let node = Arc::new(node(builder)?);
        // Whoever moves the store's clock renews the lease as well.
        let lease = Lease::endless(Owner::incarnate(&node.label));
        node.store.join(&node.info(lease.owner()), node.options.node.lease).await?;
        let engine = Arc::new(Engine::new(node, lease, Vec::new()));
        engine.drain.advance(Readiness::Ready);
        hooks.after_start().await;
        Ok(Self { client: engine.client(), engine, hooks })
    }

    /// Runs everything that is due, and what becomes due by that, until nothing is. Answers how many attempts that
    /// took.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn run_due(&self) -> StoreResult<usize> {
        let mut attempts = 0;
        loop {
            let claims = self.claim().await?;
            if claims.is_empty() {
                self.engine.events.heard(HEARD).await;
                return Ok(attempts);
            }
            attempts += claims.len();
            let (corrupt, claims): (Vec<_>, Vec<_>) =
                claims.into_iter().partition(|claim| claim.corrupt.is_some());
            let taken = recovery::begin(&self.engine, corrupt);
            recovery::settle(&self.engine, taken, HandBackReason::Released).await;
            let loaded = load(&self.engine, &claims).await;
            let claims = claims.into_iter().zip(loaded);
            join_all(claims.filter_map(|(claim, loaded)| self.attempt(claim, loaded))).await;
        }
    }

    /// Renews the lease, which a clock that was moved on may have ended, and claims as much as there are slots.
    async fn claim(&self) -> StoreResult<Vec<JobClaim>> {
        let engine = &self.engine;
        engine.store.beat(&Beat::new(engine.owner.clone(), engine.options.node.lease)).await?;
        // Never ahead of the slots: how many go by one call must not depend on how fast they go.
        let room = engine.slots.vacant(usize::MAX, 0);
        engine.store.claim(&ClaimRequest::of_queues(engine.owner.clone(), room)).await
    }

    fn attempt(&self, claim: JobClaim, loaded: Loaded) -> Option<impl Future<Output = ()> + use<>> {
        let (engine, place) = (Arc::clone(&self.engine), self.engine.slots.take(&claim.queue)?);
        let running = engine.running.begin(claim.id, claim.fence);
        let mut attempt = Attempt { engine, claim, loaded, place, running };
        Some(async move {
            let slot = attempt.place.slot().await;
            attempt.run(slot).await;
        })
    }

    /// Leaves the cluster.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn stop(self) -> StoreResult<()> {
        let limit = self.engine.options.execution.drain_timeout;
        self.hooks.before_stop(limit).await;
        let left = self.engine.store.leave(&self.engine.owner).await;
        self.engine.drain.advance(Readiness::Stopped);
        self.hooks.after_stop(limit).await;
        left.map(drop)
    }
}

impl Deref for Stepper {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl fmt::Debug for Stepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepper").field("owner", &self.engine.owner).finish_non_exhaustive()
    }
}
