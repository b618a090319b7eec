//! Named queues: slots, headroom, rate limits, and the load that the polling strategy is told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ratchet_api::JobStatus;
use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{PollSignal, PollingStrategy};
use ratchet_core::{Enqueue, JobHandle, jobs};
use tokio::sync::{Barrier, Notify, Semaphore};

use crate::{Fixture, Node};

crate::cases! {
    the_jobs_of_a_queue_run_at_once_in_their_slots;
    each_queue_has_slots_of_its_own;
    a_full_queue_holds_up_no_other_and_goes_on_as_slots_become_free;
    queues_take_turns_when_a_claim_cannot_serve_them_all;
    the_strategy_is_told_how_many_slots_are_in_use;
    no_more_start_than_the_rate_limit_allows_and_other_queues_do_not_notice;
    a_queue_with_a_rate_limit_goes_on_by_itself;
    headroom_lets_a_job_wait_for_its_slot_on_this_node;
    a_job_that_waits_for_its_slot_goes_back_when_the_node_stops;
    jobs_that_were_claimed_ahead_do_not_wait_behind_a_slow_one;
    jobs_that_were_claimed_together_start_in_claim_order;
}

/// A service whose methods behave as their names say, and count their running bodies.
#[derive(Clone)]
struct Worker {
    entered: Arc<Notify>,
    /// A permit for each waiting body that may go on.
    go: Arc<Semaphore>,
    together: Arc<Barrier>,
    now: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    started: Arc<Mutex<Vec<u32>>>,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            entered: Arc::default(),
            go: Arc::new(Semaphore::new(0)),
            together: Arc::new(Barrier::new(3)),
            now: Arc::default(),
            most: Arc::default(),
            started: Arc::default(),
        }
    }
}

