//! Jobs with dependents end like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ratchet_api::spi::RetryPolicy;
use ratchet_api::store::{ClaimRequest, JobClaimStore, JobCrudStore, JobStore, Loaded, RetryVerdict};
use ratchet_api::{
    BusinessKey, Condition, Edge, IdempotencyKey, Inserted, Job, JobClaim, JobEventKind, JobId, JobPayload,
    JobPriority, JobStatus, JsonText, NewJob, Owner, StoreResult, Submission,
};
use ratchet_core::{JobContext, JobFailure, jobs};
use tokio::sync::Notify;

use crate::{Fixture, Node};

crate::cases! {
    a_job_ends_after_its_dependent_is_gone;
    a_job_that_cannot_be_read_ends_with_all_that_follows;
    a_job_whose_attempt_panics_ends_with_all_that_follows;
    a_result_that_a_dependent_waits_for_is_kept_or_fails_the_job;
    a_result_that_is_too_large_fails_the_job_for_a_dependent_that_comes_late;
}

const KIB: usize = 1024;

#[derive(Clone, Default)]
struct Work {
    broken: Arc<AtomicBool>,
    entered: Arc<Notify>,
    released: Arc<Notify>,
}

#[jobs(target = "test.Work")]
impl Work {
    #[job]
    async fn work(&self) -> Result<(), JobFailure> {
        match self.broken.load(Ordering::SeqCst) {
            true => Err(JobFailure::new("Broken", "still")),
            false => Ok(()),
        }
    }

    #[job]
    async fn fail(&self) -> Result<(), JobFailure> {
        Err(JobFailure::new("Told", "to fail"))
    }

    /// Returns a result of `bytes` bytes.
    #[job]
    async fn result(&self, bytes: usize) -> Result<String, JobFailure> {
        Ok("x".repeat(bytes - 2))
    }

    #[job]
    async fn late_result(&self, bytes: usize) -> Result<String, JobFailure> {
        self.entered.notify_one();
        self.released.notified().await;
        Ok("x".repeat(bytes - 2))
    }

    #[job]
    async fn after(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        Ok(ctx.cause().and_then(|cause| cause.error.clone()).unwrap_or_default())
    }
}

fn call(method: &str) -> JobPayload {
    call_with(method, "[]")
}

fn call_with(method: &str, args: &str) -> JobPayload {
    JobPayload::new("test.Work", method, &JsonText::from_stored(args)).expect("the names are good")
}

/// Stores a job, a dependent on its success and a dependent on its failure.
async fn family(store: &dyn JobStore, first: NewJob) -> [JobId; 3] {
    let [then, otherwise] = [(); 2].map(|()| NewJob::new(call("work")));
    let ids = [first.spec.id, then.spec.id, otherwise.spec.id];
    let mut submission = Submission::single(first);
    submission.jobs.extend([then, otherwise]);
    submission.edges =
        vec![Edge::new(ids[0], ids[1], Condition::Success), Edge::new(ids[0], ids[2], Condition::Failure)];
    assert_eq!(store.insert(&[submission]).await.expect("stored"), [Inserted::New]);
    ids
}

async fn ended(node: &Node, id: JobId) -> Job {
    node.client().wake_up(JobPriority::Normal);
    node.until(id, |job| job.ending.is_some()).await
}

async fn ended_as_failed(node: &Node, [first, then, otherwise]: [JobId; 3]) -> Job {
    let job = ended(node, first).await;
    assert_eq!(job.status, JobStatus::Failed);
    assert_eq!(ended(node, then).await.status, JobStatus::Canceled);
    assert_eq!(ended(node, otherwise).await.status, JobStatus::Succeeded);
    job
}

async fn a_job_ends_after_its_dependent_is_gone(fx: Fixture) {
    let work = Work::default();
    work.broken.store(true, Ordering::SeqCst);
    let node = fx.node(|builder| builder.register(work.clone())).await;
    let family = family(node.client().store(), NewJob::new(call("work"))).await;
    ended(&node, family[0]).await;
    ended(&node, family[1]).await;
    assert_eq!(node.client().store().delete(&[family[1]]).await.expect("an answer"), 1);

    work.broken.store(false, Ordering::SeqCst);
    let verdicts = node.client().store().retry(&[family[0].into()]).await.expect("an answer");
    assert_eq!(verdicts, [RetryVerdict::Retried { revived: vec![] }]);
    assert_eq!(ended(&node, family[0]).await.status, JobStatus::Succeeded);
    node.stop().await;
}

/// A store that cannot read one job.
struct Blind {
    inner: Arc<dyn JobStore>,
    job: JobId,
    /// Whether claims report the damage already.
    at_claim: bool,
}

#[async_trait]
impl JobClaimStore for Blind {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        let mut claims = self.inner.claim(request).await?;
        for claim in claims.iter_mut().filter(|claim| self.at_claim && claim.id == self.job) {
            claim.corrupt = Some("backoff_policy: NONSENSE".to_owned());
        }
        Ok(claims)
    }
    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        self.inner.owned(owner).await
    }
}

