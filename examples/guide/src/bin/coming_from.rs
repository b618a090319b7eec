//! The calls of other job systems, and their counterparts in Ratchet.

use std::time::Duration;

use ratchet_core::store::JobFilter;
use ratchet_core::{JobFailure, JobPriority, Ratchet, TargetName, jobs};
use ratchet_store_sqlite::SqliteStore;

struct Worker;

#[jobs(target = "app.Worker")]
impl Worker {
    /// `perform` of Sidekiq and Oban, `Work` of River, a handler function of apalis.
    #[job(queue = "mailers", max_retries = 20, backoff = "exponential 15s")]
    async fn perform(&self, user: u64) -> Result<u64, JobFailure> {
        match user {
            0 => Err(JobFailure::new("Gone", "no such user").do_not_retry("discard")), // JobCancel, {:cancel, …}
            user => Ok(user),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scheduler = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Worker)
        .allow(["app."])
        .configure(|options| options.execution.queue("mailers").slots = 5) // concurrency of a queue
        .start()
        .await?;

    // perform_async, Client.Insert, Oban.insert, storage.push
    let job = scheduler.enqueue(Worker::job().perform(1)).submit().await?;
    println!("{}", job.result().await?);

    // perform_in, ScheduledAt, schedule_in
    let later = scheduler.enqueue(Worker::job().perform(2)).delay(Duration::from_secs(3600));
    // unique jobs, priority, tags
    let later = later.business_key("user 2").priority(JobPriority::High).tag("signup").submit().await?;

    // perform_bulk, InsertMany, insert_all: one call to the store
    let many = scheduler.client().enqueue_many((3..=5).map(|user| Worker::job().perform(user))).await?;
    println!("{} stored", many.len());

    // the morgue, discarded jobs
    scheduler.enqueue(Worker::job().perform(0)).submit().await?.ended().await?;
    let mut dead = JobFilter::default();
    dead.target = Some(TargetName::new("app.Worker")?);
    println!("{} dead letter, run again", scheduler.client().retry_all(dead).run().await?.done);

    scheduler.client().cancel(later.id(), "not needed").await?;
    scheduler.stop().await;
    Ok(())
}
