//! A store that refuses outcomes: because of its own state, or because of their content.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::options::RatchetOptions;
use ratchet_api::store::{CancelVerdict, ClaimRequest, JobClaimStore, JobStore, JobTerminalStore, Target};
use ratchet_api::{
    Effect, End, Job, JobClaim, JobEventKind, JobStatus, Outcome, Owner, Sanitized, StoreError,
    StoreErrorKind, StoreResult, Verdict,
};
use ratchet_core::{JobContext, JobFailure, Readiness, jobs};

use crate::{Fixture, Node};

crate::cases! {
    while_the_store_takes_no_outcome_none_is_given_up_and_no_body_runs_twice;
    a_result_that_cannot_be_stored_costs_neither_its_job_nor_its_neighbours;
    a_result_that_somebody_waits_for_and_that_cannot_be_stored_is_a_failure;
    an_error_that_cannot_be_stored_is_told_in_plain_words;
    a_callback_that_cannot_be_stored_does_not_keep_a_job_from_ending;
    content_is_not_blamed_while_the_store_takes_nothing_at_all;
}

const SLOTS: usize = 2;
const LEASE: Duration = Duration::from_secs(2);

/// The error kind for this outcome, or `None` if the store takes it.
type Rule = fn(&Outcome) -> Option<StoreErrorKind>;

/// A store that, while it is on, refuses calls with an outcome to which the rule applies, and counts the refusals.
struct Refusing {
    inner: Arc<dyn JobStore>,
    rule: Rule,
    on: AtomicBool,
    refused: AtomicUsize,
    reconciled: AtomicUsize,
}

impl Refusing {
    async fn new(fx: &Fixture, rule: Rule) -> Arc<Self> {
        let (inner, on) = (fx.store().await, AtomicBool::new(true));
        Arc::new(Self { inner, rule, on, refused: AtomicUsize::new(0), reconciled: AtomicUsize::new(0) })
    }

    fn check(&self, outcomes: &[Outcome]) -> StoreResult<()> {
        match outcomes.iter().find_map(self.rule).filter(|_| self.on.load(Ordering::SeqCst)) {
            None => Ok(()),
            Some(kind) => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                Err(StoreError::new(kind, "commit", "refused, as told").with_code("12345"))
            }
        }
    }

    async fn until(count: &AtomicUsize, at_least: usize) {
        while count.load(Ordering::SeqCst) < at_least {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[async_trait]
impl JobTerminalStore for Refusing {
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        self.check(outcomes)?;
        self.inner.commit(owner, outcomes).await
    }
    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        self.inner.cancel(jobs, reason).await
    }
}

#[async_trait]
impl JobClaimStore for Refusing {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        self.inner.claim(request).await
    }
    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        self.reconciled.fetch_add(1, Ordering::SeqCst);
        self.inner.owned(owner).await
    }
    async fn commit_and_claim(
        &self,
        owner: &Owner,
        outcomes: &[Outcome],
        request: &ClaimRequest,
    ) -> StoreResult<(Vec<Verdict>, Vec<JobClaim>)> {
        self.check(outcomes)?;
        self.inner.commit_and_claim(owner, outcomes, request).await
    }
}

