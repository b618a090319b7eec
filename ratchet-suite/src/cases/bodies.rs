//! Bodies that do not simply return: timeouts, cancels, stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::ClassPolicy;
use ratchet_api::{
    JobEventKind, JobPayload, JobPriority, JobStatus, JsonText, NewJob, Submission, TargetName, Timestamp,
};
use ratchet_core::{Call, JobContext, JobFailure, Method, Readiness, ResultError, jobs};
use tokio::sync::Notify;

use crate::{Fixture, Node};

crate::cases! {
    a_panic_is_a_failure_and_the_node_goes_on;
    a_body_that_takes_too_long_is_stopped_and_has_failed_once;
    a_body_that_blocks_too_long_is_told_to_stop_and_its_late_result_is_ignored;
    a_cancel_reaches_a_running_body_and_its_result_is_discarded;
    a_snooze_consumes_no_attempt;
    arguments_that_no_longer_decode_are_a_failure_that_says_so;
    a_job_whose_target_nobody_knows_goes_back_untouched;
    a_target_that_the_policy_denies_never_runs;
    a_target_of_another_service_waits_for_it_whatever_the_policy_says;
    callbacks_run_as_jobs_and_know_what_happened;
    log_lines_and_progress_are_kept_without_secrets;
    a_node_that_stops_lets_running_jobs_end_and_takes_no_new_ones;
    a_job_that_outlives_the_deadline_of_a_stop_goes_back_with_nothing_consumed;
    a_method_without_a_macro_runs_too;
    every_end_is_told_after_it_is_recorded;
}

/// Methods that behave as their names or arguments say.
#[derive(Default)]
struct Bodies {
    entered: Arc<Notify>,
    released: Arc<Notify>,
    stopped: Arc<AtomicBool>,
}

#[jobs(target = "test.Bodies")]
impl Bodies {
    #[job]
    async fn panic(&self, text: String) {
        panic!("{text}");
    }

    #[job(timeout = "50ms")]
    async fn sleep_for_ever(&self) {
        std::future::pending::<()>().await;
    }

    #[job(blocking, timeout = "50ms")]
    fn block(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        while !ctx.is_canceled() {
            std::thread::yield_now();
        }
        self.stopped.store(true, Ordering::SeqCst);
        Ok(())
    }

    #[job]
    async fn wait(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        self.entered.notify_one();
        tokio::select! {
            () = self.released.notified() => Ok(()),
            () = ctx.canceled() => {
                self.stopped.store(true, Ordering::SeqCst);
                Ok(())
            }
        }
    }

    #[job]
    async fn snooze_once(&self, ctx: &JobContext) -> Result<u32, JobFailure> {
        if !self.stopped.swap(true, Ordering::SeqCst) {
            return Err(JobFailure::snooze(Duration::from_millis(1)));
        }
        Ok(ctx.attempt())
    }

    #[job]
    async fn double(&self, number: u32) -> Result<u32, JobFailure> {
        Ok(number * 2)
    }

    #[job]
    async fn after(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        let cause = ctx.cause().ok_or_else(|| JobFailure::new("NoCause", "a callback has a cause"))?;
        Ok(format!("{} {:?} {:?}", cause.status, cause.error, cause.result))
    }

    #[job]
    async fn note(&self, ctx: &JobContext) {
        ctx.info("token=abcdef123456 was used");
        ctx.progress(3, 10, "on the way".to_owned()).await;
    }
}

async fn bodies(fx: &Fixture) -> (Node, Arc<Notify>, Arc<Notify>, Arc<AtomicBool>) {
    let bodies = Bodies::default();
    let (entered, released, stopped) =
        (bodies.entered.clone(), bodies.released.clone(), bodies.stopped.clone());
    (fx.node(|builder| builder.register(bodies)).await, entered, released, stopped)
}

async fn last_beat(node: &Node) -> Timestamp {
    node.client().store().nodes().await.expect("read").first().expect("it lives").heartbeat_at
}

async fn failed(node: &Node, call: Call<()>) -> String {
    let job = node.enqueue(call).submit().await.expect("stored");
    match job.result().await {
        Err(ResultError::Failed { error, .. }) => error,
        other => panic!("it fails, not {other:?}"),
    }
}

async fn a_panic_is_a_failure_and_the_node_goes_on(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    assert_eq!(failed(&node, Bodies::job().panic("out of tea".into())).await, "Panic: out of tea");
    let job = node.enqueue(Bodies::job().double(21)).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it runs"), 42);
    node.stop().await;
}

