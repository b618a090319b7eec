//! The first job: stored in a file of SQLite, run by the same process.

use ratchet_core::{JobContext, JobFailure, Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;

struct Mailer;

#[jobs(target = "mail.Mailer")] // the stored name: it stays when the type is renamed
impl Mailer {
    #[job(max_retries = 5, backoff = "exponential 30s", timeout = "5m")]
    async fn welcome(&self, ctx: &JobContext, user: u64) -> Result<String, JobFailure> {
        println!("attempt {} for user {user}", ctx.attempt());
        Ok(format!("welcome, user {user}"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Mailer)
        .allow(["mail."]) // no other target runs here, whatever is stored
        .start()
        .await?;
    let job = scheduler.enqueue(Mailer::job().welcome(7)).idempotency_key("welcome-7").submit().await?;
    println!("{}", job.result().await?);
    scheduler.stop().await; // takes no new job, and waits for those that run
    Ok(())
}
