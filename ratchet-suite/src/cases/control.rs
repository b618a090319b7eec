//! Steering: cancel, pause, resume, retry, permits, breakers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{CircuitState, Gate as Verdict, ResilienceStrategy};
use ratchet_api::store::JobFilter;
use ratchet_api::{
    JobEventKind, JobId, JobPriority, JobStatus, ParkedOn, QueueName, ResourceLimit, ResourceName,
};
use ratchet_core::{JobContext, JobFailure, JobHandle, Ratchet, StartError, jobs};

use crate::lines::{self, Line};
use crate::{Fixture, Node};

crate::cases! {
    a_paused_job_does_not_run_until_it_is_resumed;
    a_failed_job_that_is_retried_starts_afresh;
    a_canceled_job_never_runs;
    dead_letters_that_failed_alike_are_retried_together;
    a_dead_letter_without_its_key_is_named_and_the_others_are_retried;
    all_that_a_filter_finds_is_canceled_and_the_rest_runs;
    a_running_body_is_told_to_stop_when_its_queue_is_canceled;
    a_bulk_call_stops_at_its_limit_and_goes_on_when_it_is_made_again;
    a_node_starts_with_limits_and_the_last_start_wins;
    no_more_run_at_once_than_a_resource_allows;
    of_jobs_claimed_together_each_gets_the_answer_to_its_own_request;
    a_resource_that_nobody_configured_keeps_its_jobs_waiting;
    a_resource_with_a_backlog_is_used_all_the_time;
    an_open_breaker_sends_jobs_back_and_consumes_nothing;
    breakers_are_seen_and_reset_and_a_declined_job_counts_against_none;
}

const LATER: Duration = Duration::from_secs(3_600);

/// A service that counts its running bodies.
#[derive(Clone, Default)]
struct Gate {
    now: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
    calls: Arc<AtomicU32>,
}

#[jobs(target = "test.Gate")]
impl Gate {
    #[job]
    async fn pass(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    #[job]
    async fn refuse(&self, why: String) -> Result<(), JobFailure> {
        Err(JobFailure::new("Refused", why))
    }

    #[job]
    async fn wait(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ctx.canceled().await;
        Ok(())
    }

    #[job(breaker = "bank")]
    async fn fail_at_first(&self) -> Result<u32, JobFailure> {
        match self.calls.fetch_add(1, Ordering::SeqCst) {
            0 => Err(JobFailure::new("Down", "the bank is closed")),
            calls => Ok(calls),
        }
    }
}

// shows: S31 S32
async fn a_paused_job_does_not_run_until_it_is_resumed(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Gate::default())).await;
    let job = node.enqueue(Gate::job().pass()).delay(LATER).submit().await.expect("stored");
    assert!(node.client().pause(job.id()).await.expect("answered"));
    assert!(node.client().pause(job.id()).await.expect("answered"), "twice is no error");
    assert_eq!(job.job().await.expect("read").expect("there").status, JobStatus::Paused);
    assert!(node.client().resume(job.id()).await.expect("answered"));
    assert!(!node.client().resume(job.id()).await.expect("answered"), "it is not paused");
    assert_eq!(job.job().await.expect("read").expect("there").status, JobStatus::Pending);
    node.stop().await;
}

// shows: S37
async fn a_failed_job_that_is_retried_starts_afresh(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Gate::default())).await;
    let job = node.enqueue(Gate::job().fail_at_first()).submit().await.expect("stored");
    job.result().await.expect_err("it fails");
    assert!(node.client().retry(job.id()).await.expect("answered"));
    let ended = node.until(job.id(), |job| job.status == JobStatus::Succeeded).await;
    assert_eq!((ended.attempts, ended.last_error), (0, None));
    assert!(!node.client().retry(job.id()).await.expect("answered"), "it has not failed");
    node.stop().await;
}

// shows: S35
async fn a_canceled_job_never_runs(fx: Fixture) {
    let gate = Gate::default();
    let calls = Arc::clone(&gate.calls);
    let node = fx.node(|builder| builder.register(gate)).await;
    let job = node.enqueue(Gate::job().pass()).delay(LATER).submit().await.expect("stored");
    assert!(node.client().cancel(job.id(), "not needed").await.expect("answered"));
    assert!(!node.client().cancel(job.id(), "again").await.expect("answered"));
    let other = node.enqueue(Gate::job().pass()).submit().await.expect("stored");
    other.result().await.expect("it succeeds");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    node.stop().await;
}

fn filter(change: impl FnOnce(&mut JobFilter)) -> JobFilter {
    let mut filter = JobFilter::default();
    change(&mut filter);
    filter
}

