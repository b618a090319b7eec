//! Maintenance: old jobs, dead letters, logs and node rows are removed on time, each task by one node of the cluster.

mod watched;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::options::{MaintenanceOptions, RatchetOptions};
use ratchet_api::spi::StartupCoordinator as _;
use ratchet_api::store::{ArchiveFilter, JobStore};
use ratchet_api::{JobId, JobStatus, NodeInfo, Owner};
use ratchet_core::defaults::StoreStartupCoordinator;
use ratchet_core::maintenance::{Ran, Task};
use ratchet_core::{JobContext, JobFailure, Ratchet, StartError, jobs};

use self::watched::{Renewal, Watch, seen, watched};
use crate::{Fixture, Node, lines};

crate::cases! {
    ended_jobs_of_every_kind_are_archived_and_others_stay;
    old_dead_letters_are_deleted;
    old_log_lines_are_deleted_and_their_job_stays;
    old_archived_jobs_are_deleted_if_that_is_wanted;
    rows_of_dead_nodes_are_deleted_and_those_of_live_ones_stay;
    of_several_nodes_one_does_a_task_each_time_it_is_due;
    the_task_of_a_node_that_died_is_done_by_another_once_its_lock_ends;
    a_lock_is_kept_as_long_as_a_part_takes;
    a_node_whose_lock_is_lost_gives_its_task_up;
    a_node_that_drains_stops_after_the_part_it_is_at_and_frees_the_lock;
    a_task_is_done_part_by_part_until_nothing_is_left;
    a_task_goes_on_after_a_failure_at_any_part;
    what_is_done_by_hand_is_done_under_the_same_lock;
    a_node_with_a_cron_expression_that_makes_no_sense_does_not_start;
    of_many_nodes_one_does_a_task_at_the_start;
}

/// The shortest interval and retention that the options allow.
const SECOND: Duration = Duration::from_secs(1);
const EVERY_SECOND: &str = "* * * * * *";

