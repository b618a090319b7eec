//! Wakeups: which nodes are notified of new work.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener};
use ratchet_api::store::{ClaimRequest, JobClaimStore, JobStore};
use ratchet_api::{JobClaim, JobEventKind, JobPriority, Outcome, Owner, StoreResult, Verdict};
use ratchet_core::defaults::NoOpClusterCoordinator;
use ratchet_core::jobs;
use tokio::sync::{Notify, Semaphore, watch};

use super::queues::patient;
use crate::Fixture;

crate::cases! {
    a_submission_wakes_whichever_node_serves_its_queue;
    what_an_outcome_submits_wakes_whichever_node_serves_its_queue;
    a_job_that_is_parked_wakes_a_node_that_knows_its_method;
    the_cluster_is_told_of_what_is_due_now_or_critical;
    nodes_of_a_store_that_can_wake_them_do_so_by_themselves;
    a_process_that_only_submits_wakes_the_nodes;
    a_given_coordinator_takes_the_place_of_the_store_s_own;
    a_local_wakeup_does_not_wait_for_the_cluster;
    a_storm_of_wakeups_costs_one_look_at_a_time;
    an_idle_node_asks_the_store_for_nothing_but_its_beats;
}

/// A coordinator that reaches every node of the case.
#[derive(Clone, Default)]
pub(super) struct Bus {
    listeners: Arc<Mutex<Vec<WakeupListener>>>,
    told: Arc<Mutex<Vec<JobPriority>>>,
    more: Arc<Notify>,
}

impl Bus {
    fn tell(&self, kind: WakeupKind) {
        self.listeners.lock().expect("nobody panics").iter().for_each(|listener| listener(kind));
    }
}

#[async_trait]
impl ClusterCoordinator for Bus {
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()> {
        self.told.lock().expect("nobody panics").push(priority);
        self.more.notify_one();
        self.tell(WakeupKind::NewWork);
        Ok(())
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.tell(WakeupKind::CancelRequested);
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        self.listeners.lock().expect("nobody panics").push(listener);
        Ok(())
    }
}

struct Idle;

#[jobs(target = "test.Idle")]
impl Idle {
    #[job]
    async fn pass(&self) {}

    #[job(queue = "back")]
    async fn pass_in_the_back(&self) {}
}

// shows: S58 S123 S125
async fn a_submission_wakes_whichever_node_serves_its_queue(fx: Fixture) {
    let bus = Bus::default();
    let (line, other) = (bus.clone(), bus.clone());
    let front = fx.node(|builder| {
        builder.register(Idle).cluster(line).configure(patient).configure(|options| {
            options.execution.queues.clear();
            options.execution.queue("front");
        })
    });
    let front = front.await;
    let back = fx.node(|builder| builder.register(Idle).cluster(other).configure(patient)).await;
    // The first job may be found by the node's first poll; the others are found only through a wakeup.
    for _ in 0..3 {
        for queue in ["default", "front"] {
            let job = front.enqueue(Idle::job().pass()).queue(queue).submit().await.expect("stored");
            job.result().await.expect("it runs");
        }
    }
    front.stop().await;
    back.stop().await;
}

// shows: S58 S123
async fn what_an_outcome_submits_wakes_whichever_node_serves_its_queue(fx: Fixture) {
    let bus = Bus::default();
    let node = async |queue| {
        let line = bus.clone();
        fx.node(|builder| builder.register(Idle).cluster(line).configure(serving(queue))).await
    };
    let (front, back) = (node("front").await, node("back").await);
    for times in 1..=3 {
        let after = Idle::job().pass_in_the_back();
        let job = front.enqueue(Idle::job().pass()).queue("front").on_success(&after).submit().await;
        job.expect("stored").result().await.expect("it runs");
        back.told_times(times, |kind| matches!(kind, JobEventKind::Completed { .. })).await;
    }
    front.stop().await;
    back.stop().await;
}

/// Another service on the same queue, which knows other methods.
struct Stranger;

#[jobs(target = "test.Stranger")]
impl Stranger {
    #[job]
    async fn pass(&self) {}
}