#[async_trait]
impl JobCrudStore for Blind {
    async fn load(&self, owner: &Owner, claims: &[JobClaim]) -> StoreResult<Vec<Loaded>> {
        let loaded = self.inner.load(owner, claims).await?.into_iter().zip(claims);
        let spoiled = |(loaded, claim): (Loaded, &JobClaim)| match loaded {
            Loaded::Job(job, _) if claim.id == self.job => Loaded::Corrupt {
                problem: "backoff_policy: NONSENSE".to_owned(),
                on_failure: job.spec.on_failure,
            },
            other => other,
        };
        Ok(loaded.map(spoiled).collect())
    }
    async fn find(&self, jobs: &[JobId]) -> StoreResult<Vec<Option<Job>>> {
        self.inner.find(jobs).await
    }
    async fn find_by_idempotency_key(&self, key: &IdempotencyKey) -> StoreResult<Option<JobId>> {
        self.inner.find_by_idempotency_key(key).await
    }
    async fn find_active_by_business_key(&self, key: &BusinessKey) -> StoreResult<Option<JobId>> {
        self.inner.find_active_by_business_key(key).await
    }
}

ratchet_api::delegate_store!(Blind => inner:
    StoreInfo, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore,
    BatchStore, LockStore, NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore,
    BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

async fn a_job_that_cannot_be_read_ends_with_all_that_follows(fx: Fixture) {
    for at_claim in [false, true] {
        let store = fx.store().await;
        let mut first = NewJob::new(call("work"));
        first.spec.on_failure = Some(call("after"));
        let family = family(&*store, first).await;
        let blind = Arc::new(Blind { inner: store, job: family[0], at_claim });
        let node = fx.node_on(blind, |builder| builder.register(Work::default())).await;
        let job = ended_as_failed(&node, family).await;
        let error = "CorruptRow: backoff_policy: NONSENSE";
        assert_eq!(job.last_error.as_deref(), Some(error), "{at_claim}");
        node.told(|kind| matches!(kind, JobEventKind::DeadLettered { .. })).await;
        assert_eq!(node.client().store().alerts(family[0]).await.expect("read").len(), 1);
        assert_eq!(node.callback_result().await, format!("{error:?}"), "{at_claim}");
        node.stop().await;
    }
}

/// A retry policy that panics when it is asked.
struct Moody;

impl RetryPolicy for Moody {
    fn should_retry(&self, _: u32, _: &JobFailure) -> bool {
        panic!("do not ask me");
    }
}

// shows: S84
async fn a_job_whose_attempt_panics_ends_with_all_that_follows(fx: Fixture) {
    let store = fx.store().await;
    let mut first = NewJob::new(call("fail"));
    first.spec.on_failure = Some(call("after"));
    let family = family(&*store, first).await;
    let node = fx.node(|builder| builder.register(Work::default()).retry_policy(Moody)).await;
    let job = ended_as_failed(&node, family).await;
    assert_eq!(job.last_error.as_deref(), Some("Panic: do not ask me"));
    assert_eq!(node.callback_result().await, "\"Panic: do not ask me\"");
    node.stop().await;
}

// shows: S86
async fn a_result_that_a_dependent_waits_for_is_kept_or_fails_the_job(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Work::default())).await;
    for (kib, kept) in [(1, true), (20, true), (63, true), (65, false), (200, false)] {
        let mut first = NewJob::new(call_with("result", &format!("[{}]", kib * KIB)));
        first.spec.max_retries = 3;
        let family = family(node.client().store(), first).await;
        if kept {
            let job = ended(&node, family[0]).await;
            let result = job.ending.and_then(|ending| ending.result).expect("it is kept");
            assert_eq!((job.status, result.as_str().len()), (JobStatus::Succeeded, kib * KIB));
            assert_eq!(ended(&node, family[1]).await.status, JobStatus::Succeeded, "{kib} KiB");
            continue;
        }
        let job = ended_as_failed(&node, family).await;
        let error = job.last_error.expect("it has one");
        assert!(error.starts_with("ResultTooLarge: ") && error.contains(" bytes, the limit is "), "{error}");
        assert_eq!(job.attempts, 1, "its work is not done again");
    }
    node.stop().await;
}

async fn a_result_that_is_too_large_fails_the_job_for_a_dependent_that_comes_late(fx: Fixture) {
    let work = Work::default();
    let node = fx.node(|builder| builder.register(work.clone())).await;
    let first = NewJob::new(call_with("late_result", &format!("[{}]", 65 * KIB)));
    let parent = first.spec.id;
    node.client().store().insert(&[Submission::single(first)]).await.expect("stored");
    node.client().wake_up(JobPriority::Normal);
    work.entered.notified().await;
    let then = NewJob::new(call("work"));
    let child = then.spec.id;
    let mut late = Submission::single(then);
    late.edges = vec![Edge::new(parent, child, Condition::Success)];
    assert_eq!(node.client().store().insert(&[late]).await.expect("stored"), [Inserted::New]);
    work.released.notify_one();
    let job = ended(&node, parent).await;
    assert_eq!(job.status, JobStatus::Failed);
    assert!(job.last_error.expect("it has one").starts_with("ResultTooLarge: "));
    assert_eq!(ended(&node, child).await.status, JobStatus::Canceled);
    node.stop().await;
}