/// Polls until the expression is true.
macro_rules! until {
    ($seen:expr) => {
        while !$seen {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
}

/// A service whose body succeeds or fails as its argument says.
struct Worker;

#[jobs(target = "test.Worker")]
impl Worker {
    #[job(max_retries = 0)]
    async fn work(&self, ctx: &JobContext, fails: bool) -> Result<(), JobFailure> {
        ctx.info("at work");
        if fails { Err(JobFailure::new("Told", "to fail")) } else { Ok(()) }
    }
}

/// Makes every task due each second, with a retention of one second, and switches it off.
fn quick(options: &mut RatchetOptions) {
    let MaintenanceOptions { dlq_purge, archive, log_purge, archive_purge, node_purge, lock_ttl, .. } =
        &mut options.maintenance;
    *lock_ttl = SECOND;
    (archive.enabled, archive.retention) = (false, SECOND);
    archive.cron = EVERY_SECOND.to_owned();
    for purge in [dlq_purge, log_purge, archive_purge, node_purge] {
        (purge.enabled, purge.retention) = (false, SECOND);
        purge.cron = EVERY_SECOND.to_owned();
    }
}

/// Starts a node on which the tasks that `switch` enables run every second.
async fn node(fx: &Fixture, switch: impl FnOnce(&mut MaintenanceOptions)) -> Node {
    node_on(fx, fx.store().await, switch).await
}

async fn node_on(
    fx: &Fixture,
    store: Arc<dyn JobStore>,
    switch: impl FnOnce(&mut MaintenanceOptions),
) -> Node {
    let set_up = |options: &mut RatchetOptions| {
        quick(options);
        // A stop waits this long for the part that a task is at, however busy the machine is.
        options.timeout.cancel_grace = SECOND * 30;
        switch(&mut options.maintenance);
    };
    fx.node_on(store, |builder| builder.register(Worker).configure(set_up)).await
}

fn archive(options: &mut MaintenanceOptions) {
    options.archive.enabled = true;
}

/// Runs a job to its end; returns its id.
async fn ended(node: &Node, fails: bool) -> JobId {
    let job = node.enqueue(Worker::job().work(fails)).submit().await.expect("stored");
    job.ended().await.expect("it ends");
    job.id()
}

/// Stores `count` succeeded jobs older than the retention, by a node that archives nothing.
async fn jobs(fx: &Fixture, count: usize) -> Vec<JobId> {
    let node = node(fx, |_| {}).await;
    let ids = join_all((0..count).map(|_| ended(&node, false))).await;
    let end = node.client().store().database_time().await.expect("read");
    until!(node.client().store().database_time().await.expect("read").since(end) > SECOND);
    node.stop().await;
    ids
}

async fn archived(store: &dyn JobStore) -> Vec<(JobId, JobStatus)> {
    let archived = store.archived(&ArchiveFilter::default(), 100).await.expect("read");
    archived.into_iter().map(|job| (job.id, job.status)).collect()
}

async fn is_there(store: &dyn JobStore, job: JobId) -> bool {
    store.find(&[job]).await.expect("read").pop().flatten().is_some()
}

// shows: S27 S139 S179 S180
async fn ended_jobs_of_every_kind_are_archived_and_others_stay(fx: Fixture) {
    let node = node(&fx, archive).await;
    let later = || node.enqueue(Worker::job().work(false)).delay(Duration::from_secs(600)).submit();
    let (waits, unwanted) = (later().await.expect("stored"), later().await.expect("stored"));
    assert!(node.client().cancel(unwanted.id(), "not wanted").await.expect("answered"));
    let (good, bad) = (ended(&node, false).await, ended(&node, true).await);
    until!(archived(node.client().store()).await.len() == 3);
    let expected = BTreeSet::from([
        (good, JobStatus::Succeeded),
        (bad, JobStatus::Failed),
        (unwanted.id(), JobStatus::Canceled),
    ]);
    assert_eq!(BTreeSet::from_iter(archived(node.client().store()).await), expected);
    for (job, _) in expected {
        assert!(!is_there(node.client().store(), job).await, "never both");
    }
    assert!(is_there(node.client().store(), waits.id()).await);
    node.stop().await;
}

// shows: S105 S139
async fn old_dead_letters_are_deleted(fx: Fixture) {
    let node = node(&fx, |options| options.dlq_purge.enabled = true).await;
    let (good, bad) = (ended(&node, false).await, ended(&node, true).await);
    until!(!is_there(node.client().store(), bad).await);
    assert!(is_there(node.client().store(), good).await);
    assert_eq!(archived(node.client().store()).await, []);
    node.stop().await;
}

// shows: S158
async fn old_log_lines_are_deleted_and_their_job_stays(fx: Fixture) {
    let node = node(&fx, |options| options.log_purge.enabled = true).await;
    let job = ended(&node, false).await;
    until!(node.client().store().logs(job, None, 10).await.expect("read").is_empty());
    assert!(is_there(node.client().store(), job).await);
    node.stop().await;
}

async fn old_archived_jobs_are_deleted_if_that_is_wanted(fx: Fixture) {
    jobs(&fx, 1).await;
    let store = fx.store().await;
    let archivist = node(&fx, archive).await;
    until!(archived(&*store).await.len() == 1);
    archivist.stop().await;
    let purger = node(&fx, |options| options.archive_purge.enabled = true).await;
    until!(archived(&*store).await.is_empty());
    purger.stop().await;
}

async fn owners(store: &dyn JobStore) -> Vec<Owner> {
    store.nodes().await.expect("read").into_iter().map(|node| node.info.owner).collect()
}

async fn rows_of_dead_nodes_are_deleted_and_those_of_live_ones_stay(fx: Fixture) {
    let (store, dead) = (fx.store().await, Owner::incarnate("dead"));
    store.join(&NodeInfo::new(dead), Duration::from_millis(10)).await.expect("joined");
    let node = node(&fx, |options| options.node_purge.enabled = true).await;
    until!(owners(&*store).await == [node.owner()]);
    node.stop().await;
}

/// Returns the due times for which a node did a task, as its log says.
fn times(node: &Node, task: Task) -> Vec<String> {
    let lines = lines::of_node(&node.owner()).into_iter();
    let done = lines.filter(|line| line.message() == "maintenance is done");
    done.filter(|line| line.field("task") == task.name()).map(|line| line.field("due").to_owned()).collect()
}

// shows: S139 S140 S141 S180
async fn of_several_nodes_one_does_a_task_each_time_it_is_due(fx: Fixture) {
    let nodes = [node(&fx, archive).await, node(&fx, archive).await, node(&fx, archive).await];
    let all = || nodes.iter().flat_map(|node| times(node, Task::Archive)).collect::<Vec<_>>();
    until!(all().len() >= 5);
    for node in &nodes {
        node.stop().await;
    }
    let times = all();
    assert_eq!(times.iter().collect::<BTreeSet<_>>().len(), times.len(), "{times:?}");
}

// shows: S8 S142 S186
async fn the_task_of_a_node_that_died_is_done_by_another_once_its_lock_ends(fx: Fixture) {
    let jobs = jobs(&fx, 2).await;
    let watch = Watch::shut();
    watch.renewal.send_replace(Renewal::Silent);
    let dead = node_on(&fx, watched(fx.store().await, &watch), archive).await;
    seen(&watch.begun, 1).await;
    let alive = node(&fx, archive).await;
    until!(archived(alive.client().store()).await.len() == jobs.len());
    assert_eq!(*watch.ended.borrow(), 0);
    alive.stop().await;
    drop(dead);
}

// shows: S139
async fn a_lock_is_kept_as_long_as_a_part_takes(fx: Fixture) {
    jobs(&fx, 1).await;
    let (slow, idle) = (Watch::shut(), Arc::<Watch>::default());
    let a = node_on(&fx, watched(fx.store().await, &slow), archive).await;
    seen(&slow.begun, 1).await;
    let b = node_on(&fx, watched(fx.store().await, &idle), archive).await;
    // Without renewal the lock would have ended twice by now.
    seen(&slow.renewed, 7).await;
    assert_eq!((*slow.begun.borrow(), *idle.begun.borrow()), (1, 0), "nobody else begins");
    slow.open.send_replace(true);
    seen(&slow.ended, 1).await;
    assert_eq!(archived(b.client().store()).await.len(), 1);
    a.stop().await;
    b.stop().await;
}

// shows: S142
async fn a_node_whose_lock_is_lost_gives_its_task_up(fx: Fixture) {
    jobs(&fx, 1).await;
    let watch = Watch::shut();
    watch.renewal.send_replace(Renewal::Refused);
    let node = node_on(&fx, watched(fx.store().await, &watch), archive).await;
    let lost = || {
        let lines = lines::of_node(&node.owner());
        lines.iter().any(|line| line.message().starts_with("the lock of a maintenance task is lost"))
    };
    until!(lost());
    assert_eq!(*watch.ended.borrow(), 0, "what it was at is given up");
    assert_eq!(times(&node, Task::Archive), [""; 0]);
    watch.renewal.send_replace(Renewal::Granted);
    watch.open.send_replace(true);
    until!(archived(node.client().store()).await.len() == 1);
    node.stop().await;
}

// shows: S64
async fn a_node_that_drains_stops_after_the_part_it_is_at_and_frees_the_lock(fx: Fixture) {
    jobs(&fx, 3).await;
    let watch = Watch::shut();
    let one_by_one = |options: &mut MaintenanceOptions| {
        archive(options);
        options.archive.batch_size = 1;
    };
    let node = node_on(&fx, watched(fx.store().await, &watch), one_by_one).await;
    let client = fx.client().await;
    seen(&watch.begun, 1).await;
    node.drain();
    watch.open.send_replace(true);
    node.stop().await;
    assert_eq!(*watch.begun.borrow(), 1);
    assert_eq!(archived(client.store()).await.len(), 1);
    let rest = client.maintenance().older_than(Duration::ZERO).run(Task::Archive, |_| true).await;
    assert_eq!(rest.expect("it goes on"), Ran::Done { rows: 2 });
}

// shows: S180
async fn a_task_is_done_part_by_part_until_nothing_is_left(fx: Fixture) {
    jobs(&fx, 5).await;
    // The lock is long, so that it does not end on a busy machine.
    let patient = |options: &mut MaintenanceOptions| {
        options.archive.batch_size = 2;
        options.lock_ttl = SECOND * 60;
    };
    let node = node(&fx, patient).await;
    let mut asked = Vec::new();
    let maintenance = node.client().maintenance();
    let done = maintenance.run(Task::Archive, |rows| {
        asked.push(rows);
        true
    });
    assert_eq!(done.await.expect("answered"), Ran::Done { rows: 5 });
    assert_eq!(asked, [0, 2, 4]);
    node.stop().await;
}

// shows: S8 S180
async fn a_task_goes_on_after_a_failure_at_any_part(fx: Fixture) {
    const JOBS: usize = 7;
    let ids = jobs(&fx, JOBS).await;
    let watch = Arc::<Watch>::default();
    watch.loses.store(2, Ordering::SeqCst);
    let two_by_two = |options: &mut MaintenanceOptions| {
        archive(options);
        options.archive.batch_size = 2;
    };
    let node = node_on(&fx, watched(fx.store().await, &watch), two_by_two).await;
    until!(archived(node.client().store()).await.len() == JOBS);
    let moved: BTreeSet<_> = archived(node.client().store()).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(moved, BTreeSet::from_iter(ids), "each once");
    let failed = lines::of_node(&node.owner()).into_iter();
    let failed = failed.filter(|line| line.message() == "maintenance failed; it is tried again later");
    assert!(failed.count() >= 1);
    node.stop().await;
}

// shows: S139 S140
async fn what_is_done_by_hand_is_done_under_the_same_lock(fx: Fixture) {
    jobs(&fx, 2).await;
    let (client, other) = (fx.client().await, Owner::incarnate("other"));
    let by_hand = client.maintenance().older_than(Duration::ZERO);
    let lock = Task::Archive.lock().expect("a name");
    let held = client.store().try_lock(&lock, Duration::from_secs(60), &other).await.expect("answered");
    assert_eq!(by_hand.run(Task::Archive, |_| true).await.expect("answered"), Ran::Busy);
    let free = by_hand.run(Task::LogPurge, |_| true).await.expect("answered");
    assert_eq!(free, Ran::Done { rows: 2 }, "each task has its own lock");
    assert!(client.store().unlock(&held.expect("taken")).await.expect("answered"));
    let stopped = by_hand.run(Task::Archive, |_| false).await.expect("answered");
    assert_eq!(stopped, Ran::Stopped { rows: 0 });
    let mut asked = Vec::new();
    let done = by_hand.run(Task::Archive, |rows| {
        asked.push(rows);
        true
    });
    assert_eq!(done.await.expect("answered"), Ran::Done { rows: 2 });
    assert_eq!(asked, [0]);
    assert!(client.store().try_lock(&lock, SECOND, &other).await.expect("answered").is_some(), "it is free");
}

async fn a_node_with_a_cron_expression_that_makes_no_sense_does_not_start(fx: Fixture) {
    let builder = Ratchet::builder_shared(fx.store().await).register(Worker);
    let builder = builder.allow(["test."]);
    let builder = builder.configure(|options| options.maintenance.archive.cron = "0 0 25 * * *".to_owned());
    let Err(StartError::Options(error)) = builder.start().await else { panic!("it has no 25 hours") };
    assert!(error.to_string().starts_with("maintenance.archive.cron is \"0 0 25 * * *\""), "{error}");
}

/// Lets all nodes ask for a task at once; returns the indexes of those that got it.
async fn winners(nodes: &[StoreStartupCoordinator], action: &str) -> Vec<usize> {
    let lease = Duration::from_secs(600);
    let answers = join_all(nodes.iter().map(|node| node.try_acquire(action, lease))).await;
    let answers = answers.into_iter().map(|answer| answer.expect("answered"));
    answers.enumerate().filter_map(|(number, got)| got.then_some(number)).collect()
}

// shows: S126 S127 S128
async fn of_many_nodes_one_does_a_task_at_the_start(fx: Fixture) {
    const ACTION: &str = "recurring-annotation-orphan-cleanup";
    let mut nodes = Vec::new();
    for number in 0..6 {
        let owner = Owner::incarnate(&format!("node-{number}"));
        nodes.push(StoreStartupCoordinator::new(fx.store().await, owner));
    }
    let first = winners(&nodes, ACTION).await;
    assert_eq!(first.len(), 1);
    assert_eq!(winners(&nodes, ACTION).await, first, "it is still the same one's");
    nodes[first[0]].release(ACTION).await.expect("released");
    assert_eq!(winners(&nodes, ACTION).await.len(), 1);
    let crashed = StoreStartupCoordinator::new(fx.store().await, Owner::incarnate("crashed"));
    assert!(crashed.try_acquire("other", Duration::from_millis(20)).await.expect("answered"));
    until!(winners(&nodes[..1], "other").await == [0]);
}
