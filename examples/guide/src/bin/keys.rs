//! Submitting the same thing twice.

use std::time::Duration;

use ratchet_core::{Ratchet, SubmitError, jobs};
use ratchet_store_sqlite::SqliteStore;

struct Shop;

#[jobs(target = "shop.Shop")]
impl Shop {
    #[job]
    async fn charge(&self, order: u64) -> Result<String, std::io::Error> {
        Ok(format!("order {order} charged"))
    }

    #[job]
    async fn reindex(&self, product: u64) {
        let _ = product;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler =
        Ratchet::builder(SqliteStore::open("jobs.db").await?).register(Shop).allow(["shop."]).start().await?;

    // Idempotency key: of all submissions with it, ever, the first makes a job. The others get a handle of that job.
    let charge = || scheduler.enqueue(Shop::job().charge(7)).idempotency_key("charge order 7");
    let first = charge().submit().await?;
    println!("{}", first.result().await?);
    let second = charge().submit().await?;
    println!("same job: {}, duplicate: {}", second.id() == first.id(), second.is_duplicate());

    // An idempotency key belongs to one kind of work.
    let other = scheduler.enqueue(Shop::job().reindex(7)).idempotency_key("charge order 7").submit().await;
    println!("for other work: {}", matches!(other, Err(SubmitError::IdempotencyMismatch { .. })));

    // Business key: one live job at a time. It is free again when that job has ended.
    let reindex = || scheduler.enqueue(Shop::job().reindex(3)).business_key("reindex 3");
    let waiting = reindex().delay(Duration::from_secs(3600)).submit().await?;
    match reindex().submit().await {
        Err(SubmitError::KeyTaken { holder, .. }) => println!("held: {}", holder == waiting.id()),
        other => println!("unexpected: {other:?}"),
    }

    // Debounce: the new job takes the place of the one that waits, with its key.
    let newest = scheduler
        .client()
        .replace(waiting.id(), Shop::job().reindex(3))
        .business_key("reindex 3")
        .submit()
        .await?;
    newest.result().await?;
    println!("replaced: {}", waiting.ended().await?.status);
    reindex().submit().await?.result().await?;
    println!("the key is free again");

    scheduler.stop().await;
    Ok(())
}