/// Submits `count` jobs that fail with this message, and waits until they are dead letters.
async fn failed(node: &Node, why: &str, count: usize) -> Vec<JobHandle<()>> {
    let calls = (0..count).map(|number| Gate::job().refuse(format!("{why} {number}")));
    let jobs = node.client().enqueue_many(calls).await.expect("stored");
    let jobs: Vec<_> = jobs.into_iter().map(|job| job.expect("stored")).collect();
    for job in &jobs {
        assert_eq!(job.ended().await.expect("read").status, JobStatus::Failed);
    }
    jobs
}

async fn fences(jobs: &[JobHandle<()>]) -> Vec<i64> {
    let mut fences = Vec::new();
    for job in jobs {
        fences.push(job.job().await.expect("read").expect("there").fence.version());
    }
    fences
}

// shows: S37
async fn dead_letters_that_failed_alike_are_retried_together(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Gate::default())).await;
    let (late, closed) = (failed(&node, "late by", 7).await, failed(&node, "closed at", 2).await);
    let groups = node.client().store().dead_letters(10).await.expect("read");
    let alike = filter(|it| it.fingerprint = Some(groups[0].fingerprint.clone()));
    let mut told = Vec::new();
    let retried = node
        .client()
        .retry_all(alike)
        .on_progress(|so_far| told.push(so_far.done))
        .run()
        .await
        .expect("done");
    assert_eq!((retried.done, retried.changed, retried.found()), (7, 0, 7));
    assert_eq!(told, [7]);
    for job in &late {
        node.until(job.id(), |job| job.status == JobStatus::Failed && job.fence.version() == 6).await;
    }
    assert_eq!(fences(&closed).await, [3, 3], "nobody touched the others");
    let none = node
        .client()
        .retry_all(filter(|it| it.statuses = vec![JobStatus::Pending]))
        .run()
        .await
        .expect("done");
    assert_eq!(none.found(), 0, "only what has failed can be retried");
    node.stop().await;
}

async fn a_dead_letter_without_its_key_is_named_and_the_others_are_retried(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Gate::default())).await;
    let call = || Gate::job().refuse("no".to_owned());
    let loser = node.enqueue(call()).business_key("order").submit().await.expect("stored");
    loser.result().await.expect_err("it fails");
    let holder = node.enqueue(call()).business_key("order").delay(LATER).submit().await.expect("stored");
    let other = node.enqueue(call()).submit().await.expect("stored");
    other.result().await.expect_err("it fails");

    let retried = node.client().retry_all(JobFilter::default()).run().await.expect("done");
    assert_eq!((retried.done, retried.changed, retried.found()), (1, 0, 2));
    let taken: Vec<_> = retried.key_taken.iter().map(|taken| (taken.job, taken.holder)).collect();
    assert_eq!(taken, [(loser.id(), holder.id())]);
    node.stop().await;
}

// shows: S35 S36
async fn all_that_a_filter_finds_is_canceled_and_the_rest_runs(fx: Fixture) {
    let gate = Gate::default();
    let calls = Arc::clone(&gate.calls);
    let node = fx.node(|builder| builder.register(gate)).await;
    let many = (0..1_200).map(|number| {
        let queue = if number % 2 == 0 { "mail" } else { "post" };
        node.enqueue(Gate::job().pass()).queue(queue).delay(LATER)
    });
    let jobs = node.client().enqueue_many(many).await.expect("stored");
    let jobs: Vec<_> = jobs.into_iter().map(|job| job.expect("stored")).collect();
    node.client().pause(jobs[0].id()).await.expect("answered");

    let mail = filter(|it| it.queue = Some(QueueName::new("mail").expect("a name")));
    let mut told = Vec::new();
    let bulk =
        node.client().cancel_all(mail.clone(), "no mail today").on_progress(|so_far| told.push(so_far.done));
    let canceled = bulk.run().await.expect("done");
    assert_eq!((canceled.done, canceled.told_to_stop, canceled.found()), (600, 0, 600));
    assert_eq!(told, [500, 600], "bounded transactions");
    for job in jobs.iter().step_by(2) {
        let ended = job.job().await.expect("read").expect("there");
        assert_eq!(
            (ended.status, ended.cancel_reason.as_deref()),
            (JobStatus::Canceled, Some("no mail today"))
        );
    }
    node.told_times(600, |kind| matches!(kind, JobEventKind::Canceled { .. })).await;
    let again = node.client().cancel_all(mail, "again").run().await.expect("done");
    assert_eq!(again.found(), 0, "what has ended is not met");

    let rest = node.client().cancel_all(JobFilter::default(), "closing").run().await.expect("done");
    assert_eq!(rest.done, 600);
    let other = node.enqueue(Gate::job().pass()).submit().await.expect("stored");
    other.result().await.expect("it succeeds");
    assert_eq!(calls.load(Ordering::SeqCst), 1, "only what was submitted later ran");
    node.stop().await;
}

