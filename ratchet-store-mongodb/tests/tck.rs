//! The MongoDB store against the conformance suite.
//!
//! Creating the collections of a namespace costs more than a case, so the database of a finished case is emptied and
//! used again. All of them are dropped at the end.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::TryStreamExt as _;
use mongodb::bson::{Document, Timestamp, Uuid, doc};
use mongodb::{Client, Database};
use ratchet_api::store::JobStore;
use ratchet_api::{JobId, StoreClock, StoreError, StoreErrorKind, StoreResult};
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};
use ratchet_tck::{Namespace, Spoil, StoreHarness, Suite};

const NOTICES: &str = "scheduler_wakeup";

#[derive(Clone, Default)]
struct MongoHarness {
    next: Arc<AtomicUsize>,
    idle: Arc<Mutex<Vec<String>>>,
}

impl MongoHarness {
    fn idle_database(&self) -> String {
        let idle = self.idle.lock().expect("no holder panics").pop();
        let fresh =
            || format!("ratchet_tck_{}_{}", std::process::id(), self.next.fetch_add(1, Ordering::SeqCst));
        idle.unwrap_or_else(fresh)
    }

    /// Empties a database and keeps it for the next case; one that cannot be emptied is not used again.
    async fn put_back(self, name: String) {
        if let Ok(database) = database(&name).await
            && empty(&database).await.is_ok()
        {
            self.idle.lock().expect("no holder panics").push(name);
        }
    }

    fn drop_all(&self) {
        let made = self.next.load(Ordering::SeqCst);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        runtime.block_on(async {
            for at in 0..made {
                if let Ok(database) = database(&format!("ratchet_tck_{}_{at}", std::process::id())).await {
                    let _ = database.drop().await;
                }
            }
        });
    }
}

#[async_trait]
impl StoreHarness for MongoHarness {
    async fn namespace(&self) -> StoreResult<Namespace> {
        url()?;
        let (harness, name) = (self.clone(), self.idle_database());
        let (closing, spoiled, cut) = (name.clone(), name.clone(), name.clone());
        Ok(Namespace::new(name)
            .on_close(move || harness.put_back(closing))
            .on_spoil(move |job, how| spoil(spoiled.clone(), job, how))
            .on_interrupt(move || kill_cursors(cut.clone())))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        let options = MongoOptions::default().database(namespace.name()).clock(clock);
        Ok(Arc::new(MongoStore::connect(&url()?, options).await?))
    }
}

fn url() -> StoreResult<String> {
    ratchet_servers::url(Server::Mongodb)
        .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, "connect", error.to_string()))
}

async fn database(name: &str) -> StoreResult<Database> {
    let client = Client::with_uri_str(url()?).await.map_err(|error| trouble(&error))?;
    Ok(client.database(name))
}

fn trouble(error: &mongodb::error::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Other, "harness", error.to_string())
}

async fn empty(database: &Database) -> mongodb::error::Result<()> {
    for name in database.list_collection_names().await? {
        // Single notices of a capped collection cannot be deleted.
        if !["scheduler_schema", NOTICES].contains(&name.as_str()) {
            database.collection::<Document>(&name).delete_many(doc! {}).await?;
        }
    }
    Ok(())
}

/// Kills the cursors with which the nodes of a database follow notices.
async fn kill_cursors(name: String) -> StoreResult<()> {
    let here = database(&name).await?;
    let following = [
        doc! { "$currentOp": { "allUsers": true, "idleCursors": true } },
        doc! { "$match": { "ns": format!("{name}.{NOTICES}"), "cursor.cursorId": { "$exists": true } } },
    ];
    let admin = here.client().database("admin");
    let found = admin.aggregate(following).await.map_err(|error| trouble(&error))?;
    let found: Vec<Document> = found.try_collect().await.map_err(|error| trouble(&error))?;
    let id = |found: &Document| found.get_document("cursor").and_then(|cursor| cursor.get_i64("cursorId"));
    let ids: Vec<i64> = found.iter().filter_map(|found| id(found).ok()).collect();
    assert!(!ids.is_empty(), "nobody listens");
    let kill = doc! { "killCursors": NOTICES, "cursors": ids };
    here.run_command(kill).await.map_err(|error| trouble(&error))?;
    // A waiting cursor finds out with the next document, even one without a recipient.
    let present = Timestamp { time: 0, increment: 0 };
    let silent = here.collection(NOTICES).insert_one(doc! { "at": present }).await;
    silent.map_err(|error| trouble(&error)).map(drop)
}

async fn spoil(name: String, job: JobId, how: Spoil) -> StoreResult<()> {
    let damage = match how {
        Spoil::UnknownType => doc! { "$set": { "spec.job_type": "NONSENSE" } },
        Spoil::UnknownBackoff => doc! { "$set": { "spec.backoff": "NONSENSE" } },
        Spoil::QueueState => doc! { "$set": { "attempts": "NONSENSE" } },
        Spoil::LastVersion => doc! { "$set": { "fence": i64::MAX } },
        Spoil::QueueStateGone => doc! { "$unset": { "queue": "" } },
        Spoil::Priority => doc! { "$set": { "queue.priority": 7 } },
        Spoil::QueueName => {
            let jobs = database(&name).await?.collection::<Document>("scheduler_job");
            let live = doc! { "_id": id(job), "queue": { "$exists": true } };
            let queue = doc! { "$set": { "queue.name": "" } };
            jobs.update_one(live, queue).await.map_err(|error| trouble(&error))?;
            doc! { "$set": { "spec.queue": "" } }
        }
        Spoil::FirstVersion => doc! { "$set": { "fence": 1_i64 } },
        Spoil::LogNumber => {
            let lines = database(&name).await?.collection::<Document>("scheduler_job_log");
            let (newest, last) = (doc! { "job": id(job) }, doc! { "$set": { "seq": i64::MAX } });
            let changed = lines.find_one_and_update(newest, last).sort(doc! { "seq": -1 }).await;
            assert!(changed.map_err(|error| trouble(&error))?.is_some(), "job {job} has a line");
            return Ok(());
        }
        Spoil::OwnerName => doc! { "$set": { "queue.picked_by": 7 } },
        Spoil::OwnerBeats => {
            let here = database(&name).await?;
            let held = here.collection::<Document>("scheduler_job").find_one(doc! { "_id": id(job) }).await;
            let held = held.map_err(|error| trouble(&error))?.expect("the job exists");
            let owner =
                held.get_document("queue").and_then(|queue| queue.get_str("picked_by")).expect("an owner");
            let nodes = here.collection::<Document>("scheduler_node");
            let damage = doc! { "$set": { "beat_gap_ms": "NONSENSE" } };
            nodes.update_one(doc! { "_id": owner }, damage).await.map_err(|error| trouble(&error))?;
            return Ok(());
        }
        Spoil::TargetName => doc! { "$set": { "spec.call.target": "" } },
    };
    let jobs = database(&name).await?.collection::<Document>("scheduler_job");
    let spoiled = jobs.update_one(doc! { "_id": id(job) }, damage).await;
    assert_eq!(spoiled.map_err(|error| trouble(&error))?.modified_count, 1, "job {job} exists");
    Ok(())
}

fn id(job: JobId) -> Uuid {
    Uuid::from_bytes(job.as_uuid().into_bytes())
}

fn main() -> ExitCode {
    let harness = MongoHarness::default();
    let code = Suite::new(harness.clone()).wakeups().main();
    harness.drop_all();
    code
}
