//! The kit, used as in the tests of an application.

use std::sync::Mutex;
use std::time::Duration;

use ratchet_core::spi::CircuitState;
use ratchet_core::{Call, JobContext, JobFailure, JobStatus, jobs};
use ratchet_testing::TestKit;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Default)]
struct Shop {
    sent: Mutex<Vec<u64>>,
}

#[jobs(target = "shop.Shop")]
impl Shop {
    #[job(max_retries = 2, backoff = "exponential 1h")]
    async fn charge(&self, ctx: &JobContext, order: u64) -> Result<(), JobFailure> {
        if order == 13 {
            return Err(JobFailure::new("Declined", "no money"));
        }
        ctx.enqueue(Shop::job().send(order)).delay(DAY).submit().await?;
        Ok(())
    }

    #[job]
    async fn send(&self, order: u64) {
        self.sent.lock().expect("nobody panics").push(order);
    }

    #[job(queue = "reports")]
    async fn report(&self) -> Result<u32, JobFailure> {
        Ok(1)
    }
}

struct Bank;

#[jobs(target = "shop.Bank", breaker = "bank", breaker_profile = "fast")]
impl Bank {
    #[job]
    async fn pay(&self, works: bool) -> Result<(), JobFailure> {
        match works {
            true => Ok(()),
            false => Err(JobFailure::new("Outage", "the bank does not answer")),
        }
    }
}

async fn shop() -> TestKit {
    TestKit::start(|node| node.register(Shop::default())).await.expect("the kit starts")
}

#[tokio::test]
async fn what_a_job_enqueues_is_seen_and_waits_for_its_time() {
    let kit = shop().await;
    kit.enqueue(Shop::job().charge(7)).submit().await.expect("stored");
    kit.assert_not_enqueued(&Shop::job().send(7)).await;
    assert_eq!(kit.run_due().await.expect("it runs"), 1);
    let send = kit.assert_enqueued(&Shop::job().send(7)).await;
    assert_eq!(send.status, JobStatus::Pending);
    assert_eq!(send.scheduled_time.since(kit.now()), DAY);
    kit.advance(DAY - Duration::from_millis(1));
    assert_eq!(kit.run_due().await.expect("it runs"), 0);
    kit.advance(Duration::from_millis(1));
    assert_eq!(kit.run_due().await.expect("it runs"), 1);
}

#[tokio::test]
async fn retries_take_hours_and_no_time() {
    let kit = shop().await;
    let begun = kit.now();
    let job = kit.enqueue(Shop::job().charge(13)).submit().await.expect("stored");
    assert_eq!(kit.run_all().await.expect("it runs"), 3);
    assert_eq!(job.job().await.expect("read").expect("there").status, JobStatus::Failed);
    assert!(kit.now().since(begun) >= Duration::from_secs(2 * 3_600));
}

#[tokio::test]
async fn queues_that_no_option_names_are_served() {
    let kit = shop().await;
    let by_method = kit.enqueue(Shop::job().report()).submit().await.expect("stored");
    for order in 0..60 {
        let queue = if order < 55 { "more than there are slots" } else { "another" };
        kit.enqueue(Shop::job().send(order)).queue(queue).submit().await.expect("stored");
    }
    assert_eq!(kit.run_due().await.expect("it runs"), 61);
    by_method.result().await.expect("it ran");
}

#[tokio::test]
async fn a_job_that_does_not_run_does_not_count() {
    let kit = shop().await;
    let parked = kit.enqueue(Call::<()>::new("shop.Unknown", "run")).submit().await.expect("stored");
    kit.enqueue(Shop::job().send(1)).resource("nobody set its limit").submit().await.expect("stored");
    assert_eq!(kit.run_all().await.expect("they are parked"), 0);
    assert!(parked.job().await.expect("read").expect("there").parked_on.is_some());
}

#[tokio::test]
async fn every_queue_is_served_and_a_rate_limit_goes_by_the_clock_of_the_kit() {
    let kit = TestKit::start(|node| {
        node.register(Shop::default()).configure(|options| {
            options.execution.queue("mail").rate_limit_per_minute = Some(1);
        })
    });
    let kit = kit.await.expect("the kit starts");
    for order in 0..3 {
        kit.enqueue(Shop::job().send(order)).queue("mail").submit().await.expect("stored");
    }
    kit.enqueue(Shop::job().send(9)).submit().await.expect("stored");
    assert_eq!(kit.run_due().await.expect("it runs"), 2, "one of each queue");
    kit.advance(Duration::from_secs(59));
    assert_eq!(kit.run_due().await.expect("it runs"), 0, "one a minute");
    kit.advance(Duration::from_secs(1));
    assert_eq!(kit.run_due().await.expect("it runs"), 1);
    let begun = kit.now();
    assert_eq!(kit.run_all().await.expect("it runs"), 1);
    assert_eq!(kit.now().since(begun), Duration::from_secs(60));
    assert_eq!(kit.run_all().await.expect("it runs"), 0);
}

#[tokio::test]
async fn time_goes_by_for_a_breaker_as_well() {
    let kit = TestKit::start(|node| node.register(Bank)).await.expect("the kit starts");
    let job = |works| kit.enqueue(Bank::job().pay(works)).max_retries(0);
    for _ in 0..3 {
        job(false).submit().await.expect("stored");
        assert_eq!(kit.run_due().await.expect("it runs"), 1);
    }
    assert_eq!(kit.node().breakers()[0].state, CircuitState::Open);
    let late = job(true).submit().await.expect("stored");
    assert_eq!(kit.run_due().await.expect("it goes back"), 0);
    assert_eq!(late.job().await.expect("read").expect("there").status, JobStatus::Pending);
    assert_eq!(kit.node().breakers()[0].retry_in, Some(Duration::from_secs(10)));
    kit.advance(Duration::from_secs(10));
    assert_eq!(kit.node().breakers()[0].state, CircuitState::HalfOpen);
    kit.run_due().await.expect("it runs");
    late.result().await.expect("the bank is back");
}

#[tokio::test]
#[should_panic(expected = "no job makes the call")]
async fn a_call_that_was_not_enqueued_fails_the_test_with_a_list() {
    let kit = shop().await;
    kit.enqueue(Shop::job().charge(1)).submit().await.expect("stored");
    kit.assert_enqueued(&Shop::job().charge(2)).await;
}
