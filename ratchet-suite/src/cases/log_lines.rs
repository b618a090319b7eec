//! Log lines about jobs that fail, are handed back or end as dead letters, and about breakers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ratchet_api::options::{BreakerOptions, BreakerSettings};
use ratchet_core::defaults::CircuitBreakers;
use ratchet_core::{Backoff, DEFERRED_BY_BREAKER, JobContext, JobFailure, JobStatus, jobs};
use tracing::Level;

use crate::Fixture;

crate::cases! {
    a_failed_attempt_that_is_retried_is_a_warning;
    a_breaker_says_when_it_opens_and_closes_and_the_job_that_it_defers_says_so;
    a_job_that_goes_back_is_a_line_the_first_time;
    dead_letters_like_others_are_lines_with_a_count;
    a_job_that_gets_no_slot_before_the_node_stops_says_that_it_was_handed_back;
}

#[derive(Clone, Default)]
struct Clerk {
    is_well: Arc<AtomicBool>,
    entered: Arc<tokio::sync::Notify>,
}

#[jobs(target = "test.Clerk")]
impl Clerk {
    #[job(max_retries = 2)]
    async fn fail_once(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        match ctx.attempt() {
            1 => Err(JobFailure::new("Refused", "token=abcdef123456 was\nrefused")),
            _ => Ok(()),
        }
    }

    #[job(max_retries = 0)]
    async fn fail(&self, order: u32) -> Result<(), JobFailure> {
        Err(JobFailure::new("Refused", format!("order {order} was refused")))
    }

    #[job(max_retries = 0, breaker = "bank")]
    async fn pay(&self) -> Result<(), JobFailure> {
        match self.is_well.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(JobFailure::new("Refused", "the bank is down")),
        }
    }

    #[job]
    async fn wait(&self) -> Result<(), JobFailure> {
        match self.is_well.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(JobFailure::snooze(Duration::from_millis(1))),
        }
    }

    #[job]
    async fn stay(&self, ctx: &JobContext) {
        self.entered.notify_one();
        ctx.canceled().await;
    }
}

async fn a_failed_attempt_that_is_retried_is_a_warning(fx: Fixture) {
    let backoff = Backoff::Fixed(Duration::from_millis(1));
    let node = fx.node(|builder| {
        builder.register(Clerk::default()).configure(|options| options.retry.backoff = backoff)
    });
    let node = node.await;
    let job = node.enqueue(Clerk::job().fail_once()).submit().await.expect("stored");
    job.result().await.expect("it succeeds at last");
    let line = node.until_said(job.id(), "attempt failed; the job is retried").await;
    assert_eq!(line.level, Level::WARN);
    let fields = ["job", "method", "attempt", "max_attempts", "class", "error"].map(|name| line.field(name));
    let id = job.id().to_string();
    let error = r"Refused: token=[REDACTED] was\nrefused";
    assert_eq!(fields, [&id, "test.Clerk.fail_once", "1", "3", "Refused", error]);
    assert!(line.field("next_due").ends_with('Z'), "a time: {line:?}");
    node.stop().await;
    let said = node.lines(job.id()).into_iter().filter(|line| line.level == Level::WARN);
    assert_eq!(said.count(), 1, "one line for one failure");
}

