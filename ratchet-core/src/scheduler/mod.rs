//! A node: started, used, stopped.

mod builder;
mod bulk;
pub(crate) mod client;
mod enqueue;
mod hooks;
mod life;
mod lifecycle;
mod many;
mod resources;
mod start_error;
mod stepper;
mod target;

pub use builder::SchedulerBuilder;
pub use bulk::{Bulk, KeyTaken, Steered};
pub use client::Client;
pub use enqueue::Enqueue;
pub use many::IntoEnqueue;
pub use start_error::StartError;
pub use stepper::Stepper;
pub use target::{JobFunction, JobTarget};

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use ratchet_api::Owner;
use ratchet_api::spi::{BreakerStatus, JobEventListener};
use ratchet_api::store::JobStore;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::lifecycle::Lifecycle;
use crate::cluster::lease::Lease;
use crate::coordinator::slots::Slots;
use crate::drain::Readiness;
use crate::engine::{Node, Plugs};
use crate::signal::Signals;

/// The way in.
#[derive(Clone, Copy, Debug)]
pub struct Ratchet;

impl Ratchet {
    /// Sets up a node that runs jobs of this store.
    pub fn builder(store: impl JobStore) -> SchedulerBuilder {
        SchedulerBuilder::new(Arc::new(store))
    }

    /// Likewise, for a store that others use too.
    pub fn builder_shared(store: Arc<dyn JobStore>) -> SchedulerBuilder {
        SchedulerBuilder::new(store)
    }

    /// For a process that only submits and steers: no poller, no node, no beans. With other than the default options:
    /// [`SchedulerBuilder::client`].
    pub fn client(store: impl JobStore) -> Client {
        SchedulerBuilder::new(Arc::new(store)).into_client()
    }

    /// Likewise, for a store that others use too.
    pub fn client_shared(store: Arc<dyn JobStore>) -> Client {
        SchedulerBuilder::new(store).into_client()
    }
}

/// A running node. It is also a [`Client`]. Dropping it begins to stop the node, as [`stop`](Self::stop) does, and waits for
/// nothing.
pub struct Scheduler {
    client: Client,
    node: Arc<Node>,
    /// The present one.
    lease: watch::Receiver<Arc<Lease>>,
    /// Taken by whoever stops it first.
    lifecycle: Mutex<Option<Lifecycle>>,
    stopped: CancellationToken,
    runtime: Handle,
}

impl Scheduler {
    async fn start(builder: SchedulerBuilder) -> Result<Self, StartError> {
        let (node, lease, lifecycle) = Lifecycle::start(builder).await?;
        let hooks = Arc::clone(&lifecycle.hooks);
        let scheduler = Self {
            client: node.client(),
            node,
            lease,
            lifecycle: Mutex::new(Some(lifecycle)),
            stopped: CancellationToken::new(),
            runtime: Handle::current(),
        };
        // The node works already. If nobody waits for the start any more, dropping it stops the node.
        hooks.after_start().await;
        Ok(scheduler)
    }

    /// Whether it takes work: for a readiness probe, which should say no before anything stops.
    pub fn readiness(&self) -> Readiness {
        match self.node.drain.readiness() {
            Readiness::Ready if !self.lease.borrow().holds() => Readiness::Starting,
            Readiness::Ready if self.node.unrecorded.any() || self.node.claims_fail() => Readiness::Degraded,
            readiness => readiness,
        }
    }

    /// The circuit breakers of this process, by the service that they protect. Each process has its own, which sees its own
    /// calls alone.
    ///
    /// ```
    /// # fn example(scheduler: &ratchet_core::Scheduler) {
    /// use ratchet_core::spi::CircuitState;
    ///
    /// for breaker in scheduler.breakers() {
    ///     if breaker.state == CircuitState::Open {
    ///         println!("{}: {} of {} calls failed", breaker.service, breaker.failures, breaker.calls);
    ///         scheduler.reset_breaker(&breaker.service); // the service is back
    ///     }
    /// }
    /// # }
    /// ```
    pub fn breakers(&self) -> Vec<BreakerStatus> {
        self.node.plugs.resilience.states()
    }

    /// Closes the breaker of a service in this process and forgets its calls; `false` if there is none. Jobs that went back
    /// because of it run when their time comes.
    pub fn reset_breaker(&self, service: &str) -> bool {
        self.node.plugs.resilience.reset(service)
    }

    /// This life of this node, as its jobs name it. A node that lost its lease, and joins the cluster anew, is a new owner.
    pub fn owner(&self) -> Owner {
        self.lease.borrow().owner().clone()
    }

    /// Tells this listener every event from now on, on a thread of its own. One that is too slow misses events; one
    /// that panics is told the next.
    pub fn add_listener(&self, listener: Arc<dyn JobEventListener>) {
        self.node.events.add(listener);
    }

    /// Tells it nothing that happens from now on; `false` if it was not told any.
    pub fn remove_listener(&self, listener: &Arc<dyn JobEventListener>) -> bool {
        self.node.events.remove(listener)
    }

