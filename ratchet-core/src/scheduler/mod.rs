//! The scheduler: a node that is started, used and stopped.

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

use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

use ratchet_api::Owner;
use ratchet_api::spi::{BreakerStatus, JobEventListener};
use ratchet_api::store::JobStore;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::lifecycle::Lifecycle;
use crate::Call;
use crate::cluster::lease::Lease;
use crate::coordinator::slots::Slots;
use crate::defaults::PackagePrefixClassPolicy;
use crate::drain::Readiness;
use crate::engine::{ExecutionPlugs, Node};
use crate::signal::Signals;

/// The entry point, which makes nodes and clients.
#[derive(Clone, Copy, Debug)]
pub struct Ratchet;

impl Ratchet {
    /// Sets up a node that runs jobs of this store.
    pub fn builder(store: impl JobStore) -> SchedulerBuilder {
        SchedulerBuilder::new(Arc::new(store))
    }

    /// Sets up a node that runs jobs of a store that others use too.
    pub fn builder_shared(store: Arc<dyn JobStore>) -> SchedulerBuilder {
        SchedulerBuilder::new(store)
    }

    /// A client for a process that only submits and controls jobs: no poller, no node, no beans. With other than the
    /// default options: [`SchedulerBuilder::client`].
    pub fn client(store: impl JobStore) -> Client {
        SchedulerBuilder::new(Arc::new(store)).into_client()
    }

    /// A client, as by [`client`](Self::client), of a store that others use too.
    pub fn client_shared(store: Arc<dyn JobStore>) -> Client {
        SchedulerBuilder::new(store).into_client()
    }
}

/// A running node. Its [`client`](Self::client) submits and controls jobs. Dropping it begins to stop the node, as
/// [`stop`](Self::stop) does, and waits for nothing.
pub struct Scheduler {
    client: Client,
    node: Arc<Node>,
    /// The lease of the current life.
    lease: watch::Receiver<Arc<Lease>>,
    /// Taken by the first call that stops it.
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
        // The node works already. If the start is canceled here, dropping the scheduler stops the node.
        hooks.after_start().await;
        Ok(scheduler)
    }

    /// The client of this node, which submits, reads and controls jobs. Clone it to keep it.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Describes a job that makes this call: short for `client().enqueue(call)`.
    pub fn enqueue<R>(&self, call: impl Into<Call<R>>) -> Enqueue<R> {
        self.client.enqueue(call)
    }

    /// The readiness of the node, for a probe that should fail before anything stops.
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
        self.node.execution.resilience.states()
    }

    /// Closes the breaker of a service in this process and forgets its calls; `false` if there is none. Jobs that went back
    /// because of it run when their time comes.
    pub fn reset_breaker(&self, service: &str) -> bool {
        self.node.execution.resilience.reset(service)
    }

    /// This life of this node, as its jobs name it. A node that lost its lease, and joins the cluster anew, is a new owner.
    pub fn owner(&self) -> Owner {
        self.lease.borrow().owner().clone()
    }

    /// Adds a listener that receives every event from now on, on a thread of its own. One that is too slow misses
    /// events; one that panics receives the next.
    pub fn add_listener(&self, listener: Arc<dyn JobEventListener>) {
        self.node.plugs.events.add(listener);
    }

    /// Removes a listener, which receives no events from now on; `false` if it was not there.
    pub fn remove_listener(&self, listener: &Arc<dyn JobEventListener>) -> bool {
        self.node.plugs.events.remove(listener)
    }

    /// Takes no new jobs from now on. Running jobs go on, and the node lives until [`stop`](Self::stop).
    pub fn drain(&self) {
        self.node.begin_to_drain();
    }

    /// Completes when the node begins to stop, or to [drain](Self::drain): for a server in the same process, which should stop
    /// with it. See [`serve_until_signal`](Self::serve_until_signal).
    pub fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        self.node.drain.watch().begun()
    }

    /// Shuts down gracefully: takes no new jobs, hands back those that have not started, and lets running ones end
    /// within `drain_timeout`. Shortly before that (`cancel_grace`) bodies are told by
    /// [`JobContext::canceled`](crate::JobContext::canceled); those that still run at its end are given up and their
    /// jobs go back to PENDING, with no attempt consumed. The heartbeat stops last. Nothing that the store or a hook
    /// does makes it last much longer. Another call waits for the same end.
    ///
    /// # Cancellation safety
    /// The node stops even if the future is dropped.
    pub async fn stop(&self) {
        self.begin_to_stop();
        self.stopped.cancelled().await;
    }

    /// Stops without waiting for running jobs: bodies are given up at once and their jobs go back to PENDING, with no
    /// attempt consumed. Also for a stop that is under way.
    pub async fn stop_now(&self) {
        self.node.drain.hurry.cancel();
        self.stop().await;
    }

    /// Works until the process is asked to end by SIGTERM or SIGINT (Ctrl-C), and then [stops](Self::stop). At a second
    /// signal it stops [at once](Self::stop_now). Also returns when it was stopped otherwise.
    ///
    /// # Errors
    /// If the process cannot listen to signals.
    pub async fn run_until_signal(&self) -> io::Result<()> {
        self.serve_until_signal(self.stopped.cancelled()).await.map(drop)
    }

    /// Runs a server beside the node until the process is asked to end by SIGTERM or SIGINT (Ctrl-C). Then both stop: the node
    /// [gracefully](Self::stop), the server when [`draining`](Self::draining) completes; it has to be told to. Returns
    /// the server's output. At a second signal both end at once: the node [does not wait](Self::stop_now) for bodies,
    /// the server is dropped, and `None` is returned. A server that ends by itself stops the node.
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
    /// If the process cannot listen to signals.
    pub async fn serve_until_signal<S: IntoFuture>(&self, server: S) -> io::Result<Option<S::Output>> {
        let mut signals = Signals::listen()?;
        let mut server = std::pin::pin!(server.into_future());
        let mut served = None;
        tokio::select! {
            () = self.stopped.cancelled() => {}
            output = &mut server => served = Some(output),
            () = signals.next() => tracing::info!(node = %self.owner(), "shutdown requested; waiting for running jobs"),
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
                tracing::warn!(node = %self.owner(), "shutdown requested again; running jobs are given up");
                self.stop_now().await;
                Ok(None)
            }
        }
    }

    fn begin_to_stop(&self) {
        let lifecycle = self.lifecycle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(lifecycle) = lifecycle else { return };
        // Completes also if the runtime ends before the stop does.
        let stopped = self.stopped.clone().drop_guard();
        self.runtime.spawn(async move {
            lifecycle.stop().await;
            drop(stopped);
        });
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
        Slots::new(builder.queues()?, builder.options.polling.claim_headroom_factor, &builder.rate_clock());
    let plugs = builder.plugs(|| Arc::new(PackagePrefixClassPolicy::deny_all()));
    let execution = ExecutionPlugs {
        beans: builder.beans(),
        resilience: builder.resilience_or_default()?,
        executor: builder.executor_or_default(),
        strategy: Mutex::new(builder.strategy_or_default()),
        startup: builder.startup,
        retry: builder.retry,
    };
    let SchedulerBuilder { store, options, registry, .. } = builder;
    let store = plugs.metrics.measured(store);
    Ok(Node::new(store, label, options, registry, plugs, execution, slots))
}
