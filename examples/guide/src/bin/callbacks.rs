//! Callbacks, and jobs that a body enqueues.

use std::time::Duration;

use ratchet_core::{JobContext, JobFailure, Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;

struct Shop;

#[jobs(target = "shop.Shop")]
impl Shop {
    #[job]
    async fn charge(&self, ctx: &JobContext, order: u64) -> Result<u64, JobFailure> {
        if order == 13 {
            return Err(JobFailure::new("Declined", "no money").do_not_retry("the bank said no"));
        }
        // Stored together with the success of this job: both, or none.
        ctx.enqueue(Shop::job().ship(order)).business_key(format!("ship {order}")).submit().await?;
        Ok(order * 10)
    }

    #[job]
    async fn ship(&self, order: u64) {
        println!("order {order} shipped");
    }

    /// A callback is a job. It has its own arguments; `ctx.cause()` describes the job that ended, and its end.
    #[job]
    async fn receipt(&self, ctx: &JobContext, mail: String) {
        let cause = ctx.cause().expect("it runs as a callback");
        let paid = cause.result.as_ref().and_then(|result| result.as_u64()).unwrap_or_default();
        println!("{mail}: you paid {paid}, voucher {}", ctx.param::<String>("voucher").unwrap_or_default());
    }

    #[job]
    async fn apology(&self, ctx: &JobContext, mail: String) {
        let cause = ctx.cause().expect("it runs as a callback");
        println!("{mail}: {}", cause.error.as_deref().unwrap_or_default());
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Shop)
        .allow(["shop."])
        .configure(|options| options.execution.queue("default").slots = 1) // one after the other, for this output
        .start()
        .await?;
    for order in [7, 13] {
        scheduler
            .enqueue(Shop::job().charge(order))
            .param("voucher", "SPRING")
            .on_success(&Shop::job().receipt("ada@example.org".to_owned()))
            .on_failure(&Shop::job().apology("bob@example.org".to_owned()))
            .submit()
            .await?
            .ended()
            .await?;
    }
    // The callbacks and further jobs are jobs of their own: wait until none is left.
    while scheduler
        .client()
        .store()
        .queue_health()
        .await?
        .iter()
        .any(|(_, queue)| queue.ready + queue.running > 0)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scheduler.stop().await;
    Ok(())
}
