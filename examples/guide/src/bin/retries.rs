//! Retries, errors that no retry can fix, and dead letters.

use std::time::Duration;

use ratchet_core::{JobContext, JobError, JobFailure, JobStatus, Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;

#[derive(Debug, thiserror::Error, JobError)]
enum PayError {
    #[error("the bank does not answer")]
    Outage,
    #[error("the card was declined")]
    #[do_not_retry("the issuer said no")]
    Declined,
}

struct Till;

#[jobs(target = "shop.Till")]
impl Till {
    /// Fails twice, then succeeds. The delay doubles with each failure: about 50 ms, then 100 ms.
    #[job(max_retries = 3, backoff = "exponential 50ms")]
    async fn charge(&self, ctx: &JobContext, order: u64) -> Result<String, PayError> {
        match ctx.attempt() {
            1 | 2 => Err(PayError::Outage),
            attempt => Ok(format!("order {order} paid at attempt {attempt}")),
        }
    }

    /// Becomes a dead letter at once, whatever `max_retries` says.
    #[job(max_retries = 3)]
    async fn refund(&self, order: u64) -> Result<(), PayError> {
        let _ = order;
        Err(PayError::Declined)
    }

    /// Returns any error type. Retry advice is found below the context of an `anyhow::Error` too.
    #[job(max_retries = 3, backoff = "fixed 1h")]
    async fn notify(&self, ctx: &JobContext, order: u64) -> anyhow::Result<()> {
        if ctx.attempt() == 1 {
            // The other side said when to come back; this overrides the backoff of one hour.
            let busy = JobFailure::new("TooManyRequests", "429").retry_after(Duration::from_millis(50));
            return Err(anyhow::Error::from(busy.into_error()).context(format!("order {order}")));
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler =
        Ratchet::builder(SqliteStore::open("jobs.db").await?).register(Till).allow(["shop."]).start().await?;

    let charge = scheduler.enqueue(Till::job().charge(1)).submit().await?;
    println!("{}", charge.result().await?);
    for run in scheduler.client().store().executions(charge.id()).await? {
        println!("  {}: {}", run.result, run.error.as_deref().unwrap_or("no error"));
    }

    let notify = scheduler.enqueue(Till::job().notify(1)).submit().await?;
    notify.result().await?;
    println!("notified");

    let refund = scheduler.enqueue(Till::job().refund(1)).submit().await?;
    let ended = refund.ended().await?;
    assert_eq!(ended.status, JobStatus::Failed); // a dead letter
    println!("refund: {} after {} attempt", ended.last_error.unwrap_or_default(), ended.attempts);

    // Once its cause is fixed, a dead letter can run again: here, or by `ratchet jobs retry`.
    println!("retried by hand: {}", scheduler.client().retry(refund.id()).await?);
    println!("refund: {}", refund.ended().await?.status);
    scheduler.stop().await;
    Ok(())
}
