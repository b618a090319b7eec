//! The same work by hand: one command for each step where one is enough, in a collection with no more than this work
//! needs. It takes jobs in the order of an index, not in the exact one, uses its own clock, knows from the claim all
//! that the outcome needs, and skips every check that it can.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use futures::TryStreamExt as _;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, Uuid, doc};
use mongodb::options::IndexOptions;
use mongodb::{Collection, Database, IndexModel};
use ratchet_api::{JobId, JobPayload, whole_millis};
use serde::{Deserialize, Serialize};

use super::{MongoPlace, uuid};
use crate::job::payload;
use crate::lane::{Lane, RUN};

const JOBS: &str = "probe_job";
const QUEUE: &str = "default";
const PRIORITY: i32 = 2;

/// Creates the collection and opens the lanes.
pub(super) async fn lanes(place: &MongoPlace, count: usize) -> Result<Vec<Box<dyn Lane>>> {
    let jobs = place.database().await?.collection::<Document>(JOBS);
    let waiting = doc! { "status": "PENDING", "blocked_by": 0 };
    let by_time = doc! { "queue.name": 1, "queue.priority": -1, "scheduled_time": 1, "_id": 1 };
    let by_owner = doc! { "queue.picked_by": 1, "_id": 1 };
    let running = doc! { "status": "RUNNING" };
    jobs.create_indexes([partial(by_time, waiting), partial(by_owner, running)]).await?;
    let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
    for at in 0..count {
        let database = place.database().await?;
        lanes.push(Box::new(ProbeLane {
            jobs: database.collection(JOBS),
            database,
            owner: format!("probe-{at}-{}", JobId::generate()),
            payload: payload()?,
            ready: VecDeque::new(),
            held: Vec::new(),
        }));
    }
    Ok(lanes)
}

fn partial(keys: Document, only: Document) -> IndexModel {
    let options = IndexOptions::builder().partial_filter_expression(only).build();
    IndexModel::builder().keys(keys).options(options).build()
}

/// A job in the same model: description, state, and a part that is removed at the end.
#[derive(Serialize, Deserialize)]
struct Job {
    #[serde(rename = "_id")]
    id: Uuid,
    status: String,
    fence: i64,
    spec: Spec,
    created_at: DateTime,
    scheduled_time: DateTime,
    attempts: i32,
    crash_count: i32,
    blocked_by: i32,
    open_parents: i32,
    edge_count: i32,
    queue: Queue,
}

#[derive(Serialize, Deserialize)]
struct Spec {
    job_type: String,
    queue: String,
    priority: i32,
    call: Call,
    max_retries: i32,
    backoff: String,
    backoff_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct Call {
    target: String,
    method: String,
    payload: String,
}

#[derive(Serialize, Deserialize)]
struct Queue {
    name: String,
    job_type: String,
    priority: i32,
}

/// The reply to a claim.
#[derive(Deserialize)]
struct Claimed {
    #[serde(rename = "_id")]
    id: Uuid,
    fence: i64,
    scheduled_time: DateTime,
    picked_at: DateTime,
    attempts: i32,
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "_id")]
    id: Uuid,
}

struct ProbeLane {
    database: Database,
    jobs: Collection<Job>,
    owner: String,
    payload: JobPayload,
    ready: VecDeque<Vec<Uuid>>,
    held: Vec<Claimed>,
}

impl ProbeLane {
    fn new_job(&self, id: Uuid, now: DateTime) -> Job {
        let call = Call {
            target: self.payload.target().to_string(),
            method: self.payload.method().to_string(),
            payload: self.payload.text().to_string(),
        };
        let job_type = || "SINGLE".to_owned();
        Job {
            id,
            status: "PENDING".to_owned(),
            fence: 1,
            spec: Spec {
                job_type: job_type(),
                queue: QUEUE.to_owned(),
                priority: PRIORITY,
                call,
                max_retries: 0,
                backoff: "NONE".to_owned(),
                backoff_ms: 0,
            },
            created_at: now,
            scheduled_time: now,
            attempts: 0,
            crash_count: 0,
            blocked_by: 0,
            open_parents: 0,
            edge_count: 0,
            queue: Queue { name: QUEUE.to_owned(), job_type: job_type(), priority: PRIORITY },
        }
    }

    fn held(&self) -> Vec<Uuid> {
        self.held.iter().map(|claimed| claimed.id).collect()
    }

