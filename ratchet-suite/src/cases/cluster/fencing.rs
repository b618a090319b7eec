//! Self-fencing: a node that cannot know whether it still counts as alive stops its work.

use std::sync::Arc;

use ratchet_api::{JobId, JobStatus};
use ratchet_core::Readiness;

use super::{BEAT, Worker, label, node, now, until_readiness};
use crate::cable::Line;
use crate::{Fixture, lines};

crate::cases! {
    a_node_that_is_cut_off_stops_its_bodies_and_comes_back_as_a_new_owner;
    a_frozen_node_records_nothing_afterwards;
    a_node_whose_row_is_gone_joins_anew;
    an_outage_is_logged_when_it_begins_and_when_it_ends;
    a_node_that_is_cut_off_can_be_stopped;
}

// shows: S8 S186
async fn a_node_that_is_cut_off_stops_its_bodies_and_comes_back_as_a_new_owner(fx: Fixture) {
    let (worker, line) = (Worker::waiting(), Arc::<Line>::default());
    let node = node(&fx, "only", &worker, &line).await;
    let first_life = node.owner();
    let job = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    line.cut(true);
    worker.told.notified().await;
    assert_eq!(node.readiness(), Readiness::Starting, "it takes no work");
    assert_eq!(now(&job).await.status, JobStatus::Running, "nobody can say anything else");
    worker.open();
    line.cut(false);
    let ran_by = job.result().await.expect("it runs again");
    assert_eq!(label(&ran_by), "only");
    assert!(ran_by == node.owner().to_string() && ran_by != first_life.to_string());
    assert!(!line.outcomes().contains(&first_life), "what was too late was not even sent");
    assert_eq!(now(&job).await.crash_count, 0, "nothing crashed");
    assert_eq!(node.readiness(), Readiness::Ready);
    let next = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    assert_eq!(next.result().await.expect("it works as before"), ran_by);
    node.stop().await;
}

async fn a_frozen_node_records_nothing_afterwards(fx: Fixture) {
    let (frozen, quick) = (Worker::waiting(), Worker::quick());
    let (jammed, whole) = (Arc::<Line>::default(), Arc::<Line>::default());
    let sleeper = node(&fx, "sleeper", &frozen, &jammed).await;
    let first_life = sleeper.owner();
    let job = sleeper.enqueue(Worker::job().persist()).submit().await.expect("stored");
    frozen.entered.notified().await;
    let awake = node(&fx, "awake", &quick, &whole).await;
    // The heartbeat thread stands still too, so it cannot notice that time passes.
    jammed.jam(true);
    assert_eq!(label(&job.result().await.expect("it runs elsewhere")), "awake");
    frozen.open();
    until_readiness(&sleeper, Readiness::Starting).await;
    jammed.jam(false);
    until_readiness(&sleeper, Readiness::Ready).await;
    assert_ne!(sleeper.owner(), first_life);
    assert!(!jammed.outcomes().contains(&first_life));
    let job = now(&job).await;
    assert_eq!((job.status, job.crash_count), (JobStatus::Succeeded, 1));
    awake.stop().await;
    sleeper.stop().await;
}

async fn a_node_whose_row_is_gone_joins_anew(fx: Fixture) {
    let (worker, line) = (Worker::quick(), Arc::<Line>::default());
    let node = node(&fx, "only", &worker, &line).await;
    let first_life = node.owner();
    assert!(fx.store().await.leave(&first_life).await.expect("answered"));
    while node.owner() == first_life {
        tokio::time::sleep(BEAT / 10).await;
    }
    let job = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it works"), node.owner().to_string());
    node.stop().await;
    assert_eq!(fx.store().await.nodes().await.expect("read"), [], "nothing of either life stays");
}

async fn an_outage_is_logged_when_it_begins_and_when_it_ends(fx: Fixture) {
    let (worker, line, label) = (Worker::waiting(), Arc::<Line>::default(), JobId::generate().to_string());
    let node = node(&fx, &label, &worker, &line).await;
    let first_life = node.owner();
    node.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    line.cut(true);
    worker.told.notified().await;
    // It tries again and again to join as a new owner.
    line.more_refusals(5).await;
    line.cut(false);
    worker.entered.notified().await;

    let count = |name: &str, what: &str, message: &str| {
        let matches = |line: &&lines::Line| line.field("what") == what && line.message().starts_with(message);
        lines::about(name).iter().filter(matches).count()
    };
    let (failed, over) = ("a call to the store failed", "the store answers again");
    assert_eq!(count(first_life.as_str(), "heartbeat", failed), 1, "{:#?}", lines::of_node(&first_life));
    assert_eq!((count(&label, "join", failed), count(&label, "join", over)), (1, 1));
    worker.open();
    node.stop().await;
}

async fn a_node_that_is_cut_off_can_be_stopped(fx: Fixture) {
    let (worker, line) = (Worker::waiting(), Arc::<Line>::default());
    let node = node(&fx, "only", &worker, &line).await;
    node.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    line.cut(true);
    worker.told.notified().await;
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
}
