//! Draining, as bodies, other nodes and servers beside a node see it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::JobStatus;
use ratchet_api::spi::{HookError, SchedulerLifecycleHook};
use ratchet_core::{JobContext, JobFailure, Readiness, jobs};
use tokio::sync::{Notify, Semaphore};

use super::queues::patient;
use super::wakeups::Bus;
use crate::Fixture;

crate::cases! {
    a_body_is_told_at_once_that_its_node_drains;
    a_node_that_drains_says_so_with_a_beat;
    what_a_node_gives_back_when_it_stops_is_taken_by_another;
    the_rest_of_a_job_is_taken_by_another_while_its_node_drains;
    a_stop_that_is_hurried_does_not_wait_for_hooks;
    a_server_beside_a_node_ends_with_it;
    a_server_that_ends_stops_its_node;
}

#[derive(Clone)]
struct Worker {
    entered: Arc<Notify>,
    told: Arc<Notify>,
    ends: Arc<Semaphore>,
}

impl Worker {
    fn new() -> Self {
        Self { entered: Arc::default(), told: Arc::default(), ends: Arc::new(Semaphore::new(0)) }
    }
}

#[jobs(target = "test.Worker")]
impl Worker {
    /// Notes when its node drains, and goes on.
    #[job]
    async fn watch(&self, ctx: &JobContext) -> Result<bool, JobFailure> {
        let before = ctx.is_draining();
        self.entered.notify_one();
        ctx.draining().await;
        let first = ctx.is_draining() && !ctx.is_canceled();
        self.told.notify_one();
        self.ends.acquire().await.expect("it stays open").forget();
        Ok(!before && first)
    }

    /// Snoozes when its node drains, which leaves the rest to another node.
    #[job]
    async fn pass_on(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        self.entered.notify_one();
        tokio::select! {
            () = ctx.draining() => Err(JobFailure::snooze(Duration::ZERO)),
            _ = self.ends.acquire() => Ok(ctx.node().to_string()),
        }
    }

    #[job]
    async fn wait(&self) {
        self.entered.notify_one();
        self.ends.acquire().await.expect("it stays open").forget();
    }
}

// shows: S61 S64
async fn a_body_is_told_at_once_that_its_node_drains(fx: Fixture) {
    let worker = Worker::new();
    let works = worker.clone();
    let node = fx.node(|builder| builder.register(works)).await;
    let job = node.enqueue(Worker::job().watch()).submit().await.expect("stored");
    worker.entered.notified().await;
    node.drain();
    worker.told.notified().await;
    worker.ends.add_permits(1);
    assert!(job.result().await.expect("what it returns counts"), "told in time, and before it is to stop");
    node.stop().await;
}

// shows: S64
async fn a_node_that_drains_says_so_with_a_beat(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Worker::new()).configure(patient)).await;
    let draining = async || {
        let nodes = node.client().store().nodes().await.expect("read");
        nodes.iter().map(|node| node.draining).collect::<Vec<_>>()
    };
    assert_eq!(draining().await, [false]);
    // The first beat reports the slots; the next one would come in an hour.
    while node.client().store().nodes().await.expect("read")[0].slots == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.drain();
    while draining().await != [true] {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.stop().await;
    assert_eq!(draining().await, [false; 0]);
}

// shows: S62
async fn what_a_node_gives_back_when_it_stops_is_taken_by_another(fx: Fixture) {
    let (worker, bus) = (Worker::new(), Bus::default());
    let node = async || {
        let (works, line) = (worker.clone(), bus.clone());
        fx.node(|builder| builder.register(works).cluster(line).configure(patient)).await
    };
    let stops = node().await;
    let job = stops.enqueue(Worker::job().wait()).submit().await.expect("stored");
    worker.entered.notified().await;
    let stays = node().await;
    stops.stop_now().await;
    worker.entered.notified().await;
    worker.ends.add_permits(1);
    assert_eq!(stays.until(job.id(), |job| job.status.is_terminal()).await.status, JobStatus::Succeeded);
    stays.stop().await;
}

// shows: S62
async fn the_rest_of_a_job_is_taken_by_another_while_its_node_drains(fx: Fixture) {
    let (worker, bus) = (Worker::new(), Bus::default());
    let node = async || {
        let (works, line) = (worker.clone(), bus.clone());
        fx.node(|builder| builder.register(works).cluster(line).configure(patient)).await
    };
    let drains = node().await;
    let job = drains.enqueue(Worker::job().pass_on()).submit().await.expect("stored");
    worker.entered.notified().await;
    let takes = node().await;
    // Not `stop()`, which wakes the other nodes at its end.
    drains.drain();
    worker.entered.notified().await;
    worker.ends.add_permits(1);
    assert_eq!(job.result().await.expect("it ends"), takes.owner().to_string());
    drains.stop().await;
    takes.stop().await;
}

/// A hook that never returns.
struct Endless;

#[async_trait]
impl SchedulerLifecycleHook for Endless {
    async fn before_stop(&self) -> Result<(), HookError> {
        std::future::pending().await
    }
}

// shows: S63
async fn a_stop_that_is_hurried_does_not_wait_for_hooks(fx: Fixture) {
    let node = fx.node(|builder| {
        builder.register(Worker::new()).hook(Endless).configure(|options| {
            options.execution.drain_timeout = Duration::from_secs(3_600);
        })
    });
    let node = node.await;
    tokio::join!(node.stop(), node.stop_now());
    assert_eq!(node.readiness(), Readiness::Stopped);
}

// shows: S64
async fn a_server_beside_a_node_ends_with_it(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Worker::new())).await;
    let server = async {
        node.draining().await;
        7
    };
    let (served, ()) = tokio::join!(node.serve_until_signal(server), node.stop());
    assert_eq!(served.expect("signals are told"), Some(7));
}

async fn a_server_that_ends_stops_its_node(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Worker::new())).await;
    let served = node.serve_until_signal(std::future::ready(Err::<(), _>("no port"))).await;
    assert_eq!(served.expect("signals are told"), Some(Err("no port")));
    assert_eq!(node.readiness(), Readiness::Stopped);
}
