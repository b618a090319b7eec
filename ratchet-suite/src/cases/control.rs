//! Steering: cancel, pause, resume, retry, permits, breakers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_api::spi::{Gate as Verdict, ResilienceStrategy};
use ratchet_api::store::JobFilter;
use ratchet_api::{JobEventKind, JobStatus, QueueName, ResourceLimit, ResourceName};
use ratchet_core::{JobContext, JobFailure, JobHandle, jobs};

use crate::{Fixture, Node};

crate::cases! {
    a_paused_job_does_not_run_until_it_is_resumed;
    a_failed_job_that_is_retried_starts_afresh;
    a_cancelled_job_never_runs;
    dead_letters_that_failed_alike_are_retried_together;
    a_dead_letter_without_its_key_is_named_and_the_others_are_retried;
    all_that_a_filter_finds_is_cancelled_and_the_rest_runs;
    a_running_body_is_told_to_stop_when_its_queue_is_cancelled;
    a_bulk_call_stops_at_its_limit_and_goes_on_when_it_is_made_again;
    no_more_run_at_once_than_a_resource_allows;
    a_resource_that_nobody_configured_fails_the_job_with_advice;
    an_open_breaker_sends_jobs_back_and_consumes_nothing;
}

const LATER: Duration = Duration::from_secs(3_600);

/// Knows how many of it run.
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
        ctx.cancelled().await;
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
    let node = fx.node(|builder| builder.bean(Gate::default())).await;
    let job = node.enqueue(Gate::job().pass()).delay(LATER).submit().await.expect("stored");
    assert!(node.pause(job.id()).await.expect("answered"));
    assert!(node.pause(job.id()).await.expect("answered"), "twice is no error");
    assert_eq!(job.job().await.expect("read").expect("there").status, JobStatus::Paused);
    assert!(node.resume(job.id()).await.expect("answered"));
    assert!(!node.resume(job.id()).await.expect("answered"), "it is not paused");
    assert_eq!(job.job().await.expect("read").expect("there").status, JobStatus::Pending);
    node.stop().await;
}

// shows: S37
async fn a_failed_job_that_is_retried_starts_afresh(fx: Fixture) {
    let node = fx.node(|builder| builder.bean(Gate::default())).await;
    let job = node.enqueue(Gate::job().fail_at_first()).submit().await.expect("stored");
    job.result().await.expect_err("it fails");
    assert!(node.retry(job.id()).await.expect("answered"));
    let ended = node.until(job.id(), |job| job.status == JobStatus::Succeeded).await;
    assert_eq!((ended.attempts, ended.last_error), (0, None));
    assert!(!node.retry(job.id()).await.expect("answered"), "it has not failed");
    node.stop().await;
}

