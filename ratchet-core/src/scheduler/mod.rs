//! A node: started, used, stopped.

mod builder;
mod bulk;
pub(crate) mod client;
mod enqueue;
mod many;
mod stepper;

pub use builder::{JobFunction, JobTarget, SchedulerBuilder, StartError};
pub use bulk::{Bulk, KeyTaken, Steered};
pub use client::Client;
pub use enqueue::Enqueue;
pub use many::IntoEnqueue;
pub use stepper::Stepper;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratchet_api::spi::{JobEventListener, SchedulerLifecycleHook};
use ratchet_api::store::JobStore;
use ratchet_api::{NodeInfo, Owner};
use tokio::task::JoinHandle;

use crate::cluster::heartbeat::Heartbeat;
use crate::coordinator::Coordinator;
use crate::coordinator::slots::Slots;
use crate::drain::Readiness;
use crate::engine::{Engine, Plugs};
use crate::poller::Poller;

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

    /// For a process that only submits and steers: no poller, no node, no beans.
    pub fn client(store: impl JobStore) -> Client {
        SchedulerBuilder::new(Arc::new(store)).into_client()
    }

    /// Likewise, for a store that others use too.
    pub fn client_shared(store: Arc<dyn JobStore>) -> Client {
        SchedulerBuilder::new(store).into_client()
    }
}

/// A running node. It is also a [`Client`]. Dropping it stops the node without waiting; [`stop`](Self::stop) waits.
pub struct Scheduler {
    client: Client,
    engine: Arc<Engine>,
    coordinator: Arc<Coordinator>,
    hooks: Vec<Arc<dyn SchedulerLifecycleHook>>,
    parts: Mutex<Option<MovingParts>>,
}

/// What moves by itself.
struct MovingParts {
    poller: JoinHandle<()>,
    heartbeat: Heartbeat,
}

impl Scheduler {
    async fn start(mut builder: SchedulerBuilder) -> Result<Self, StartError> {
        let hooks = std::mem::take(&mut builder.hooks);
        for hook in &hooks {
            hook.before_start().await.map_err(StartError::Hook)?;
        }
        let owner = owner(&builder);
        let info = node_info(&builder, &owner);
        let strategy = builder.strategy_or_default();
        let engine = Arc::new(engine(builder, owner)?);
        let client = engine.client();

        engine.store.join(&info, engine.options.node.lease).await?;
        let heartbeat = Heartbeat::start(Arc::clone(&engine))?;
        let bell = Arc::clone(&engine.bell);
        let listener = Arc::new(move || bell.notify_one());
        engine.plugs.cluster.register_wakeup_listener(listener).await?;
        let coordinator = Arc::new(Coordinator::new(Arc::clone(&engine)));
        let poller = Poller::new(Arc::clone(&engine), Arc::clone(&coordinator), strategy);
        let poller = tokio::spawn(poller.run());
        engine.drain.advance(Readiness::Ready);
        let parts = Mutex::new(Some(MovingParts { poller, heartbeat }));
        for hook in &hooks {
            warn_if_refused(hook.after_start().await);
        }
        Ok(Self { client, engine, coordinator, hooks, parts })
    }

    /// Whether it takes work: for a readiness probe, which should say no before anything stops.
    pub fn readiness(&self) -> Readiness {
        self.engine.drain.readiness()
    }

    /// This node, as its jobs name it.
    pub fn owner(&self) -> &Owner {
        &self.engine.owner
    }

    /// Tells this listener every event from now on.
    pub fn add_listener(&self, listener: Arc<dyn JobEventListener>) {
        self.engine.events.add(listener);
    }

    /// Tells it none any more; `false` if it was not told any.
    pub fn remove_listener(&self, listener: &Arc<dyn JobEventListener>) -> bool {
        self.engine.events.remove(listener)
    }

    /// Stops in good order: takes nothing new, lets what runs end within the drain timeout, gives the rest up, so that it
    /// goes back with nothing consumed, stops the heartbeat last, and leaves the cluster. A second call does nothing.
    pub async fn stop(&self) {
        let Some(parts) = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        for hook in &self.hooks {
            warn_if_refused(hook.before_stop().await);
        }
        let engine = &self.engine;
        engine.drain.advance(Readiness::Draining);
        // It ends by itself once it sees that; what it has claimed meanwhile goes back.
        let _ = parts.poller.await;
        let timeout = engine.options.execution.drain_timeout;
        if tokio::time::timeout(timeout, self.coordinator.idle()).await.is_err() {
            tracing::warn!(?timeout, "jobs still run; they are given up and go back");
            engine.abort.cancel();
            let grace = engine.options.timeout.cancel_grace.max(Duration::from_secs(1));
            if tokio::time::timeout(grace, self.coordinator.idle()).await.is_err() {
                tracing::error!("some jobs cannot be handed back; another node runs them after the lease");
            }
        }
        engine.clear_caches();
        engine.plugs.cluster.shutdown().await;
        parts.heartbeat.stop().await;
        if let Err(error) = engine.store.leave(&engine.owner).await {
            tracing::warn!(%error, "the node's row stays until its lease ends");
        }
        engine.drain.advance(Readiness::Stopped);
        for hook in &self.hooks {
            warn_if_refused(hook.after_stop().await);
        }
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
        self.engine.drain.advance(Readiness::Draining);
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("owner", &self.engine.owner)
            .field("store", &self.engine.store.name())
            .field("readiness", &self.readiness())
            .finish_non_exhaustive()
    }
}

fn warn_if_refused(hook: Result<(), ratchet_api::spi::HookError>) {
    if let Err(error) = hook {
        tracing::warn!(%error, "a lifecycle hook failed");
    }
}

/// A new incarnation of this node.
fn owner(builder: &SchedulerBuilder) -> Owner {
    Owner::incarnate(&label(builder))
}

fn label(builder: &SchedulerBuilder) -> String {
    builder.options.node.label.clone().unwrap_or_else(|| builder.identity.node_id())
}

fn node_info(builder: &SchedulerBuilder, owner: &Owner) -> NodeInfo {
    let mut info = NodeInfo::new(owner.clone());
    info.label = label(builder);
    info.version = env!("CARGO_PKG_VERSION").to_owned();
    info.targets = builder.registry.targets().iter().map(ToString::to_string).collect();
    info
}

fn engine(mut builder: SchedulerBuilder, owner: Owner) -> Result<Engine, StartError> {
    let slots = Slots::new(builder.queues()?, builder.options.polling.claim_headroom_factor);
    let plugs = Plugs {
        beans: builder.beans(),
        policy: builder.policy(),
        resilience: builder.resilience_or_default()?,
        sanitizer: builder.sanitizer(),
        executor: builder.executor_or_default(),
        retry: builder.retry,
        cluster: builder.cluster,
        resolver: builder.invocation,
        principal: builder.principal,
        trace: builder.trace,
        metrics: builder.metrics,
    };
    Ok(Engine::new(builder.store, owner, builder.options, builder.registry, plugs, builder.events, slots))
}