// shows: S106
async fn a_body_that_takes_too_long_is_stopped_and_has_failed_once(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let error = failed(&node, Bodies::job().sleep_for_ever()).await;
    assert!(error.starts_with("Timeout: the job took longer than 50ms"), "{error}");
    node.stop().await;
}

async fn a_body_that_blocks_too_long_is_told_to_stop_and_its_late_result_is_ignored(fx: Fixture) {
    let (node, _, _, stopped) = bodies(&fx).await;
    let error = failed(&node, Bodies::job().block()).await;
    assert!(error.starts_with("Timeout: "), "{error}");
    // The body is told, and notices in its own time.
    while !stopped.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    node.stop().await;
}

// shows: S81
async fn a_cancel_reaches_a_running_body_and_its_result_is_discarded(fx: Fixture) {
    let (node, entered, _, stopped) = bodies(&fx).await;
    let job = node.enqueue(Bodies::job().wait()).submit().await.expect("stored");
    entered.notified().await;
    assert!(node.client().cancel(job.id(), "not needed").await.expect("answered"));
    assert!(!node.client().cancel(job.id(), "again").await.expect("answered"), "it is canceled already");
    assert!(
        matches!(job.result().await, Err(ResultError::Canceled { reason, .. }) if reason == "not needed")
    );
    assert!(stopped.load(Ordering::SeqCst));
    node.stop().await;
}

async fn a_snooze_consumes_no_attempt(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let job = node.enqueue(Bodies::job().snooze_once()).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it succeeds"), 1, "the second run is still the first attempt");
    node.stop().await;
}

async fn arguments_that_no_longer_decode_are_a_failure_that_says_so(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let old: Call<()> = Call::new("test.Bodies", "double").arg(&"twenty");
    let error = failed(&node, old).await;
    assert!(error.starts_with("UndecodableArguments: "), "{error}");
    node.stop().await;
}

async fn a_job_whose_target_nobody_knows_goes_back_untouched(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let payload = JobPayload::new("test.Later", "run", &JsonText::parse("[]").expect("JSON")).expect("names");
    let submission = Submission::single(NewJob::new(payload));
    let id = submission.id().expect("it has a job");
    node.client().store().insert(&[submission]).await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    let job = node.until(id, |job| job.parked_on.is_some()).await;
    assert_eq!((job.status, job.attempts, job.crash_count), (JobStatus::Pending, 0, 0));
    assert_eq!(job.scheduled_time, job.created_at, "its age stays");
    node.stop().await;
}

// shows: S77
async fn a_target_that_the_policy_denies_never_runs(fx: Fixture) {
    let policy = Withdrawn::default();
    let node = fx.node(|builder| builder.register(Bodies::default()).class_policy(policy.clone())).await;
    policy.withdraw();
    let job = fx.client().await.enqueue(Bodies::job().double(1)).submit().await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    let job = node.until(job.id(), |job| job.ending.is_some()).await;
    assert_eq!(job.status, JobStatus::Failed);
    assert!(job.last_error.expect("it has one").contains("not allowed by the class policy"));
    node.stop().await;
}

/// A class policy that allows everything until it is withdrawn.
#[derive(Clone, Default)]
pub(super) struct Withdrawn(Arc<AtomicBool>);

