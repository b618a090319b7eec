//! The suite for a [`ClusterCoordinator`]: implement [`CoordinatorHarness`], hand it to [`CoordinatorSuite`] in an integration
//! test with `harness = false`, and `cargo test` prints one line for each behaviour.
//!
//! ```no_run
//! # struct MyHarness;
//! # #[async_trait::async_trait] impl ratchet_tck::coordinator::CoordinatorHarness for MyHarness {
//! #   async fn cluster(&self) -> ratchet_api::StoreResult<ratchet_tck::Namespace> { unreachable!() }
//! #   async fn node(&self, _: &ratchet_tck::Namespace)
//! #     -> ratchet_api::StoreResult<std::sync::Arc<dyn ratchet_api::spi::ClusterCoordinator>> { unreachable!() }
//! # }
//! fn main() -> std::process::ExitCode {
//!     ratchet_tck::coordinator::CoordinatorSuite::new(MyHarness).main()
//! }
//! ```

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use libtest_mimic::{Arguments, Failed, Trial};
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener};
use ratchet_api::{JobPriority, StoreClock, StoreResult, WithSources};
use tokio::sync::watch;

use crate::case::cases;
use crate::suite::{in_runtime, outcome_of};
use crate::{Case, CaseFailure, Namespace, StoreHarness};

cases! { "coordinator" with Cluster;
    a_notice_reaches_every_other_node: ["cluster.delivered"] [122 123 125];
    every_listener_of_a_node_is_called: ["cluster.delivered"] [122];
    every_priority_is_told: ["cluster.delivered"] [122];
    a_cancel_request_is_told_as_one: ["cluster.cancel", "cluster.delivered"] [];
    a_node_that_joins_later_hears_what_follows: ["cluster.delivered"] [125];
    telling_nobody_is_no_error: ["cluster.best_effort"] [125];
    nodes_that_are_gone_hold_nobody_up: ["cluster.best_effort"] [125];
    many_notices_are_told_at_most_once_each: ["cluster.coalesced"] [];
    a_notice_after_many_is_not_swallowed: ["cluster.coalesced", "cluster.delivered"] [];
    a_kind_does_not_take_the_place_of_another: ["cluster.coalesced"] [];
    after_a_gap_listeners_are_called_without_a_notice: ["cluster.gap"] [];
    after_a_gap_notices_are_delivered_again: ["cluster.gap", "cluster.delivered"] [];
    nobody_is_called_after_a_shutdown: ["cluster.shutdown"] [];
    a_coordinator_that_is_shut_down_stays_harmless: ["cluster.shutdown", "cluster.best_effort"] [];
    a_coordinator_that_is_dropped_releases_its_listeners: ["cluster.shutdown"] [];
}

/// Returns the time after which a wakeup counts as lost: more than any delivery needs, however busy the machine.
/// `RATCHET_CASE_SECONDS` sets another time.
fn patience() -> Duration {
    let seconds = std::env::var("RATCHET_CASE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

/// Makes coordinators for the suite. If notices can be lost, the cluster says how: [`Namespace::on_interrupt`].
#[async_trait]
pub trait CoordinatorHarness: Send + Sync + 'static {
    /// Makes an empty cluster that no other case sees. A missing server is an error that names the variable to set.
    async fn cluster(&self) -> StoreResult<Namespace>;

    /// Adds a node to the cluster: a coordinator of its own.
    async fn node(&self, cluster: &Namespace) -> StoreResult<Arc<dyn ClusterCoordinator>>;
}

/// A harness of the coordinators that a store offers.
pub(crate) struct OfStore(pub(crate) Arc<dyn StoreHarness>);

#[async_trait]
impl CoordinatorHarness for OfStore {
    async fn cluster(&self) -> StoreResult<Namespace> {
        self.0.namespace().await
    }

    async fn node(&self, cluster: &Namespace) -> StoreResult<Arc<dyn ClusterCoordinator>> {
        let store = self.0.connect(cluster, StoreClock::Server).await?;
        Ok(store.coordinator().expect("the store offers a coordinator"))
    }
}

/// The suite for one coordinator.
pub struct CoordinatorSuite {
    harness: Arc<dyn CoordinatorHarness>,
}

impl CoordinatorSuite {
    /// Creates a suite that runs every case against this harness.
    pub fn new(harness: impl CoordinatorHarness) -> Self {
        Self { harness: Arc::new(harness) }
    }

    /// Runs as a test binary with the usual arguments of `cargo test`.
    pub fn main(self) -> ExitCode {
        libtest_mimic::run(&Arguments::from_args(), self.trials()).exit_code()
    }

    /// Returns the cases, for a test binary that has more of them.
    pub fn trials(&self) -> Vec<Trial> {
        let trial = |case: &'static Case<Cluster>| {
            let harness = Arc::clone(&self.harness);
            Trial::test(case.id(), move || run_case(harness, case).map_err(|failure| Failed::from(failure.0)))
        };
        CASES.iter().map(trial).collect()
    }
}