// shows: S35
async fn a_running_body_is_told_to_stop_when_its_queue_is_canceled(fx: Fixture) {
    let gate = Gate::default();
    let calls = Arc::clone(&gate.calls);
    let node = fx.node(|builder| builder.register(gate)).await;
    let job = node.enqueue(Gate::job().wait()).submit().await.expect("stored");
    node.until(job.id(), |_| calls.load(Ordering::SeqCst) == 1).await;
    let canceled = node.client().cancel_all(JobFilter::default(), "enough").run().await.expect("done");
    assert_eq!((canceled.done, canceled.told_to_stop), (1, 1));
    let ended = job.ended().await.expect("the body hears it");
    assert_eq!(ended.status, JobStatus::Canceled);
    node.stop().await;
}

async fn a_bulk_call_stops_at_its_limit_and_goes_on_when_it_is_made_again(fx: Fixture) {
    let client = fx.client().await;
    let jobs = client.enqueue_many((0..10).map(|_| Gate::job().pass())).await.expect("stored");
    let oldest = jobs[0].as_ref().expect("stored");
    for (limit, done) in [(0, 0), (4, 4), (4, 4), (4, 2), (4, 0)] {
        assert_eq!(
            oldest.job().await.expect("read").expect("there").status == JobStatus::Canceled,
            done == 0 && limit > 0
        );
        let bulk = client.cancel_all(JobFilter::default(), "in parts").limit(limit);
        assert_eq!(bulk.run().await.expect("done").done, done);
    }
}

// shows: S120
async fn a_node_starts_with_limits_and_the_last_start_wins(fx: Fixture) {
    let limit =
        async |node: &Node| node.client().store().resources().await.expect("a list")[0].limit.max_concurrent;
    let first = fx.node(|builder| builder.register(Gate::default()).resource("door", 2)).await;
    assert_eq!(limit(&first).await, 2);
    let label = format!("other-{}", JobId::generate());
    let named = |options: &mut RatchetOptions| options.node.label = Some(label.clone());
    let second =
        fx.node(|builder| builder.register(Gate::default()).resource("door", 3).configure(named)).await;
    assert_eq!(limit(&first).await, 3, "for all nodes");
    let said = lines::about(&label);
    let told = |line: &Line| line.field("resource") == "door" && line.field("before") == "2";
    assert!(said.iter().any(told), "{said:?}");
    let job = second.enqueue(Gate::job().pass()).resource("door").submit().await.expect("stored");
    job.result().await.expect("it runs");
    first.stop().await;
    second.stop().await;
    let wrong = Ratchet::builder_shared(fx.store().await).register(Gate::default()).allow(["test."]);
    let error = wrong.resource("", 1).start().await.expect_err("not a name");
    assert!(matches!(error, StartError::Name(_)), "{error}");
}

// shows: S76 S120
async fn no_more_run_at_once_than_a_resource_allows(fx: Fixture) {
    let gate = Gate::default();
    let most = Arc::clone(&gate.most);
    let node = fx.node(|builder| builder.register(gate)).await;
    let mut limit = ResourceLimit::new(ResourceName::new("door").expect("a name"), 2);
    limit.retry_delay = Duration::from_millis(5);
    node.client().store().configure_resource(&limit).await.expect("stored");
    let mut jobs = Vec::new();
    for _ in 0..10 {
        jobs.push(node.enqueue(Gate::job().pass()).resource("door").submit().await.expect("stored"));
    }
    for job in &jobs {
        job.result().await.expect("each gets its turn");
        assert_eq!(job.job().await.expect("read").expect("there").attempts, 0, "waiting is no failure");
    }
    assert!(most.load(Ordering::SeqCst) <= 2, "at most two at once");
    node.stop().await;
}

// shows: S76
async fn of_jobs_claimed_together_each_gets_the_answer_to_its_own_request(fx: Fixture) {
    let client = fx.client().await;
    let job = || client.enqueue(Gate::job().pass());
    let jobs = [job(), job().resource("shut"), job().resource("open")];
    let jobs: Vec<_> = client.enqueue_many(jobs).await.expect("stored").into_iter().flatten().collect();
    let gate = Gate::default();
    let calls = Arc::clone(&gate.calls);
    let node = fx.node(|builder| builder.register(gate).resource("shut", 0).resource("open", 9)).await;
    let shut = ParkedOn::Resource(ResourceName::new("shut").expect("a name"));
    node.until(jobs[1].id(), |job| job.parked_on.as_ref() == Some(&shut)).await;
    jobs[0].result().await.expect("it runs");
    jobs[2].result().await.expect("it runs");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    node.stop().await;
}