async fn a_breaker_says_when_it_opens_and_closes_and_the_job_that_it_defers_says_so(fx: Fixture) {
    let open_for = Duration::from_millis(5);
    let touchy = BreakerSettings { failure_rate: 1, window: 1, open_for, half_open_calls: 1, min_calls: 1 };
    let options = BreakerOptions { standard: touchy, ..BreakerOptions::default() };
    let (start, passed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let clock = Arc::clone(&passed);
    let clock = move || start + Duration::from_secs(clock.load(Ordering::Relaxed));
    let clerk = Clerk::default();
    let breakers = CircuitBreakers::new(options).with_clock(clock);
    let node = fx.node(|builder| builder.register(clerk.clone()).resilience(breakers)).await;

    let first = node.enqueue(Clerk::job().pay()).submit().await.expect("stored");
    let opened = node.until_said(first.id(), "circuit breaker opened: jobs are deferred").await;
    let fields = ["service", "calls", "failures", "retry_in"].map(|name| opened.field(name));
    assert_eq!((opened.level, fields), (Level::INFO, ["bank", "1", "1", "Some(5ms)"]));

    let second = node.enqueue(Clerk::job().pay()).submit().await.expect("stored");
    let deferred = node.until_said(second.id(), "job handed back").await;
    let fields = ["method", "reason"].map(|name| deferred.field(name));
    assert_eq!((deferred.level, fields), (Level::INFO, ["test.Clerk.pay", "BreakerOpen"]));
    assert_ne!(deferred.field("next_due"), "");
    node.until_logged(second.id(), DEFERRED_BY_BREAKER).await;

    clerk.is_well.store(true, Ordering::Relaxed);
    passed.store(1, Ordering::Relaxed);
    second.result().await.expect("the bank is well again");
    let closed = node.until_said(second.id(), "circuit breaker closed: jobs run again").await;
    assert_eq!((closed.level, closed.field("service")), (Level::INFO, "bank"));
    node.stop().await;
}

async fn a_job_that_goes_back_is_a_line_the_first_time(fx: Fixture) {
    let clerk = Clerk::default();
    let node = fx.node(|builder| builder.register(clerk.clone())).await;
    let job = node.enqueue(Clerk::job().wait()).submit().await.expect("stored");
    let again = node.until_said(job.id(), "job handed back again").await;
    assert_eq!((again.level, again.field("reason")), (Level::DEBUG, "Snoozed"));
    clerk.is_well.store(true, Ordering::Relaxed);
    job.result().await.expect("it succeeds at last");
    node.stop().await;
    let first: Vec<_> =
        node.lines(job.id()).into_iter().filter(|line| line.message() == "job handed back").collect();
    assert_eq!(first.iter().map(|line| line.level).collect::<Vec<_>>(), [Level::INFO]);
    assert_eq!(first[0].field("method"), "test.Clerk.wait");
}

async fn dead_letters_like_others_are_lines_with_a_count(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Clerk::default())).await;
    let mut lines = Vec::new();
    for order in 1..=3 {
        let job = node.enqueue(Clerk::job().fail(order)).submit().await.expect("stored");
        let message = if order == 1 { "dead letter" } else { "dead letter like others of late" };
        lines.push(node.until_said(job.id(), message).await);
    }
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.level, line.field("error").to_owned(), line.field("count").to_owned()))
        .collect();
    let error = |order: u32| format!("Refused: order {order} was refused");
    assert_eq!(
        told,
        [
            (Level::ERROR, error(1), String::new()),
            (Level::WARN, error(2), "2".to_owned()),
            (Level::WARN, error(3), "3".to_owned())
        ]
    );
    assert!(lines.iter().all(|line| line.field("method") == "test.Clerk.fail"), "{lines:#?}");
    node.stop().await;
}

async fn a_job_that_gets_no_slot_before_the_node_stops_says_that_it_was_handed_back(fx: Fixture) {
    let clerk = Clerk::default();
    let node = fx.node(|builder| {
        builder.register(clerk.clone()).configure(|options| {
            options.execution.queues.values_mut().for_each(|queue| queue.slots = 1);
            options.polling.claim_headroom_factor = 1.0;
        })
    });
    let node = node.await;
    let stays = node.enqueue(Clerk::job().stay()).submit().await.expect("stored");
    clerk.entered.notified().await;
    let waits = node.enqueue(Clerk::job().stay()).submit().await.expect("stored");
    node.until(waits.id(), |job| job.status == JobStatus::Running).await;
    node.stop_now().await;
    let line = node.until_said(waits.id(), "job handed back").await;
    assert_eq!((line.level, line.field("reason")), (Level::INFO, "Released"));
    assert_eq!(line.field("node"), node.owner().to_string());
    drop(stays);
}
