//! Metrics: every callback of a sink, with its labels, after the commit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{
    Gate, GateRejection, JobLabels, MetricsSink, ResilienceStrategy, RunEnd, SubmitResult, WakeupDirection,
};
use ratchet_api::{
    JobFailure, JobPriority, JobStatus, QueueName, ResourceLimit, ResourceName, StoreErrorKind, Timestamp,
};
use ratchet_core::{Call, JobContext, jobs};
use tokio::sync::Notify;

use super::bodies::Withdrawn;
use crate::cable::{self, Line};
use crate::{Fixture, Node};

crate::cases! {
    every_end_of_a_body_is_told_with_its_labels_after_the_commit;
    every_reason_for_which_a_job_does_not_start_is_told;
    submissions_are_told_by_what_became_of_them;
    claims_calls_beats_slots_and_wakeups_are_told;
    maintenance_is_told_with_its_rows;
    a_lost_lease_failed_calls_and_jobs_that_are_taken_over_are_told;
    a_sink_that_panics_harms_no_job;
}

const LATER: Duration = Duration::from_secs(3_600);

/// A sink that records each call as a line of text.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<String>>>);

impl Sink {
    fn note(&self, what: String) {
        self.0.lock().expect("nobody panics").push(what);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics").clone()
    }

    /// Returns the lines with this prefix.
    fn of(&self, beginning: &str) -> Vec<String> {
        self.all().into_iter().filter(|told| told.starts_with(beginning)).collect()
    }

