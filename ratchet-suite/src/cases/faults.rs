//! A store that does its work and does not always reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{CancelVerdict, ClaimRequest, JobClaimStore, JobStore, JobTerminalStore, Target};
use ratchet_api::{
    JobClaim, JobEventKind, JobStatus, Outcome, Owner, Sanitized, StoreError, StoreErrorKind, StoreResult,
    Verdict,
};
use ratchet_core::{JobContext, JobFailure, Readiness, jobs};

use super::cluster::until_readiness;
use crate::Fixture;

crate::cases! {
    lost_replies_lose_no_job_and_repeat_none;
    a_node_whose_claims_fail_is_degraded;
}

/// A store that loses every third reply to claims and commits, and refuses claims while it is told to.
struct Forgetful {
    inner: Arc<dyn JobStore>,
    calls: AtomicU32,
    refuses: Arc<AtomicBool>,
}

impl Forgetful {
    fn check(&self) -> StoreResult<()> {
        match self.refuses.load(Ordering::SeqCst) {
            true => Err(StoreError::new(StoreErrorKind::Other, "claim", "it is refused")),
            false => Ok(()),
        }
    }

    fn reply<T>(&self, done: StoreResult<T>) -> StoreResult<T> {
        match self.calls.fetch_add(1, Ordering::SeqCst) % 3 {
            2 => Err(StoreError::new(StoreErrorKind::Transient, "reply", "it was lost")),
            _ => done,
        }
    }
}

#[async_trait]
impl JobTerminalStore for Forgetful {
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        self.reply(self.inner.commit(owner, outcomes).await)
    }
    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        self.inner.cancel(jobs, reason).await
    }
}

#[async_trait]
impl JobClaimStore for Forgetful {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        self.check()?;
        self.reply(self.inner.claim(request).await)
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
        self.check()?;
        self.reply(self.inner.commit_and_claim(owner, outcomes, request).await)
    }
}

ratchet_api::delegate_store!(Forgetful => inner:
    StoreInfo, JobCrudStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore, BatchStore, LockStore,
    NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore, BatchMetricsStore,
    DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

#[derive(Clone, Default)]
struct Counter(Arc<AtomicU32>);

#[jobs(target = "test.Counted")]
impl Counter {
    /// Fails its first attempt, and is retried at once.
    #[job(max_retries = 1)]
    async fn count(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        self.0.fetch_add(1, Ordering::SeqCst);
        match ctx.attempt() {
            1 => Err(JobFailure::new("Told", "to fail").retry_after(Duration::ZERO)),
            _ => Ok(()),
        }
    }
}

async fn lost_replies_lose_no_job_and_repeat_none(fx: Fixture) {
    let store = Forgetful { inner: fx.store().await, calls: AtomicU32::new(0), refuses: Arc::default() };
    let counter = Counter::default();
    let bean = counter.clone();
    let node = fx.node_on(Arc::new(store), |builder| {
        builder.register(bean).configure(|options| {
            options.execution.queue("default").slots = 10;
            options.polling.error_delay = Duration::from_millis(50);
            options.retry.drain_interval = Duration::from_millis(50);
        })
    });
    let node = node.await;
    let jobs = node.client().enqueue_many((0..100).map(|_| Counter::job().count())).await.expect("stored");
    node.told_times(100, |kind| matches!(kind, JobEventKind::Completed { .. })).await;
    for job in jobs {
        let id = job.expect("stored").id();
        let job = node.until(id, |_| true).await;
        assert_eq!((job.status, job.attempts, job.crash_count), (JobStatus::Succeeded, 1, 0));
        let told = node.kinds_of(id);
        let ends: Vec<_> = told.iter().filter(|kind| !kind.starts_with("Retrying")).collect();
        let order = ["Started", "Failed", "Started", "Completed"];
        assert!(
            ends.len() == 4 && ends.iter().zip(order).all(|(kind, name)| kind.starts_with(name)),
            "{told:?}"
        );
    }
    assert_eq!(counter.0.load(Ordering::SeqCst), 200, "each ran twice");
    node.stop().await;
}

async fn a_node_whose_claims_fail_is_degraded(fx: Fixture) {
    let refuses = Arc::new(AtomicBool::new(true));
    let store =
        Forgetful { inner: fx.store().await, calls: AtomicU32::new(0), refuses: Arc::clone(&refuses) };
    let node = fx.node_on(Arc::new(store), |builder| {
        builder.register(Counter::default()).configure(|options| {
            options.polling.error_delay = Duration::from_millis(50);
        })
    });
    let node = node.await;
    until_readiness(&node, Readiness::Degraded).await;
    refuses.store(false, Ordering::SeqCst);
    until_readiness(&node, Readiness::Ready).await;
    node.stop().await;
}
