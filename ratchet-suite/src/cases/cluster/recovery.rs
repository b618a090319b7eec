//! Recovery of the jobs of a dead node.

use std::sync::Arc;

use ratchet_api::{ExecutionResult, JobEventKind, JobStatus, Owner};

use super::{LEASE, Worker, label, node, node_with, now, until_readiness};
use crate::Fixture;
use crate::cable::Line;
use ratchet_core::Readiness;

crate::cases! {
    jobs_of_a_dead_node_run_on_another_a_part_at_a_time;
    whoever_starts_late_takes_nothing_over_before_a_whole_lease;
    nodes_that_all_die_before_their_lease_is_over_still_take_over_from_each_other;
    a_job_that_crashes_its_nodes_ends_as_a_dead_letter_with_all_that_follows;
    a_job_that_was_canceled_on_a_dead_node_ends_canceled;
    a_takeover_whose_reply_was_lost_still_counts_as_a_crash;
    an_outage_of_the_database_has_nobody_take_over_others_jobs;
}

// shows: S8 S135 S136 S137 S182 S186
async fn jobs_of_a_dead_node_run_on_another_a_part_at_a_time(fx: Fixture) {
    let (stuck, quick) = (Worker::waiting(), Worker::quick());
    let (cut, whole) = (Arc::<Line>::default(), Arc::<Line>::default());
    let dead = node(&fx, "same", &stuck, &cut).await;
    let died = dead.owner();
    let jobs = dead.client().enqueue_many((0..5).map(|_| Worker::job().work())).await.expect("stored");
    while stuck.runs() < 5 {
        stuck.entered.notified().await;
    }
    // A node with the same label, as after a restart in place.
    let alive = node_with(&fx, "same", &quick, &whole, |options| options.node.recovery_limit = 2).await;
    cut.cut(true);
    for job in jobs {
        let job = job.expect("stored");
        assert_eq!(job.result().await.expect("it runs again"), alive.owner().to_string());
        let job = now(&job).await;
        assert_eq!((job.status, job.attempts, job.crash_count), (JobStatus::Succeeded, 0, 1));
    }
    assert_eq!((stuck.runs(), quick.runs()), (5, 5));
    let takeovers = whole.takeovers();
    assert!(takeovers.iter().all(|takeover| takeover.jobs <= 2 && takeover.dead == [died.clone()]));
    assert_eq!(takeovers.iter().map(|takeover| takeover.jobs).sum::<usize>(), 5);
    assert_eq!(cut.outcomes(), [], "the dead write nothing");
    alive.stop().await;
}

// shows: S135
async fn whoever_starts_late_takes_nothing_over_before_a_whole_lease(fx: Fixture) {
    let (stuck, quick) = (Worker::waiting(), Worker::quick());
    let (cut, whole) = (Arc::<Line>::default(), Arc::<Line>::default());
    let dead = node(&fx, "dead", &stuck, &cut).await;
    let job = dead.enqueue(Worker::job().work()).submit().await.expect("stored");
    stuck.entered.notified().await;
    cut.cut(true);
    until_readiness(&dead, Readiness::Starting).await;
    let alive = node(&fx, "alive", &quick, &whole).await;
    assert_eq!(label(&job.result().await.expect("it runs again")), "alive");
    let takeovers = whole.takeovers();
    assert!(takeovers.len() == 1 && takeovers[0].since_join >= LEASE, "{takeovers:?}");
    alive.stop().await;
}

// shows: S135 S182
async fn nodes_that_all_die_before_their_lease_is_over_still_take_over_from_each_other(fx: Fixture) {
    let (stuck, quick) = (Worker::waiting(), Worker::quick());
    let mut last = Arc::<Line>::default();
    let dead = node(&fx, "dead", &stuck, &last).await;
    let job = dead.enqueue(Worker::job().work()).submit().await.expect("stored");
    stuck.entered.notified().await;
    // Each node dies as soon as the next one is alive, after about half a lease.
    let mut lives = Vec::new();
    while lives.len() < 20 && now(&job).await.status != JobStatus::Succeeded {
        let line = Arc::<Line>::default();
        lives.push(node(&fx, &format!("life-{}", lives.len()), &quick, &line).await);
        last.cut(true);
        line.more_beats(5).await;
        last = line;
    }
    let ended = now(&job).await;
    let nodes = fx.store().await.nodes().await.expect("read");
    assert_eq!(ended.status, JobStatus::Succeeded, "after {} lives: {nodes:#?}", lives.len());
    assert!(ended.crash_count >= 1, "{ended:?}");
}