    async fn until(&self, beginning: &str) -> String {
        loop {
            if let Some(told) = self.of(beginning).pop() {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Formats a job as `queue target.method`.
fn named(job: &JobLabels<'_>) -> String {
    let target = job.target.map_or("?", |target| target.as_str());
    format!("{} {target}.{}", job.queue, job.method.map_or("?", |method| method.as_str()))
}

impl MetricsSink for Sink {
    fn submitted(&self, job: &JobLabels<'_>, result: SubmitResult) {
        self.note(format!("submitted {result:?} {} {:?}", named(job), job.priority));
    }
    fn claimed(&self, queue: &QueueName, count: usize) {
        self.note(format!("claimed {count} of {queue}"));
    }
    fn started(&self, job: &JobLabels<'_>, attempt: u32, wait: Duration) {
        self.note(format!("started {} {attempt} {:?} {}", named(job), job.job_type, wait < LATER));
    }
    fn ended(&self, job: &JobLabels<'_>, end: &RunEnd<'_>) {
        let RunEnd { result, error_type, attempt, .. } = end;
        self.note(format!("ended {} {attempt} {result:?} {error_type:?}", named(job)));
    }
    fn gate_rejected(&self, job: &JobLabels<'_>, why: GateRejection) {
        self.note(format!("rejected {} {why:?}", named(job)));
    }
    fn breaker(&self, service: &str, open: bool) {
        self.note(format!("breaker {service} {open}"));
    }
    fn store_call(&self, operation: &'static str, _: Duration, error: Option<StoreErrorKind>) {
        self.note(format!("call {operation} {}", error.is_some()));
    }
    fn wakeup(&self, direction: WakeupDirection) {
        self.note(format!("wakeup {direction:?}"));
    }
    fn beat(&self, skew_millis: i64) {
        self.note(format!("beat {}", skew_millis.abs() < 3_600_000));
    }
    fn slots(&self, queue: &QueueName, used: u32, limit: u32) {
        self.note(format!("slots {queue} {used} {limit}"));
    }
    fn lease_lost(&self) {
        self.note("lease lost".to_owned());
    }
    fn recovered(&self, count: usize) {
        self.note(format!("recovered {count}"));
    }
    fn maintained(&self, task: &'static str, rows: u64) {
        self.note(format!("maintained {task} {rows}"));
    }
}

#[derive(Clone, Default)]
struct Worker {
    entered: Arc<Notify>,
    once: Arc<AtomicBool>,
}

impl Worker {
    fn first_time(&self) -> bool {
        !self.once.swap(true, Ordering::SeqCst)
    }
}

#[jobs(target = "test.Worker")]
impl Worker {
    #[job]
    async fn succeed(&self) {}

    #[job]
    async fn fail(&self) -> Result<(), JobFailure> {
        Err(JobFailure::new("Down", "password=hunter2 was refused"))
    }

    #[job]
    async fn fail_once(&self) -> Result<(), JobFailure> {
        if self.first_time() { Err(JobFailure::new("Down", "not yet")) } else { Ok(()) }
    }

    #[job]
    async fn snooze_once(&self) -> Result<(), JobFailure> {
        if self.first_time() {
            return Err(JobFailure::snooze(Duration::from_millis(1)));
        }
        Ok(())
    }

    #[job]
    async fn wait(&self, ctx: &JobContext) {
        self.entered.notify_one();
        ctx.canceled().await;
    }

    #[job]
    async fn parent(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        let child = ctx.enqueue(Worker::job().child()).submit().await;
        child.map(drop).map_err(|error| JobFailure::new("Submit", error.to_string()))
    }

    #[job]
    async fn child(&self) {}

    #[job(breaker = "bank")]
    async fn guarded(&self) {}

    #[job(resource = "door")]
    async fn limited(&self) {}
}

/// A resilience strategy that rejects every call.
struct Closed;

impl ResilienceStrategy for Closed {
    fn enter(&self, _: &str) -> Gate {
        Gate::Reject { retry_in: LATER }
    }
    fn report(&self, _: &str, _: Option<&JobFailure>) {}
    fn abandon(&self, _: &str) {}
}

async fn node(fx: &Fixture, sink: &Sink, worker: &Worker) -> Node {
    fx.node(|builder| builder.register(worker.clone()).metrics(sink.clone()).resilience(Closed)).await
}

async fn every_end_of_a_body_is_told_with_its_labels_after_the_commit(fx: Fixture) {
    let sink = Sink::default();
    let (node, worker) = (node(&fx, &sink, &Worker::default()).await, Worker::default());
    node.enqueue(Worker::job().succeed()).submit().await.expect("stored").result().await.expect("it runs");
    sink.until("ended").await;
    let (all, is) = (sink.all(), |what: &'static str| move |told: &String| told.starts_with(what));
    let (committed, ended) = (all.iter().position(is("call commit")), all.iter().position(is("ended")));
    assert!(committed.is_some() && committed < ended, "{all:?}");
    let failing = node.enqueue(Worker::job().fail()).submit().await.expect("stored");
    failing.result().await.expect_err("it fails");
    let retried = node.enqueue(Worker::job().fail_once()).max_retries(1).submit().await.expect("stored");
    retried.result().await.expect("it succeeds in the end");
    node.stop().await;
    let told = |method: &str| sink.of(&format!("ended default test.Worker.{method} "));
    assert_eq!(told("succeed"), ["ended default test.Worker.succeed 1 Succeeded None"]);
    assert_eq!(told("fail"), [r#"ended default test.Worker.fail 1 Dead Some("Down")"#]);
    let retried = told("fail_once");
    assert_eq!(retried.len(), 2, "{retried:?}");
    // The next attempt may start before the metric of the first end is recorded.
    assert!(retried.iter().any(|told| told.contains(r#" 1 Retried Some("Down")"#)), "{retried:?}");
    assert!(retried.contains(&"ended default test.Worker.fail_once 2 Succeeded None".to_owned()));
    let started = sink.of("started default test.Worker.fail_once");
    let expected =
        [1, 2].map(|attempt| format!("started default test.Worker.fail_once {attempt} Single true"));
    assert_eq!(started, expected);

    let node = self::node(&fx, &sink, &worker).await;
    let snoozed = node.enqueue(Worker::job().snooze_once()).submit().await.expect("stored");
    snoozed.result().await.expect("it succeeds in the end");
    let running = node.enqueue(Worker::job().wait()).submit().await.expect("stored");
    worker.entered.notified().await;
    assert!(node.client().cancel(running.id(), "not needed").await.expect("answered"));
    running.result().await.expect_err("it is canceled");
    node.stop().await;
    assert!(told("snooze_once").iter().any(|told| told.contains(" 1 Snoozed None")));
    assert_eq!(told("wait"), ["ended default test.Worker.wait 1 Canceled None"]);
}

// shows: S119
async fn every_reason_for_which_a_job_does_not_start_is_told(fx: Fixture) {
    let sink = Sink::default();
    let policy = Withdrawn::default();
    let set_up = |builder: ratchet_core::SchedulerBuilder| {
        let builder = builder.register(Worker::default()).metrics(sink.clone()).resilience(Closed);
        builder.class_policy(policy.clone())
    };
    let node = fx.node(set_up).await;
    policy.withdraw();
    let mut door = ResourceLimit::new(ResourceName::new("door").expect("a name"), 0);
    door.retry_delay = LATER;
    node.client().store().configure_resource(&door).await.expect("stored");
    // A client submits, since this node would refuse the target.
    let client = fx.client().await;
    for call in [
        Worker::job().guarded(),
        Worker::job().limited(),
        Worker::job().fail(),
        Call::new("test.Nobody", "call"),
    ] {
        client.enqueue(call).submit().await.expect("stored");
    }
    let past = Timestamp::from_millis(1_000);
    client.enqueue(Worker::job().succeed()).expires_at(past).submit().await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    for told in [
        "rejected default test.Worker.guarded BreakerOpen",
        "rejected default test.Worker.limited ResourceFull",
        "rejected default test.Worker.fail Denied",
        "rejected default test.Nobody.call UnknownTarget",
        "rejected default test.Worker.succeed Gone",
        "breaker bank true",
    ] {
        sink.until(told).await;
    }
    node.stop().await;
    assert_eq!(sink.of("started"), [""; 0]);
    assert_eq!(sink.of("ended"), [""; 0]);
}

async fn submissions_are_told_by_what_became_of_them(fx: Fixture) {
    let sink = Sink::default();
    let node = node(&fx, &sink, &Worker::default()).await;
    let job = || node.enqueue(Worker::job().succeed()).delay(LATER).queue("mail");
    job().idempotency_key("once").priority(JobPriority::High).submit().await.expect("stored");
    job().idempotency_key("once").submit().await.expect("a duplicate");
    job().business_key("alone").submit().await.expect("stored");
    job().business_key("alone").submit().await.expect_err("the key is taken");
    node.enqueue(Call::<()>::new("evil.Target", "run")).submit().await.expect_err("denied");
    let many =
        node.client().enqueue_many([Worker::job().succeed(), Worker::job().succeed()]).await.expect("stored");
    assert_eq!(many.len(), 2);
    let parent = node.enqueue(Worker::job().parent()).submit().await.expect("stored");
    parent.result().await.expect("it runs");
    sink.until("ended default test.Worker.child").await;
    node.stop().await;
    let mut told = sink.of("submitted");
    // The parent's body may have submitted its child before the call that submitted the parent returned.
    told[7..].sort();
    assert_eq!(
        told,
        [
            "submitted New mail test.Worker.succeed High",
            "submitted Duplicate mail test.Worker.succeed Normal",
            "submitted New mail test.Worker.succeed Normal",
            "submitted KeyTaken mail test.Worker.succeed Normal",
            "submitted Refused default evil.Target.run Normal",
            "submitted New default test.Worker.succeed Normal",
            "submitted New default test.Worker.succeed Normal",
            "submitted New default test.Worker.child Normal",
            "submitted New default test.Worker.parent Normal",
        ]
    );
}

async fn claims_calls_beats_slots_and_wakeups_are_told(fx: Fixture) {
    let (sink, worker) = (Sink::default(), Worker::default());
    let set_up = |options: &mut RatchetOptions| {
        options.node.beat = Duration::from_millis(100);
        options.execution.queue("default").slots = 7;
    };
    let builder =
        |builder: ratchet_core::SchedulerBuilder| builder.register(worker.clone()).configure(set_up);
    let node = fx.node(|new| builder(new).metrics(sink.clone())).await;
    let job = node.enqueue(Worker::job().wait()).submit().await.expect("stored");
    worker.entered.notified().await;
    sink.until("claimed 1 of default").await;
    sink.until("beat true").await;
    sink.until("slots default 1 7").await;
    sink.until("wakeup Sent").await;
    assert!(node.client().cancel(job.id(), "not needed").await.expect("answered"));
    job.result().await.expect_err("it is canceled");
    sink.until("slots default 0 7").await;
    for call in ["insert", "claim", "load", "beat", "find", "cancel", "join"] {
        sink.until(&format!("call {call} false")).await;
    }
    // The commit goes out by itself or with a claim.
    sink.until("call commit").await;
    assert_eq!(sink.of("claimed").len(), 1, "a claim of nothing is none");
    if fx.store().await.coordinator().is_some() {
        // Repeated until it is heard: the first notice may be sent before the listener is connected.
        let client = fx.client().await;
        while sink.of("wakeup Received").is_empty() {
            client.wake_up(JobPriority::Normal);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    node.stop().await;
}

async fn maintenance_is_told_with_its_rows(fx: Fixture) {
    let sink = Sink::default();
    let set_up = |options: &mut RatchetOptions| {
        options.maintenance.lock_ttl = Duration::from_secs(1);
        options.maintenance.log_purge.cron = "* * * * * *".to_owned();
        options.maintenance.node_purge.enabled = false;
    };
    let node =
        fx.node(|builder| builder.register(Worker::default()).configure(set_up).metrics(sink.clone())).await;
    sink.until("maintained log-purge 0").await;
    node.stop().await;
}

async fn a_lost_lease_failed_calls_and_jobs_that_are_taken_over_are_told(fx: Fixture) {
    let (stuck, line) = (Worker::default(), Arc::<Line>::default());
    let (lost, heir) = (Sink::default(), Sink::default());
    let short = |options: &mut RatchetOptions| {
        options.node.lease = Duration::from_secs(2);
        options.node.beat = Duration::from_millis(200);
        options.node.recovery_interval = Duration::from_millis(200);
        options.polling.error_delay = Duration::from_millis(50);
    };
    let cut = cable::lay(fx.store().await, &line);
    let dead =
        fx.node_on(cut, |builder| builder.register(stuck.clone()).configure(short).metrics(lost.clone()));
    let dead = dead.await;
    dead.enqueue(Worker::job().wait()).submit().await.expect("stored");
    stuck.entered.notified().await;
    let alive =
        fx.node(|builder| builder.register(stuck.clone()).configure(short).metrics(heir.clone())).await;
    // The heartbeat's connection is already open, so the beat itself is the call that fails.
    lost.until("call beat false").await;
    line.cut(true);
    lost.until("lease lost").await;
    lost.until("call beat true").await;
    heir.until("recovered 1").await;
    assert_eq!(lost.of("lease lost").len(), 1);
    assert_eq!((lost.of("recovered"), heir.of("lease lost")), (Vec::new(), Vec::new()));
    stuck.entered.notified().await;
    drop(dead);
    alive.stop_now().await;
}

/// A sink that panics on every call.
struct Broken;

impl MetricsSink for Broken {
    fn claimed(&self, _: &QueueName, _: usize) {
        panic!("on purpose");
    }
    fn started(&self, _: &JobLabels<'_>, _: u32, _: Duration) {
        panic!("on purpose");
    }
    fn ended(&self, _: &JobLabels<'_>, _: &RunEnd<'_>) {
        panic!("on purpose");
    }
    fn beat(&self, _: i64) {
        panic!("on purpose");
    }
}

async fn a_sink_that_panics_harms_no_job(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Worker::default()).metrics(Broken)).await;
    for _ in 0..3 {
        let job = node.enqueue(Worker::job().succeed()).submit().await.expect("stored");
        job.result().await.expect("it runs");
        assert_eq!(node.until(job.id(), |job| job.status.is_terminal()).await.status, JobStatus::Succeeded);
    }
    node.stop().await;
}
