//! Consequences of an outcome: each is stored whatever its size, or its loss is published.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::options::RatchetOptions;
use ratchet_api::store::{CancelVerdict, JobFilter, JobStore, JobTerminalStore, PageRequest, Target};
use ratchet_api::{
    Backoff, BusinessKey, Effect, InvalidSubmission, Job, JobEventKind, JobPriority, JobStatus, JobType,
    JsonText, Limits, LogLevel, Outcome, Owner, QueueName, ResourceName, Sanitized, StoreResult, SubmitError,
    Tag, Verdict,
};
use ratchet_core::{Call, JobCause, JobContext, JobFailure, JobHandle, jobs};

use crate::{Fixture, Node};

crate::cases! {
    a_callback_has_the_options_of_its_method;
    a_callback_knows_the_whole_result_whatever_its_size;
    a_callback_knows_params_and_error_whatever_their_size;
    a_callback_whose_job_is_gone_knows_what_is_missing;
    a_refused_callback_leaves_the_outcome_and_is_told;
    a_body_hears_of_content_that_is_refused;
    a_taken_key_is_an_answer_that_is_logged;
}

const KIB: usize = 1024;

const MS: Duration = Duration::from_millis(1);

#[derive(Clone)]
struct Calls;

#[jobs(target = "test.Calls")]
impl Calls {
    /// Returns a result of `bytes` bytes.
    #[job]
    async fn result(&self, bytes: usize) -> Result<String, JobFailure> {
        Ok("x".repeat(bytes - 2))
    }

    /// Returns such a result, after which nothing of its queue is started.
    #[job]
    async fn last_result(&self, ctx: &JobContext, bytes: usize) -> Result<String, JobFailure> {
        ctx.client().store().set_queue_paused(&default_queue(), true).await?;
        Ok("x".repeat(bytes - 2))
    }

    #[job]
    async fn fail(&self, bytes: usize) -> Result<(), JobFailure> {
        Err(JobFailure::new("Told", "to fail ".repeat(bytes / 8)))
    }

    /// Enqueues a job with a param of `bytes` bytes.
    #[job]
    async fn enqueue(&self, ctx: &JobContext, bytes: usize) -> Result<(), JobFailure> {
        ctx.enqueue(Self::job().result(2)).param("text", "x".repeat(bytes)).submit().await?;
        Ok(())
    }

    #[job]
    async fn enqueue_key(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        ctx.enqueue(Self::job().result(2)).business_key("taken").submit().await?;
        Ok(())
    }

    /// Reports its cause: the lengths of the result, the params and the error, and which of them were cut.
    #[job]
    async fn after(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        let JobCause { status, result, error, params, cut, .. } = ctx.cause().ok_or_else(no_cause)?;
        let result = result.as_ref().and_then(|result| result.as_str()).map(str::len);
        let params: usize = params.values().filter_map(|value| value.as_str()).map(str::len).sum();
        let error = error.as_ref().map(String::len);
        let asked: Option<String> = ctx.param("text");
        assert_eq!(asked.map_or(0, |text| text.len()), params, "a callback has the params of its job");
        Ok(format!("{status} {result:?} {params} {error:?} {cut:?}"))
    }

    /// Fails its first attempt.
    #[job(
        queue = "later", priority = "low", max_retries = 1, backoff = "exponential 1ms", timeout = "7s",
        resource = "mail", tags = ["told"]
    )]
    async fn tell(&self, ctx: &JobContext) -> Result<u32, JobFailure> {
        match ctx.attempt() {
            1 => Err(JobFailure::new("Told", "to fail")),
            attempt => Ok(attempt),
        }
    }
}

fn no_cause() -> JobFailure {
    JobFailure::new("NoCause", "a callback has a cause")
}

fn default_queue() -> QueueName {
    QueueName::new("default").expect("a name")
}

async fn ended<R>(job: &JobHandle<R>) -> Job {
    job.ended().await.expect("it ends")
}

