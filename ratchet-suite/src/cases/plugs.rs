//! Plug points and options: each is asked, and its answer counts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{
    CallerPrincipalResolver, ErrorSanitizer, ExecutorProvider, Invocation, InvocationError, JobFuture,
    JobInvocationResolver, MetricsSink, RetryPolicy, StartupCoordinator,
};
use ratchet_api::store::{JobBatchStatusStore, JobStore, ProgressReport};
use ratchet_api::{
    BusinessKey, JobClaim, JobId, JobPayload, JobPriority, JsonText, MethodName, Owner, ParkedOn, QueueName,
    Sanitized, StoreError, StoreErrorKind, StoreResult, SubmitError, Tag, TargetName, Timestamp,
};
use ratchet_core::{Backoff, JobContext, JobFailure, Ratchet, SchedulerBuilder, jobs};
use tokio::sync::Notify;

use crate::Fixture;

crate::cases! {
    a_resolver_of_ones_own_makes_what_is_stored_of_every_call_and_reads_it;
    whoever_submits_is_stored_with_the_job;
    jobs_run_in_the_order_of_their_priority_and_age;
    without_a_boost_interval_age_does_not_count;
    a_node_claims_in_the_order_that_its_options_say;
    one_claim_takes_no_more_than_the_batch_size;
    when_a_body_ran_and_how_long_its_job_waited_is_stored;
    a_dead_letter_is_recorded_once_in_the_alert_window;
    an_executor_of_ones_own_runs_every_attempt_of_its_queue;
    a_retry_policy_of_ones_own_has_the_last_word_and_names_the_delay;
    a_sanitizer_of_ones_own_writes_what_is_stored;
    a_startup_coordinator_of_ones_own_says_which_node_does_a_task;
}

/// A resolver that stores calls in a format of its own, and refuses arguments that contain a marker.
struct Versioned;

