//! Starting and stopping: hooks, drain, deadlines, and stores that do not reply.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{HookError, SchedulerLifecycleHook};
use ratchet_api::store::{
    CancelVerdict, ClaimRequest, JobClaimStore, JobStore, JobTerminalStore, NodeStore, Target,
};
use ratchet_api::{
    Beat, BeatReply, JobClaim, JobStatus, Node as KnownNode, NodeInfo, Outcome, Owner, Sanitized,
    StoreResult, Verdict,
};
use ratchet_core::{
    Client, JobContext, JobFailure, JobHandle, Ratchet, Readiness, Scheduler, SchedulerBuilder, StartError,
    jobs,
};
use tokio::sync::Notify;

use crate::{Fixture, Node};

crate::cases! {
    hooks_are_called_in_their_order_and_nothing_is_claimed_before_the_first;
    a_hook_that_refuses_keeps_the_node_from_starting_and_leaves_nothing_behind;
    hooks_that_fail_panic_or_hang_keep_no_node_from_working_and_stopping;
    a_draining_node_takes_nothing_new_and_says_so;
    bodies_are_told_when_the_deadline_is_near;
    a_stop_at_once_waits_for_no_body;
    a_stop_goes_on_when_its_caller_does_not_wait;
    a_node_that_is_dropped_lets_its_jobs_end;
    a_store_that_does_not_answer_holds_up_no_stop;
    a_claim_whose_reply_comes_too_late_goes_back;
}

/// A service whose bodies wait for a signal of the case.
#[derive(Clone, Default)]
struct Patient {
    entered: Arc<Notify>,
    released: Arc<Notify>,
}

#[jobs(target = "test.Patient")]
impl Patient {
    #[job]
    async fn echo(&self, number: u32) -> Result<u32, JobFailure> {
        Ok(number)
    }

    /// Ignores cancellation.
    #[job]
    async fn wait(&self) -> Result<u32, JobFailure> {
        self.entered.notify_one();
        self.released.notified().await;
        Ok(7)
    }

    /// Ends when it is told to, and releases the bodies in `wait`.
    #[job]
    async fn wait_for_the_end(&self, ctx: &JobContext) {
        self.entered.notify_one();
        ctx.canceled().await;
        self.released.notify_waiters();
    }

    /// Does the same in code that blocks.
    #[job(blocking)]
    fn block_until_the_end(&self, ctx: &JobContext) {
        self.entered.notify_one();
        while !ctx.is_canceled() {
            std::thread::yield_now();
        }
    }
}

async fn now<R>(job: &JobHandle<R>) -> ratchet_api::Job {
    job.job().await.expect("read").expect("there")
}

/// Checks that the job is back to PENDING with nothing consumed.
async fn is_untouched<R>(job: &JobHandle<R>) {
    let job = now(job).await;
    assert_eq!((job.status, job.attempts, job.crash_count), (JobStatus::Pending, 0, 0));
    assert_eq!(job.picked_by, None);
}

async fn nodes(client: &Client) -> usize {
    client.store().nodes().await.expect("read").len()
}

/// Starts to stop a node in the background; returns once it is draining.
async fn begin_to_stop(node: &Arc<Node>) -> tokio::task::JoinHandle<()> {
    let stopping = tokio::spawn({
        let node = Arc::clone(node);
        async move { node.stop().await }
    });
    node.until_draining().await;
    stopping
}

