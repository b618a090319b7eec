//! Node names, node rows, clocks and cancels.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::spi::NodeIdentityProvider;
use ratchet_api::{JobStatus, ManualClock, Node as KnownNode, Owner, StoreClock, Timestamp};
use ratchet_core::{Ratchet, Readiness, StartError};
use tracing::Level;

use super::{BEAT, LEASE, Worker, node, now};
use crate::cable::{self, Line};
use crate::{Fixture, Node, lines};

crate::cases! {
    a_node_is_listed_with_what_it_is_and_does;
    a_custom_identity_names_the_node_and_its_owner;
    an_identity_that_is_no_name_keeps_the_node_from_starting;
    a_wrong_clock_is_told_once_and_decides_nothing;
    a_step_of_the_databases_clock_is_told_and_mended_once;
    a_cancel_reaches_a_body_on_another_node_within_a_beat;
    no_job_is_claimed_by_two_nodes;
    bodies_that_block_every_thread_keep_no_node_from_beating;
}

async fn row(node: &Node) -> KnownNode {
    let nodes = node.client().store().nodes().await.expect("read");
    nodes.into_iter().find(|known| known.info.owner == node.owner()).expect("it is listed")
}

// shows: S132 S133
async fn a_node_is_listed_with_what_it_is_and_does(fx: Fixture) {
    let (worker, line) = (Worker::waiting(), Arc::default());
    let node = node(&fx, "billing", &worker, &line).await;
    node.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    line.more_beats(2).await;
    let busy = row(&node).await;
    assert_eq!((busy.info.label.as_str(), busy.running, busy.slots), ("billing", 1, 50));
    let methods = ["block", "mourn", "persist", "work"].map(|name| format!("test.Worker.{name}"));
    assert_eq!(busy.info.methods, methods);
    assert_eq!(busy.info.queues, ["default"]);
    assert!(!busy.info.version.is_empty() && !busy.reaped);
    worker.open();
    line.more_beats(2).await;
    let later = row(&node).await;
    assert!(later.heartbeat_at > busy.heartbeat_at && later.lease_until > busy.lease_until);
    assert_eq!(later.started_at, busy.started_at);
    node.stop().await;
}

async fn a_step_of_the_databases_clock_is_told_and_mended_once(fx: Fixture) {
    const HOUR: i64 = 3_600_000;
    let (worker, line) = (Worker::quick(), Arc::<Line>::default());
    let node = node(&fx, "node", &worker, &line).await;
    line.more_beats(3).await;
    assert!(line.mended().is_empty(), "a clock that runs needs no mending");
    for clock in [HOUR, 0, -HOUR] {
        line.set_clock(clock);
        line.more_beats(3).await;
    }
    let mended = line.mended();
    assert!(
        mended.len() == 2 && mended.iter().all(|by| by.as_millis().abs_diff(3_600_000) < 1_000),
        "{mended:?}"
    );
    let told = lines::of_node(&node.owner());
    let count = |text: &str| told.iter().filter(|line| line.message().contains(text)).count();
    assert_eq!((count("jumped ahead"), count("went back")), (1, 2), "{told:#?}");
    node.stop().await;
}

struct Named(String);

impl NodeIdentityProvider for Named {
    fn node_id(&self) -> String {
        self.0.clone()
    }
}

// shows: S129 S130 S131
async fn a_custom_identity_names_the_node_and_its_owner(fx: Fixture) {
    let long = "pod-".repeat(20);
    let node = fx.node(|builder| builder.register(Worker::quick()).identity(Named(long.clone()))).await;
    let job = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    let ran_by = job.result().await.expect("it runs");
    assert_eq!(ran_by, node.owner().to_string());
    assert!(ran_by.len() <= Owner::MAX_LEN && long.starts_with(node.owner().label()), "{ran_by}");
    assert_eq!(row(&node).await.info.label, long, "the row keeps all of it");
    node.stop().await;
}

// shows: S131
async fn an_identity_that_is_no_name_keeps_the_node_from_starting(fx: Fixture) {
    for (name, problem) in [
        (String::new(), "node id is empty"),
        ("x".repeat(256), "node id has 256 bytes, at most 255 are kept"),
        ("a\nb".to_owned(), "node id contains the control character U+000A"),
    ] {
        let builder =
            Ratchet::builder_shared(fx.store().await).register(Worker::quick()).identity(Named(name));
        let builder = builder.allow(["test."]);
        let Err(StartError::Name(error)) = builder.start().await else { panic!("it has no name: {problem}") };
        assert_eq!(error.to_string(), problem);
    }
    assert_eq!(fx.store().await.nodes().await.expect("read"), []);
}