async fn a_resource_that_nobody_configured_keeps_its_jobs_waiting(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Gate::default())).await;
    let job = node.enqueue(Gate::job().pass()).resource("nobody's").submit().await.expect("stored");
    let parked = node.until(job.id(), |job| job.parked_on.is_some()).await;
    let resource = ResourceName::new("nobody's").expect("a name");
    assert_eq!(parked.parked_on, Some(ParkedOn::Resource(resource.clone())));
    assert_eq!((parked.status, parked.attempts), (JobStatus::Pending, 0));
    node.client().store().configure_resource(&ResourceLimit::new(resource, 1)).await.expect("configured");
    node.client().wake_up(JobPriority::Normal);
    job.result().await.expect("it runs");
    node.stop().await;
}

/// More jobs than permits, on two nodes: each end lets the next job begin, although the resource's delay is an hour.
async fn a_resource_with_a_backlog_is_used_all_the_time(fx: Fixture) {
    let gate = Gate::default();
    let first = fx.node(|builder| builder.register(gate.clone())).await;
    let second = fx.node(|builder| builder.register(gate.clone())).await;
    let mut limit = ResourceLimit::new(ResourceName::new("printer").expect("a name"), 2);
    limit.retry_delay = LATER;
    first.client().store().configure_resource(&limit).await.expect("configured");
    let mut jobs = Vec::new();
    for _ in 0..40 {
        jobs.push(first.enqueue(Gate::job().pass()).resource("printer").submit().await.expect("stored"));
    }
    for job in jobs {
        job.result().await.expect("it runs");
    }
    assert_eq!(gate.calls.load(Ordering::SeqCst), 40);
    assert!(gate.most.load(Ordering::SeqCst) <= 2);
    first.stop().await;
    second.stop().await;
}

/// A resilience strategy that rejects its first call.
#[derive(Default)]
struct ClosedOnce(AtomicU32);

impl ResilienceStrategy for ClosedOnce {
    fn enter(&self, service: &str) -> Verdict {
        assert_eq!(service, "bank");
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Verdict::Reject { retry_in: Duration::from_millis(20) },
            _ => Verdict::Admit,
        }
    }
    fn report(&self, _: &str, _: Option<&JobFailure>) {}
    fn abandon(&self, _: &str) {}
}

// shows: S75 S118
async fn an_open_breaker_sends_jobs_back_and_consumes_nothing(fx: Fixture) {
    let gate = Gate::default();
    gate.calls.store(1, Ordering::SeqCst);
    let node = fx.node(|builder| builder.register(gate).resilience(ClosedOnce::default())).await;
    let job = node.enqueue(Gate::job().fail_at_first()).submit().await.expect("stored");
    let ended = job.ended().await.expect("it ends");
    assert_eq!((ended.status, ended.attempts), (JobStatus::Succeeded, 0));
    assert_eq!(ended.fence.version(), 5, "claimed, handed back, claimed, ended");
    node.stop().await;
}

/// Calls a bank.
struct Teller;

#[jobs(target = "test.Teller", breaker = "bank", breaker_profile = "fast")]
impl Teller {
    #[job(max_retries = 0)]
    async fn pay(&self, declined: bool) -> Result<(), JobFailure> {
        let failure = JobFailure::new("Refused", "no answer");
        Err(if declined { failure.do_not_retry("the issuer says no") } else { failure })
    }
}

// shows: S118
async fn breakers_are_seen_and_reset_and_a_declined_job_counts_against_none(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Teller)).await;
    let pay = async |declined| {
        let job = node.enqueue(Teller::job().pay(declined)).submit().await.expect("stored");
        job.ended().await.expect("it ends");
    };
    let bank = || node.breakers().into_iter().find(|breaker| breaker.service == "bank").expect("it is there");
    for _ in 0..5 {
        pay(true).await;
    }
    assert_eq!((bank().state, bank().calls), (CircuitState::Closed, 0), "a refusal is an answer");
    for _ in 0..3 {
        pay(false).await;
    }
    assert_eq!((bank().state, bank().failures), (CircuitState::Open, 3));
    assert!(node.reset_breaker("bank") && !node.reset_breaker("nobody"));
    assert_eq!((bank().state, bank().calls), (CircuitState::Closed, 0));
    pay(false).await;
    assert_eq!(bank().failures, 1, "calls are let through again");
    node.stop().await;
}