// shows: S58
async fn a_job_that_is_parked_wakes_a_node_that_knows_its_method(fx: Fixture) {
    let bus = Bus::default();
    let (line, other) = (bus.clone(), bus.clone());
    let looks = Arc::new(Looks::on(fx.store().await, 1_000));
    let knows =
        fx.node_on(looks.clone(), |builder| builder.register(Idle).cluster(line).configure(patient)).await;
    looks.ended.subscribe().wait_for(|ended| *ended).await.expect("it is ours");
    // The client's notices go through another coordinator, so the stranger's first poll finds the job.
    let job = fx.client().await.enqueue(Idle::job().pass()).submit().await.expect("stored");
    let stranger = fx.node(|builder| builder.register(Stranger).cluster(other).configure(patient)).await;
    job.result().await.expect("it runs");
    stranger.stop().await;
    knows.stop().await;
}

// shows: S15
async fn the_cluster_is_told_of_what_is_due_now_or_critical(fx: Fixture) {
    let bus = Bus::default();
    let line = bus.clone();
    let node = fx.node(|builder| builder.register(Idle).cluster(line).configure(patient)).await;
    let later = Duration::from_secs(3_600);
    let job = || node.enqueue(Idle::job().pass());
    job().delay(later).priority(JobPriority::High).submit().await.expect("stored");
    job().delay(later).priority(JobPriority::Critical).submit().await.expect("stored");
    bus.more.notified().await;
    job().priority(JobPriority::Low).submit().await.expect("stored").result().await.expect("it runs");
    bus.more.notified().await;
    assert_eq!(*bus.told.lock().expect("nobody panics"), [JobPriority::Critical, JobPriority::Low]);
    node.stop().await;
}

/// Serves this queue alone; after its first poll the node finds nothing without a wakeup.
fn serving(queue: &'static str) -> impl FnOnce(&mut RatchetOptions) {
    move |options| {
        patient(options);
        options.execution.queues.clear();
        options.execution.queue(queue);
    }
}

// shows: S58 S123
async fn nodes_of_a_store_that_can_wake_them_do_so_by_themselves(fx: Fixture) {
    if fx.store().await.coordinator().is_none() {
        return;
    }
    let front = fx.node(|builder| builder.register(Idle).configure(serving("front"))).await;
    let back = fx.node(|builder| builder.register(Idle).configure(serving("back"))).await;
    // The first job may be found by the first poll.
    for _ in 0..3 {
        for (from, queue) in [(&front, "back"), (&back, "front")] {
            let job = from.enqueue(Idle::job().pass()).queue(queue).submit().await.expect("stored");
            job.result().await.expect("it runs");
        }
    }
    front.stop().await;
    back.stop().await;
}

// shows: S58 S123
async fn a_process_that_only_submits_wakes_the_nodes(fx: Fixture) {
    if fx.store().await.coordinator().is_none() {
        return;
    }
    let node = fx.node(|builder| builder.register(Idle).configure(patient)).await;
    let client = fx.client().await;
    for _ in 0..3 {
        let job = client.enqueue(Idle::job().pass()).submit().await.expect("stored");
        job.result().await.expect("it runs");
    }
    node.stop().await;
}

// shows: S122 S124
async fn a_given_coordinator_takes_the_place_of_the_store_s_own(fx: Fixture) {
    let bus = Bus::default();
    let line = bus.clone();
    let looks = Arc::new(Looks::on(fx.store().await, usize::MAX >> 4));
    let silent = fx.node(|builder| {
        builder.register(Idle).cluster(NoOpClusterCoordinator::new()).configure(serving("front"))
    });
    let silent = silent.await;
    let node =
        fx.node_on(looks.clone(), |builder| builder.register(Idle).cluster(line).configure(serving("back")));
    let node = node.await;
    // From now on a job is found only through a wakeup.
    looks.ended.subscribe().wait_for(|ended| *ended).await.expect("it is ours");
    for _ in 0..3 {
        silent.enqueue(Idle::job().pass()).queue("back").submit().await.expect("stored");
        silent
            .enqueue(Idle::job().pass())
            .queue("front")
            .submit()
            .await
            .expect("stored")
            .result()
            .await
            .expect("it runs");
    }
    assert_eq!(looks.so_far(), 1, "the store's own way told it");
    bus.notify_new_work(JobPriority::Normal).await.expect("told");
    looks.begun(2).await;
    silent.stop().await;
    node.stop().await;
}

