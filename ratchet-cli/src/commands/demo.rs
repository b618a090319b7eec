//! `ratchet demo`: a small shop, from its opening to the end of the day.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ratchet_core::store::{JobFilter, PageRequest};
use ratchet_core::{Client, JobHandle, JobPriority, JobStatus, Ratchet, ResultError, Scheduler};
use ratchet_store_sqlite::SqliteStore;

use super::screen::Screen;
use super::shop::{Kitchen, Mail, Till};

/// The most letters sent at once.
const LETTERS_AT_ONCE: u32 = 2;

/// `ratchet demo`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Keep the jobs in this file for other commands [default: a temporary file]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let begun = Instant::now();
    let scratch = tempfile::tempdir().context("a directory for the demo")?;
    let file = arguments.file.clone().unwrap_or_else(|| scratch.path().join("demo.db"));
    let screen = Screen::default();
    screen.say(&format!("The shop opens. Its jobs are kept in {}.", file.display()));

    let scheduler = open(&file, &screen).await?;
    let day = day(&scheduler, &screen).await;
    scheduler.stop().await;
    let counts = day?;
    screen.say(&format!(
        "The shop closes after {:.1} s: {} jobs succeeded, {} failed for good, {} canceled; {} were tried again.",
        begun.elapsed().as_secs_f32(),
        counts.succeeded,
        counts.failed,
        counts.canceled,
        screen.retries(),
    ));
    if arguments.file.is_some() {
        screen.say(&format!("Its jobs are still in {}.", file.display()));
    }
    Ok(())
}

async fn open(file: &std::path::Path, screen: &Screen) -> Result<Scheduler> {
    let store = SqliteStore::open(file).await?;
    Ok(Ratchet::builder(store)
        .register(Till::default())
        .register(Kitchen)
        .register(Mail)
        .allow(["shop."])
        .resource("smtp", LETTERS_AT_ONCE)
        .configure(|options| options.retry.permit_delay = Duration::from_millis(200))
        .listener(screen.clone())
        .start()
        .await?)
}

/// The number of jobs by how they ended.
struct Counts {
    succeeded: usize,
    failed: usize,
    canceled: usize,
}

async fn day(scheduler: &Scheduler, screen: &Screen) -> Result<Counts> {
    screen.say(
        "Four customers order. The gateway of the bank is slow today, so some payments are tried again.",
    );
    let mut payments = Vec::new();
    for (customer, sum) in [("Ada", 12), ("Grace", 7), ("Barbara", 30), ("Edsger", 5)] {
        let job = scheduler.enqueue(Till::job().charge(customer.to_owned(), sum));
        let job = job.idempotency_key(format!("order-of-{customer}")).on_success(&Mail::job().receipt());
        payments.push(job.submit().await?);
    }
    let again = scheduler.enqueue(Till::job().charge("Ada".to_owned(), 12)).idempotency_key("order-of-Ada");
    ensure!(again.submit().await?.is_duplicate(), "an order that is sent twice is stored once");
    screen.say("Ada's browser sent her order twice: it is stored once.");

    screen.say("Mallory pays with a stolen card: no retry can help, so it is a dead letter.");
    let stolen = scheduler.enqueue(Till::job().charge("Mallory".to_owned(), 999)).submit().await?;

    screen.say("The kitchen bakes two cakes. The customer of the second one changes their mind.");
    let cake = scheduler.enqueue(Kitchen::job().bake("apple cake".to_owned())).priority(JobPriority::High);
    let cake = cake.submit().await?;
    let unwanted = scheduler.enqueue(Kitchen::job().bake("carrot cake".to_owned())).submit().await?;

    screen.say(&format!("Six letters go out, no more than {LETTERS_AT_ONCE} at once in the whole cluster."));
    let letters = (1..=6).map(|number| Mail::job().letter(number));
    let letters =
        scheduler.client().enqueue_many(letters).await?.into_iter().collect::<Result<Vec<_>, _>>()?;

    half_done(&unwanted).await?;
    scheduler.client().cancel(unwanted.id(), "the customer changed their mind").await?;

    for payment in payments {
        payment.result().await?;
    }
    ensure!(matches!(stolen.result().await, Err(ResultError::Failed { .. })), "a stolen card is refused");
    cake.result().await?;
    ensure!(
        matches!(unwanted.result().await, Err(ResultError::Canceled { .. })),
        "nobody eats the second cake"
    );
    for letter in letters {
        letter.result().await?;
    }
    receipts(scheduler.client()).await
}

/// Waits until a cake is half baked.
async fn half_done(cake: &JobHandle<()>) -> Result<()> {
    loop {
        let job = cake.job().await?.context("the cake is in the oven")?;
        if job.progress.is_some_and(|progress| progress.done >= 4) || job.ending.is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the receipts that follow the payments are sent, and counts all jobs.
async fn receipts(client: &Client) -> Result<Counts> {
    loop {
        let jobs = client.store().query_jobs(&JobFilter::default(), &PageRequest::first(1_000)).await?.jobs;
        let count = |status| jobs.iter().filter(|job| job.status == status).count();
        if jobs.iter().all(|job| job.ending.is_some()) {
            return Ok(Counts {
                succeeded: count(JobStatus::Succeeded),
                failed: count(JobStatus::Failed),
                canceled: count(JobStatus::Canceled),
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