async fn a_wrong_clock_is_told_once_and_decides_nothing(fx: Fixture) {
    const HOUR: i64 = 3_600_000;
    let clock = ManualClock::starting_at(Timestamp::from_millis(Timestamp::node_now().as_millis() - HOUR));
    let (store, line) = (fx.store_at(StoreClock::Manual(clock)).await, Arc::<Line>::default());
    let store = cable::lay(store, &line);
    let set_up = super::short_lease;
    let node = fx.node_on(store, |builder| builder.register(Worker::quick()).configure(set_up)).await;
    let now = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    now.result().await.expect("it is due by the database's clock");
    let later = node.enqueue(Worker::job().work()).delay(Duration::from_secs(60)).submit().await;
    let later = later.expect("stored");
    line.more_beats(4).await;
    assert_eq!(super::now(&later).await.status, JobStatus::Pending, "it is not due by the database's clock");
    let off = row(&node).await.skew_millis;
    assert!((HOUR..HOUR + 600_000).contains(&off), "{off}");
    let told = lines::of_node(&node.owner());
    let told: Vec<_> = told.iter().filter(|line| line.message().contains("clock")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!((told[0].level, told[0].field("limit")), (Level::WARN, "5s"));
    let logged: i64 = told[0].field("skew_millis").parse().expect("a number");
    assert!((HOUR - 1_000..HOUR + 600_000).contains(&logged), "{logged}");
    node.stop().await;
}

// shows: S35 S81
async fn a_cancel_reaches_a_body_on_another_node_within_a_beat(fx: Fixture) {
    let (worker, line) = (Worker::waiting(), Arc::default());
    let a = node(&fx, "a", &worker, &line).await;
    let job = a.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    let client = fx.client().await;
    assert!(client.cancel(job.id(), "not wanted").await.expect("answered"));
    tokio::select! {
        () = worker.told.notified() => {}
        // The beat under way may be too early; the next one brings the cancel.
        () = line.more_beats(3) => panic!("the beats do not tell the body"),
    }
    let ended = a.until(job.id(), |job| job.picked_by.is_none()).await;
    assert_eq!((ended.status, ended.attempts), (JobStatus::Canceled, 0));
    assert!(now(&job).await.ending.is_some_and(|ending| ending.result.is_none()), "its result is dropped");
    a.stop().await;
}

// shows: S5 S26 S45 S181
async fn no_job_is_claimed_by_two_nodes(fx: Fixture) {
    const JOBS: u32 = 300;
    let workers = [Worker::quick(), Worker::quick(), Worker::quick()];
    let client = fx.client().await;
    let jobs = client.enqueue_many((0..JOBS).map(|_| Worker::job().work())).await.expect("stored");
    let mut nodes = Vec::new();
    for worker in &workers {
        nodes.push(fx.node(|builder| builder.register(worker.clone())).await);
    }
    for job in jobs {
        job.expect("stored").result().await.expect("it runs");
    }
    assert_eq!(workers.iter().map(Worker::runs).sum::<u32>(), JOBS, "each ran once");
    for node in nodes {
        node.stop().await;
    }
}

/// Waits without the runtime, because all of its threads are blocked.
fn wait_until(reached: impl Fn() -> bool) {
    while !reached() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

// shows: S133
async fn bodies_that_block_every_thread_keep_no_node_from_beating(fx: Fixture) {
    let (worker, line) = (Worker::waiting(), Arc::<Line>::default());
    let node = node(&fx, "busy", &worker, &line).await;
    let (owner, threads) = (node.owner(), tokio::runtime::Handle::current().metrics().num_workers());
    // More jobs than threads, since one that waits behind another may not get the next thread.
    let jobs =
        node.client().enqueue_many((0..threads * 4).map(|_| Worker::job().block())).await.expect("stored");
    wait_until(|| worker.runs() as usize >= threads);
    let (before, leases) = (line.beats(), 2 * LEASE.as_millis() / BEAT.as_millis());
    wait_until(|| line.beats() - before > leases as usize || node.readiness() != Readiness::Ready);
    worker.open();
    for job in jobs {
        assert_eq!(job.expect("stored").result().await.expect("it ends"), owner.to_string());
    }
    assert_eq!(worker.runs() as usize, threads * 4, "it was alive all the time");
    node.stop().await;
}
