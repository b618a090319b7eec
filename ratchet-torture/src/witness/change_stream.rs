//! Every change of the jobs in a MongoDB, read from a change stream with the documents before and after.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ratchet_api::JobId;
use ratchet_store_mongodb::mongodb::Database;
use ratchet_store_mongodb::mongodb::bson::{Bson, DateTime, Document, doc};
use ratchet_store_mongodb::mongodb::change_stream::ChangeStream;
use ratchet_store_mongodb::mongodb::change_stream::event::ResumeToken;
use ratchet_store_mongodb::mongodb::options::{FullDocumentBeforeChangeType, FullDocumentType};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{Change, hold};

pub(super) const JOBS: &str = "scheduler_job";
pub(super) const NODES: &str = "scheduler_node";
/// The collection in which a document marks the end of reading.
const MARKS: &str = "torture_mark";
/// The most time for the stream to continue after an election, and to catch up at the end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reader, which follows until it is stopped, so that nothing is lost when the server trims its log.
pub(super) struct Reader {
    database: Database,
    reading: Mutex<Option<JoinHandle<Result<Vec<Change>>>>>,
}

impl Reader {
    /// Starts with changes from now on.
    pub(super) async fn start(database: Database) -> Result<Self> {
        for collection in [JOBS, NODES] {
            let images = doc! { "collMod": collection, "changeStreamPreAndPostImages": { "enabled": true } };
            database.run_command(images).await.context("the witness needs MongoDB 6.0 or newer")?;
        }
        let stream = open(&database, None).await?;
        let reading = Mutex::new(Some(tokio::spawn(read(database.clone(), stream))));
        Ok(Self { database, reading })
    }

    /// Stops and returns every change until now.
    pub(super) async fn stop(&self) -> Result<Vec<Change>> {
        let reading = self.reading.lock().await.take().context("the changes were read before")?;
        self.database.collection::<Document>(MARKS).insert_one(doc! {}).await?;
        timeout(PATIENCE, reading).await.context("the change stream lags behind")??
    }
}

async fn read(database: Database, mut stream: ChangeStream<Event>) -> Result<Vec<Change>> {
    let (mut story, mut token) = (Story::default(), stream.resume_token());
    loop {
        match stream.next_if_any().await {
            Ok(Some(event)) if event.ns.coll == MARKS => return Ok(story.changes),
            Ok(Some(event)) => story.note(event),
            Ok(None) => {}
            // The driver resumes by itself, but gives up when there is no primary.
            Err(error) => {
                eprintln!("\nthe change stream is opened again: {error}");
                stream = reopen(&database, token).await?;
            }
        }
        token = stream.resume_token();
    }
}

async fn reopen(database: &Database, after: Option<ResumeToken>) -> Result<ChangeStream<Event>> {
    let begun = Instant::now();
    loop {
        match open(database, after.clone()).await {
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => sleep(Duration::from_millis(100)).await,
            opened => return opened,
        }
    }
}

async fn open(database: &Database, after: Option<ResumeToken>) -> Result<ChangeStream<Event>> {
    let mut fields = doc! { "operationType": 1, "ns": 1, "documentKey": 1, "wallTime": 1 };
    for image in ["fullDocument", "fullDocumentBeforeChange"] {
        for field in ["status", "fence", "queue.picked_by", "scheduled_time", "lease_until"] {
            fields.insert(format!("{image}.{field}"), 1);
        }
    }
    let watched = doc! { "ns.coll": { "$in": [JOBS, NODES, MARKS] } };
    let stream = database
        .watch()
        .pipeline([doc! { "$match": watched }, doc! { "$project": fields }])
        .full_document(FullDocumentType::Required)
        .full_document_before_change(FullDocumentBeforeChangeType::Required)
        .resume_after(after)
        .await?;
    Ok(stream.with_type())
}

/// A change of a document.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    ns: Namespace,
    document_key: Document,
    wall_time: DateTime,
    full_document_before_change: Option<Image>,
    full_document: Option<Image>,
}

#[derive(Debug, Deserialize)]
struct Namespace {
    coll: String,
}

/// The fields of a job's or a node's document that matter here.
#[derive(Debug, Deserialize)]
struct Image {
    status: Option<String>,
    fence: Option<i64>,
    queue: Option<Queue>,
    scheduled_time: Option<DateTime>,
    lease_until: Option<DateTime>,
}

