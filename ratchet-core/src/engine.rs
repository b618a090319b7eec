//! What the parts of a running node share.

use std::sync::{Arc, OnceLock};

use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{
    BeanResolver, CallerPrincipalResolver, ClassPolicy, ClusterCoordinator, ErrorSanitizer, ExecutorProvider,
    JobInvocationResolver, MetricsSink, ResilienceStrategy, RetryPolicy, TraceParentResolver,
};
use ratchet_api::store::{JobStore, Permit, PermitRequest};
use ratchet_api::{
    ErrorRecord, EventHeader, Job, JobClaim, JobEvent, JobEventKind, JobFailure, Owner, Sanitized,
    StoreResult, Timestamp,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Client;
use crate::coalesce::Coalescer;
use crate::coordinator::slots::Slots;
use crate::drain::Drain;
use crate::events::Events;
use crate::exchange::Exchange;
use crate::journal::Journal;
use crate::poller::alarm::Alarm;
use crate::registry::Registry;
use crate::running::RunningJobs;
use crate::task::UnknownTargets;

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
    pub(crate) resolver: Arc<dyn JobInvocationResolver>,
    pub(crate) principal: Option<Arc<dyn CallerPrincipalResolver>>,
    pub(crate) trace: Option<Arc<dyn TraceParentResolver>>,
    pub(crate) metrics: Arc<dyn MetricsSink>,
}

/// A running node.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) owner: Owner,
    pub(crate) options: RatchetOptions,
    pub(crate) registry: Registry,
    pub(crate) plugs: Plugs,
    pub(crate) events: Events,
    pub(crate) slots: Slots,
    pub(crate) drain: Drain,
    /// Rings when there may be work.
    pub(crate) bell: Arc<Notify>,
    /// Rings when a job becomes due that this process made wait.
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) journal: Journal,
    pub(crate) exchange: Exchange,
    pub(crate) permits: Coalescer<PermitRequest, Permit>,
    /// Set when bodies that still run are given up, because the node stops.
    pub(crate) abort: CancellationToken,
    client: OnceLock<Client>,
    pub(crate) running: RunningJobs,
    pub(crate) unknown: UnknownTargets,
}

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn JobStore>,
        owner: Owner,
        options: RatchetOptions,
        registry: Registry,
        plugs: Plugs,
        events: Events,
        slots: Slots,
    ) -> Self {
        let mine = || (Arc::clone(&store), owner.clone());
        Self {
            exchange: Exchange::new(&store, &owner),
            permits: Coalescer::new(MOST, 1, mine(), |(store, owner), requests| async move {
                store.acquire(&owner, &requests).await
            }),
            journal: Journal::new(&store, Arc::clone(&plugs.sanitizer)),
            drain: Drain::default(),
            alarm: Arc::default(),
            bell: Arc::default(),
            abort: CancellationToken::new(),
            client: OnceLock::new(),
            running: RunningJobs::default(),
            unknown: UnknownTargets::default(),
            store,
            owner,
            options,
            registry,
            plugs,
            events,
            slots,
        }
    }

    /// Submits and steers jobs, as this node.
    pub(crate) fn client(self: &Arc<Self>) -> Client {
        self.client.get_or_init(|| Client::of_node(self)).clone()
    }

    /// Text of an error as it may be stored, logged and published.
    pub(crate) fn error_record(&self, target: &str, failure: &JobFailure) -> ErrorRecord {
        let class = Sanitized::new(&*self.plugs.sanitizer, &JobFailure::new("", failure.class()));
        ErrorRecord::new(target, class, Sanitized::new(&*self.plugs.sanitizer, failure))
    }

    /// Forgets what was only kept to be quick or polite.
    pub(crate) fn clear_caches(&self) {
        self.unknown.clear();
    }

    /// Publishes an event about a job that this node runs.
    pub(crate) fn publish(&self, claim: &JobClaim, kind: JobEventKind) {
        let header = EventHeader {
            job_id: claim.id,
            business_key: claim.business_key.clone(),
            job_type: claim.job_type,
            priority: claim.priority,
            node: Some(self.owner.clone()),
            at: Timestamp::node_now(),
        };
        self.events.publish(&JobEvent::new(header, kind));
    }

    /// How long an attempt of this job may take.
    pub(crate) fn timeout(&self, job: &Job) -> Option<std::time::Duration> {
        let limit = job.spec.timeout.unwrap_or(self.options.timeout.default_timeout);
        (!limit.is_zero()).then_some(limit)
    }
}

/// Calls the store again after passing trouble, at this pace, until it answers or there is no use in it any more.
pub(crate) async fn insist<T, F: Future<Output = StoreResult<T>>>(
    engine: &Engine,
    what: &'static str,
    mut call: impl FnMut() -> F,
) -> Option<T> {
    loop {
        match call().await {
            Ok(answer) => return Some(answer),
            Err(error) if error.is_transient() && engine.drain.has_lease() => {
                tracing::warn!(%error, what, "the store does not answer; trying again");
                tokio::time::sleep(engine.options.retry.drain_interval).await;
            }
            Err(error) => {
                tracing::error!(%error, what, "given up");
                return None;
            }
        }
    }
}