/// Runs one case on a cluster and in a runtime of its own.
fn run_case(harness: Arc<dyn CoordinatorHarness>, case: &Case<Cluster>) -> Result<(), CaseFailure> {
    in_runtime(async {
        let namespace =
            harness.cluster().await.map_err(|error| CaseFailure(WithSources(&error).to_string()))?;
        let namespace = Arc::new(namespace);
        let outcome = outcome_of((case.run)(Cluster { harness, namespace: Arc::clone(&namespace) })).await;
        if let Some(namespace) = Arc::into_inner(namespace) {
            namespace.close().await;
        }
        outcome
    })
}

/// The environment of a case: a cluster.
pub struct Cluster {
    harness: Arc<dyn CoordinatorHarness>,
    namespace: Arc<Namespace>,
}

impl Cluster {
    async fn coordinator(&self) -> Arc<dyn ClusterCoordinator> {
        self.harness.node(&self.namespace).await.expect("a node joins")
    }

    async fn listening(&self) -> Listening {
        let node = Listening::to(self.coordinator().await);
        node.coordinator.register_wakeup_listener(node.listener()).await.expect("it listens");
        node
    }

    /// Interrupts the cluster; `false` if no notice can be lost there.
    async fn interrupt(&self) -> bool {
        let Some(interrupt) = self.namespace.interrupter() else { return false };
        interrupt().await.expect("the connections are cut");
        true
    }
}

/// A node that counts its wakeups.
struct Listening {
    coordinator: Arc<dyn ClusterCoordinator>,
    calls: watch::Sender<Vec<WakeupKind>>,
}

impl Listening {
    fn to(coordinator: Arc<dyn ClusterCoordinator>) -> Self {
        Self { coordinator, calls: watch::Sender::default() }
    }

    /// Registers one more listener on the same counter.
    fn listener(&self) -> WakeupListener {
        let calls = self.calls.clone();
        Arc::new(move |kind| calls.send_modify(|calls| calls.push(kind)))
    }

    fn calls(&self) -> usize {
        self.calls.borrow().len()
    }

    fn calls_of(&self, kind: WakeupKind) -> usize {
        count(&self.calls.borrow(), kind)
    }

    /// Waits until there were `calls` calls in all.
    async fn heard(&self, calls: usize) {
        let mut heard = self.calls.subscribe();
        let heard = tokio::time::timeout(patience(), heard.wait_for(|heard| heard.len() >= calls)).await;
        assert!(heard.is_ok(), "{} of {calls} wakeups within {:?}", self.calls(), patience());
    }

    /// Waits for one more call than `before`.
    async fn hears_after(&self, before: usize) {
        self.heard(before + 1).await;
    }

    /// Waits for one more call of this kind than `before`.
    async fn hears_of(&self, kind: WakeupKind, before: usize) {
        let mut heard = self.calls.subscribe();
        let more = heard.wait_for(|heard| count(heard, kind) > before);
        let heard = tokio::time::timeout(patience(), more).await.map(drop);
        assert!(heard.is_ok(), "no more than {before} wakeups of {kind:?} within {:?}", patience());
    }
}

