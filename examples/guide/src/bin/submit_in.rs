//! A job that is stored in the transaction of the application: both, or none.
//!
//! `DATABASE_URL=postgres://… cargo run -p guide --bin submit_in`

use anyhow::Context as _;
use ratchet_core::{Client, JobHandle, Ratchet, jobs};
use ratchet_store_postgres::sqlx::{self, PgPool};
use ratchet_store_postgres::{PostgresOptions, PostgresStore};

struct Mailer;

#[jobs(target = "mail.Mailer")]
impl Mailer {
    #[job(max_retries = 5, backoff = "exponential 30s")]
    async fn receipt(&self, item: String) -> anyhow::Result<String> {
        Ok(format!("thank you for the {item}"))
    }
}

/// Stores an order and the job that writes its receipt.
async fn order(
    database: &PgPool,
    jobs: &Client,
    item: &str,
    paid: bool,
) -> anyhow::Result<JobHandle<String>> {
    let mut tx = database.begin().await?;
    sqlx::query("INSERT INTO orders (item) VALUES ($1)").bind(item).execute(&mut *tx).await?;
    let receipt = jobs.enqueue(Mailer::job().receipt(item.to_owned())).submit_in(&mut tx).await?;
    if paid {
        tx.commit().await?;
        receipt.committed(); // runs it at once; without this the next poll finds it
    } else {
        tx.rollback().await?;
    }
    Ok(receipt)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").context("set DATABASE_URL")?;
    let store = PostgresStore::connect(&url, PostgresOptions::default().migrate(true)).await?;
    let scheduler = Ratchet::builder(store).register(Mailer).allow(["mail."]).start().await?;

    // The pool of the application: the same database, other connections.
    let database = PgPool::connect(&url).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (item text NOT NULL)").execute(&database).await?;

    let bought = order(&database, scheduler.client(), "lamp", true).await?;
    println!("{}", bought.result().await?);
    let left = order(&database, scheduler.client(), "chair", false).await?;
    println!("rolled back, the job exists: {}", left.job().await?.is_some());

    scheduler.stop().await;
    Ok(())
}