    fn success(&self, claimed: &Claimed, now: DateTime) -> Document {
        let started = earlier(now, RUN.started_ago);
        let ended = earlier(now, RUN.started_ago - RUN.ran_for);
        let wait = claimed.picked_at.timestamp_millis() - claimed.scheduled_time.timestamp_millis();
        let ending = doc! {
            "terminated_at": now, "queue_wait_ms": wait, "started_at": started, "ended_at": ended,
        };
        let attempt = doc! {
            "fence": claimed.fence, "owner": &self.owner, "result": "SUCCEEDED", "attempt": claimed.attempts,
            "started_at": started, "recorded_at": now, "duration_ms": whole_millis(RUN.ran_for),
        };
        let end = doc! {
            "$set": { "status": "SUCCEEDED", "fence": claimed.fence + 1, "ending": ending },
            "$unset": { "queue": "", "picked_at": "" },
            "$push": { "history": attempt },
        };
        doc! { "q": { "_id": claimed.id, "fence": claimed.fence, "queue.picked_by": &self.owner }, "u": end }
    }
}

fn earlier(now: DateTime, by: Duration) -> DateTime {
    DateTime::from_millis(now.timestamp_millis() - whole_millis(by))
}

#[async_trait]
impl Lane for ProbeLane {
    fn prepare(&mut self, jobs: usize, batch: usize) -> Result<()> {
        let ids: Vec<Uuid> = std::iter::repeat_with(|| uuid(JobId::generate())).take(jobs).collect();
        self.ready = ids.chunks(batch).map(<[_]>::to_vec).collect();
        Ok(())
    }

    async fn insert(&mut self) -> Result<usize> {
        let Some(ids) = self.ready.pop_front() else { return Ok(0) };
        let now = DateTime::now();
        let jobs: Vec<Job> = ids.into_iter().map(|id| self.new_job(id, now)).collect();
        let count = jobs.len();
        self.jobs.insert_many(jobs).ordered(false).await?;
        Ok(count)
    }

    async fn claim(&mut self, limit: usize) -> Result<usize> {
        let (now, token) = (DateTime::now(), ObjectId::new());
        let due = doc! {
            "queue.name": QUEUE, "status": "PENDING", "blocked_by": 0, "scheduled_time": { "$lte": now },
        };
        let by_time = doc! { "queue.priority": -1, "scheduled_time": 1, "_id": 1 };
        // By default the first batch has 101 documents.
        let size = u32::try_from(limit)?;
        let heads = self.jobs.clone_with_type::<Head>();
        let heads = heads.find(due).sort(by_time).limit(i64::from(size)).batch_size(size);
        let heads: Vec<Head> = heads.projection(doc! { "_id": 1 }).await?.try_collect().await?;
        let ids: Vec<Uuid> = heads.into_iter().map(|head| head.id).collect();
        let take = doc! {
            "$set": {
                "status": "RUNNING", "picked_at": now, "queue.picked_by": &self.owner, "queue.token": token,
            },
            "$inc": { "fence": 1_i64 },
        };
        self.jobs.update_many(doc! { "_id": { "$in": &ids }, "status": "PENDING" }, take).await?;
        let mine = self.jobs.clone_with_type::<Claimed>();
        let mine = mine.find(doc! { "_id": { "$in": ids }, "queue.token": token }).batch_size(size);
        let light = doc! {
            "fence": 1, "queue": 1, "scheduled_time": 1, "picked_at": 1, "attempts": 1, "crash_count": 1,
            "edge_count": 1, "spec.max_retries": 1,
        };
        self.held = mine.projection(light).await?.try_collect().await?;
        Ok(self.held.len())
    }

    async fn load(&mut self) -> Result<()> {
        let held = self.jobs.find(doc! { "_id": { "$in": self.held() } });
        let held = held.batch_size(u32::try_from(self.held.len())?);
        let loaded: Vec<Job> = held.await?.try_collect().await?;
        ensure!(loaded.len() == self.held.len(), "a job was not loaded");
        Ok(())
    }

    async fn commit(&mut self) -> Result<()> {
        let now = DateTime::now();
        let updates: Vec<Document> = self.held.iter().map(|claimed| self.success(claimed, now)).collect();
        let command = doc! {
            "update": JOBS, "updates": updates, "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let reply = self.database.run_command(command).await?;
        ensure!(reply.get_i32("nModified")? == i32::try_from(self.held.len())?, "an outcome was refused");
        Ok(())
    }

    async fn commit_and_claim(&mut self, limit: usize) -> Result<usize> {
        self.commit().await?;
        self.claim(limit).await
    }
}