fn count(calls: &[WakeupKind], kind: WakeupKind) -> usize {
    calls.iter().filter(|call| **call == kind).count()
}

/// Notifies the other nodes of new work; the call must not take long.
async fn tell(coordinator: &Arc<dyn ClusterCoordinator>, priority: JobPriority) {
    let told = tokio::time::timeout(patience(), coordinator.notify_new_work(priority)).await;
    told.expect("a notice waits for nobody").expect("a lost notice is no error");
}

/// Notifies the other nodes of a cancel request; the call must not take long.
async fn tell_cancel(coordinator: &Arc<dyn ClusterCoordinator>) {
    let told = tokio::time::timeout(patience(), coordinator.notify_cancel_requested()).await;
    told.expect("a notice waits for nobody").expect("a lost notice is no error");
}

async fn a_notice_reaches_every_other_node(cluster: Cluster) {
    let sender = cluster.coordinator().await;
    let nodes = [cluster.listening().await, cluster.listening().await, cluster.listening().await];
    let before = nodes.each_ref().map(Listening::calls);
    tell(&sender, JobPriority::Normal).await;
    join_all(nodes.iter().zip(before).map(|(node, before)| node.hears_after(before))).await;
}

async fn every_listener_of_a_node_is_called(cluster: Cluster) {
    let (sender, node) = (cluster.coordinator().await, cluster.listening().await);
    let second = Listening::to(Arc::clone(&node.coordinator));
    node.coordinator.register_wakeup_listener(second.listener()).await.expect("it listens");
    let before = (node.calls(), second.calls());
    tell(&sender, JobPriority::Normal).await;
    node.hears_after(before.0).await;
    second.hears_after(before.1).await;
}

async fn every_priority_is_told(cluster: Cluster) {
    let (sender, node) = (cluster.coordinator().await, cluster.listening().await);
    for priority in JobPriority::ALL {
        let before = node.calls();
        tell(&sender, priority).await;
        node.hears_after(before).await;
    }
}

async fn a_cancel_request_is_told_as_one(cluster: Cluster) {
    let sender = cluster.coordinator().await;
    let nodes = [cluster.listening().await, cluster.listening().await];
    for kind in [WakeupKind::CancelRequested, WakeupKind::NewWork, WakeupKind::CancelRequested] {
        let before = nodes.each_ref().map(|node| node.calls_of(kind));
        match kind {
            WakeupKind::CancelRequested => tell_cancel(&sender).await,
            _ => tell(&sender, JobPriority::Normal).await,
        }
        join_all(nodes.iter().zip(before).map(|(node, before)| node.hears_of(kind, before))).await;
    }
    for node in &nodes {
        assert_eq!(node.calls_of(WakeupKind::NewWork), 1, "a cancel request is no work");
    }
}

async fn a_node_that_joins_later_hears_what_follows(cluster: Cluster) {
    let sender = cluster.listening().await;
    tell(&sender.coordinator, JobPriority::High).await;
    let late = cluster.listening().await;
    let before = late.calls();
    tell(&sender.coordinator, JobPriority::High).await;
    late.hears_after(before).await;
}

async fn telling_nobody_is_no_error(cluster: Cluster) {
    let alone = cluster.coordinator().await;
    for priority in JobPriority::ALL {
        tell(&alone, priority).await;
    }
}

async fn nodes_that_are_gone_hold_nobody_up(cluster: Cluster) {
    let (sender, stays) = (cluster.coordinator().await, cluster.listening().await);
    // One is shut down, the other is not.
    cluster.listening().await.coordinator.shutdown().await;
    drop(cluster.listening().await);
    let before = stays.calls();
    tell(&sender, JobPriority::Normal).await;
    stays.hears_after(before).await;
}

async fn many_notices_are_told_at_most_once_each(cluster: Cluster) {
    const NOTICES: usize = 1_000;
    let (sender, node) = (cluster.coordinator().await, cluster.listening().await);
    let before = node.calls();
    for _ in 0..NOTICES {
        tell(&sender, JobPriority::Normal).await;
    }
    node.hears_after(before).await;
    // Notices still under way arrive before those that another node sends from now on.
    let (last, after) = (cluster.coordinator().await, node.calls());
    tell(&last, JobPriority::Normal).await;
    node.hears_after(after).await;
    let heard = node.calls() - before;
    assert!(heard <= NOTICES + 1, "{heard} wakeups for {NOTICES} notices");
}

