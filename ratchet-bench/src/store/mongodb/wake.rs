//! A wakeup by hand: an insert and a notice in a capped collection on one side; on the other a cursor that follows it,
//! and `findOneAndUpdate`. And a store whose commands are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use futures::StreamExt as _;
use mongodb::bson::{DateTime, Document, Uuid, doc};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::{
    Acknowledgment, ClientOptions, CollectionOptions, CursorType, IndexOptions, ReadConcern, WriteConcern,
};
use mongodb::raw_batch_cursor::RawBatchCursor;
use mongodb::{Client, Collection, Database, IndexModel};
use ratchet_api::{JobId, JobPayload};
use ratchet_store_mongodb::{MongoOptions, MongoStore};

use crate::job::payload;
use crate::latency::{WakeReceiver, WakeSender};
use crate::store::Counted;

const JOBS: &str = "by_hand_job";
const NOTICES: &str = "by_hand_notice";

/// The database, over a client with the store's write concern.
async fn database(url: &str, name: &str) -> Result<Database> {
    let mut options = ClientOptions::parse(url).await?;
    options.write_concern = Some(WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build());
    options.read_concern = Some(ReadConcern::majority());
    Ok(Client::with_options(options)?.database(name))
}

/// The notices, with the cheapest write concern: a hint need not wait for the disk.
fn notices(database: &Database) -> Collection<Document> {
    let hint = CollectionOptions::builder()
        .write_concern(WriteConcern::builder().w(Acknowledgment::Nodes(1)).build())
        .read_concern(ReadConcern::local());
    database.collection_with_options(NOTICES, hint.build())
}

struct Sender {
    jobs: Collection<Document>,
    notices: Collection<Document>,
    payload: JobPayload,
}

/// The submitting side, made after the running one.
pub(super) async fn sender(url: &str, name: &str) -> Result<Box<dyn WakeSender>> {
    let database = database(url, name).await?;
    let jobs = database.collection(JOBS);
    Ok(Box::new(Sender { jobs, notices: notices(&database), payload: payload()? }))
}

#[async_trait]
impl WakeSender for Sender {
    async fn insert(&mut self) -> Result<JobId> {
        let job = JobId::generate();
        let id = Uuid::from_bytes(job.as_uuid().into_bytes());
        let payload = &self.payload;
        self.jobs
            .insert_one(doc! {
                "_id": id, "status": "PENDING", "fence": 1_i64, "queue": "default", "priority": 2,
                "scheduled_time": DateTime::now(), "target": payload.target().as_str(),
                "method": payload.method().as_str(), "args": payload.text().as_str(),
            })
            .await?;
        Ok(job)
    }

    async fn notify(&mut self) -> Result<()> {
        self.notices.insert_one(doc! { "about": "work" }).await?;
        Ok(())
    }
}

struct Receiver {
    hears: RawBatchCursor,
    jobs: Collection<Document>,
}

/// Creates the collections and the running side.
pub(super) async fn receiver(url: &str, name: &str) -> Result<Box<dyn WakeReceiver>> {
    let database = database(url, name).await?;
    let jobs = database.collection::<Document>(JOBS);
    let due = IndexOptions::builder().partial_filter_expression(doc! { "status": "PENDING" }).build();
    let keys = doc! { "queue": 1, "priority": -1, "scheduled_time": 1, "_id": 1 };
    jobs.create_index(IndexModel::builder().keys(keys).options(due).build()).await?;
    database.create_collection(NOTICES).capped(true).size(1 << 16).await?;
    let notices = notices(&database);
    notices.insert_one(doc! { "about": "nothing" }).await?;
    let work = notices.find(doc! { "about": "work" }).cursor_type(CursorType::TailableAwait);
    let mut hears = work.max_await_time(Duration::from_secs(60)).batch().await?;
    hears.next().await.context("the cursor has ended")??;
    Ok(Box::new(Receiver { hears, jobs }))
}

#[async_trait]
impl WakeReceiver for Receiver {
    async fn claimed(&mut self) -> Result<Vec<JobId>> {
        let batch = self.hears.next().await.context("the cursor has ended")??;
        let mut claimed = Vec::new();
        for _ in batch.doc_slices()? {
            let due = doc! { "queue": "default", "status": "PENDING", "scheduled_time": { "$lte": DateTime::now() } };
            let claim =
                doc! { "$set": { "status": "RUNNING", "picked_by": "by hand" }, "$inc": { "fence": 1_i64 } };
            let first = doc! { "priority": -1, "scheduled_time": 1, "_id": 1 };
            let job = self.jobs.find_one_and_update(due, claim).sort(first).await?;
            let job = job.context("a notice without a job")?;
            let mongodb::bson::Bson::Binary(id) = job.get("_id").context("a job has an id")? else {
                continue;
            };
            claimed.push(JobId::from_uuid(uuid::Uuid::from_slice(&id.bytes)?));
        }
        Ok(claimed)
    }
}

/// A store, and a counter of the commands on all its connections.
pub(super) async fn counted(url: &str, name: &str) -> Result<Counted> {
    let count = Arc::new(AtomicU64::new(0));
    let commands = Arc::clone(&count);
    let mut client = ClientOptions::parse(url).await?;
    client.command_event_handler = Some(EventHandler::callback(move |event| {
        if matches!(event, CommandEvent::Started(_)) {
            commands.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let store = MongoStore::from_options(client, MongoOptions::default().database(name)).await?;
    Ok((Arc::new(store), Box::new(move || count.load(Ordering::Relaxed))))
}
