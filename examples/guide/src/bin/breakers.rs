//! A circuit breaker keeps jobs away from a service that is down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet_core::{Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;

#[derive(Default)]
struct Bank {
    up: AtomicBool,
}

#[jobs(target = "shop.Bank", breaker = "bank", breaker_profile = "fast")]
impl Bank {
    #[job(max_retries = 3, backoff = "fixed 100ms")]
    async fn pay(&self, order: u64) -> Result<u64, std::io::Error> {
        match self.up.load(Ordering::SeqCst) {
            true => Ok(order),
            false => Err(std::io::Error::other("the bank does not answer")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bank = Arc::new(Bank::default());
    let scheduler = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Arc::clone(&bank))
        .allow(["shop."])
        .configure(|options| options.breaker.fast.open_for = Duration::from_secs(2)) // 10 s unless set
        .start()
        .await?;

    // The first three calls fail. That is enough for the profile `fast`: the breaker opens.
    for order in 1..=3 {
        scheduler.enqueue(Bank::job().pay(order)).max_retries(0).submit().await?.ended().await?;
    }
    for breaker in scheduler.breakers() {
        let (service, state) = (&breaker.service, breaker.state);
        println!("{service}: {state:?}, {} of {} calls failed", breaker.failures, breaker.calls);
    }

    // This job meets the open breaker. It goes back and loses no attempt.
    let job = scheduler.enqueue(Bank::job().pay(4)).max_retries(0).submit().await?;
    bank.up.store(true, Ordering::SeqCst);
    println!("order {} paid", job.result().await?);
    println!("failed attempts: {}", job.ended().await?.attempts);

    // An operator knows that the service is back, and does not want to wait.
    println!("reset: {}", scheduler.reset_breaker("bank"));
    println!("{:?}", scheduler.breakers()[0].state);
    scheduler.stop().await;
    Ok(())
}
