//! One notice in flight, and what a cancel request tells other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, MetricsSink, WakeupListener};
use ratchet_api::store::JobFilter;
use ratchet_api::{JobPriority, JobStatus, StoreResult};
use ratchet_core::{JobContext, jobs};
use tokio::sync::{Notify, Semaphore, watch};

use super::queues::patient;
use super::wakeups::Bus;
use crate::{Fixture, Node};

crate::cases! {
    while_a_notice_is_in_flight_what_comes_forms_the_next;
    a_notice_that_fails_holds_up_no_other;
    a_cancel_reaches_a_body_on_another_node_before_its_beat;
    many_cancels_on_another_node_reach_their_bodies;
    a_cancel_on_the_same_node_tells_no_other;
    a_node_that_runs_nothing_does_not_beat_for_a_cancel;
    a_freed_permit_is_told_to_other_nodes;
    a_stop_is_told_to_other_nodes;
}

#[derive(Clone, Default)]
struct Worker {
    entered: Arc<Notify>,
}

#[jobs(target = "test.Worker")]
impl Worker {
    #[job]
    async fn pass(&self) {}

    /// Runs until it is told to stop.
    #[job]
    async fn wait(&self, ctx: &JobContext) {
        self.entered.notify_one();
        ctx.canceled().await;
    }
}

/// A coordinator whose notices take until they are let through.
#[derive(Clone)]
struct Slow {
    told: watch::Sender<Vec<Option<JobPriority>>>,
    passes: Arc<Semaphore>,
}

impl Slow {
    fn new() -> Self {
        Self { told: watch::Sender::default(), passes: Arc::new(Semaphore::new(0)) }
    }

    async fn take(&self, notice: Option<JobPriority>) -> StoreResult<()> {
        self.told.send_modify(|told| told.push(notice));
        self.passes.acquire().await.expect("it stays open").forget();
        Ok(())
    }

    /// Waits until `notices` notices have gone out; returns them.
    async fn told(&self, notices: usize) -> Vec<Option<JobPriority>> {
        let mut told = self.told.subscribe();
        told.wait_for(|told| told.len() >= notices).await.expect("it is ours").clone()
    }
}

#[async_trait]
impl ClusterCoordinator for Slow {
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()> {
        self.take(Some(priority)).await
    }
    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.take(None).await
    }
    async fn register_wakeup_listener(&self, _: WakeupListener) -> StoreResult<()> {
        Ok(())
    }
}

// shows: S15 S123
async fn while_a_notice_is_in_flight_what_comes_forms_the_next(fx: Fixture) {
    let slow = Slow::new();
    let line = slow.clone();
    let node = fx.node(|builder| builder.register(Worker::default()).cluster(line).configure(patient)).await;
    let submit = async |priority| {
        node.enqueue(Worker::job().pass()).priority(priority).submit().await.expect("stored");
    };
    submit(JobPriority::Normal).await;
    assert_eq!(slow.told(1).await, [Some(JobPriority::Normal)], "at once: nothing is in flight");
    submit(JobPriority::High).await;
    for _ in 0..9 {
        submit(JobPriority::Low).await;
    }
    assert_eq!(slow.told(1).await.len(), 1, "one is in flight");
    slow.passes.add_permits(1);
    assert_eq!(
        slow.told(2).await[1..],
        [Some(JobPriority::High)],
        "the ten are one, as urgent as the most urgent"
    );
    slow.passes.add_permits(1);
    submit(JobPriority::Lowest).await;
    assert_eq!(slow.told(3).await[2..], [Some(JobPriority::Lowest)], "there was no other");
    slow.passes.add_permits(1);
    node.stop().await;
}

async fn a_freed_permit_is_told_to_other_nodes(fx: Fixture) {
    let (slow, worker) = (Slow::new(), Worker::default());
    slow.passes.add_permits(100);
    let (line, service) = (slow.clone(), worker.clone());
    let node = fx
        .node(|builder| builder.register(service).resource("printer", 1).cluster(line).configure(patient))
        .await;
    let job = node.enqueue(Worker::job().wait()).resource("printer").priority(JobPriority::High);
    let job = job.submit().await.expect("stored");
    worker.entered.notified().await;
    let high = Some(JobPriority::High);
    slow.told.subscribe().wait_for(|told| told.contains(&high)).await.expect("it is ours");
    assert!(node.client().cancel(job.id(), "enough").await.expect("accepted"));
    node.stop().await;
    let told = slow.told(1).await;
    assert_eq!(
        told.iter().filter(|notice| **notice == high).count(),
        2,
        "when stored and when freed: {told:?}"
    );
}

// shows: S62
async fn a_stop_is_told_to_other_nodes(fx: Fixture) {
    let slow = Slow::new();
    slow.passes.add_permits(100);
    let line = slow.clone();
    let node = fx.node(|builder| builder.register(Worker::default()).cluster(line).configure(patient)).await;
    assert_eq!(slow.told(0).await, [], "nothing has happened yet");
    node.stop().await;
    assert_eq!(slow.told(0).await, [Some(JobPriority::Normal)], "what it gave back is theirs");
}

/// A coordinator that fails as often as it is told to.
#[derive(Clone)]
struct Failing {
    left: Arc<AtomicUsize>,
    told: Arc<Notify>,
}

