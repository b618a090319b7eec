//! The shared state of a running node: [`Node`] outlives a lost lease, [`Engine`] does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{
    BeanResolver, CallerPrincipalResolver, ClassPolicy, ClusterCoordinator, ErrorSanitizer, ExecutorProvider,
    JobInvocationResolver, PollSignal, PollingStrategy, ResilienceStrategy, RetryPolicy, StartupCoordinator,
    TraceParentResolver, WakeupDirection, WakeupKind, WakeupListener,
};
use ratchet_api::store::{JobStore, NodeStore, Permit, PermitRequest};
use ratchet_api::{
    ErrorRecord, EventHeader, Job, JobEvent, JobEventKind, JobFailure, Limits, NodeInfo, Owner, Sanitized,
    StoreResult, Timestamp,
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::Client;
use crate::cluster::lease::Lease;
use crate::coalesce::Coalescer;
use crate::commit_claim::CommitClaim;
use crate::coordinator::slots::Slots;
use crate::defaults::StoreStartupCoordinator;
use crate::drain::{Drain, Readiness};
use crate::events::Events;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::outage::Outage;
use crate::outcome::About;
use crate::poller::alarm::Alarm;
use crate::registry::Registry;
use crate::running::RunningJobs;
use crate::task::{HandedBack, Parkings, UnknownTargets};
use crate::unrecorded::Unrecorded;

/// The most items in one call to the store.
const MAX_BATCH: usize = 1_000;

/// The replaceable parts of every process: a node shares them with its client.
pub(crate) struct Plugs {
    pub(crate) policy: Arc<dyn ClassPolicy>,
    pub(crate) sanitizer: Arc<dyn ErrorSanitizer>,
    pub(crate) cluster: Arc<dyn ClusterCoordinator>,
    pub(crate) resolver: Arc<dyn JobInvocationResolver>,
    pub(crate) principal: Option<Arc<dyn CallerPrincipalResolver>>,
    pub(crate) trace: Option<Arc<dyn TraceParentResolver>>,
    pub(crate) metrics: Metrics,
    /// The listeners, and the events on their way to them.
    pub(crate) events: Events,
}

/// The replaceable parts of a process that runs jobs.
pub(crate) struct ExecutionPlugs {
    pub(crate) beans: Arc<dyn BeanResolver>,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) resilience: Arc<dyn ResilienceStrategy>,
    pub(crate) executor: Arc<dyn ExecutorProvider>,
    /// The default takes locks for each life of the node.
    pub(crate) startup: Option<Arc<dyn StartupCoordinator>>,
    pub(crate) strategy: Mutex<Box<dyn PollingStrategy>>,
}

/// A node, with all that outlives a lost lease.
pub(crate) struct Node {
    pub(crate) store: Arc<dyn JobStore>,
    /// The name that operators see.
    pub(crate) label: String,
    pub(crate) options: RatchetOptions,
    pub(crate) registry: Arc<Registry>,
    pub(crate) plugs: Arc<Plugs>,
    pub(crate) execution: ExecutionPlugs,
    pub(crate) slots: Slots,
    pub(crate) drain: Drain,
    /// Notified when there may be work.
    pub(crate) bell: Arc<Notify>,
    /// Notified when this node should beat at once.
    pub(crate) beat: Arc<Notify>,
    /// Rings when a job becomes due that was delayed by this process.
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) journal: Journal,
    /// Set when bodies that still run are given up, because the node stops.
    pub(crate) abort: CancellationToken,
    client: OnceLock<Client>,
    pub(crate) running: RunningJobs,
    /// Outcomes that the store did not take yet.
    pub(crate) unrecorded: Unrecorded,
    pub(crate) unknown: UnknownTargets,
    /// The methods and resources that jobs were parked on.
    pub(crate) parkings: Parkings,
    pub(crate) handed_back: HandedBack,
    /// Whether the last claim failed.
    claims_fail: AtomicBool,
}

