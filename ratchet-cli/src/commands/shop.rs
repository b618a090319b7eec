//! The services of the shop. Their bodies only sleep.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ratchet_core::{JobContext, JobError, jobs};
use tokio::time::sleep;

/// The service that takes payments.
#[derive(Default)]
pub(crate) struct Till {
    /// Customers whose first payment failed; their bank needs a second attempt.
    tried: Mutex<HashSet<String>>,
}

/// The errors of a payment.
#[derive(Debug, thiserror::Error, JobError)]
pub(crate) enum PayError {
    #[error("the card is reported as stolen")]
    #[do_not_retry("the card will not get better")]
    Stolen,
    #[error("the bank at postgres://till:s3cret@bank.example/payments does not answer")]
    Slow,
}

#[jobs(target = "shop.Till")]
impl Till {
    #[job(max_retries = 3, backoff = "exponential 200ms", timeout = "10s")]
    async fn charge(&self, ctx: &JobContext, customer: String, sum: u32) -> Result<u32, PayError> {
        sleep(Duration::from_millis(150)).await;
        if sum > 500 {
            return Err(PayError::Stolen);
        }
        let first = self.tried.lock().unwrap_or_else(PoisonError::into_inner).insert(customer.clone());
        if first && customer.len() > 4 {
            return Err(PayError::Slow);
        }
        ctx.info(format!("{customer} paid {sum}"));
        Ok(sum)
    }
}

/// The service that bakes cakes.
pub(crate) struct Kitchen;

#[jobs(target = "shop.Kitchen")]
impl Kitchen {
    #[job]
    async fn bake(&self, ctx: &JobContext, cake: String) {
        for minute in 1..=10 {
            tokio::select! {
                () = sleep(Duration::from_millis(120)) => {}
                () = ctx.canceled() => return,
            }
            ctx.progress(minute, 10, format!("{cake} rises")).await;
        }
    }
}

/// The service that sends letters.
pub(crate) struct Mail;

#[jobs(target = "shop.Mail")]
impl Mail {
    #[job(resource = "smtp")]
    async fn letter(&self, number: u32) {
        let _ = number;
        sleep(Duration::from_millis(300)).await;
    }

    /// Sends the receipt of a payment.
    #[job]
    async fn receipt(&self, ctx: &JobContext) {
        if let Some(cause) = ctx.cause() {
            ctx.info(format!("a receipt for job {}", cause.job_id));
        }
    }
}
