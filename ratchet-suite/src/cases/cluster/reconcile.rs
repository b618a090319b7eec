//! Reconciliation: in the end a node runs exactly the jobs that it owns.

use std::sync::Arc;

use ratchet_api::JobStatus;

use super::{Worker, node, now};
use crate::Fixture;
use crate::cable::Line;

crate::cases! {
    a_claim_of_which_nobody_heard_is_run_within_a_lease;
    what_a_node_runs_and_does_not_own_is_stopped;
    a_node_that_holds_nothing_does_not_ask_what_it_holds;
}

/// More beats than fit into two leases.
const TWO_LEASES: usize = 30;

async fn a_claim_of_which_nobody_heard_is_run_within_a_lease(fx: Fixture) {
    let (worker, line) = (Worker::quick(), Arc::<Line>::default());
    let node = node(&fx, "only", &worker, &line).await;
    let owner = node.owner();
    line.mute(true);
    let job = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    tokio::select! {
        ran_by = job.result() => assert_eq!(ran_by.expect("it runs"), owner.to_string()),
        () = line.more_beats(TWO_LEASES) => panic!("nobody runs it"),
    }
    let job = now(&job).await;
    assert_eq!((job.status, job.attempts, job.crash_count), (JobStatus::Succeeded, 0, 0));
    assert_eq!(worker.runs(), 1);
    node.stop().await;
}

async fn a_node_that_holds_nothing_does_not_ask_what_it_holds(fx: Fixture) {
    let (worker, line) = (Worker::quick(), Arc::<Line>::default());
    let node = node(&fx, "only", &worker, &line).await;
    node.enqueue(Worker::job().work()).submit().await.expect("stored").result().await.expect("it runs");
    // The beat under way may have seen the job, the next has not, and before the third the node has read that reply.
    line.more_beats(3).await;
    let asked = line.owned();
    line.more_beats(TWO_LEASES).await;
    assert_eq!(line.owned(), asked);
    node.stop().await;
}

async fn what_a_node_runs_and_does_not_own_is_stopped(fx: Fixture) {
    let (worker, line) = (Worker::waiting(), Arc::<Line>::default());
    let node = node(&fx, "only", &worker, &line).await;
    node.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    line.disown(true);
    tokio::select! {
        () = worker.told.notified() => {}
        () = line.more_beats(TWO_LEASES) => panic!("nobody told it"),
    }
    node.stop().await;
}