/// Waits until there are `count` callbacks and all have ended; returns them.
async fn callbacks(node: &Node, count: usize) -> Vec<Job> {
    let mut filter = JobFilter::default();
    filter.types = vec![JobType::Callback];
    loop {
        let jobs =
            node.client().store().query_jobs(&filter, &PageRequest::first(100)).await.expect("read").jobs;
        if jobs.len() == count && jobs.iter().all(|job| job.ending.is_some()) {
            return jobs;
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the report of the newest of `count` callbacks.
async fn known(node: &Node, count: usize) -> String {
    let jobs = callbacks(node, count).await;
    let newest = jobs.iter().max_by_key(|job| job.spec.id).expect("there is one");
    let result = newest.ending.as_ref().and_then(|ending| ending.result.as_ref());
    result.and_then(|result| result.decode().ok()).unwrap_or_else(|| format!("{:?}", newest.last_error))
}

// shows: S90 S104
async fn a_callback_has_the_options_of_its_method(fx: Fixture) {
    let options = |options: &mut RatchetOptions| {
        options.execution.queue("later");
        options.retry.max_retries = 3;
        options.retry.backoff = Backoff::Fixed(MS);
    };
    let node = fx.node(|builder| builder.register(Calls).resource("mail", 1).configure(options)).await;
    let submit = async |call: Call<()>, callback: &Call<u32>| {
        let job = node.enqueue(call).priority(JobPriority::High).max_retries(0).on_failure(callback);
        ended(&job.submit().await.expect("stored")).await;
    };
    submit(Calls::job().fail(8), &Calls::job().tell()).await;
    let told = callbacks(&node, 1).await.remove(0);
    assert_eq!((told.status, told.attempts), (JobStatus::Succeeded, 1), "{:?}", told.last_error);
    let spec = told.spec;
    assert_eq!((spec.queue.as_str(), spec.priority), ("later", JobPriority::Low));
    assert_eq!((spec.max_retries, spec.backoff), (1, Backoff::Exponential(MS)));
    assert_eq!((spec.timeout, spec.resource), (Some(7_000 * MS), ResourceName::new("mail").ok()));
    assert_eq!(spec.tags, [Tag::new("told").expect("a tag")]);

    // The method leaves retries, queue and priority open: retries come from the options, the others from the job.
    submit(Calls::job().fail(8), &Call::new("test.Calls", "after")).await;
    let after = callbacks(&node, 2).await.into_iter().find(|job| job.spec.id != spec.id).expect("there");
    let after = after.spec;
    assert_eq!((after.queue, after.priority), (default_queue(), JobPriority::High));
    assert_eq!((after.max_retries, after.backoff), (3, Backoff::Fixed(MS)));
    assert_eq!((after.timeout, after.resource, after.tags), (None, None, Vec::new()));
    node.stop().await;
}

// shows: S86 S90 S104
async fn a_callback_knows_the_whole_result_whatever_its_size(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Calls)).await;
    let sizes = [(1, true), (20, true), (63, true), (65, false), (200, false)];
    for (count, (kib, kept)) in (1..).zip(sizes) {
        let bytes = kib * KIB;
        let call = node.enqueue(Calls::job().result(bytes));
        let call = call.on_success(&Calls::job().after()).on_failure(&Calls::job().after());
        let job = ended(&call.submit().await.expect("stored")).await;
        if kept {
            assert_eq!(job.status, JobStatus::Succeeded, "{kib} KiB");
            assert_eq!(known(&node, count).await, format!("SUCCEEDED Some({}) 0 None {{}}", bytes - 2));
            continue;
        }
        let error = job.last_error.expect("it has one");
        assert!(error.starts_with("ResultTooLarge: "), "{error}");
        assert_eq!(known(&node, count).await, format!("FAILED None 0 Some({}) {{}}", error.len()));
    }
    node.stop().await;
}

// shows: S104
async fn a_callback_knows_params_and_error_whatever_their_size(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Calls)).await;
    for (count, kib) in (1..).zip([1, 12, 15]) {
        let params = kib * KIB;
        let call = node.enqueue(Calls::job().fail(8 * KIB)).param("text", "x".repeat(params));
        let job = ended(&call.on_failure(&Calls::job().after()).submit().await.expect("stored")).await;
        let error = job.last_error.expect("it has one").len();
        assert!(error > 4_000, "{error}");
        assert_eq!(known(&node, count).await, format!("FAILED None {params} Some({error}) {{}}"));
    }
    node.stop().await;
}