// shows: S35
async fn a_cancelled_job_never_runs(fx: Fixture) {
    let gate = Gate::default();
    let calls = Arc::clone(&gate.calls);
    let node = fx.node(|builder| builder.bean(gate)).await;
    let job = node.enqueue(Gate::job().pass()).delay(LATER).submit().await.expect("stored");
    assert!(node.cancel(job.id(), "not needed").await.expect("answered"));
    assert!(!node.cancel(job.id(), "again").await.expect("answered"));
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

/// Submits jobs that fail for this reason, and waits until they have.
async fn failed(node: &Node, why: &str, count: usize) -> Vec<JobHandle<()>> {
    let calls = (0..count).map(|number| Gate::job().refuse(format!("{why} {number}")));
    let jobs = node.enqueue_many(calls).await.expect("stored");
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
    let node = fx.node(|builder| builder.bean(Gate::default())).await;
    let (late, closed) = (failed(&node, "late by", 7).await, failed(&node, "closed at", 2).await);
    let groups = node.store().dead_letters(10).await.expect("read");
    let alike = filter(|it| it.fingerprint = Some(groups[0].fingerprint.clone()));
    let mut told = Vec::new();
    let retried =
        node.retry_all(alike).on_progress(|so_far| told.push(so_far.done)).run().await.expect("done");
    assert_eq!((retried.done, retried.changed, retried.found()), (7, 0, 7));
    assert_eq!(told, [7]);
    for job in &late {
        node.until(job.id(), |job| job.status == JobStatus::Failed && job.fence.version() == 6).await;
    }
    assert_eq!(fences(&closed).await, [3, 3], "nobody touched the others");
    let none = node.retry_all(filter(|it| it.statuses = vec![JobStatus::Pending])).run().await.expect("done");
    assert_eq!(none.found(), 0, "only what has failed can be retried");
    node.stop().await;
}

async fn a_dead_letter_without_its_key_is_named_and_the_others_are_retried(fx: Fixture) {
    let node = fx.node(|builder| builder.bean(Gate::default())).await;
    let call = || Gate::job().refuse("no".to_owned());
    let loser = node.enqueue(call()).business_key("order").submit().await.expect("stored");
    loser.result().await.expect_err("it fails");
    let holder = node.enqueue(call()).business_key("order").delay(LATER).submit().await.expect("stored");
    let other = node.enqueue(call()).submit().await.expect("stored");
    other.result().await.expect_err("it fails");

    let retried = node.retry_all(JobFilter::default()).run().await.expect("done");
    assert_eq!((retried.done, retried.changed, retried.found()), (1, 0, 2));
    let taken: Vec<_> = retried.key_taken.iter().map(|taken| (taken.job, taken.holder)).collect();
    assert_eq!(taken, [(loser.id(), holder.id())]);
    node.stop().await;
}

// shows: S35 S36
async fn all_that_a_filter_finds_is_cancelled_and_the_rest_runs(fx: Fixture) {
    let gate = Gate::default();
    let calls = Arc::clone(&gate.calls);
    let node = fx.node(|builder| builder.bean(gate)).await;
    let many = (0..1_200).map(|number| {
        let queue = if number % 2 == 0 { "mail" } else { "post" };
        node.enqueue(Gate::job().pass()).queue(queue).delay(LATER)
    });
    let jobs = node.enqueue_many(many).await.expect("stored");
    let jobs: Vec<_> = jobs.into_iter().map(|job| job.expect("stored")).collect();
    node.pause(jobs[0].id()).await.expect("answered");

    let mail = filter(|it| it.queue = Some(QueueName::new("mail").expect("a name")));
    let mut told = Vec::new();
    let bulk = node.cancel_all(mail.clone(), "no mail today").on_progress(|so_far| told.push(so_far.done));
    let cancelled = bulk.run().await.expect("done");
    assert_eq!((cancelled.done, cancelled.told_to_stop, cancelled.found()), (600, 0, 600));
    assert_eq!(told, [500, 600], "bounded transactions");
    for job in jobs.iter().step_by(2) {
        let ended = job.job().await.expect("read").expect("there");
        assert_eq!(
            (ended.status, ended.cancel_reason.as_deref()),
            (JobStatus::Canceled, Some("no mail today"))
        );
    }
    node.told_times(600, |kind| matches!(kind, JobEventKind::Cancelled { .. })).await;
    let again = node.cancel_all(mail, "again").run().await.expect("done");
    assert_eq!(again.found(), 0, "what has ended is not met");

    let rest = node.cancel_all(JobFilter::default(), "closing").run().await.expect("done");
    assert_eq!(rest.done, 600);
    let other = node.enqueue(Gate::job().pass()).submit().await.expect("stored");
    other.result().await.expect("it succeeds");
    assert_eq!(calls.load(Ordering::SeqCst), 1, "only what was submitted later ran");
    node.stop().await;
}

// shows: S35
async fn a_running_body_is_told_to_stop_when_its_queue_is_cancelled(fx: Fixture) {
    let gate = Gate::default();
    let calls = Arc::clone(&gate.calls);
    let node = fx.node(|builder| builder.bean(gate)).await;
    let job = node.enqueue(Gate::job().wait()).submit().await.expect("stored");
    node.until(job.id(), |_| calls.load(Ordering::SeqCst) == 1).await;
    let cancelled = node.cancel_all(JobFilter::default(), "enough").run().await.expect("done");
    assert_eq!((cancelled.done, cancelled.told_to_stop), (1, 1));
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

// shows: S76 S120
async fn no_more_run_at_once_than_a_resource_allows(fx: Fixture) {
    let gate = Gate::default();
    let most = Arc::clone(&gate.most);
    let node = fx.node(|builder| builder.bean(gate)).await;
    let mut limit = ResourceLimit::new(ResourceName::new("door").expect("a name"), 2);
    limit.retry_delay = Duration::from_millis(5);
    node.store().configure_resource(&limit).await.expect("stored");
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

async fn a_resource_that_nobody_configured_fails_the_job_with_advice(fx: Fixture) {
    let node = fx.node(|builder| builder.bean(Gate::default())).await;
    let job =
        node.enqueue(Gate::job().pass()).resource("nobody's").max_retries(5).submit().await.expect("stored");
    let error = job.result().await.expect_err("it fails");
    assert!(error.to_string().contains("has no limit; configure it"), "{error}");
    node.stop().await;
}

/// Lets nobody in at first.
#[derive(Default)]
struct ClosedOnce(AtomicU32);

impl ResilienceStrategy for ClosedOnce {
    fn enter(&self, service: &str) -> Verdict {
        assert_eq!(service, "bank");
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Verdict::Closed { retry_in: Duration::from_millis(20) },
            _ => Verdict::Open,
        }
    }
    fn report(&self, _: &str, _: Option<&JobFailure>) {}
    fn abandon(&self, _: &str) {}
}

// shows: S75 S118
async fn an_open_breaker_sends_jobs_back_and_consumes_nothing(fx: Fixture) {
    let gate = Gate::default();
    gate.calls.store(1, Ordering::SeqCst);
    let node = fx.node(|builder| builder.bean(gate).resilience(ClosedOnce::default())).await;
    let job = node.enqueue(Gate::job().fail_at_first()).submit().await.expect("stored");
    let ended = job.ended().await.expect("it ends");
    assert_eq!((ended.status, ended.attempts), (JobStatus::Succeeded, 0));
    assert_eq!(ended.fence.version(), 5, "claimed, handed back, claimed, ended");
    node.stop().await;
}