/// A hook that records its calls, and the state of the node at each.
#[derive(Clone)]
struct Diary {
    name: &'static str,
    /// A job that is due before the node starts.
    due: JobHandle<u32>,
    client: Client,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Diary {
    async fn write(&self, seen: &str) -> Result<(), HookError> {
        let nodes = nodes(&self.client).await;
        self.lines.lock().expect("nobody panics").push(format!("{} {seen}, {nodes} nodes", self.name));
        Ok(())
    }
}

#[async_trait]
impl SchedulerLifecycleHook for Diary {
    async fn before_start(&self) -> Result<(), HookError> {
        self.write(&format!("before_start: version {}", now(&self.due).await.fence.version())).await
    }
    async fn after_start(&self) -> Result<(), HookError> {
        self.write("after_start").await
    }
    async fn before_stop(&self) -> Result<(), HookError> {
        let job = self.client.enqueue(Patient::job().echo(1)).submit().await?;
        self.write(&format!("before_stop: a job gives {}", job.result().await?)).await
    }
    async fn after_stop(&self) -> Result<(), HookError> {
        self.write("after_stop").await
    }
}

// shows: S63 S178
async fn hooks_are_called_in_their_order_and_nothing_is_claimed_before_the_first(fx: Fixture) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let client = fx.client().await;
    let due = client.enqueue(Patient::job().echo(2)).submit().await.expect("stored");
    let hook = |name| Diary { name, due: due.clone(), client: client.clone(), lines: Arc::clone(&lines) };
    let (one, other) = (hook("one"), hook("other"));
    // The node gets no wakeup for the jobs of these hooks, so it has to poll often.
    let often = |options: &mut RatchetOptions| {
        options.polling.burst_delay = Duration::from_millis(50);
        options.polling.min_delay = Duration::from_millis(50);
    };
    let hooked = |builder: SchedulerBuilder| {
        builder.register(Patient::default()).configure(often).hook(one).hook(other)
    };
    let node = fx.node(hooked).await;
    assert_eq!(due.result().await.expect("it runs"), 2);
    node.stop().await;
    let lines = lines.lock().expect("nobody panics").clone();
    let expected = [
        "one before_start: version 1, 0 nodes",
        "other before_start: version 1, 0 nodes",
        "one after_start, 1 nodes",
        "other after_start, 1 nodes",
        "one before_stop: a job gives 1, 1 nodes",
        "other before_stop: a job gives 1, 1 nodes",
        "one after_stop, 0 nodes",
        "other after_stop, 0 nodes",
    ];
    assert_eq!(lines, expected);
}

/// A hook that refuses the start.
struct Refuses;

#[async_trait]
impl SchedulerLifecycleHook for Refuses {
    async fn before_start(&self) -> Result<(), HookError> {
        Err("the schema is of another version".into())
    }
}

struct PanicsAtStart;

#[async_trait]
impl SchedulerLifecycleHook for PanicsAtStart {
    async fn before_start(&self) -> Result<(), HookError> {
        panic!("on purpose");
    }
}

// shows: S178
async fn a_hook_that_refuses_keeps_the_node_from_starting_and_leaves_nothing_behind(fx: Fixture) {
    let client = fx.client().await;
    let due = client.enqueue(Patient::job().echo(2)).submit().await.expect("stored");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let builder = |store| Ratchet::builder_shared(store).register(Patient::default()).allow(["test."]);
    let diary = Diary { name: "later", due: due.clone(), client: client.clone(), lines: Arc::clone(&lines) };
    let refused = builder(fx.store().await).hook(Refuses).hook(diary).start().await;
    let Err(StartError::Hook(error)) = refused else { panic!("it does not start") };
    assert_eq!(error.to_string(), "the schema is of another version");
    let panicked = builder(fx.store().await).hook(PanicsAtStart).start().await;
    assert!(matches!(panicked, Err(StartError::Hook(_))), "a panic is a refusal");
    assert!(lines.lock().expect("nobody panics").is_empty(), "nobody is asked after a refusal");
    assert_eq!(nodes(&client).await, 0, "it never joined");
    is_untouched(&due).await;
}

/// A hook that fails, panics or hangs at every step after the start was allowed.
struct Awkward;

#[async_trait]
impl SchedulerLifecycleHook for Awkward {
    async fn after_start(&self) -> Result<(), HookError> {
        Err("on purpose".into())
    }
    async fn before_stop(&self) -> Result<(), HookError> {
        std::future::pending().await
    }
    async fn after_stop(&self) -> Result<(), HookError> {
        panic!("on purpose");
    }
}

/// A hook that counts its calls.
#[derive(Clone, Default)]
struct Counts(Arc<AtomicU32>);