impl Withdrawn {
    pub(super) fn withdraw(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl ClassPolicy for Withdrawn {
    fn allows(&self, _: &TargetName) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
}

// shows: S77
async fn a_target_of_another_service_waits_for_it_whatever_the_policy_says(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let job =
        fx.client().await.enqueue(Call::<u64>::new("other.Service", "run")).submit().await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    let waits = node.until(job.id(), |job| job.parked_on.is_some()).await;
    assert_eq!((waits.status, waits.attempts), (JobStatus::Pending, 0));
    let run = Method::function("other.Service", "run", |_, ()| async { Ok::<_, JobFailure>(7_u64) });
    let other = fx.node(|builder| builder.allow(["other."]).method(run.expect("a method"))).await;
    assert_eq!(job.result().await.expect("it runs there"), 7);
    other.stop().await;
    node.stop().await;
}

// shows: S90 S104
async fn callbacks_run_as_jobs_and_know_what_happened(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let good = node
        .enqueue(Bodies::job().double(4))
        .on_success(&Bodies::job().after())
        .on_failure(&Bodies::job().wait());
    let good = good.submit().await.expect("stored");
    good.result().await.expect("it succeeds");
    assert_eq!(node.callback_result().await, "\"SUCCEEDED None Some(Number(8))\"");

    let bad =
        node.enqueue(Bodies::job().panic("tea".into())).on_failure(&Bodies::job().after()).submit().await;
    bad.expect("stored").result().await.expect_err("it fails");
    assert_eq!(node.callback_result().await, "\"FAILED Some(\\\"Panic: tea\\\") None\"");
    node.stop().await;
}

async fn log_lines_and_progress_are_kept_without_secrets(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let job = node.enqueue(Bodies::job().note()).submit().await.expect("stored");
    job.result().await.expect("it succeeds");
    let story = node.client().store().job_story(job.id()).await.expect("read").expect("there");
    let lines: Vec<_> = story.logs.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(lines, ["token=[REDACTED] was used"]);
    assert_eq!(story.job.progress.expect("reported").done, 3);
    node.stop().await;
}

// shows: S61 S62
async fn a_node_that_stops_lets_running_jobs_end_and_takes_no_new_ones(fx: Fixture) {
    let bodies = Bodies::default();
    let (entered, released) = (Arc::clone(&bodies.entered), Arc::clone(&bodies.released));
    let quick = |options: &mut RatchetOptions| options.node.beat = Duration::from_millis(100);
    let node = fx.node(|builder| builder.register(bodies).configure(quick)).await;
    let running = node.enqueue(Bodies::job().wait()).submit().await.expect("stored");
    entered.notified().await;
    let node = Arc::new(node);
    let stopping = tokio::spawn({
        let node = Arc::clone(&node);
        async move { node.stop().await }
    });
    node.until_draining().await;
    let late = node.enqueue(Bodies::job().double(1)).submit().await.expect("stored");
    // A node that waits for its bodies still beats; after two beats a cancel would have reached them.
    for _ in 0..2 {
        let before = last_beat(&node).await;
        while last_beat(&node).await == before {
            tokio::task::yield_now().await;
        }
    }
    released.notify_one();
    stopping.await.expect("it stops");
    assert_eq!(node.readiness(), Readiness::Stopped);
    assert_eq!(running.job().await.expect("read").expect("there").status, JobStatus::Succeeded);
    assert_eq!(late.job().await.expect("read").expect("there").status, JobStatus::Pending);
    assert!(node.client().store().nodes().await.expect("read").is_empty(), "it has left");
}

// shows: S62
async fn a_job_that_outlives_the_deadline_of_a_stop_goes_back_with_nothing_consumed(fx: Fixture) {
    let bodies = Bodies::default();
    let entered = Arc::clone(&bodies.entered);
    let short = |options: &mut RatchetOptions| options.execution.drain_timeout = Duration::from_millis(20);
    let node = fx.node(|builder| builder.register(bodies).configure(short)).await;
    let job = node.enqueue(Bodies::job().wait()).submit().await.expect("stored");
    entered.notified().await;
    node.stop().await;
    let job = job.job().await.expect("read").expect("there");
    assert_eq!((job.status, job.attempts, job.crash_count), (JobStatus::Pending, 0, 0));
    assert_eq!(job.picked_by, None);
}

async fn a_method_without_a_macro_runs_too(fx: Fixture) {
    let method =
        Method::function(
            "test.plain",
            "run",
            |_, (a, b): (u8, u8)| async move { Ok::<_, JobFailure>(a + b) },
        );
    let node = fx.node(|builder| builder.method(method.expect("the names are good"))).await;
    let call: Call<u8> = Call::new("test.plain", "run").arg(&1).arg(&2);
    let job = node.enqueue(call).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it succeeds"), 3);
    node.stop().await;
}

// shows: S112 S113 S114 S115
async fn every_end_is_told_after_it_is_recorded(fx: Fixture) {
    let (node, ..) = bodies(&fx).await;
    let job = node.enqueue(Bodies::job().double(1)).submit().await.expect("stored");
    job.result().await.expect("it succeeds");
    node.told(|kind| matches!(kind, JobEventKind::Completed { .. })).await;
    let job = node.enqueue(Bodies::job().panic("x".into())).max_retries(1).submit().await.expect("stored");
    job.result().await.expect_err("it fails");
    node.told(|kind| matches!(kind, JobEventKind::DeadLettered { attempt: 2, .. })).await;
    let kinds = node.kinds_of(job.id());
    // The next attempt may start before the event about the end of the last one is delivered.
    let names = kinds.iter().filter_map(|kind| kind.split(' ').next()).filter(|name| *name != "Started");
    let names: Vec<&str> = names.collect();
    assert_eq!(names, ["Failed", "Retrying", "Failed", "DeadLettered"]);
    node.stop().await;
}
