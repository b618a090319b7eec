//! A job that is stored in the transaction of the application on MongoDB: both, or none.
//!
//! `MONGODB_URL=mongodb://…/?replicaSet=rs0 cargo run -p guide --bin submit_in_mongodb`

use anyhow::Context as _;
use ratchet_core::{Client, JobHandle, Ratchet, jobs};
use ratchet_store_mongodb::mongodb::{self, ClientSession, bson::doc};
use ratchet_store_mongodb::{MongoOptions, MongoStore, driver_error};

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
    database: &mongodb::Client,
    jobs: &Client,
    item: &str,
    paid: bool,
) -> anyhow::Result<JobHandle<String>> {
    let orders = database.database("shop").collection("orders");
    // It owns what it uses, or the future could not be sent to another thread, as a web server or a job needs it.
    let (jobs, item) = (jobs.clone(), item.to_owned());
    let order = async move |session: &mut ClientSession| {
        orders.insert_one(doc! { "item": &item }).session(&mut *session).await?;
        let receipt = jobs.enqueue(Mailer::job().receipt(item.clone()));
        let receipt = receipt.submit_in(&mut *session).await.map_err(driver_error)?;
        if !paid {
            session.abort_transaction().await?;
        }
        Ok(receipt)
    };
    // Runs all of it again if another transaction was faster, and commits.
    let receipt = database.start_session().await?.start_transaction().and_run2(order).await?;
    receipt.committed(); // runs it at once; without this the next poll finds it
    Ok(receipt)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("MONGODB_URL").context("set MONGODB_URL")?;
    // The client of the application, which the store uses as well: sessions belong to one client.
    let database = mongodb::Client::with_uri_str(url).await?;
    let options = MongoOptions::default().database("shop").prefix("jobs_");
    let store = MongoStore::from_client(database.clone(), options).await?;
    let scheduler = Ratchet::builder(store).register(Mailer).allow(["mail."]).start().await?;

    let bought = order(&database, scheduler.client(), "lamp", true).await?;
    println!("{}", bought.result().await?);
    let (database, jobs) = (database.clone(), scheduler.client().clone());
    let left = tokio::spawn(async move { order(&database, &jobs, "chair", false).await }).await??;
    println!("aborted, the job exists: {}", left.job().await?.is_some());

    scheduler.stop().await;
    Ok(())
}