async fn a_notice_after_many_is_not_swallowed(cluster: Cluster) {
    let (sender, node) = (cluster.coordinator().await, cluster.listening().await);
    for round in 0..5 {
        let before = node.calls();
        tell(&sender, JobPriority::Normal).await;
        node.hears_after(before).await;
        // Immediately, while a coordinator may still hold back other notices.
        let before = node.calls();
        tell(&sender, if round % 2 == 0 { JobPriority::Low } else { JobPriority::Critical }).await;
        node.hears_after(before).await;
    }
}

async fn a_kind_does_not_take_the_place_of_another(cluster: Cluster) {
    let (sender, node) = (cluster.coordinator().await, cluster.listening().await);
    for _ in 0..5 {
        let before = WakeupKind::ALL.map(|kind| node.calls_of(kind));
        for _ in 0..20 {
            tell(&sender, JobPriority::Normal).await;
        }
        tell_cancel(&sender).await;
        tell(&sender, JobPriority::Critical).await;
        for (kind, before) in WakeupKind::ALL.into_iter().zip(before) {
            node.hears_of(kind, before).await;
        }
    }
}

async fn after_a_gap_listeners_are_called_without_a_notice(cluster: Cluster) {
    let nodes = [cluster.listening().await, cluster.listening().await];
    let before = nodes.each_ref().map(|node| WakeupKind::ALL.map(|kind| node.calls_of(kind)));
    if cluster.interrupt().await {
        for (node, before) in nodes.iter().zip(before) {
            for (kind, before) in WakeupKind::ALL.into_iter().zip(before) {
                node.hears_of(kind, before).await;
            }
        }
    }
}

async fn after_a_gap_notices_are_delivered_again(cluster: Cluster) {
    let (sender, node) = (cluster.listening().await, cluster.listening().await);
    for _ in 0..3 {
        let before = (sender.calls(), node.calls());
        if !cluster.interrupt().await {
            return;
        }
        sender.hears_after(before.0).await;
        node.hears_after(before.1).await;
        let before = node.calls();
        tell(&sender.coordinator, JobPriority::Normal).await;
        node.hears_after(before).await;
    }
}

async fn nobody_is_called_after_a_shutdown(cluster: Cluster) {
    let (sender, stops, stays) =
        (cluster.coordinator().await, cluster.listening().await, cluster.listening().await);
    stops.coordinator.shutdown().await;
    let before = (stops.calls(), stays.calls());
    tell(&sender, JobPriority::Critical).await;
    stays.hears_after(before.1).await;
    let heard = stays.calls();
    if cluster.interrupt().await {
        stays.hears_after(heard).await;
    }
    assert_eq!(stops.calls(), before.0, "a node that has stopped was called");
}

async fn a_coordinator_that_is_shut_down_stays_harmless(cluster: Cluster) {
    let (stops, stays) = (cluster.listening().await, cluster.listening().await);
    stops.coordinator.shutdown().await;
    stops.coordinator.shutdown().await;
    let before = stops.calls();
    tell(&stops.coordinator, JobPriority::Normal).await;
    stops.coordinator.register_wakeup_listener(stops.listener()).await.expect("it does nothing");
    let heard = stays.calls();
    tell(&cluster.coordinator().await, JobPriority::Normal).await;
    stays.hears_after(heard).await;
    assert_eq!(stops.calls(), before, "a node that has stopped was called");
}

async fn a_coordinator_that_is_dropped_releases_its_listeners(cluster: Cluster) {
    let gone = cluster.listening().await;
    let mut calls = gone.calls.subscribe();
    drop(gone);
    // Every listener owns a sender.
    let released = async { while calls.changed().await.is_ok() {} };
    let released = tokio::time::timeout(patience(), released).await;
    assert!(released.is_ok(), "a listener outlives its node");
}
