//! The order in which a node starts and stops.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use ratchet_api::spi::{HookError, PollingStrategy, SchedulerLifecycleHook};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{SchedulerBuilder, StartError, engine, node_info, owner};
use crate::cluster::heartbeat::Heartbeat;
use crate::coordinator::Coordinator;
use crate::drain::Readiness;
use crate::engine::Engine;
use crate::poller::{Poller, adopt};

/// Whatever the options say, the store has this long to answer the last calls of a node.
const LEAST_CLOSING_TIME: Duration = Duration::from_secs(1);

/// Who is asked before a start, and told of what follows.
pub(super) struct Hooks(Vec<Arc<dyn SchedulerLifecycleHook>>);

/// What moves by itself in a node that works.
pub(super) struct Lifecycle {
    engine: Arc<Engine>,
    hooks: Hooks,
    coordinator: Arc<Coordinator>,
    poller: JoinHandle<()>,
    heartbeat: Heartbeat,
}

impl Hooks {
    pub(super) fn of(builder: &mut SchedulerBuilder) -> Self {
        Self(std::mem::take(&mut builder.hooks))
    }

    /// Asks each in turn. The first that refuses ends it.
    pub(super) async fn before_start(&self) -> Result<(), StartError> {
        for hook in &self.0 {
            unpanicking(hook.before_start()).await.map_err(StartError::Hook)?;
        }
        Ok(())
    }

    pub(super) async fn after_start(&self) {
        for hook in &self.0 {
            warn_if_failed("after_start", unpanicking(hook.after_start()).await);
        }
    }

    /// Nobody can hold a stop up for longer than this.
    pub(super) async fn before_stop(&self, limit: Duration) {
        for hook in &self.0 {
            warn_if_failed("before_stop", within(limit, hook.before_stop()).await);
        }
    }

    pub(super) async fn after_stop(&self, limit: Duration) {
        for hook in &self.0 {
            warn_if_failed("after_stop", within(limit, hook.after_stop()).await);
        }
    }
}

async fn within(limit: Duration, hook: impl Future<Output = Result<(), HookError>>) -> Result<(), HookError> {
    timeout(limit, unpanicking(hook)).await.unwrap_or_else(|late| Err(late.into()))
}

async fn unpanicking(hook: impl Future<Output = Result<(), HookError>>) -> Result<(), HookError> {
    AssertUnwindSafe(hook).catch_unwind().await.unwrap_or_else(|_| Err("it panicked".into()))
}

fn warn_if_failed(hook: &'static str, result: Result<(), HookError>) {
    if let Err(error) = result {
        tracing::warn!(hook, %error, "a lifecycle hook failed");
    }
}

impl Lifecycle {
    /// Asks the hooks, joins the cluster, beats, and begins to look for work. Whatever fails, nothing stays behind.
    pub(super) async fn start(mut builder: SchedulerBuilder) -> Result<(Arc<Engine>, Self), StartError> {
        let hooks = Hooks::of(&mut builder);
        hooks.before_start().await?;
        let owner = owner(&builder);
        let info = node_info(&builder, &owner);
        let strategy = builder.strategy_or_default();
        let engine = Arc::new(engine(builder, owner)?);
        engine.store.join(&info, engine.options.node.lease).await?;
        match Self::set_off(&engine, hooks, strategy).await {
            Ok(lifecycle) => {
                engine.drain.advance(Readiness::Ready);
                lifecycle.hooks.after_start().await;
                Ok((engine, lifecycle))
            }
            Err(error) => {
                leave(&engine).await;
                Err(error)
            }
        }
    }

    async fn set_off(
        engine: &Arc<Engine>,
        hooks: Hooks,
        strategy: Box<dyn PollingStrategy>,
    ) -> Result<Self, StartError> {
        let bell = Arc::clone(&engine.bell);
        engine.plugs.cluster.register_wakeup_listener(Arc::new(move || bell.notify_one())).await?;
        let heartbeat = Heartbeat::start(Arc::clone(engine))?;
        let coordinator = Arc::new(Coordinator::new(Arc::clone(engine)));
        let poller = Poller::new(Arc::clone(engine), Arc::clone(&coordinator), strategy);
        let poller = tokio::spawn(poller.run());
        Ok(Self { engine: Arc::clone(engine), hooks, coordinator, poller, heartbeat })
    }

    /// Stops in the order of the specification: what runs may end within the drain timeout, the rest goes back, the
    /// heartbeat is the last. However the store and the hooks behave, it ends.
    pub(super) async fn stop(mut self) {
        let engine = Arc::clone(&self.engine);
        let closing_time = engine.options.timeout.cancel_grace.max(LEAST_CLOSING_TIME);
        let hook_time = engine.options.execution.drain_timeout.max(LEAST_CLOSING_TIME);
        self.hooks.before_stop(hook_time).await;
        engine.drain.advance(Readiness::Draining);
        self.drain(closing_time).await;
        let end = Instant::now() + closing_time;
        if timeout_at(end, hand_back_rest(&engine, &self.coordinator)).await.is_err() {
            tracing::warn!("the store does not answer; what this node holds is recovered after its lease");
        }
        engine.clear_caches();
        if timeout_at(end, engine.plugs.cluster.shutdown()).await.is_err() {
            tracing::warn!("the cluster coordinator does not stop");
        }
        let _ = timeout_at(end, self.heartbeat.stop()).await;
        if timeout_at(end, leave(&engine)).await.is_err() {
            tracing::warn!("the store does not answer; the node's row stays until its lease ends");
        }
        engine.events.heard(closing_time).await;
        engine.drain.advance(Readiness::Stopped);
        self.hooks.after_stop(hook_time).await;
    }

    /// Waits for what runs. Bodies are told when the deadline is near, and given up when it has passed.
    async fn drain(&mut self, closing_time: Duration) {
        let Self { engine, coordinator, poller, .. } = self;
        let (limit, grace) = (engine.options.execution.drain_timeout, engine.options.timeout.cancel_grace);
        let deadline = Instant::now() + limit;
        let polling = poller.abort_handle();
        // The poller ends by itself once it sees that the node drains; what it has claimed meanwhile goes back.
        let mut quiet = pin!(async {
            let _ = poller.await;
            coordinator.idle().await;
        });
        tokio::select! {
            biased;
            () = &mut quiet => return,
            () = engine.drain.hurry.cancelled() => {}
            () = sleep_until(deadline - grace.min(limit)) => {}
        }
        tracing::info!("jobs still run; their bodies are told to end");
        engine.drain.closing.cancel();
        engine.running.stop_all();
        tokio::select! {
            biased;
            () = &mut quiet => return,
            () = engine.drain.hurry.cancelled() => {}
            () = sleep_until(deadline) => {}
        }
        tracing::warn!(?limit, "jobs still run; they are given up and go back");
        engine.abort.cancel();
        if timeout(closing_time, quiet).await.is_err() {
            tracing::error!("some bodies do not end; their jobs are recovered after the lease");
            polling.abort();
        }
    }
}

/// Gives back what this node still holds and nobody here runs: what a claim took whose reply never came.
async fn hand_back_rest(engine: &Engine, coordinator: &Coordinator) {
    if let Err(error) = adopt(engine, coordinator).await {
        tracing::warn!(%error, "what this node may still hold is recovered after its lease");
    }
}

/// Takes the node off the list.
async fn leave(engine: &Engine) {
    match engine.store.leave(&engine.owner).await {
        Ok(true) => {}
        Ok(false) => tracing::warn!("this node still holds jobs; they are recovered after its lease"),
        Err(error) => tracing::warn!(%error, "the node's row stays until its lease ends"),
    }
}
