//! The code that the macros write, run by a scheduler.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use ratchet_core::{Backoff, JobContext, JobError, JobFailure, JobPriority, Ratchet, ResultError, job, jobs};
use ratchet_store_memory::MemoryStore;
use serde::{Deserialize, Serialize};

#[derive(Default)]
struct Shop {
    sold: Mutex<HashMap<String, u32>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    item: String,
    total: u32,
}

#[derive(Debug, thiserror::Error, JobError)]
enum ShopError {
    #[error("sold out")]
    #[do_not_retry("nothing is left")]
    SoldOut,
    #[error("the till is stuck")]
    Till,
    #[error(transparent)]
    Bank(#[from] BankError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

#[derive(Debug, thiserror::Error, JobError)]
#[error("declined")]
#[do_not_retry("the bank says no")]
struct BankError;

#[jobs(target = "shop.Shop")]
impl Shop {
    /// Sells some of an item.
    #[job(max_retries = 2, backoff = "fixed 1ms", timeout = "5m", priority = "high", tags = ["money"])]
    async fn sell(&self, ctx: &JobContext, item: String, count: u32) -> Result<Receipt, ShopError> {
        if item == "till" && ctx.attempt() == 1 {
            return Err(ShopError::Till);
        }
        if count > 100 {
            return Err(ShopError::SoldOut);
        }
        let mut sold = self.sold.lock().expect("nobody panics");
        let total = sold.entry(item.clone()).or_default();
        *total += count;
        Ok(Receipt { item, total: *total })
    }

    #[job]
    async fn clean(&self) {}

    #[job(blocking)]
    fn count(&self, ctx: &JobContext, from: u32) -> Result<u32, JobFailure> {
        assert_eq!(JobContext::current().job_id(), ctx.job_id());
        Ok(from + 1)
    }

    #[job(name = "pay", aliases = ["charge", "old.Till.take"])]
    async fn pay(&self, sum: u32) -> Result<u32, ShopError> {
        if sum > 10 {
            return Err(BankError.into());
        }
        Ok(sum)
    }

    /// Not a job.
    fn sold(&self, item: &str) -> u32 {
        self.sold.lock().expect("nobody panics").get(item).copied().unwrap_or_default()
    }
}

#[job(target = "shop.reports", max_retries = 1)]
async fn report(ctx: &JobContext, year: u16) -> Result<String, JobFailure> {
    let number: u32 = "17".parse()?;
    Ok(format!("{year}:{number}:{}", ctx.attempt()))
}

async fn scheduler() -> ratchet_core::Scheduler {
    let builder = Ratchet::builder(MemoryStore::new()).register(Shop::default()).function::<report>();
    builder.allow(["shop.", "old."]).start().await.expect("it starts")
}

#[tokio::test]
async fn methods_and_functions_run_and_give_typed_results() {
    let scheduler = scheduler().await;
    let sold = scheduler.enqueue(Shop::job().sell("tea".into(), 3)).submit().await.expect("stored");
    assert_eq!(sold.result().await.expect("sold"), Receipt { item: "tea".into(), total: 3 });
    let cleaned = scheduler.enqueue(Shop::job().clean()).submit().await.expect("stored");
    cleaned.result().await.expect("clean");
    let counted = scheduler.enqueue(Shop::job().count(41)).submit().await.expect("stored");
    assert_eq!(counted.result().await.expect("counted"), 42);
    let reported = scheduler.enqueue(report::job(2026)).submit().await.expect("stored");
    assert_eq!(reported.result().await.expect("reported"), "2026:17:1");
    scheduler.stop().await;
}

#[tokio::test]
async fn options_of_the_attribute_are_defaults_that_a_submission_can_change() {
    let client = Ratchet::client(MemoryStore::new());
    let job = client.enqueue(Shop::job().sell("tea".into(), 1)).submit().await.expect("stored");
    let spec = job.job().await.expect("read").expect("there").spec;
    assert_eq!(spec.max_retries, 2);
    assert_eq!(spec.backoff, Backoff::Fixed(Duration::from_millis(1)));
    assert_eq!(spec.timeout, Some(Duration::from_secs(300)));
    assert_eq!(spec.priority, JobPriority::High);
    assert_eq!(spec.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), ["money"]);

    let call = Shop::job().sell("tea".into(), 1);
    let job = client.enqueue(call).max_retries(7).priority(JobPriority::Low).submit().await.expect("stored");
    let spec = job.job().await.expect("read").expect("there").spec;
    assert_eq!((spec.max_retries, spec.priority), (7, JobPriority::Low));
}

// shows: S92
#[tokio::test]
async fn an_error_says_whether_it_is_worth_another_try() {
    let scheduler = scheduler().await;
    for (call, attempts) in
        [(Shop::job().sell("tea".into(), 101), 1), (Shop::job().sell("till".into(), 1), 2)]
    {
        let job = scheduler.enqueue(call).submit().await.expect("stored");
        job.ended().await.expect("it ends");
        let executions = scheduler.client().store().executions(job.id()).await.expect("history is kept");
        assert_eq!(executions.len(), attempts);
    }
    let inner = scheduler.enqueue(Shop::job().pay(11)).max_retries(5).submit().await.expect("stored");
    assert!(matches!(inner.result().await, Err(ResultError::Failed { .. })));
    assert_eq!(
        scheduler.client().store().executions(inner.id()).await.expect("kept").len(),
        1,
        "the inner error forbids it"
    );
    scheduler.stop().await;
}

#[test]
fn an_inner_error_that_gives_no_advice_leaves_it_to_the_usual_rules() {
    let error = ShopError::from(std::io::Error::other("disk"));
    assert_eq!(error.retry_advice().never(), None);
    assert_eq!(ShopError::from(BankError).retry_advice().never(), Some("the bank says no"));
}

#[tokio::test]
async fn a_job_that_waits_under_an_old_name_is_found() {
    let scheduler = scheduler().await;
    for (target, method) in [("shop.Shop", "pay"), ("shop.Shop", "charge"), ("old.Till", "take")] {
        let call: ratchet_core::Call<u32> = ratchet_core::Call::new(target, method).arg(&7);
        let job = scheduler.enqueue(call).submit().await.expect("stored");
        assert_eq!(job.result().await.expect("paid"), 7, "{target}.{method}");
    }
    scheduler.stop().await;
}

#[tokio::test]
async fn a_method_stays_an_ordinary_method() {
    let shop = Shop::default();
    assert_eq!(shop.pay(3).await.expect("paid"), 3);
    assert_eq!(shop.sold("tea"), 0);
}