impl Counts {
    fn count(&self) -> Result<(), HookError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[async_trait]
impl SchedulerLifecycleHook for Counts {
    async fn before_start(&self) -> Result<(), HookError> {
        self.count()
    }
    async fn after_start(&self) -> Result<(), HookError> {
        self.count()
    }
    async fn before_stop(&self) -> Result<(), HookError> {
        self.count()
    }
    async fn after_stop(&self) -> Result<(), HookError> {
        self.count()
    }
}

// shows: S63
async fn hooks_that_fail_panic_or_hang_keep_no_node_from_working_and_stopping(fx: Fixture) {
    let counts = Counts::default();
    let short = |options: &mut RatchetOptions| options.execution.drain_timeout = Duration::from_millis(10);
    let hooked = |builder: SchedulerBuilder| {
        builder.register(Patient::default()).configure(short).hook(Awkward).hook(counts.clone())
    };
    let node = fx.node(hooked).await;
    let job = node.enqueue(Patient::job().echo(2)).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it runs"), 2);
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
    assert_eq!(counts.0.load(Ordering::SeqCst), 4, "the other hook is called each time");
}

// shows: S61 S64
async fn a_draining_node_takes_nothing_new_and_says_so(fx: Fixture) {
    let patient = Patient::default();
    let node = fx.node(|builder| builder.register(patient.clone())).await;
    assert_eq!(node.readiness(), Readiness::Ready);
    let running = node.enqueue(Patient::job().wait()).submit().await.expect("stored");
    patient.entered.notified().await;
    node.drain();
    assert_eq!(node.readiness(), Readiness::Draining, "at once, while its jobs still run");
    let late = node.enqueue(Patient::job().echo(1)).submit().await.expect("stored");
    patient.released.notify_one();
    assert_eq!(running.result().await.expect("it ends"), 7);
    assert_eq!(nodes(node.client()).await, 1, "the node lives until it is stopped");
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
    let late = now(&late).await;
    assert_eq!((late.status, late.picked_by), (JobStatus::Pending, None), "nobody has it");
    assert!(late.fence.version() <= 3, "one claim may have been under way; what it took goes back");
}

// shows: S62
async fn bodies_are_told_when_the_deadline_is_near(fx: Fixture) {
    let patient = Patient::default();
    let near = |options: &mut RatchetOptions| {
        options.execution.drain_timeout = Duration::from_secs(60);
        options.timeout.cancel_grace = Duration::from_mins(1) - Duration::from_millis(10);
    };
    let node = fx.node(|builder| builder.register(patient.clone()).configure(near)).await;
    let unaware = node.enqueue(Patient::job().wait()).submit().await.expect("stored");
    patient.entered.notified().await;
    let aware = node.enqueue(Patient::job().wait_for_the_end()).submit().await.expect("stored");
    patient.entered.notified().await;
    let blocking = node.enqueue(Patient::job().block_until_the_end()).submit().await.expect("stored");
    patient.entered.notified().await;
    node.stop().await;
    assert_eq!(now(&unaware).await.status, JobStatus::Succeeded, "who does not look is not disturbed");
    is_untouched(&aware).await;
    is_untouched(&blocking).await;
    assert_eq!(nodes(node.client()).await, 0);
}

async fn a_stop_at_once_waits_for_no_body(fx: Fixture) {
    let patient = Patient::default();
    let node = Arc::new(fx.node(|builder| builder.register(patient.clone())).await);
    let running = node.enqueue(Patient::job().wait()).submit().await.expect("stored");
    patient.entered.notified().await;
    let stopping = begin_to_stop(&node).await;
    node.stop_now().await;
    stopping.await.expect("the other one has ended too");
    is_untouched(&running).await;
    assert_eq!(nodes(node.client()).await, 0);
}

// shows: S63
async fn a_stop_goes_on_when_its_caller_does_not_wait(fx: Fixture) {
    let patient = Patient::default();
    let node = Arc::new(fx.node(|builder| builder.register(patient.clone())).await);
    let running = node.enqueue(Patient::job().wait()).submit().await.expect("stored");
    patient.entered.notified().await;
    begin_to_stop(&node).await.abort();
    patient.released.notify_one();
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
    assert_eq!(now(&running).await.status, JobStatus::Succeeded);
}

async fn a_node_that_is_dropped_lets_its_jobs_end(fx: Fixture) {
    let (patient, client) = (Patient::default(), fx.client().await);
    let node = fx.node(|builder| builder.register(patient.clone())).await;
    let running = client.enqueue(Patient::job().wait()).submit().await.expect("stored");
    node.client().wake_up(ratchet_api::JobPriority::Normal);
    patient.entered.notified().await;
    drop(node);
    patient.released.notify_one();
    assert_eq!(running.result().await.expect("it ends"), 7);
    while nodes(&client).await > 0 {
        tokio::task::yield_now().await;
    }
}

/// A store whose replies can be withheld.
struct Moody {
    inner: Arc<dyn JobStore>,
    deaf: Arc<AtomicBool>,
    /// Claims are carried out, but their replies never come.
    mute: Arc<AtomicBool>,
}

impl Moody {
    async fn unless(&self, silent: &AtomicBool) {
        if silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl JobClaimStore for Moody {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        self.unless(&self.deaf).await;
        let claims = self.inner.claim(request).await?;
        if !claims.is_empty() {
            self.unless(&self.mute).await;
        }
        Ok(claims)
    }
    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        self.unless(&self.deaf).await;
        self.inner.owned(owner).await
    }
}

#[async_trait]
impl JobTerminalStore for Moody {
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        self.unless(&self.deaf).await;
        self.inner.commit(owner, outcomes).await
    }
    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        self.inner.cancel(jobs, reason).await
    }
}