/// A coordinator that never finishes a notice.
struct Stuck;

#[async_trait]
impl ClusterCoordinator for Stuck {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        std::future::pending().await
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        std::future::pending().await
    }

    async fn register_wakeup_listener(&self, _: WakeupListener) -> StoreResult<()> {
        Ok(())
    }
}

// shows: S58 S124
async fn a_local_wakeup_does_not_wait_for_the_cluster(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Idle).cluster(Stuck).configure(patient)).await;
    for _ in 0..3 {
        let job = node.enqueue(Idle::job().pass()).submit().await.expect("stored");
        job.result().await.expect("it runs");
    }
    node.stop().await;
}

/// A store that counts claims, and blocks each until it has a permit.
struct Looks {
    inner: Arc<dyn JobStore>,
    begun: watch::Sender<usize>,
    /// Whether the first claim has ended.
    ended: watch::Sender<bool>,
    passes: Semaphore,
}

impl Looks {
    fn on(inner: Arc<dyn JobStore>, passes: usize) -> Self {
        Self {
            inner,
            begun: watch::Sender::new(0),
            ended: watch::Sender::new(false),
            passes: Semaphore::new(passes),
        }
    }

    /// Waits until `looks` claims have begun.
    async fn begun(&self, looks: usize) {
        self.begun.subscribe().wait_for(|begun| *begun >= looks).await.expect("it is ours");
    }

    fn so_far(&self) -> usize {
        *self.begun.borrow()
    }
}

#[async_trait]
impl JobClaimStore for Looks {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        self.begun.send_modify(|begun| *begun += 1);
        self.passes.acquire().await.expect("it stays open").forget();
        let claimed = self.inner.claim(request).await;
        self.ended.send_replace(true);
        claimed
    }
    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        self.inner.owned(owner).await
    }
    async fn commit_and_claim(
        &self,
        owner: &Owner,
        outcomes: &[Outcome],
        request: &ClaimRequest,
    ) -> StoreResult<(Vec<Verdict>, Vec<JobClaim>)> {
        self.begun.send_modify(|begun| *begun += 1);
        self.inner.commit_and_claim(owner, outcomes, request).await
    }
}

ratchet_api::delegate_store!(Looks => inner:
    StoreInfo, JobCrudStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore, BatchStore,
    LockStore, NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore,
    BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

// shows: S123
async fn a_storm_of_wakeups_costs_one_look_at_a_time(fx: Fixture) {
    let bus = Bus::default();
    let (line, looks) = (bus.clone(), Arc::new(Looks::on(fx.store().await, 0)));
    let node =
        fx.node_on(looks.clone(), |builder| builder.register(Idle).cluster(line).configure(patient)).await;
    looks.begun(1).await;
    // Wakeups that come during a poll are answered by one more poll.
    for round in 1..=3 {
        for _ in 0..1_000 {
            bus.notify_new_work(JobPriority::Normal).await.expect("told");
        }
        assert_eq!(looks.so_far(), round);
        looks.passes.add_permits(1);
        looks.begun(round + 1).await;
    }
    looks.passes.add_permits(1_000);
    node.stop().await;
    assert_eq!(looks.so_far(), 4);
}

// shows: S60
async fn an_idle_node_asks_the_store_for_nothing_but_its_beats(fx: Fixture) {
    let looks = Arc::new(Looks::on(fx.store().await, 1_000));
    let node = fx.node_on(looks.clone(), |builder| {
        builder.register(Idle).configure(patient).configure(|options| {
            options.node.beat = Duration::from_millis(100);
        })
    });
    let node = node.await;
    looks.begun(1).await;
    let store = fx.store().await;
    let beat = async || store.nodes().await.expect("read").first().map(|node| node.heartbeat_at);
    for _ in 0..3 {
        let last = beat().await;
        while beat().await == last {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(looks.so_far(), 1);
    node.stop().await;
}