    /// Takes nothing new from now on. What runs goes on, and the node lives until [`stop`](Self::stop).
    pub fn drain(&self) {
        self.node.begin_to_drain();
    }

    /// Completes when the node begins to stop, or to [drain](Self::drain): for a server in the same process, which should stop
    /// with it. See [`serve_until_signal`](Self::serve_until_signal).
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        self.node.drain.watch().begun()
    }

    /// Stops in good order: takes nothing new, hands back what has not started, and lets what runs end within
    /// `drain_timeout`. Shortly before that (`cancel_grace`) bodies are told by
    /// [`JobContext::canceled`](crate::JobContext::canceled); those that still run then are given up and their jobs go
    /// back, with nothing consumed. The heartbeat stops last. Nothing that the store or a hook does makes it last much
    /// longer. Whoever calls it again waits for the same end.
    ///
    /// # Cancellation safety
    /// The node stops also if nobody waits for it.
    pub async fn stop(&self) {
        self.begin_to_stop();
        self.stopped.cancelled().await;
    }

    /// Stops without waiting for what runs: bodies are given up at once and their jobs go back, with nothing consumed. Also
    /// for a stop that is under way.
    pub async fn stop_now(&self) {
        self.node.drain.hurry.cancel();
        self.stop().await;
    }

    /// Works until the process is asked to end by SIGTERM or SIGINT (Ctrl-C), and then [stops](Self::stop). At a second
    /// signal it stops [at once](Self::stop_now). Also returns when somebody else has stopped it.
    ///
    /// # Errors
    /// If the operating system does not tell about signals.
    pub async fn run_until_signal(&self) -> io::Result<()> {
        self.serve_until_signal(self.stopped.cancelled()).await.map(drop)
    }

    /// Runs a server beside the node until the process is asked to end by SIGTERM or SIGINT (Ctrl-C). Then both stop: the node
    /// in [good order](Self::stop), the server when [`draining`](Self::draining) completes; it has to be told to. Answers
    /// what the server returned. At a second signal both end at once: the node [does not wait](Self::stop_now) for bodies, the
    /// server is dropped, and the answer is `None`. A server that ends by itself stops the node.
    ///
    /// With axum:
    ///
    /// ```ignore
    /// let scheduler = builder.start().await?;
    /// let server = axum::serve(listener, app).with_graceful_shutdown(scheduler.draining());
    /// if let Some(served) = scheduler.serve_until_signal(server).await? {
    ///     served?;
    /// }
    /// ```
    ///
    /// # Errors
    /// If the operating system does not tell about signals.
    pub async fn serve_until_signal<S: IntoFuture>(&self, server: S) -> io::Result<Option<S::Output>> {
        let mut signals = Signals::listen()?;
        let mut server = std::pin::pin!(server.into_future());
        let mut served = None;
        tokio::select! {
            () = self.stopped.cancelled() => {}
            output = &mut server => served = Some(output),
            () = signals.next() => tracing::info!("asked to end; waiting for what runs"),
        }
        let served = async {
            match served {
                Some(output) => output,
                None => server.await,
            }
        };
        tokio::select! {
            (output, ()) = async { tokio::join!(served, self.stop()) } => Ok(Some(output)),
            () = signals.next() => {
                tracing::warn!("asked to end again; what runs is given up");
                self.stop_now().await;
                Ok(None)
            }
        }
    }

    fn begin_to_stop(&self) {
        let lifecycle = self.lifecycle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(lifecycle) = lifecycle else { return };
        // Also if the runtime ends before the stop does.
        let stopped = self.stopped.clone().drop_guard();
        self.runtime.spawn(async move {
            lifecycle.stop().await;
            drop(stopped);
        });
    }
}

impl Deref for Scheduler {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.begin_to_stop();
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("owner", &self.owner())
            .field("store", &self.node.store.name())
            .field("readiness", &self.readiness())
            .finish_non_exhaustive()
    }
}

fn node(mut builder: SchedulerBuilder) -> Result<Node, StartError> {
    let label = builder.label()?;
    let slots =
        Slots::new(builder.queues()?, builder.options.polling.claim_headroom_factor, &builder.pacing_clock());
    let plugs = Plugs {
        beans: builder.beans(),
        policy: builder.policy(),
        resilience: builder.resilience_or_default()?,
        sanitizer: builder.sanitizer(),
        executor: builder.executor_or_default(),
        strategy: Mutex::new(builder.strategy_or_default()),
        cluster: builder.cluster_or_default(),
        startup: builder.startup,
        retry: builder.retry,
        resolver: builder.invocation,
        principal: builder.principal,
        trace: builder.trace,
        metrics: builder.metrics,
    };
    let SchedulerBuilder { store, options, registry, events, .. } = builder;
    let store = plugs.metrics.measured(store);
    Ok(Node::new(store, label, options, registry, plugs, events, slots))
}