#[async_trait]
impl NodeStore for Moody {
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        self.inner.dedicated().await
    }
    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()> {
        self.inner.join(node, lease).await
    }
    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply> {
        self.inner.beat(beat).await
    }
    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        self.inner.recover(dead, to, limit).await
    }
    async fn leave(&self, owner: &Owner) -> StoreResult<bool> {
        self.unless(&self.deaf).await;
        self.inner.leave(owner).await
    }
    async fn nodes(&self) -> StoreResult<Vec<KnownNode>> {
        self.inner.nodes().await
    }
    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64> {
        self.inner.purge_nodes(retention).await
    }
    async fn clock_went_back(&self, by: Duration, within: Duration, limit: usize) -> StoreResult<u64> {
        self.inner.clock_went_back(by, within, limit).await
    }
}

ratchet_api::delegate_store!(Moody => inner:
    StoreInfo, JobCrudStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore, BatchStore, LockStore,
    ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore, BatchMetricsStore, DlqAlertStore,
    ResourcePermitStore, RecurringStore, JobQueryStore);

/// Starts a node on such a store; returns it with the switches `deaf` and `mute`.
async fn moody(fx: &Fixture, patient: Patient) -> (Scheduler, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (deaf, mute) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let store = Moody { inner: fx.store().await, deaf: Arc::clone(&deaf), mute: Arc::clone(&mute) };
    let soon = |options: &mut RatchetOptions| {
        options.execution.drain_timeout = Duration::from_millis(20);
        options.timeout.cancel_grace = Duration::from_millis(10);
        options.node.label = Some(format!("moody-{}", ratchet_api::JobId::generate()));
    };
    let builder = Ratchet::builder(store).register(patient).configure(soon);
    let builder = builder.allow(["test."]);
    (builder.start().await.expect("the node starts"), deaf, mute)
}

// shows: S62
async fn a_store_that_does_not_answer_holds_up_no_stop(fx: Fixture) {
    let patient = Patient::default();
    let (node, deaf, _) = moody(&fx, patient.clone()).await;
    let running = node.enqueue(Patient::job().wait()).submit().await.expect("stored");
    patient.entered.notified().await;
    deaf.store(true, Ordering::SeqCst);
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
    let left = now(&running).await;
    assert_eq!((left.status, left.attempts), (JobStatus::Running, 0), "it is recovered after the lease");
    assert_eq!(nodes(node.client()).await, 1, "and so that it can be, the node stays on the list");
    let lines = crate::lines::about(node.owner().label());
    let blamed = lines.iter().find(|line| line.message() == "the cluster coordinator does not stop");
    assert!(blamed.is_none(), "it is well: {blamed:?}");
}

// shows: S62
async fn a_claim_whose_reply_comes_too_late_goes_back(fx: Fixture) {
    let (node, _, mute) = moody(&fx, Patient::default()).await;
    mute.store(true, Ordering::SeqCst);
    let job = node.enqueue(Patient::job().echo(1)).submit().await.expect("stored");
    while now(&job).await.status != JobStatus::Running {
        tokio::task::yield_now().await;
    }
    node.stop().await;
    is_untouched(&job).await;
    assert_eq!(nodes(node.client()).await, 0);
}
