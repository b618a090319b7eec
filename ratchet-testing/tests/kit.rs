//! The kit, used as an application's tests would.

use std::sync::Mutex;
use std::time::Duration;

use ratchet_core::{JobContext, JobFailure, JobStatus, jobs};
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
}

async fn shop() -> TestKit {
    TestKit::start(|node| node.bean(Shop::default())).await.expect("the kit starts")
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
async fn every_queue_is_served_and_a_rate_limit_makes_no_test_wait() {
    let kit = TestKit::start(|node| {
        node.bean(Shop::default()).configure(|options| {
            options.execution.queue("mail").rate_limit_per_minute = Some(1);
        })
    });
    let kit = kit.await.expect("the kit starts");
    for order in 0..3 {
        kit.enqueue(Shop::job().send(order)).queue("mail").submit().await.expect("stored");
    }
    assert_eq!(kit.run_due().await.expect("it runs"), 3);
}

#[tokio::test]
#[should_panic(expected = "no job makes the call")]
async fn a_call_that_was_not_enqueued_fails_the_test_with_a_list() {
    let kit = shop().await;
    kit.enqueue(Shop::job().charge(1)).submit().await.expect("stored");
    kit.assert_enqueued(&Shop::job().charge(2)).await;
}