/// One life of a node, under one lease: from when it joins the cluster until it leaves it or is fenced.
pub(crate) struct Engine {
    pub(crate) node: Arc<Node>,
    pub(crate) owner: Owner,
    pub(crate) lease: Arc<Lease>,
    pub(crate) commit_claim: CommitClaim,
    pub(crate) permits: Coalescer<PermitRequest, Permit>,
    pub(crate) startup: Arc<dyn StartupCoordinator>,
    /// Dead owners whose jobs this node may take over.
    pub(crate) dead: watch::Sender<Vec<Owner>>,
    /// Whether this node may hold jobs, as far as the last beat knew.
    pub(crate) may_hold: AtomicBool,
    /// Whether suspects may wait: jobs that may have killed a node. They are searched for once when a life begins.
    pub(crate) suspects: AtomicBool,
    /// Locked during a takeover and a reconciliation; `true` if the reply to a takeover was lost.
    pub(crate) takeover: tokio::sync::Mutex<bool>,
    /// The lives of this node before this one.
    past: Vec<Owner>,
}

impl Node {
    pub(crate) fn new(
        store: Arc<dyn JobStore>,
        label: String,
        options: RatchetOptions,
        registry: Registry,
        plugs: Arc<Plugs>,
        execution: ExecutionPlugs,
        slots: Slots,
    ) -> Self {
        Self {
            journal: Journal::new(&store, &label, Arc::clone(&plugs.sanitizer)),
            drain: Drain::default(),
            alarm: Arc::default(),
            bell: Arc::default(),
            beat: Arc::default(),
            abort: CancellationToken::new(),
            client: OnceLock::new(),
            running: RunningJobs::default(),
            unrecorded: Unrecorded::default(),
            unknown: UnknownTargets::default(),
            parkings: Parkings::default(),
            handed_back: HandedBack::default(),
            claims_fail: AtomicBool::new(false),
            store,
            label,
            options,
            registry: Arc::new(registry),
            plugs,
            execution,
            slots,
        }
    }

    /// Records whether a claim failed.
    pub(crate) fn claimed(&self, failed: bool) {
        self.claims_fail.store(failed, Ordering::Relaxed);
    }

    /// Whether the last claim failed.
    pub(crate) fn claims_fail(&self) -> bool {
        self.claims_fail.load(Ordering::Relaxed)
    }

    /// Begins to drain: the node takes no new jobs, and announces that by a beat at once.
    pub(crate) fn begin_to_drain(&self) {
        self.drain.advance(Readiness::Draining);
        self.beat.notify_one();
    }

    /// The listener for wakeups: this node polls, or beats if it runs anything that may be canceled.
    pub(crate) fn wakeup_listener(&self) -> WakeupListener {
        let (bell, beat) = (Arc::clone(&self.bell), Arc::clone(&self.beat));
        let (running, metrics) = (self.running.clone(), self.plugs.metrics.clone());
        Arc::new(move |kind| {
            match kind {
                WakeupKind::CancelRequested if running.is_empty() => {}
                WakeupKind::CancelRequested => beat.notify_one(),
                _ => bell.notify_one(),
            }
            metrics.tell(|sink| sink.wakeup(WakeupDirection::Received));
        })
    }

    /// The description of this node that the others see, sent when it joins.
    pub(crate) fn info(&self, owner: &Owner) -> NodeInfo {
        let mut info = NodeInfo::new(owner.clone());
        info.label.clone_from(&self.label);
        info.version = env!("CARGO_PKG_VERSION").to_owned();
        info.methods = self.registry.names();
        info.queues = self.slots.queues().map(ToString::to_string).collect();
        info
    }

    /// The client of this node, which submits and controls jobs.
    pub(crate) fn client(&self) -> Client {
        self.client.get_or_init(|| Client::of_node(self)).clone()
    }

    /// A connection for this node's row alone, made on the caller's runtime.
    pub(crate) async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        Ok(self.plugs.metrics.measured_nodes(self.store.dedicated().await?))
    }

    /// Asks the strategy how long to wait.
    pub(crate) fn delay(&self, signal: PollSignal) -> Duration {
        let mut strategy = self.execution.strategy.lock().unwrap_or_else(PoisonError::into_inner);
        strategy.next_delay(signal, self.slots.load(), Instant::now())
    }

    /// The sanitized record of an error, which may be stored, logged and published.
    pub(crate) fn error_record(&self, target: &str, failure: &JobFailure) -> ErrorRecord {
        let class = Sanitized::new(&*self.plugs.sanitizer, &JobFailure::new("", failure.class()));
        ErrorRecord::new(target, class, Sanitized::new(&*self.plugs.sanitizer, failure))
    }

    /// Clears the caches, which only save store calls, repeated hand-backs and log lines.
    pub(crate) fn clear_caches(&self) {
        self.unknown.clear();
        self.parkings.clear();
    }

    /// The waiting time that raises the priority of a job by one; none if age does not count.
    pub(crate) fn boost_interval(&self) -> Option<Duration> {
        Some(self.options.store.priority_boost_interval).filter(|interval| !interval.is_zero())
    }

    /// How long an attempt of this job may take.
    pub(crate) fn timeout(&self, job: &Job) -> Option<Duration> {
        let limit = job.spec.timeout.unwrap_or(self.options.timeout.default_timeout);
        (!limit.is_zero()).then_some(limit)
    }
}