#[derive(Debug, Deserialize)]
struct Queue {
    picked_by: Option<String>,
}

/// The changes read so far.
#[derive(Default)]
struct Story {
    changes: Vec<Change>,
    /// The ends of the owners' leases.
    leases: HashMap<String, i64>,
}

impl Story {
    fn note(&mut self, event: Event) {
        let Some(id) = event.document_key.get("_id") else { return };
        let (old, new) = (event.full_document_before_change, event.full_document);
        if event.ns.coll == NODES {
            let Some(owner) = id.as_str() else { return };
            match new.and_then(|node| node.lease_until) {
                Some(until) => self.leases.insert(owner.to_owned(), until.timestamp_millis()),
                None => self.leases.remove(owner),
            };
            return;
        }
        let Bson::Binary(id) = id else { return };
        let Ok(job) = Uuid::from_slice(&id.bytes) else { return };
        let due = old.as_ref().and_then(|old| old.scheduled_time).map(DateTime::timestamp_millis);
        // A job without a queue part has ended.
        let held = |image: Option<Image>| {
            image.and_then(|Image { status, fence, queue, .. }| hold(status, queue?.picked_by, fence))
        };
        let (old, new) = (held(old), held(new));
        if old == new {
            return;
        }
        let owner = old.as_ref().and_then(|old| old.owner.as_ref());
        let old_lease = owner.and_then(|owner| self.leases.get(owner).copied());
        let (job, at) = (JobId::from_uuid(job), event.wall_time.timestamp_millis());
        self.changes.push(Change { job, at, old, new, old_lease, due });
    }
}

#[cfg(test)]
mod tests {
    use ratchet_store_mongodb::mongodb::bson::{self, Uuid as BsonUuid};

    use super::*;

    fn event(
        coll: &str,
        id: impl Into<Bson>,
        at: i64,
        old: Option<Document>,
        new: Option<Document>,
    ) -> Event {
        let at = DateTime::from_millis(at);
        let event = doc! {
            "ns": { "db": "torture", "coll": coll }, "documentKey": { "_id": id.into() }, "wallTime": at,
            "fullDocumentBeforeChange": old, "fullDocument": new,
        };
        bson::deserialize_from_document(event).expect("an event")
    }

    fn node(until: i64) -> Option<Document> {
        Some(doc! { "lease_until": DateTime::from_millis(until) })
    }

    fn job(status: &str, fence: i64, queue: Option<Document>) -> Option<Document> {
        let mut job = doc! { "status": status, "fence": fence, "scheduled_time": DateTime::from_millis(5) };
        job.extend(queue.map(|queue| ("queue".to_owned(), queue.into())));
        Some(job)
    }

    #[test]
    fn a_takeover_knows_the_lease_of_the_old_owner_as_it_was_then() {
        let (id, mut story) = (BsonUuid::new(), Story::default());
        let of = |owner: &str| Some(doc! { "picked_by": owner });
        story.note(event(NODES, "a/1", 1, None, node(90)));
        story.note(event(NODES, "a/1", 2, node(90), node(100)));
        story.note(event(JOBS, id, 101, job("RUNNING", 2, of("a/1")), job("RUNNING", 3, of("b/1"))));
        story.note(event(NODES, "a/1", 102, node(100), None));
        story.note(event(JOBS, id, 103, job("RUNNING", 3, of("a/1")), job("RUNNING", 4, of("b/1"))));
        let leases: Vec<_> = story.changes.iter().map(|change| change.old_lease).collect();
        assert_eq!(leases, [Some(100), None]);
        assert_eq!((story.changes[0].at, story.changes[0].due), (101, Some(5)));
    }

    #[test]
    fn a_job_without_a_queue_part_is_held_by_nobody() {
        let (id, mut story) = (BsonUuid::new(), Story::default());
        story.note(event(JOBS, id, 1, None, job("PENDING", 1, Some(doc! {}))));
        story.note(event(JOBS, id, 2, job("PENDING", 1, Some(doc! {})), job("PENDING", 1, Some(doc! {}))));
        story.note(event(JOBS, id, 3, job("PENDING", 1, Some(doc! {})), job("CANCELED", 2, None)));
        let seen: Vec<_> =
            story.changes.iter().map(|change| (change.old.is_some(), change.new.is_some())).collect();
        assert_eq!(seen, [(false, true), (true, false)], "what changes nothing is not noted");
    }
}
