//! A node that works only when it is called.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::options::QueueOptions;
use ratchet_api::spi::BreakerStatus;
use ratchet_api::store::{ClaimRequest, Loaded};
use ratchet_api::{Beat, JobClaim, Owner, StoreResult};

use super::hooks::Hooks;
use super::{Client, Enqueue, SchedulerBuilder, StartError, node};
use crate::Call;
use crate::cluster::lease::Lease;
use crate::cluster::recovery::{self, Orphaned};
use crate::coordinator::load;
use crate::coordinator::rate_limit::RateClock;
use crate::coordinator::slots::Slots;
use crate::drain::Readiness;
use crate::engine::Engine;
use crate::task::Attempt;

/// The time limit for listeners to receive the events of a step.
const HEARD: Duration = Duration::from_secs(5);

/// A node that works only when it is called: nothing happens between two calls, and a call returns when everything
/// that was due is done. For tests, and for processes that run what is due and then end. Its [`client`](Self::client) submits and
/// controls jobs.
///
/// It ignores rate limits, for it would have to sleep, unless it is given a [clock](SchedulerBuilder::monotonic_clock)
/// that is moved by hand: then a call leaves the jobs that a limit holds up.
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
        // It cannot expire here: each claim renews the store's lease first, however far its clock was moved.
        let lease = Lease::endless(Owner::incarnate(&node.label));
        node.store.join(&node.info(lease.owner()), node.options.node.lease).await?;
        let engine = Arc::new(Engine::new(node, lease, Vec::new()));
        engine.node.drain.advance(Readiness::Ready);
        hooks.after_start().await;
        Ok(Self { client: engine.node.client(), engine, hooks, every_queue: false })
    }

    /// The client of this node, which submits, reads and controls jobs. Clone it to keep it.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Describes a job that makes this call: short for `client().enqueue(call)`.
    pub fn enqueue<R>(&self, call: impl Into<Call<R>>) -> Enqueue<R> {
        self.client.enqueue(call)
    }

    /// Serves every queue that has jobs, with the default settings of a queue where the options do not name it.
    #[must_use]
    pub const fn serving_every_queue(mut self) -> Self {
        self.every_queue = true;
        self
    }

    /// Runs all jobs that are due, and those that become due by that, until none is. Returns how many bodies ran: a job
    /// that went back or was parked without running does not count.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn run_due(&self) -> StoreResult<usize> {
        let mut attempts = 0;
        loop {
            let others = self.others().await?;
            let claims = self.claim(&others).await?;
            if claims.is_empty() {
                self.engine.node.plugs.events.heard(HEARD).await;
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

    /// The slots of the queues that are served though the options do not name them.
    async fn others(&self) -> StoreResult<Slots> {
        let queues = match self.every_queue {
            true => self.engine.node.store.queue_health().await?,
            false => Vec::new(),
        };
        let known: BTreeSet<_> = self.engine.node.slots.queues().collect();
        let others = queues.into_iter().map(|(name, _)| name).filter(|name| !known.contains(name));
        let clock: RateClock = Arc::new(tokio::time::Instant::now);
        Ok(Slots::new(others.map(|name| (name, QueueOptions::default())), 0.0, &clock))
    }

    /// Renews the lease, which a clock that was moved on may have ended, and claims as many jobs as there are slots.
    async fn claim(&self, others: &Slots) -> StoreResult<Vec<JobClaim>> {
        let engine = &self.engine;
        engine.node.store.beat(&Beat::new(engine.owner.clone(), engine.node.options.node.lease)).await?;
        // Never ahead of the slots: the number of jobs in one call must not depend on how fast they end.
        let mut room = engine.node.slots.vacant(usize::MAX, 0);
        room.extend(others.vacant(usize::MAX, 0));
        let mut request = ClaimRequest::of_queues(engine.owner.clone(), room);
        request.boost_interval = engine.node.boost_interval();
        let claims = engine.node.store.claim(&request).await?;
        engine.node.plugs.metrics.claimed(&request.queues, &claims);
        Ok(claims)
    }

    /// Runs a job; returns whether its body ran.
    fn attempt(
        &self,
        others: &Slots,
        claim: JobClaim,
        loaded: Loaded,
    ) -> Option<impl Future<Output = bool> + use<>> {
        let engine = Arc::clone(&self.engine);
        let ticket = engine.node.slots.take(&claim.queue).or_else(|| others.take(&claim.queue))?;
        let running = engine.node.running.begin(claim.id, claim.fence);
        let mut attempt = Attempt { engine, claim, loaded, permit: None, ticket, running };
        Some(async move {
            let slot = attempt.ticket.slot().await;
            attempt.run(slot).await
        })
    }

    /// How long the rate limit of a queue keeps its next job from starting; `None` if none does. Without a
    /// [clock](SchedulerBuilder::monotonic_clock) of its own there are no rate limits here.
    pub fn held_up_for(&self) -> Option<Duration> {
        self.engine.node.slots.paced_for()
    }

    /// The circuit breakers, as [`Scheduler::breakers`](crate::Scheduler::breakers).
    pub fn breakers(&self) -> Vec<BreakerStatus> {
        self.engine.node.execution.resilience.states()
    }

    /// Leaves the cluster.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn stop(self) -> StoreResult<()> {
        let limit = self.engine.node.options.execution.drain_timeout;
        self.hooks.before_stop(limit).await;
        let left = self.engine.node.store.leave(&self.engine.owner).await;
        self.engine.node.drain.advance(Readiness::Stopped);
        self.hooks.after_stop(limit).await;
        left.map(drop)
    }
}

impl fmt::Debug for Stepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepper").field("owner", &self.engine.owner).finish_non_exhaustive()
    }
}