impl Engine {
    /// A life of this node that follows those in `past`.
    pub(crate) fn new(node: Arc<Node>, lease: Lease, past: Vec<Owner>) -> Self {
        let (owner, lease) = (lease.owner().clone(), Arc::new(lease));
        let mine = (Arc::clone(&node.store), owner.clone());
        Self {
            commit_claim: CommitClaim::new(&node.store, &lease),
            permits: Coalescer::new(MAX_BATCH, 1, mine, |(store, owner), requests| async move {
                store.acquire(&owner, &requests).await
            }),
            startup: node.execution.startup.clone().unwrap_or_else(|| {
                Arc::new(StoreStartupCoordinator::new(Arc::<dyn JobStore>::clone(&node.store), owner.clone()))
            }),
            dead: watch::Sender::default(),
            may_hold: AtomicBool::new(true),
            suspects: AtomicBool::new(true),
            takeover: tokio::sync::Mutex::default(),
            node,
            owner,
            lease,
            past,
        }
    }

    /// Whether this owner was an earlier life of this node.
    pub(crate) fn is_past_life(&self, owner: &Owner) -> bool {
        self.past.contains(owner)
    }

    /// The lives of this node before this one.
    pub(crate) fn past(&self) -> &[Owner] {
        &self.past
    }

    /// Every life of this node so far.
    pub(crate) fn lives(&self) -> Vec<Owner> {
        let this = std::iter::once(&self.owner);
        self.past.iter().chain(this).cloned().collect()
    }

    /// Whether it may begin anything new.
    pub(crate) fn takes_work(&self) -> bool {
        self.node.drain.takes_work() && self.lease.holds()
    }

    /// Completes once this life begins nothing new.
    pub(crate) async fn over(&self) {
        tokio::select! {
            () = self.node.drain.begun() => {}
            () = self.lease.lost() => {}
        }
    }

    /// The outage log for one kind of store call of this life.
    pub(crate) fn outage(&self, what: &'static str) -> Outage {
        Outage::new(what, &self.owner, &self.node.plugs.sanitizer)
    }

    /// The limits of the engine's own submissions.
    pub(crate) fn limits(&self) -> Limits {
        self.node.options.limits.and(&self.node.store.limits())
    }

    /// Publishes an event about a job that this node runs.
    pub(crate) fn publish(&self, about: About<'_>, kind: JobEventKind) {
        let (claim, payload) = (about.claim, about.job.map(|job| &job.spec.payload));
        let header = || EventHeader {
            job_id: claim.id,
            business_key: claim.business_key.clone(),
            job_type: claim.job_type,
            priority: claim.priority,
            queue: claim.queue.clone(),
            target: payload.map(|payload| payload.target().clone()),
            method: payload.map(|payload| payload.method().clone()),
            attempt: claim.attempts + 1,
            node: Some(self.owner.clone()),
            at: Timestamp::node_now(),
        };
        self.node.plugs.events.publish(&self.node.plugs.metrics, || JobEvent::new(header(), kind));
    }
}

/// Calls the store until it answers or the lease is lost.
pub(crate) async fn retry_while_leased<T, F: Future<Output = StoreResult<T>>>(
    engine: &Engine,
    what: &'static str,
    mut call: impl FnMut() -> F,
) -> Option<T> {
    let outage = engine.outage(what);
    while engine.lease.holds() {
        let answer = call().await;
        outage.note(&answer);
        if let Ok(answer) = answer {
            return Some(answer);
        }
        tokio::select! {
            () = tokio::time::sleep(engine.node.options.retry.drain_interval) => {}
            () = engine.lease.lost() => {}
        }
    }
    tracing::warn!(what, "the lease of this node is lost; nothing is written any more");
    None
}