impl JobInvocationResolver for Versioned {
    fn to_payload(&self, call: &Invocation) -> Result<JobPayload, InvocationError> {
        let args = call.args.as_str();
        if args.contains("unspeakable") {
            return Err(InvocationError::Undecodable("it is not to be said".to_owned()));
        }
        let (target, method) = (TargetName::new(&call.target)?, MethodName::new(&call.method)?);
        let text = JsonText::parse(format!(r#"{{"v":2,"call":{args}}}"#));
        let text = text.map_err(|error| InvocationError::Undecodable(error.to_string()))?;
        Ok(JobPayload::from_stored(target, method, text))
    }

    fn to_invocation(&self, payload: &JobPayload) -> Result<Invocation, InvocationError> {
        let text = payload.text().as_str();
        let args = text.strip_prefix(r#"{"v":2,"call":"#).and_then(|rest| rest.strip_suffix('}'));
        let args = args.ok_or_else(|| InvocationError::Undecodable("not of version 2".to_owned()))?;
        Ok(Invocation {
            target: payload.target().as_str().to_owned(),
            method: payload.method().as_str().to_owned(),
            args: JsonText::from_stored(args),
        })
    }
}

#[derive(Clone, Default)]
struct Writer {
    heard: Arc<Mutex<Vec<String>>>,
    more: Arc<Notify>,
}

#[jobs(target = "test.Writer")]
impl Writer {
    #[job]
    async fn write(&self, ctx: &JobContext, text: String) -> Result<(), JobFailure> {
        if text == "first" {
            let next = ctx.enqueue(Writer::job().write("from the body".to_owned())).submit().await;
            next.map_err(|error| JobFailure::new("Submit", error.to_string()))?;
        }
        self.heard.lock().expect("nobody panics").push(text);
        self.more.notify_one();
        Ok(())
    }

    /// Runs until it is told to go.
    #[job]
    async fn stay(&self, ctx: &JobContext, number: u32) {
        self.heard.lock().expect("nobody panics").push(number.to_string());
        self.more.notify_one();
        ctx.canceled().await;
    }
}

// shows: S10 S11
async fn a_resolver_of_ones_own_makes_what_is_stored_of_every_call_and_reads_it(fx: Fixture) {
    let writer = Writer::default();
    let node = fx.node(|builder| builder.register(writer.clone()).invocation_resolver(Versioned)).await;
    let write = |text: &str| Writer::job().write(text.to_owned());
    let first = node.enqueue(write("first")).on_success(&write("callback")).submit().await.expect("stored");
    let many = node.client().enqueue_many([write("one of many")]).await.expect("stored");
    assert!(many.iter().all(Result::is_ok));
    let job = first.job().await.expect("read").expect("there");
    assert_eq!(job.spec.payload.text().as_str(), r#"{"v":2,"call":["first"]}"#);
    let callback = job.spec.on_success.expect("it has one");
    assert_eq!(callback.text().as_str(), r#"{"v":2,"call":["callback"]}"#);

    while writer.heard.lock().expect("nobody panics").len() < 4 {
        writer.more.notified().await;
    }
    let mut heard = writer.heard.lock().expect("nobody panics").clone();
    heard.sort();
    assert_eq!(heard, ["callback", "first", "from the body", "one of many"]);

    let refused = node.enqueue(write("unspeakable")).submit().await.expect_err("the resolver refuses it");
    assert!(matches!(&refused, SubmitError::Argument(why) if why.contains("not to be said")), "{refused}");
    node.stop().await;
}

struct Caller;

impl CallerPrincipalResolver for Caller {
    fn caller_principal(&self) -> Option<String> {
        Some("ada".to_owned())
    }
}

// shows: S19
async fn whoever_submits_is_stored_with_the_job(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Writer::default()).caller_principal(Caller)).await;
    let job = node.enqueue(Writer::job().write("x".to_owned())).submit().await.expect("stored");
    let job = job.job().await.expect("read").expect("there");
    assert_eq!(job.spec.caller_principal.as_deref(), Some("ada"));
    node.stop().await;
    let nobody =
        fx.client().await.enqueue(Writer::job().write("x".to_owned())).submit().await.expect("stored");
    assert_eq!(nobody.job().await.expect("read").expect("there").spec.caller_principal, None);
}

/// Submits jobs of all ages, each named by its priority and the minutes since it was due; none of them may run yet.
async fn jobs_of_all_ages(fx: &Fixture) {
    let (client, now) = (fx.client().await, fx.store().await.database_time().await.expect("read"));
    let due = |minutes: i64| Timestamp::from_millis(now.as_millis() - minutes * 60_000);
    for (priority, minutes) in [
        (JobPriority::Normal, 1),
        (JobPriority::Critical, 1),
        (JobPriority::Lowest, 76),
        (JobPriority::Normal, 2),
        (JobPriority::High, 1),
    ] {
        let job = Writer::job().write(format!("{priority:?} {minutes}"));
        client.enqueue(job).priority(priority).at(due(minutes)).submit().await.expect("stored");
    }
}

fn one_at_a_time(builder: SchedulerBuilder, writer: &Writer) -> SchedulerBuilder {
    builder.register(writer.clone()).configure(|options| options.execution.queue("default").slots = 1)
}

/// Runs the jobs one after the other; returns them in that order.
async fn order(fx: &Fixture, set_up: impl FnOnce(&mut RatchetOptions)) -> Vec<String> {
    jobs_of_all_ages(fx).await;
    let writer = Writer::default();
    let builder = one_at_a_time(Ratchet::builder_shared(fx.store().await), &writer).configure(set_up);
    let builder = builder.allow(["test."]);
    let stepper = builder.start_stepping().await.expect("it starts");
    assert_eq!(stepper.run_due().await.expect("it runs"), 5);
    stepper.stop().await.expect("it stops");
    writer.heard.lock().expect("nobody panics").clone()
}

// shows: S39 S40 S41 S42 S43
async fn jobs_run_in_the_order_of_their_priority_and_age(fx: Fixture) {
    let order = order(&fx, |_| {}).await;
    // In 76 minutes the lowest priority gains five levels.
    assert_eq!(order, ["Lowest 76", "Critical 1", "High 1", "Normal 2", "Normal 1"]);
}

// shows: S41
async fn without_a_boost_interval_age_does_not_count(fx: Fixture) {
    let order = order(&fx, |options| options.store.priority_boost_interval = Duration::ZERO).await;
    assert_eq!(order, ["Critical 1", "High 1", "Normal 2", "Normal 1", "Lowest 76"]);
}

// shows: S41 S42
async fn a_node_claims_in_the_order_that_its_options_say(fx: Fixture) {
    for (boost, first) in [(15 * 60, "Lowest 76"), (0, "Critical 1")] {
        let fx = Fixture::new((fx.make())().await.into(), fx.make());
        jobs_of_all_ages(&fx).await;
        let writer = Writer::default();
        let interval = Duration::from_secs(boost);
        let node = fx.node(|builder| {
            let builder = one_at_a_time(builder, &writer);
            builder.configure(|options| options.store.priority_boost_interval = interval)
        });
        let node = node.await;
        writer.more.notified().await;
        assert_eq!(writer.heard.lock().expect("nobody panics").first().map(String::as_str), Some(first));
        node.stop().await;
    }
}

/// A metrics sink that records the number of jobs of each claim.
#[derive(Clone, Default)]
struct Claims(Arc<Mutex<Vec<usize>>>);

impl MetricsSink for Claims {
    fn claimed(&self, _: &QueueName, count: usize) {
        self.0.lock().expect("nobody panics").push(count);
    }
}

// shows: S44
async fn one_claim_takes_no_more_than_the_batch_size(fx: Fixture) {
    let (writer, claims, client) = (Writer::default(), Claims::default(), fx.client().await);
    let calls = (0..5).map(|number| Writer::job().stay(number));
    client.enqueue_many(calls).await.expect("stored");
    let node = fx.node(|builder| {
        let builder = builder.register(writer.clone()).metrics(claims.clone());
        builder.configure(|options| options.polling.batch_size = 2)
    });
    let node = node.await;
    // None of them ends before all have begun, so that nothing is claimed ahead because others went fast.
    while writer.heard.lock().expect("nobody panics").len() < 5 {
        writer.more.notified().await;
    }
    node.stop_now().await;
    let claims = claims.0.lock().expect("nobody panics").clone();
    assert_eq!((claims.iter().sum::<usize>(), claims.iter().max()), (5, Some(&2)), "{claims:?}");
}

// shows: S85
async fn when_a_body_ran_and_how_long_its_job_waited_is_stored(fx: Fixture) {
    let client = fx.client().await;
    let now = fx.store().await.database_time().await.expect("read");
    let due = Timestamp::from_millis(now.as_millis() - 60_000);
    let job = client.enqueue(Writer::job().write("x".to_owned())).at(due).submit().await.expect("stored");
    let node = fx.node(|builder| builder.register(Writer::default())).await;
    let ending = job.ended().await.expect("it ends").ending.expect("it has ended");
    node.stop().await;
    let (started, ended) = (ending.started_at.expect("it ran"), ending.ended_at.expect("it ended"));
    assert!(now <= started && started <= ended && ended <= ending.terminated_at, "{ending:?}");
    assert_eq!(ending.duration(), Some(ended.since(started)));
    let waited = ending.queue_wait.expect("it was claimed");
    assert!(waited >= Duration::from_secs(60) && waited <= ending.terminated_at.since(due), "{ending:?}");
}

struct Failing;

#[jobs(target = "test.Failing")]
impl Failing {
    #[job]
    async fn fail(&self) -> Result<(), JobFailure> {
        Err(JobFailure::new("Down", "as ever"))
    }
}

// shows: S100 S101
async fn a_dead_letter_is_recorded_once_in_the_alert_window(fx: Fixture) {
    for (window, records) in [(Duration::from_secs(3_600), 1), (Duration::ZERO, 2)] {
        let configure = move |options: &mut RatchetOptions| options.retry.alert_window = window;
        let node = fx.node(|builder| builder.register(Failing).configure(configure)).await;
        let job = node.enqueue(Failing::job().fail()).submit().await.expect("stored");
        job.ended().await.expect("it fails");
        assert!(node.client().retry(job.id()).await.expect("answered"));
        job.ended().await.expect("it fails again");
        // An alert is stored after the outcome, and a stop waits for both.
        node.stop().await;
        let alerts = fx.store().await.alerts(job.id()).await.expect("read");
        assert_eq!(alerts.len(), records, "{window:?}");
    }
}

/// An executor that counts the attempts that it spawns.
#[derive(Clone)]
struct Counting(Arc<AtomicUsize>, tokio::runtime::Handle);

impl ExecutorProvider for Counting {
    fn spawn(&self, queue: &QueueName, attempt: JobFuture) {
        assert_eq!(queue.as_str(), "default");
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.spawn(attempt);
    }
    fn spawn_blocking(&self, _: &QueueName, work: Box<dyn FnOnce() + Send + 'static>) {
        self.1.spawn_blocking(work);
    }
}

// shows: S67
async fn an_executor_of_ones_own_runs_every_attempt_of_its_queue(fx: Fixture) {
    let executor = Counting(Arc::default(), tokio::runtime::Handle::current());
    let node = fx.node(|builder| builder.register(Writer::default()).executor(executor.clone())).await;
    for text in ["a", "b", "c"] {
        let job = node.enqueue(Writer::job().write(text.to_owned())).submit().await.expect("stored");
        job.result().await.expect("it runs");
    }
    node.stop().await;
    assert_eq!(executor.0.load(Ordering::SeqCst), 3);
}

/// A retry policy that allows two attempts without a delay.
struct Twice;

impl RetryPolicy for Twice {
    fn should_retry(&self, attempt: u32, _: &JobFailure) -> bool {
        attempt < 2
    }
    fn delay(&self, _: u32, _: &JobFailure) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

// shows: S94
async fn a_retry_policy_of_ones_own_has_the_last_word_and_names_the_delay(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Failing).retry_policy(Twice)).await;
    let patient = Backoff::Fixed(Duration::from_secs(3_600));
    let job =
        node.enqueue(Failing::job().fail()).max_retries(9).backoff(patient).submit().await.expect("stored");
    assert_eq!(job.ended().await.expect("it fails").attempts, 2);
    node.stop().await;
}

struct Silent;

impl ErrorSanitizer for Silent {
    fn sanitize(&self, _: &JobFailure) -> String {
        "no comment".to_owned()
    }
}

// shows: S108 S111
async fn a_sanitizer_of_ones_own_writes_what_is_stored(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Failing).error_sanitizer(Silent)).await;
    let job = node.enqueue(Failing::job().fail()).submit().await.expect("stored");
    assert_eq!(job.ended().await.expect("it fails").last_error.as_deref(), Some("no comment"));
    node.stop().await;
}