async fn a_callback_whose_job_is_gone_knows_what_is_missing(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Calls)).await;
    let bytes = 20 * KIB;
    let call = node.enqueue(Calls::job().last_result(bytes)).on_success(&Calls::job().after());
    let job = ended(&call.submit().await.expect("stored")).await;
    assert_eq!(node.client().store().delete(&[job.spec.id]).await.expect("an answer"), 1);
    node.client().store().set_queue_paused(&default_queue(), false).await.expect("an answer");
    assert_eq!(known(&node, 1).await, format!("SUCCEEDED None 0 None {{Result: {bytes}}}"));
    node.stop().await;
}

/// A store that adds more params to the submissions of outcomes than a store takes.
struct Stuffing {
    inner: Arc<dyn JobStore>,
}

#[async_trait]
impl JobTerminalStore for Stuffing {
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        let mut outcomes = outcomes.to_vec();
        for effect in outcomes.iter_mut().flat_map(|outcome| &mut outcome.effects) {
            if let Effect::Submit(submission) = effect {
                submission.jobs[0].spec.params =
                    Some(JsonText::of(&"x".repeat(Limits::MAX.params_bytes)).expect("JSON"));
            }
        }
        self.inner.commit(owner, &outcomes).await
    }
    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        self.inner.cancel(jobs, reason).await
    }
}

ratchet_api::delegate_store!(Stuffing => inner:
    StoreInfo, JobCrudStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore, BatchStore, LockStore,
    NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore, BatchMetricsStore,
    DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

/// Outcomes are always committed in a call of their own, apart from claims.
#[async_trait]
impl ratchet_api::store::JobClaimStore for Stuffing {
    async fn claim(
        &self,
        request: &ratchet_api::store::ClaimRequest,
    ) -> StoreResult<Vec<ratchet_api::JobClaim>> {
        self.inner.claim(request).await
    }
    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<ratchet_api::JobClaim>> {
        self.inner.owned(owner).await
    }
}

async fn a_refused_callback_leaves_the_outcome_and_is_told(fx: Fixture) {
    let store = Arc::new(Stuffing { inner: fx.store().await });
    let node = fx.node_on(store, |builder| builder.register(Calls)).await;
    let call = node.enqueue(Calls::job().result(2)).on_success(&Calls::job().after());
    let job = ended(&call.submit().await.expect("stored")).await;
    assert_eq!(job.status, JobStatus::Succeeded);
    node.told(|kind| matches!(kind, JobEventKind::CallbackFailed { .. })).await;
    let line = node.until_logged(job.spec.id, "the callback is not stored: ").await;
    assert_eq!(line.level, LogLevel::Error);
    assert!(line.message.contains("params"), "it says what was wrong: {}", line.message);
    let told = node.kinds_of(job.spec.id);
    assert!(told.last().is_some_and(|kind| kind.starts_with("CallbackFailed") && kind.contains("params")));
    assert!(
        node.lines(job.spec.id)
            .iter()
            .any(|logged| logged.message().starts_with("the callback is not stored"))
    );
    node.stop().await;
}

async fn a_body_hears_of_content_that_is_refused(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Calls)).await;
    let call = node.enqueue(Calls::job().enqueue(20 * KIB)).submit().await.expect("stored");
    let job = ended(&call).await;
    assert_eq!(job.status, JobStatus::Failed);
    let problem = InvalidSubmission::TooLarge { what: "params", len: 20 * KIB + 11, max: 16 * KIB };
    let expected = SubmitError::Invalid(problem).to_string();
    assert!(job.last_error.as_ref().is_some_and(|error| error.contains(&expected)), "{:?}", job.last_error);
    node.stop().await;
}

async fn a_taken_key_is_an_answer_that_is_logged(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Calls)).await;
    let holder = node.enqueue(Calls::job().result(2)).business_key("taken");
    let holder = holder.delay(Duration::from_secs(3600)).submit().await.expect("stored");
    let job = ended(&node.enqueue(Calls::job().enqueue_key()).submit().await.expect("stored")).await;
    assert_eq!(job.status, JobStatus::Succeeded);
    let text =
        format!("a job that the body enqueued is not stored: job {} holds its business key", holder.id());
    assert_eq!(node.until_logged(job.spec.id, &text).await.level, LogLevel::Info);
    let key = BusinessKey::new("taken").expect("a key");
    assert_eq!(
        node.client().store().find_active_by_business_key(&key).await.expect("read"),
        Some(holder.id())
    );
    node.stop().await;
}
