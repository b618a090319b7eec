//! A backlog written directly: one job is stored through the store, and its document is the pattern of all others.

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::options::{CollectionOptions, WriteConcern};
use mongodb::{Collection, IndexModel};
use ratchet_api::store::JobBulkStore as _;
use ratchet_api::{NewJob, StoreClock, Submission};
use tokio::task::JoinSet;

use super::{JOBS, MongoPlace, millis, uuid};
use crate::backlog::{Backlog, Row, State};
use crate::job::payload;
use crate::store::Progress;

const CHUNK: usize = 5_000;
const AT_ONCE: usize = 2;

pub(super) async fn fill(place: &MongoPlace, backlog: Backlog, progress: &mut Progress) -> Result<()> {
    let pattern = pattern(place).await?;
    let database = place.database().await?;
    let quick = CollectionOptions::builder().write_concern(WriteConcern::builder().w(Some(1.into())).build());
    let jobs: Collection<RawDocumentBuf> = database.collection_with_options(JOBS, quick.build());
    // Building indexes afterwards costs a fraction of updating them with every insert.
    let indexes: Vec<IndexModel> = jobs.list_indexes().await?.try_collect().await?;
    jobs.drop_indexes().await?;
    let mut rows = backlog.rows().peekable();
    let mut inserts: JoinSet<Result<usize>> = JoinSet::new();
    while rows.peek().is_some() {
        let chunk: Vec<Row> = rows.by_ref().take(CHUNK).collect();
        let (jobs, pattern) = (jobs.clone(), pattern.clone());
        inserts.spawn(async move {
            let made: Vec<_> = chunk.iter().map(|row| job(&pattern, row)).collect::<Result<_>>()?;
            let count = made.len();
            jobs.insert_many(made).ordered(false).await?;
            Ok(count)
        });
        if inserts.len() >= AT_ONCE
            && let Some(done) = inserts.join_next().await
        {
            progress.add(done??);
        }
    }
    while let Some(done) = inserts.join_next().await {
        progress.add(done??);
    }
    let secondary = |index: &IndexModel| index.keys != doc! { "_id": 1 };
    jobs.create_indexes(indexes.into_iter().filter(secondary)).await?;
    Ok(())
}

/// The document that the store makes of an ordinary job.
async fn pattern(place: &MongoPlace) -> Result<Document> {
    let store = place.store(StoreClock::Server, |_| {}).await?;
    store.insert(&[Submission::single(NewJob::new(payload()?))]).await?;
    let jobs = place.database().await?.collection::<Document>(JOBS);
    jobs.find_one_and_delete(doc! {}).await?.context("the job was not stored")
}

/// The document of this row's job.
fn job(pattern: &Document, row: &Row) -> Result<RawDocumentBuf> {
    let mut job = pattern.clone();
    let priority = i32::from(row.priority.ordinal());
    job.insert("_id", uuid(row.id));
    job.insert("scheduled_time", millis(row.due.as_millis()));
    for part in ["spec", "queue"] {
        job.get_document_mut(part)?.insert("priority", priority);
    }
    job.get_document_mut("spec")?.insert("queue", row.queue);
    job.get_document_mut("queue")?.insert("name", row.queue);
    match row.state {
        State::Pending => {}
        State::Paused => job.extend(doc! { "status": "PAUSED", "paused_from": "PENDING" }),
        State::Blocked => job.extend(doc! { "blocked_by": 1, "open_parents": 1 }),
    }
    Ok(RawDocumentBuf::try_from(&job)?)
}
