//! What the parts of a running node share: what outlives a lost lease, and what does not.

use std::ops::Deref;
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
use crate::coordinator::slots::Slots;
use crate::defaults::StoreStartupCoordinator;
use crate::drain::{Drain, Readiness};
use crate::events::Events;
use crate::exchange::Exchange;
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
const MOST: usize = 1_000;

/// What can be replaced.
pub(crate) struct Plugs {
    pub(crate) beans: Arc<dyn BeanResolver>,
    pub(crate) policy: Arc<dyn ClassPolicy>,
    pub(crate) retry: Arc<dyn RetryPolicy>,
    pub(crate) resilience: Arc<dyn ResilienceStrategy>,
    pub(crate) sanitizer: Arc<dyn ErrorSanitizer>,
    pub(crate) executor: Arc<dyn ExecutorProvider>,
    pub(crate) cluster: Arc<dyn ClusterCoordinator>,
    /// The default takes locks for each life of the node.
    pub(crate) startup: Option<Arc<dyn StartupCoordinator>>,
    pub(crate) resolver: Arc<dyn JobInvocationResolver>,
    pub(crate) principal: Option<Arc<dyn CallerPrincipalResolver>>,
    pub(crate) trace: Option<Arc<dyn TraceParentResolver>>,
    pub(crate) metrics: Metrics,
    pub(crate) strategy: Mutex<Box<dyn PollingStrategy>>,
}

/// A node, with all that outlives a lost lease.
pub(crate) struct Node {
    pub(crate) store: Arc<dyn JobStore>,
    /// What people call it.
    pub(crate) label: String,
    pub(crate) options: RatchetOptions,
    pub(crate) registry: Arc<Registry>,
    pub(crate) plugs: Plugs,
    pub(crate) events: Events,
    pub(crate) slots: Slots,
    pub(crate) drain: Drain,
    /// Rings when there may be work.
    pub(crate) bell: Arc<Notify>,
    /// Rings when this node should beat at once.
    pub(crate) beat: Arc<Notify>,
    /// Rings when a job becomes due that this process made wait.
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) journal: Journal,
    /// Set when bodies that still run are given up, because the node stops.
    pub(crate) abort: CancellationToken,
    client: OnceLock<Client>,
    pub(crate) running: RunningJobs,
    /// Outcomes that the store did not take yet.
    pub(crate) unrecorded: Unrecorded,
    pub(crate) unknown: UnknownTargets,
    /// What jobs were parked on.
    pub(crate) parkings: Parkings,
    pub(crate) handed_back: HandedBack,
    /// Whether the last claim failed.
    claims_fail: AtomicBool,
}

/// One life of a node, under one lease: from when it joins the cluster until it leaves it or is fenced.
pub(crate) struct Engine {
    node: Arc<Node>,
    pub(crate) owner: Owner,
    pub(crate) lease: Arc<Lease>,
    pub(crate) exchange: Exchange,
    pub(crate) permits: Coalescer<PermitRequest, Permit>,
    pub(crate) startup: Arc<dyn StartupCoordinator>,
    /// Who is dead and holds jobs that this node may take over.
    pub(crate) dead: watch::Sender<Vec<Owner>>,
    /// Whether this node may hold jobs, as far as the last beat knew.
    pub(crate) may_hold: AtomicBool,
    /// Whether jobs may wait that may have killed a node. There is one look for them when a life begins.
    pub(crate) suspects: AtomicBool,
    /// Held by whoever takes jobs over or looks which are this node's; whether a takeover's reply was lost.
    pub(crate) takeover: tokio::sync::Mutex<bool>,
    /// The lives of this node before this one.
    past: Vec<Owner>,
}

impl Deref for Engine {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Node {
    pub(crate) fn new(
        store: Arc<dyn JobStore>,
        label: String,
        options: RatchetOptions,
        registry: Registry,
        plugs: Plugs,
        events: Events,
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
            events,
            slots,
        }
    }

    /// Takes note of how a claim ended.
    pub(crate) fn claimed(&self, failed: bool) {
        self.claims_fail.store(failed, Ordering::Relaxed);
    }

    /// Whether the last claim failed.
    pub(crate) fn claims_fail(&self) -> bool {
        self.claims_fail.load(Ordering::Relaxed)
    }

    /// Takes nothing new from now on, and says so with a beat at once.
    pub(crate) fn begin_to_drain(&self) {
        self.drain.advance(Readiness::Draining);
        self.beat.notify_one();
    }

    /// What another node's wakeup does: it has this one look for work, or beat if it runs anything that may be canceled.
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

    /// What it tells about itself when it joins.
    pub(crate) fn info(&self, owner: &Owner) -> NodeInfo {
        let mut info = NodeInfo::new(owner.clone());
        info.label.clone_from(&self.label);
        info.version = env!("CARGO_PKG_VERSION").to_owned();
        info.methods = self.registry.names();
        info.queues = self.slots.queues().map(ToString::to_string).collect();
        info
    }

    /// Submits and steers jobs, as this node.
    pub(crate) fn client(&self) -> Client {
        self.client.get_or_init(|| Client::of_node(self)).clone()
    }

    /// A connection for this node's row alone, made on the caller's runtime.
    pub(crate) async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        Ok(self.plugs.metrics.measured_nodes(self.store.dedicated().await?))
    }

    /// Asks the strategy how long to wait.
    pub(crate) fn delay(&self, signal: PollSignal) -> Duration {
        let mut strategy = self.plugs.strategy.lock().unwrap_or_else(PoisonError::into_inner);
        strategy.next_delay(signal, self.slots.load(), Instant::now())
    }

    /// Text of an error as it may be stored, logged and published.
    pub(crate) fn error_record(&self, target: &str, failure: &JobFailure) -> ErrorRecord {
        let class = Sanitized::new(&*self.plugs.sanitizer, &JobFailure::new("", failure.class()));
        ErrorRecord::new(target, class, Sanitized::new(&*self.plugs.sanitizer, failure))
    }

    /// Forgets what was only kept to be quick or polite.
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
    /// A life of this node that follows these.
    pub(crate) fn new(node: Arc<Node>, lease: Lease, past: Vec<Owner>) -> Self {
        let (owner, lease) = (lease.owner().clone(), Arc::new(lease));
        let mine = (Arc::clone(&node.store), owner.clone());
        Self {
            exchange: Exchange::new(&node.store, &lease),
            permits: Coalescer::new(MOST, 1, mine, |(store, owner), requests| async move {
                store.acquire(&owner, &requests).await
            }),
            startup: node.plugs.startup.clone().unwrap_or_else(|| {
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
    pub(crate) fn was(&self, owner: &Owner) -> bool {
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
        self.drain.takes_work() && self.lease.holds()
    }

    /// Completes once nothing new is to be begun in this life.
    pub(crate) async fn over(&self) {
        tokio::select! {
            () = self.drain.begun() => {}
            () = self.lease.lost() => {}
        }
    }

    /// Watches store calls of this life.
    pub(crate) fn outage(&self, what: &'static str) -> Outage {
        Outage::new(what, &self.owner, &self.plugs.sanitizer)
    }

    /// What a submission of the engine's own must keep to.
    pub(crate) fn limits(&self) -> Limits {
        self.options.limits.and(&self.store.limits())
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
        self.events.publish(&self.plugs.metrics, || JobEvent::new(header(), kind));
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
            () = tokio::time::sleep(engine.options.retry.drain_interval) => {}
            () = engine.lease.lost() => {}
        }
    }
    tracing::warn!(what, "the lease of this node is lost; nothing is written any more");
    None
}
