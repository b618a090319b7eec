//! A node that works only when it is told to.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::options::QueueOptions;
use ratchet_api::spi::BreakerStatus;
use ratchet_api::store::{ClaimRequest, Loaded};
use ratchet_api::{Beat, JobClaim, Owner, StoreResult};

use super::hooks::Hooks;
use super::{Client, SchedulerBuilder, StartError, node};
use crate::cluster::lease::Lease;
use crate::cluster::recovery::{self, Orphaned};
use crate::coordinator::pace::PaceClock;
use crate::coordinator::slots::Slots;
use crate::drain::Readiness;
use crate::engine::Engine;
use crate::task::{Attempt, load};

/// How long listeners may take to hear what happened in a step.
const HEARD: Duration = Duration::from_secs(5);

/// A node that works only when it is told to: nothing happens between two calls, and a call returns when everything
/// that was due is done. For tests, and for processes that run what is due and then end. It is also a [`Client`].
///
/// It knows no rate limits, for it would have to sleep, unless it is given a [clock](SchedulerBuilder::monotonic_clock) that
/// is moved by hand: then a call leaves what a limit holds up.
pub struct Stepper {
    client: Client,
    engine: Arc<Engine>,
    hooks: Hooks,
    /// Whether queues are served that the options do not name.
    every_queue: bool,
}

impl Stepper {
    pub(super) async fn start(mut builder: SchedulerBuilder) -> Result<Self, StartError> {
        let hooks = Hooks::of(&mut builder);
        hooks.before_start().await?;
        builder.resources()?.write().await?;
        if builder.monotonic.is_none() {
            for queue in builder.options.execution.queues.values_mut() {
                queue.rate_limit_per_minute = None;
            }
        }
        let node = Arc::new(node(builder)?);
        // Whoever moves the store's clock renews the lease as well.
        let lease = Lease::endless(Owner::incarnate(&node.label));
        node.store.join(&node.info(lease.owner()), node.options.node.lease).await?;
        let engine = Arc::new(Engine::new(node, lease, Vec::new()));
        engine.drain.advance(Readiness::Ready);
        hooks.after_start().await;
        Ok(Self { client: engine.client(), engine, hooks, every_queue: false })
    }

    /// Serves every queue that has jobs, with the default settings of a queue where the options do not name it.
    #[must_use]
    pub const fn serving_every_queue(mut self) -> Self {
        self.every_queue = true;
        self
    }

    /// Runs everything that is due, and what becomes due by that, until nothing is. Answers how many bodies ran: a job that
    /// went back or was parked without running does not count.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn run_due(&self) -> StoreResult<usize> {
        let mut attempts = 0;
        loop {
            let others = self.others().await?;
            let claims = self.claim(&others).await?;
            if claims.is_empty() {
                self.engine.events.heard(HEARD).await;
                return Ok(attempts);
            }
            let (corrupt, claims): (Vec<_>, Vec<_>) =
                claims.into_iter().partition(|claim| claim.corrupt.is_some());
            let taken = recovery::begin(&self.engine, corrupt);
            recovery::settle(&self.engine, taken, Orphaned::Released).await;
            let loaded = load(&self.engine, &claims).await;
            let claims = claims.into_iter().zip(loaded);
            let ran =
                join_all(claims.filter_map(|(claim, loaded)| self.attempt(&others, claim, loaded))).await;
            attempts += ran.into_iter().filter(|ran| *ran).count();
        }
    }

    /// Slots of the queues that are served though the options do not name them.
    async fn others(&self) -> StoreResult<Slots> {
        let queues = match self.every_queue {
            true => self.engine.store.queue_health().await?,
            false => Vec::new(),
        };
        let known: BTreeSet<_> = self.engine.slots.queues().collect();
        let others = queues.into_iter().map(|(name, _)| name).filter(|name| !known.contains(name));
        let clock: PaceClock = Arc::new(tokio::time::Instant::now);
        Ok(Slots::new(others.map(|name| (name, QueueOptions::default())), 0.0, &clock))
    }

    /// Renews the lease, which a clock that was moved on may have ended, and claims as much as there are slots.
    async fn claim(&self, others: &Slots) -> StoreResult<Vec<JobClaim>> {
        let engine = &self.engine;
        engine.store.beat(&Beat::new(engine.owner.clone(), engine.options.node.lease)).await?;
        // Never ahead of the slots: how many go by one call must not depend on how fast they go.
        let mut room = engine.slots.vacant(usize::MAX, 0);
        room.extend(others.vacant(usize::MAX, 0));
        let mut request = ClaimRequest::of_queues(engine.owner.clone(), room);
        request.boost_interval = engine.boost_interval();
        let claims = engine.store.claim(&request).await?;
        engine.plugs.metrics.claimed(&request.queues, &claims);
        Ok(claims)
    }

    /// Runs a job; whether its body ran.
    fn attempt(
        &self,
        others: &Slots,
        claim: JobClaim,
        loaded: Loaded,
    ) -> Option<impl Future<Output = bool> + use<>> {
        let engine = Arc::clone(&self.engine);
        let place = engine.slots.take(&claim.queue).or_else(|| others.take(&claim.queue))?;
        let running = engine.running.begin(claim.id, claim.fence);
        let mut attempt = Attempt { engine, claim, loaded, permit: None, place, running };
        Some(async move {
            let slot = attempt.place.slot().await;
            attempt.run(slot).await
        })
    }

    /// How long the rate limit of a queue keeps its next job from starting; `None` if none does. Without a
    /// [clock](SchedulerBuilder::monotonic_clock) of its own there are no rate limits here.
    pub fn held_up_for(&self) -> Option<Duration> {
        self.engine.slots.paced_for()
    }

    /// The circuit breakers, as [`Scheduler::breakers`](crate::Scheduler::breakers).
    pub fn breakers(&self) -> Vec<BreakerStatus> {
        self.engine.plugs.resilience.states()
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