// shows: S100 S102 S104 S186
async fn a_job_that_crashes_its_nodes_ends_as_a_dead_letter_with_all_that_follows(fx: Fixture) {
    let lines: [Arc<Line>; 3] = std::array::from_fn(|_| Arc::default());
    let start = async |number: usize, worker: &Worker| {
        let limit = |options: &mut ratchet_api::options::RatchetOptions| options.node.crash_limit = 1;
        node_with(&fx, ["first", "second", "third"][number], worker, &lines[number], limit).await
    };
    let (first, second, third) = (Worker::waiting(), Worker::waiting(), Worker::quick());
    let a = start(0, &first).await;
    let poison = a.enqueue(Worker::job().work()).on_failure(&Worker::job().mourn()).submit().await;
    let poison = poison.expect("stored");
    first.entered.notified().await;
    let (b, a_owner) = (start(1, &second).await, a.owner());
    lines[0].cut(true);
    second.entered.notified().await;
    let again = now(&poison).await;
    assert_eq!((again.status, again.crash_count, again.attempts), (JobStatus::Running, 1, 0));
    let died =
        |owner: &Owner, times: &str| format!("Crashed: crashed its node {times}; the last was '{owner}'");
    let crash = b.client().store().executions(poison.id()).await.expect("read").remove(0);
    assert_eq!((crash.result, crash.error), (ExecutionResult::Crashed, Some(died(&a_owner, "1 time"))));
    let (c, b_owner) = (start(2, &third).await, b.owner());
    lines[1].cut(true);
    let dead = poison.ended().await.expect("it ends");
    assert_eq!((dead.status, dead.crash_count, dead.attempts), (JobStatus::Failed, 2, 0));
    let died = format!("{}, which held no other job", died(&b_owner, "2 times"));
    assert_eq!(dead.last_error.as_deref(), Some(died.as_str()));
    assert_eq!(c.callback_result().await, format!("\"{died}\""));
    assert_eq!(third.runs(), 0, "it never ran on the third");
    assert_eq!(c.client().store().alerts(poison.id()).await.expect("read").len(), 1);
    c.told(|kind| matches!(kind, JobEventKind::DeadLettered { attempt: 0, .. })).await;
    let lines = c.lines(poison.id());
    assert!(lines.iter().any(|line| line.message() == "dead letter"), "{lines:#?}");
    c.stop().await;
    drop((a, b));
}

// shows: S35
async fn a_job_that_was_canceled_on_a_dead_node_ends_canceled(fx: Fixture) {
    let (stuck, quick) = (Worker::waiting(), Worker::quick());
    let (cut, whole) = (Arc::<Line>::default(), Arc::<Line>::default());
    let dead = node(&fx, "dead", &stuck, &cut).await;
    let job = dead.enqueue(Worker::job().work()).submit().await.expect("stored");
    stuck.entered.notified().await;
    let alive = node(&fx, "alive", &quick, &whole).await;
    cut.cut(true);
    assert!(alive.client().cancel(job.id(), "not wanted").await.expect("answered"));
    alive.told(|kind| matches!(kind, JobEventKind::Canceled { .. })).await;
    let ended = now(&job).await;
    assert_eq!((ended.status, ended.picked_by, ended.crash_count), (JobStatus::Canceled, None, 0));
    assert_eq!(quick.runs(), 0);
    alive.stop().await;
}

async fn a_takeover_whose_reply_was_lost_still_counts_as_a_crash(fx: Fixture) {
    let (stuck, quick) = (Worker::waiting(), Worker::quick());
    let (cut, whole) = (Arc::<Line>::default(), Arc::<Line>::default());
    let dead = node(&fx, "dead", &stuck, &cut).await;
    let job = dead.enqueue(Worker::job().work()).submit().await.expect("stored");
    stuck.entered.notified().await;
    let alive = node(&fx, "alive", &quick, &whole).await;
    whole.lose_takeovers();
    cut.cut(true);
    assert_eq!(job.result().await.expect("it runs again"), alive.owner().to_string());
    assert_eq!((now(&job).await.crash_count, quick.runs()), (1, 1));
    alive.stop().await;
}

// shows: S135 S182 S186
async fn an_outage_of_the_database_has_nobody_take_over_others_jobs(fx: Fixture) {
    let (a_worker, b_worker) = (Worker::waiting(), Worker::waiting());
    let (a_line, b_line) = (Arc::<Line>::default(), Arc::<Line>::default());
    let a = node(&fx, "a", &a_worker, &a_line).await;
    let a_job = a.enqueue(Worker::job().work()).submit().await.expect("stored");
    a_worker.entered.notified().await;
    let b = node(&fx, "b", &b_worker, &b_line).await;
    // Either node may claim it.
    let b_job = b.enqueue(Worker::job().work()).submit().await.expect("stored");
    b.until(b_job.id(), |job| job.status == JobStatus::Running).await;
    // By now both leases have run out, so each could take over from the other.
    b_line.more_beats(12).await;
    let before = [a.owner(), b.owner()];
    for line in [&a_line, &b_line] {
        line.cut(true);
    }
    until_readiness(&a, Readiness::Starting).await;
    until_readiness(&b, Readiness::Starting).await;
    for (worker, line) in [(&a_worker, &a_line), (&b_worker, &b_line)] {
        worker.open();
        line.cut(false);
    }
    for job in [a_job, b_job] {
        job.result().await.expect("it runs again");
        let job = now(&job).await;
        assert_eq!((job.attempts, job.crash_count), (0, 0), "no node crashed");
    }
    assert_eq!(a_worker.runs() + b_worker.runs(), 4, "each ran once more");
    for (line, owner) in [(&a_line, &before[0]), (&b_line, &before[1])] {
        let others = line.takeovers().into_iter().filter(|takeover| takeover.dead != [owner.clone()]);
        assert_eq!(others.count(), 0, "each took back its own");
    }
    until_readiness(&a, Readiness::Ready).await;
    until_readiness(&b, Readiness::Ready).await;
    assert!(a.owner() != before[0] && b.owner() != before[1], "they are new owners");
    a.stop().await;
    b.stop().await;
    assert_eq!(fx.store().await.nodes().await.expect("read"), [], "nothing of any life stays");
}