#[jobs(target = "test.Worker")]
impl Worker {
    #[job]
    async fn work(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    #[job]
    async fn note(&self, number: u32) {
        self.started.lock().expect("nobody panics").push(number);
        self.wait().await;
    }

    #[job]
    async fn meet(&self) {
        self.together.wait().await;
    }

    #[job]
    async fn wait(&self) {
        self.entered.notify_one();
        self.go.acquire().await.expect("nobody closes it").forget();
    }
}

/// Makes polls and beats too rare to find a job, so that only the subject of the case leads to a poll.
pub(super) fn patient(options: &mut RatchetOptions) {
    let long = Duration::from_secs(600);
    options.polling.burst_delay = long;
    options.polling.min_delay = long;
    options.polling.max_delay = long;
    options.polling.deep_idle_delay = long;
    options.node.lease = Duration::from_secs(3_000);
    options.node.beat = long;
    options.node.recovery_interval = long;
}

async fn node(fx: &Fixture, worker: &Worker, queues: impl FnOnce(&mut RatchetOptions)) -> Node {
    fx.node(|builder| builder.register(worker.clone()).configure(patient).configure(queues)).await
}

/// Submits `count` jobs to a queue.
async fn submit(queue: &str, count: usize, job: impl Fn() -> Enqueue<()>) -> Vec<JobHandle<()>> {
    let mut jobs = Vec::new();
    for _ in 0..count {
        jobs.push(job().queue(queue).submit().await.expect("stored"));
    }
    jobs
}

async fn all_end(jobs: &[JobHandle<()>]) {
    for job in jobs {
        job.result().await.expect("it succeeds");
    }
}

// shows: S65
async fn the_jobs_of_a_queue_run_at_once_in_their_slots(fx: Fixture) {
    let worker = Worker::default();
    let node = node(&fx, &worker, |options| options.execution.queue("big").slots = 3).await;
    // Each body goes on only when all three run.
    all_end(&submit("big", 3, || node.enqueue(Worker::job().meet())).await).await;
    node.stop().await;
}

// shows: S66
async fn each_queue_has_slots_of_its_own(fx: Fixture) {
    let worker = Worker::default();
    let node = node(&fx, &worker, |options| options.execution.queue("small").slots = 1).await;
    all_end(&submit("small", 20, || node.enqueue(Worker::job().work())).await).await;
    assert_eq!(worker.most.load(Ordering::SeqCst), 1, "never two at once");
    node.stop().await;
}

// shows: S66
async fn a_full_queue_holds_up_no_other_and_goes_on_as_slots_become_free(fx: Fixture) {
    let worker = Worker::default();
    let node = node(&fx, &worker, |options| options.execution.queue("small").slots = 1).await;
    let small = submit("small", 3, || node.enqueue(Worker::job().wait())).await;
    worker.entered.notified().await;
    all_end(&submit("default", 1, || node.enqueue(Worker::job().work())).await).await;
    worker.go.add_permits(3);
    all_end(&small).await;
    node.stop().await;
}

async fn queues_take_turns_when_a_claim_cannot_serve_them_all(fx: Fixture) {
    let worker = Worker::default();
    let node = node(&fx, &worker, |options| {
        options.polling.batch_size = 1;
        options.execution.queue("a").slots = 2;
        options.execution.queue("b").slots = 2;
    })
    .await;
    let mut jobs = submit("a", 10, || node.enqueue(Worker::job().work())).await;
    jobs.extend(submit("b", 10, || node.enqueue(Worker::job().work())).await);
    all_end(&jobs).await;
    node.stop().await;
}

/// A polling strategy that records the load and always answers a short delay.
#[derive(Clone, Default)]
struct Noting {
    loads: Arc<Mutex<Vec<f64>>>,
    more: Arc<Notify>,
}

impl PollingStrategy for Noting {
    fn next_delay(&mut self, _: PollSignal, load: f64, _: Instant) -> Duration {
        self.loads.lock().expect("nobody panics").push(load);
        self.more.notify_one();
        Duration::from_millis(5)
    }
}

impl Noting {
    async fn told(&self, load: f64) {
        while self.loads.lock().expect("nobody panics").last() != Some(&load) {
            self.more.notified().await;
        }
    }
}

// shows: S50 S68
async fn the_strategy_is_told_how_many_slots_are_in_use(fx: Fixture) {
    let (worker, noting) = (Worker::default(), Noting::default());
    let (bean, strategy) = (worker.clone(), noting.clone());
    let four = |options: &mut RatchetOptions| options.execution.queue("default").slots = 4;
    let node = fx.node(|builder| builder.register(bean).configure(four).polling_strategy(strategy)).await;
    noting.told(0.0).await;
    let jobs = submit("default", 3, || node.enqueue(Worker::job().wait())).await;
    noting.told(0.75).await;
    worker.go.add_permits(1);
    noting.told(0.5).await;
    worker.go.add_permits(2);
    all_end(&jobs).await;
    noting.told(0.0).await;
    node.stop().await;
}

async fn no_more_start_than_the_rate_limit_allows_and_other_queues_do_not_notice(fx: Fixture) {
    let worker = Worker::default();
    let node = node(&fx, &worker, |options| {
        options.execution.queue("slow").rate_limit_per_minute = Some(1);
    })
    .await;
    let slow = submit("slow", 3, || node.enqueue(Worker::job().work())).await;
    all_end(&slow[..1]).await;
    all_end(&submit("default", 20, || node.enqueue(Worker::job().work())).await).await;
    for job in &slow[1..] {
        assert_eq!(job.job().await.expect("read").expect("there").status, JobStatus::Pending);
    }
    node.stop().await;
}

async fn a_queue_with_a_rate_limit_goes_on_by_itself(fx: Fixture) {
    let worker = Worker::default();
    let node = node(&fx, &worker, |options| {
        options.execution.queue("slow").rate_limit_per_minute = Some(240);
    })
    .await;
    all_end(&submit("slow", 8, || node.enqueue(Worker::job().work())).await).await;
    node.stop().await;
}

fn one_slot_and_one_place(options: &mut RatchetOptions) {
    options.execution.queue("default").slots = 1;
    options.polling.claim_headroom_factor = 0.5;
}

// shows: S46
async fn headroom_lets_a_job_wait_for_its_slot_on_this_node(fx: Fixture) {
    let worker = Worker::default();
    let node = node(&fx, &worker, one_slot_and_one_place).await;
    let jobs = submit("default", 3, || node.enqueue(Worker::job().wait())).await;
    worker.entered.notified().await;
    let waiting = node.until(jobs[1].id(), |job| job.status == JobStatus::Running).await;
    assert_eq!(waiting.picked_by, Some(node.owner()));
    assert_eq!(jobs[2].job().await.expect("read").expect("there").status, JobStatus::Pending);
    worker.go.add_permits(3);
    all_end(&jobs).await;
    node.stop().await;
}

async fn a_job_that_waits_for_its_slot_goes_back_when_the_node_stops(fx: Fixture) {
    let worker = Worker::default();
    let node = Arc::new(node(&fx, &worker, one_slot_and_one_place).await);
    let jobs = submit("default", 2, || node.enqueue(Worker::job().wait())).await;
    worker.entered.notified().await;
    node.until(jobs[1].id(), |job| job.status == JobStatus::Running).await;
    let stopping = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.stop().await }
    });
    let back = node.until(jobs[1].id(), |job| job.status == JobStatus::Pending).await;
    assert_eq!((back.attempts, back.crash_count, back.picked_by), (0, 0, None));
    worker.go.add_permits(1);
    stopping.await.expect("it stops");
    all_end(&jobs[..1]).await;
}

