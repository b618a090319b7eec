//! The order in which a node starts and stops.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::JobPriority;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::hooks::Hooks;
use super::life::{Life, leave, live};
use super::{SchedulerBuilder, StartError, node};
use crate::cluster::lease::Lease;
use crate::coordinator::Coordinator;
use crate::drain::Readiness;
use crate::engine::{Engine, Node};
use crate::maintenance;
use crate::own_thread::on_own_thread;
use crate::poller::reconcile;

/// The least time that the store has to answer the last calls of a node, whatever the options say.
const LEAST_CLOSING_TIME: Duration = Duration::from_secs(1);

/// The running parts of a node, which are stopped in order.
pub(super) struct Lifecycle {
    node: Arc<Node>,
    pub(super) hooks: Arc<Hooks>,
    /// Ends when the node drains, with the life of it that is to be drained.
    lives: JoinHandle<Option<Life>>,
    maintenance: JoinHandle<()>,
}

impl Lifecycle {
    /// Calls the hooks, joins the cluster, beats, and begins to poll. If it fails, nothing stays behind. The caller
    /// calls the hooks that follow a start, since it can stop the node by then.
    pub(super) async fn start(
        mut builder: SchedulerBuilder,
    ) -> Result<(Arc<Node>, watch::Receiver<Arc<Lease>>, Self), StartError> {
        let hooks = Arc::new(Hooks::of(&mut builder));
        hooks.before_start().await?;
        let raised = builder.resources()?.write().await?;
        let node = Arc::new(node(builder)?);
        node.plugs.cluster.register_wakeup_listener(node.wakeup_listener()).await?;
        let life = match Life::begin(&node, Vec::new()).await {
            Ok(life) => life,
            Err(error) => {
                node.plugs.cluster.shutdown().await;
                return Err(error);
            }
        };
        let (present, lease) = watch::channel(Arc::clone(&life.engine.lease));
        let lives = tokio::spawn(live(Arc::clone(&node), life, present));
        let maintenance = tokio::spawn(maintenance::run(Arc::clone(&node), lease.clone()));
        let lifecycle = Self { node: Arc::clone(&node), hooks, lives, maintenance };
        node.drain.advance(Readiness::Ready);
        let (store, slots) = (node.store.name(), node.slots.total());
        tracing::info!(node = %lease.borrow().owner(), store, slots, methods = node.registry.names().len(), "node started");
        if raised {
            node.client().wake_up(JobPriority::Normal);
        }
        Ok((node, lease, lifecycle))
    }

    /// Stops in the order of the specification: running jobs may end within the drain timeout, the rest is handed back,
    /// the heartbeat is the last. It ends however the store and the hooks behave.
    pub(super) async fn stop(self) {
        let Self { node, hooks, lives, mut maintenance } = self;
        let closing_time = node.options.timeout.cancel_grace.max(LEAST_CLOSING_TIME);
        let hook_time = node.options.execution.drain_timeout.max(LEAST_CLOSING_TIME);
        unless_hurried(&node, hooks.before_stop(hook_time)).await;
        node.begin_to_drain();
        // Between two lives there is nothing to drain.
        let mut life = lives.await.ok().flatten();
        if let Some(life) = &mut life {
            life.drain(closing_time).await;
        }
        let end = Instant::now() + closing_time;
        if let Some(life) = &life
            && timeout_at(end, hand_back_rest(&life.engine, &life.coordinator)).await.is_err()
        {
            tracing::warn!("the store does not answer; the jobs of this node are recovered after its lease");
        }
        if timeout_at(end, &mut maintenance).await.is_err() {
            maintenance.abort();
        }
        node.clear_caches();
        // The jobs that went back are for the others.
        node.client().wake_up(JobPriority::Normal);
        let _ = timeout_at(end, node.client().close()).await;
        // A store that did not answer may have used the time up; the coordinator still gets the least time.
        let left = end.saturating_duration_since(Instant::now()).max(LEAST_CLOSING_TIME);
        let cluster = Arc::clone(&node.plugs.cluster);
        if let Err(problem) = on_own_thread(left, async move { cluster.shutdown().await }).await {
            tracing::warn!(node = node.label, %problem, "the cluster coordinator does not stop");
        }
        if let Some(Life { engine, heartbeat, .. }) = life {
            let _ = timeout_at(end, heartbeat.stop()).await;
            if timeout_at(end, leave(&engine)).await.is_err() {
                tracing::warn!("the store does not answer; the node's row stays until its lease ends");
            }
        }
        node.plugs.events.heard(closing_time).await;
        node.drain.advance(Readiness::Stopped);
        tracing::info!(node = node.label, "node stopped");
        unless_hurried(&node, hooks.after_stop(hook_time)).await;
    }
}

/// Waits for hooks, but not much longer once the shutdown is not to wait any more.
async fn unless_hurried(node: &Node, hooks: impl Future<Output = ()>) {
    let hurried = async {
        node.drain.hurry.cancelled().await;
        tokio::time::sleep(LEAST_CLOSING_TIME).await;
    };
    tokio::select! {
        biased;
        () = hooks => {}
        () = hurried => tracing::warn!("lifecycle hooks still run; they are not waited for"),
    }
}

impl Life {
    /// Waits for running jobs. Bodies are told to stop when the deadline is near, and given up when it has passed.
    async fn drain(&mut self, closing_time: Duration) {
        let Self { engine, coordinator, poller, recovery, .. } = self;
        let (limit, grace) =
            (engine.node.options.execution.drain_timeout, engine.node.options.timeout.cancel_grace);
        let deadline = Instant::now() + limit;
        let moving = [poller.abort_handle(), recovery.abort_handle()];
        // They end by themselves once they see that the node drains; jobs that were claimed meanwhile go back.
        let mut quiet = pin!(async {
            let _ = poller.await;
            let _ = recovery.await;
            coordinator.idle().await;
        });
        tokio::select! {
            biased;
            () = &mut quiet => return,
            () = engine.node.drain.hurry.cancelled() => {}
            () = sleep_until(deadline - grace.min(limit)) => {}
        }
        let (node, jobs) = (&engine.owner, engine.node.running.all().len());
        tracing::info!(%node, jobs, "jobs still run; their bodies are told to stop");
        engine.node.drain.closing.cancel();
        engine.node.running.stop_all();
        tokio::select! {
            biased;
            () = &mut quiet => return,
            () = engine.node.drain.hurry.cancelled() => {}
            () = sleep_until(deadline) => {}
        }
        let jobs = engine.node.running.all().len();
        tracing::warn!(%node, jobs, ?limit, "jobs still run; they are given up and handed back");
        engine.node.abort.cancel();
        if timeout(closing_time, quiet).await.is_err() {
            tracing::error!("some bodies do not end; their jobs are recovered after the lease");
            moving.iter().for_each(AbortHandle::abort);
        }
    }
}

/// Hands back the jobs that this node still holds and does not run: those of a claim whose reply was lost.
async fn hand_back_rest(engine: &Engine, coordinator: &Coordinator) {
    if let Err(error) = reconcile(engine, coordinator).await {
        tracing::warn!(%error, "jobs that this node may still hold are recovered after its lease");
    }
}