/// A startup coordinator that records each request, and always gives the same answer.
#[derive(Clone)]
struct Rota {
    lets: bool,
    asked: Arc<Mutex<Vec<String>>>,
    more: Arc<Notify>,
}

impl Rota {
    fn note(&self, what: String) {
        self.asked.lock().expect("nobody panics").push(what);
        self.more.notify_one();
    }
}

#[async_trait]
impl StartupCoordinator for Rota {
    async fn try_acquire(&self, action: &str, lease: Duration) -> StoreResult<bool> {
        self.note(format!("{action} for {lease:?}"));
        Ok(self.lets)
    }
    async fn release(&self, action: &str) -> StoreResult<()> {
        self.note(format!("no more {action}"));
        Ok(())
    }
}

/// A store that fails every search for jobs that no claim finds.
struct Shortsighted {
    inner: Arc<dyn JobStore>,
    looks: Arc<AtomicUsize>,
}

#[async_trait]
impl JobBatchStatusStore for Shortsighted {
    async fn pick_up_unreachable(&self, _: &Owner, _: usize) -> StoreResult<Vec<JobClaim>> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::new(StoreErrorKind::Transient, "pick_up_unreachable", "as told"))
    }
    async fn pick_up(&self, owner: &Owner, jobs: &[JobId]) -> StoreResult<Vec<JobClaim>> {
        self.inner.pick_up(owner, jobs).await
    }
    async fn pick_up_parked(
        &self,
        owner: &Owner,
        queue: &QueueName,
        on: &ParkedOn,
        limit: usize,
    ) -> StoreResult<Vec<JobClaim>> {
        self.inner.pick_up_parked(owner, queue, on, limit).await
    }
    async fn report_progress(&self, reports: &[ProgressReport]) -> StoreResult<Vec<bool>> {
        self.inner.report_progress(reports).await
    }
    async fn cancel_recurring_by_key(&self, key: &BusinessKey, reason: &Sanitized) -> StoreResult<u64> {
        self.inner.cancel_recurring_by_key(key, reason).await
    }
    async fn cancel_recurring_by_tag(&self, tag: &Tag, reason: &Sanitized) -> StoreResult<u64> {
        self.inner.cancel_recurring_by_tag(tag, reason).await
    }
    async fn cancel_undeclared_recurring(
        &self,
        declared: &Tag,
        keep: &[BusinessKey],
        older_than: Duration,
        reason: &Sanitized,
    ) -> StoreResult<Vec<JobId>> {
        self.inner.cancel_undeclared_recurring(declared, keep, older_than, reason).await
    }
}

ratchet_api::delegate_store!(Shortsighted => inner:
    StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBulkStore, BatchStore,
    LockStore, NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore,
    BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

// shows: S126
async fn a_startup_coordinator_of_ones_own_says_which_node_does_a_task(fx: Fixture) {
    let hour = "unreachable-jobs for 3600s";
    for (lets, asked, looks) in [(false, vec![hour], 0), (true, vec![hour, "no more unreachable-jobs"], 1)] {
        let rota = Rota { lets, asked: Arc::default(), more: Arc::default() };
        let counted = Arc::<AtomicUsize>::default();
        let store = Arc::new(Shortsighted { inner: fx.store().await, looks: Arc::clone(&counted) });
        let node = fx.node_on(store, |builder| builder.register(Failing).startup_coordinator(rota.clone()));
        let node = node.await;
        while rota.asked.lock().expect("nobody panics").len() < asked.len() {
            rota.more.notified().await;
        }
        node.stop().await;
        assert_eq!(*rota.asked.lock().expect("nobody panics"), asked);
        assert_eq!(counted.load(Ordering::SeqCst), looks);
    }
}