ratchet_api::delegate_store!(Refusing => inner:
    StoreInfo, JobCrudStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore, BatchStore, LockStore,
    NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore, BatchMetricsStore,
    DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

#[derive(Clone, Default)]
struct Worker {
    runs: Arc<AtomicUsize>,
    followed: Arc<AtomicUsize>,
}

#[jobs(target = "test.Refused")]
impl Worker {
    #[job]
    async fn say(&self, word: String) -> Result<String, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(word)
    }

    /// Submits another job, and returns its word.
    #[job(max_retries = 1)]
    async fn say_and_submit(&self, ctx: &JobContext, word: String) -> Result<String, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        ctx.enqueue(Self::job().followed()).submit().await?;
        Ok(word)
    }

    #[job]
    async fn fail(&self, word: String) -> Result<(), JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Err(JobFailure::new("Told", word))
    }

    #[job]
    async fn followed(&self) -> Result<(), JobFailure> {
        self.followed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

async fn node(fx: &Fixture, store: &Arc<Refusing>, worker: &Worker) -> Node {
    let bean = worker.clone();
    let set_up = |options: &mut RatchetOptions| {
        options.execution.queue("default").slots = u32::try_from(SLOTS).expect("few");
        options.polling.claim_headroom_factor = 0.0;
        options.node.lease = LEASE;
        options.node.beat = LEASE / 10;
        options.node.recovery_interval = LEASE / 10;
        options.retry.drain_interval = Duration::from_millis(40);
        options.polling.error_delay = Duration::from_millis(50);
    };
    let store: Arc<dyn JobStore> = Arc::clone(store) as _;
    fx.node_on(store, |builder| builder.register(bean).configure(set_up)).await
}

fn result_of(outcome: &Outcome) -> &str {
    match &outcome.end {
        End::Succeeded { result: Some(result) } => result.as_str(),
        _ => "",
    }
}

fn error_of(outcome: &Outcome) -> &str {
    match &outcome.end {
        End::Retry { error, .. } | End::DeadLetter { error, .. } => error.message.as_str(),
        _ => "",
    }
}

fn error(job: &Job) -> String {
    job.last_error.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Refuses results that contain the word, as a database does that cannot hold it.
fn no_poison(outcome: &Outcome) -> Option<StoreErrorKind> {
    result_of(outcome).contains("poison").then_some(StoreErrorKind::RefusedContent)
}

async fn ended(node: &Node, id: ratchet_api::JobId) -> Job {
    node.until(id, |job| job.status.is_terminal()).await
}

async fn while_the_store_takes_no_outcome_none_is_given_up_and_no_body_runs_twice(fx: Fixture) {
    let store = Refusing::new(&fx, |_| Some(StoreErrorKind::Other)).await;
    let worker = Worker::default();
    let node = node(&fx, &store, &worker).await;
    let calls = (0..10).map(|number| Worker::job().say(format!("word {number}")));
    let jobs: Vec<_> =
        node.client().enqueue_many(calls).await.expect("stored").into_iter().map(Result::unwrap).collect();
    Refusing::until(&worker.runs, SLOTS).await;
    let reconciled = store.reconciled.load(Ordering::SeqCst);
    Refusing::until(&store.reconciled, reconciled + 2).await;
    // As many outcomes wait outside the slots as there are slots; jobs that had been claimed by then wait inside them.
    assert!(worker.runs.load(Ordering::SeqCst) <= 2 * SLOTS, "nothing more is claimed");
    assert_eq!(node.readiness(), Readiness::Degraded);
    assert!(node.readiness().takes_work(), "a probe passes");
    store.on.store(false, Ordering::SeqCst);
    for (number, job) in jobs.iter().enumerate() {
        assert_eq!(job.result().await.expect("it succeeds"), format!("word {number}"));
    }
    assert_eq!(worker.runs.load(Ordering::SeqCst), jobs.len(), "nothing ran twice");
    while node.readiness() != Readiness::Ready {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let lines: Vec<_> = jobs.iter().flat_map(|job| node.lines(job.id())).collect();
    let said: Vec<_> = lines.iter().filter(|line| line.message().starts_with("outcomes wait")).collect();
    assert_eq!(said.len(), 1, "it is said once");
    assert_eq!(said[0].field("code"), "12345");
    assert!(said[0].field("reason").contains("refused, as told"), "{said:?}");
    node.stop().await;
}

async fn a_result_that_cannot_be_stored_costs_neither_its_job_nor_its_neighbours(fx: Fixture) {
    let store = Refusing::new(&fx, no_poison).await;
    let worker = Worker::default();
    let node = node(&fx, &store, &worker).await;
    let words = ["one", "two", "poison", "four", "five", "six"];
    let calls = words.map(|word| Worker::job().say(word.to_owned()));
    let jobs: Vec<_> =
        node.client().enqueue_many(calls).await.expect("stored").into_iter().map(Result::unwrap).collect();
    for (word, job) in words.into_iter().zip(&jobs) {
        let job = ended(&node, job.id()).await;
        let result = job.ending.as_ref().and_then(|ending| ending.result.as_ref());
        assert_eq!((job.status, job.attempts), (JobStatus::Succeeded, 0), "{word}");
        let kept = Some(format!("{word:?}")).filter(|_| word != "poison");
        assert_eq!(result.map(|result| result.as_str().to_owned()), kept);
    }
    assert_eq!(worker.runs.load(Ordering::SeqCst), words.len());
    node.stop().await;
}

async fn a_result_that_somebody_waits_for_and_that_cannot_be_stored_is_a_failure(fx: Fixture) {
    let store = Refusing::new(&fx, no_poison).await;
    let worker = Worker::default();
    let node = node(&fx, &store, &worker).await;
    let call = Worker::job().say_and_submit("poison".to_owned());
    let job = node.enqueue(call).on_success(&Worker::job().followed()).submit().await.expect("stored");
    let job = ended(&node, job.id()).await;
    assert_eq!((job.status, job.attempts), (JobStatus::Failed, 2), "it is tried again like any failure");
    assert!(error(&job).starts_with("OutcomeRefused: the store refused the outcome"), "{}", error(&job));
    assert_eq!(worker.runs.load(Ordering::SeqCst), 2);
    let good = node.enqueue(Worker::job().say_and_submit("fine".to_owned())).submit().await.expect("stored");
    ended(&node, good.id()).await;
    Refusing::until(&worker.followed, 1).await;
    node.told_times(2, |kind| matches!(kind, JobEventKind::Completed { .. })).await;
    assert_eq!(worker.followed.load(Ordering::SeqCst), 1, "what a refused attempt submitted is not stored");
    node.stop().await;
}

async fn an_error_that_cannot_be_stored_is_told_in_plain_words(fx: Fixture) {
    let store = Refusing::new(&fx, |outcome| {
        (!error_of(outcome).is_ascii()).then_some(StoreErrorKind::RefusedContent)
    });
    let (store, worker) = (store.await, Worker::default());
    let node = node(&fx, &store, &worker).await;
    let job =
        node.enqueue(Worker::job().fail("no caf\u{e9} \u{2026}".to_owned())).submit().await.expect("stored");
    let job = ended(&node, job.id()).await;
    assert_eq!((job.status, job.attempts), (JobStatus::Failed, 1));
    let error = error(&job);
    assert!(
        error.is_ascii() && error.starts_with("OutcomeRefused: ") && error.contains("Told: no caf? ?"),
        "{error}"
    );
    assert_eq!(worker.runs.load(Ordering::SeqCst), 1);
    node.stop().await;
}

async fn a_callback_that_cannot_be_stored_does_not_keep_a_job_from_ending(fx: Fixture) {
    let store = Refusing::new(&fx, |outcome| {
        let submits = outcome.effects.iter().any(|effect| matches!(effect, Effect::Submit(_)));
        submits.then_some(StoreErrorKind::RefusedContent)
    });
    let (store, worker) = (store.await, Worker::default());
    let node = node(&fx, &store, &worker).await;
    let call = Worker::job().fail("for a reason".to_owned());
    let job = node.enqueue(call).on_failure(&Worker::job().followed()).submit().await.expect("stored");
    let job = ended(&node, job.id()).await;
    assert_eq!(job.status, JobStatus::Failed);
    assert!(error(&job).contains("Told: for a reason"), "{}", error(&job));
    assert_eq!(worker.runs.load(Ordering::SeqCst), 1);
    node.stop().await;
}

async fn content_is_not_blamed_while_the_store_takes_nothing_at_all(fx: Fixture) {
    // The server blames the content, and yet refuses everything, the heartbeat included.
    let store = Refusing::new(&fx, |_| Some(StoreErrorKind::RefusedContent)).await;
    let worker = Worker::default();
    let bean = worker.clone();
    let inner: Arc<dyn JobStore> = Arc::clone(&store) as _;
    // Only the first beat comes before the case is over.
    let node = fx.node_on(inner, |builder| {
        builder.register(bean).configure(|options| {
            options.node.lease = Duration::from_secs(3_600);
            options.node.beat = Duration::from_secs(60);
            options.node.recovery_interval = Duration::from_secs(60);
            options.node.dynamic_beat = false;
            options.retry.drain_interval = Duration::from_millis(10);
        })
    });
    let node = node.await;
    // The first beat reports the number of slots.
    while node.client().store().nodes().await.expect("read").iter().all(|row| row.slots == 0) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let job = node.enqueue(Worker::job().say("precious".to_owned())).submit().await.expect("stored");
    Refusing::until(&store.refused, 20).await;
    store.on.store(false, Ordering::SeqCst);
    assert_eq!(job.result().await.expect("it succeeds"), "precious", "the result is kept");
    assert_eq!(worker.runs.load(Ordering::SeqCst), 1);
    node.stop().await;
}