#[async_trait]
impl ClusterCoordinator for Failing {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(left) if left % 2 == 0 => panic!("on purpose"),
            Ok(_) => Err(ratchet_api::StoreError::new(
                ratchet_api::StoreErrorKind::Transient,
                "notify",
                "on purpose",
            )),
            Err(_) => {
                self.told.notify_one();
                Ok(())
            }
        }
    }
    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        Ok(())
    }
    async fn register_wakeup_listener(&self, _: WakeupListener) -> StoreResult<()> {
        Ok(())
    }
}

// shows: S125
async fn a_notice_that_fails_holds_up_no_other(fx: Fixture) {
    let line = Failing { left: Arc::new(AtomicUsize::new(4)), told: Arc::default() };
    let failing = line.clone();
    let node =
        fx.node(|builder| builder.register(Worker::default()).cluster(failing).configure(patient)).await;
    while line.left.load(Ordering::SeqCst) > 0 {
        let job = node.enqueue(Worker::job().pass()).submit().await.expect("stored");
        job.result().await.expect("it runs: its own node is told all the same");
    }
    node.enqueue(Worker::job().pass()).submit().await.expect("stored");
    line.told.notified().await;
    node.stop().await;
}

/// Starts a node that would learn of a cancel from a beat after ten minutes.
async fn far(fx: &Fixture, worker: &Worker, bus: &Bus) -> Node {
    let (worker, bus) = (worker.clone(), bus.clone());
    fx.node(|builder| builder.register(worker).cluster(bus).configure(patient)).await
}

/// Starts a node that submits and cancels, and serves a queue that nobody uses.
async fn near(fx: &Fixture, bus: &Bus) -> Node {
    let bus = bus.clone();
    let alone = |options: &mut ratchet_api::options::RatchetOptions| {
        patient(options);
        options.execution.queues.clear();
        options.execution.queue("elsewhere");
    };
    fx.node(|builder| builder.register(Worker::default()).cluster(bus).configure(alone)).await
}

// shows: S35
async fn a_cancel_reaches_a_body_on_another_node_before_its_beat(fx: Fixture) {
    let (worker, bus) = (Worker::default(), Bus::default());
    let (far, near) = (far(&fx, &worker, &bus).await, near(&fx, &bus).await);
    for _ in 0..3 {
        let job = near.enqueue(Worker::job().wait()).submit().await.expect("stored");
        worker.entered.notified().await;
        assert!(near.client().cancel(job.id(), "not wanted").await.expect("answered"));
        // The owner of a canceled job is cleared when its body ends.
        let ended = near.until(job.id(), |job| job.picked_by.is_none()).await;
        assert_eq!(ended.status, JobStatus::Canceled);
    }
    near.stop().await;
    far.stop().await;
}

// shows: S35
async fn many_cancels_on_another_node_reach_their_bodies(fx: Fixture) {
    const JOBS: usize = 5;
    let (worker, bus) = (Worker::default(), Bus::default());
    let (far, near) = (far(&fx, &worker, &bus).await, near(&fx, &bus).await);
    let mut jobs = Vec::new();
    for _ in 0..JOBS {
        jobs.push(near.enqueue(Worker::job().wait()).submit().await.expect("stored"));
        worker.entered.notified().await;
    }
    let told = near.client().cancel_all(JobFilter::default(), "enough").run().await.expect("done");
    assert_eq!(told.told_to_stop, JOBS as u64);
    for job in jobs {
        near.until(job.id(), |job| job.picked_by.is_none()).await;
    }
    near.stop().await;
    far.stop().await;
}

async fn a_cancel_on_the_same_node_tells_no_other(fx: Fixture) {
    let (slow, worker) = (Slow::new(), Worker::default());
    slow.passes.add_permits(1_000);
    let (line, works) = (slow.clone(), worker.clone());
    let node = fx.node(|builder| builder.register(works).cluster(line).configure(patient)).await;
    let job = node.enqueue(Worker::job().wait()).submit().await.expect("stored");
    worker.entered.notified().await;
    assert!(node.client().cancel(job.id(), "not wanted").await.expect("answered"));
    node.until(job.id(), |job| job.picked_by.is_none()).await;
    // Notices go out in order.
    node.enqueue(Worker::job().pass()).priority(JobPriority::Low).submit().await.expect("stored");
    let normal = Some(JobPriority::Normal);
    assert_eq!(slow.told(2).await, [normal, Some(JobPriority::Low)], "there is nobody to tell");
    node.stop().await;
}

/// A sink that counts beats.
#[derive(Clone, Default)]
struct Beats(watch::Sender<usize>);

impl MetricsSink for Beats {
    fn beat(&self, _: i64) {
        self.0.send_modify(|beats| *beats += 1);
    }
}

async fn a_node_that_runs_nothing_does_not_beat_for_a_cancel(fx: Fixture) {
    let (worker, bus, beats) = (Worker::default(), Bus::default(), Beats::default());
    let (line, works, counted) = (bus.clone(), worker.clone(), beats.clone());
    let node =
        fx.node(|builder| builder.register(works).cluster(line).metrics(counted).configure(patient)).await;
    beats.0.subscribe().wait_for(|beats| *beats == 1).await.expect("the first beat");
    bus.notify_cancel_requested().await.expect("told");
    let client = near(&fx, &bus).await;
    let job = client.enqueue(Worker::job().wait()).submit().await.expect("stored");
    worker.entered.notified().await;
    client.client().cancel(job.id(), "not wanted").await.expect("answered");
    client.until(job.id(), |job| job.picked_by.is_none()).await;
    assert_eq!(*beats.0.borrow(), 2, "one for the job that runs");
    client.stop().await;
    node.stop().await;
}