async fn jobs_that_were_claimed_ahead_do_not_wait_behind_a_slow_one(fx: Fixture) {
    let (slow, other, client) = (Worker::default(), Worker::default(), fx.client().await);
    let quick = |count: usize| (0..count).map(|_| Worker::job().work());
    // So many that the node measures a high turnover, and claims the jobs behind the slow one ahead of it.
    let before = client.enqueue_many(quick(2_000)).await.expect("stored");
    let last = client.enqueue(Worker::job().wait()).submit().await.expect("stored");
    let behind = client.enqueue_many(quick(100)).await.expect("stored");

    let first = node(&fx, &slow, |options| options.execution.queue("default").slots = 1).await;
    slow.entered.notified().await;
    let second = fx.node(|builder| builder.register(other.clone())).await;
    for job in before.into_iter().chain(behind) {
        job.expect("stored").result().await.expect("it succeeds");
    }
    assert_eq!(last.job().await.expect("read").expect("there").status, JobStatus::Running);
    slow.go.add_permits(1);
    last.result().await.expect("it succeeds");
    first.stop().await;
    second.stop().await;
}

async fn jobs_that_were_claimed_together_start_in_claim_order(fx: Fixture) {
    let (worker, client) = (Worker::default(), fx.client().await);
    let jobs = client.enqueue_many((0..8).map(|number| Worker::job().note(number))).await.expect("stored");
    let jobs: Vec<_> = jobs.into_iter().map(|job| job.expect("stored")).collect();
    let node = node(&fx, &worker, |options| {
        options.execution.queue("default").slots = 4;
        options.polling.claim_headroom_factor = 1.0;
    });
    let node = node.await;
    // Four run; the four that were claimed with them wait for a slot.
    for job in &jobs {
        node.until(job.id(), |job| job.status == JobStatus::Running).await;
    }
    let started = || worker.started.lock().expect("nobody panics").clone();
    for expected in 4..=8 {
        while started().len() < expected {
            worker.entered.notified().await;
        }
        if expected > 4 {
            assert_eq!(started()[expected - 1] as usize, expected - 1, "{:?}", started());
        }
        worker.go.add_permits(1);
    }
    worker.go.add_permits(8);
    all_end(&jobs).await;
    node.stop().await;
}
