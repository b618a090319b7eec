//! Steering: cancel, pause, resume, retry, permits, breakers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_api::spi::{Gate as Verdict, ResilienceStrategy};
use ratchet_api::{JobStatus, ResourceLimit, ResourceName};
use ratchet_core::{JobFailure, jobs};

use crate::Fixture;

crate::cases! {
    a_paused_job_does_not_run_until_it_is_resumed;
    a_failed_job_that_is_retried_starts_afresh;
    a_cancelled_job_never_runs;
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
