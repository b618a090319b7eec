//! The MongoDB store against the conformance suite.
//!
//! Making the collections of a namespace costs more than a case, so a database that a case has left is emptied and
//! used again. All of them are dropped at the end.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mongodb::bson::{Document, Uuid, doc};
use mongodb::{Client, Database};
use ratchet_api::store::JobStore;
use ratchet_api::{JobId, StoreClock, StoreError, StoreErrorKind, StoreResult};
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};
use ratchet_tck::{Namespace, Spoil, StoreHarness, Suite};

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
        let (closing, spoiled) = (name.clone(), name.clone());
        Ok(Namespace::new(name)
            .on_close(move || harness.put_back(closing))
            .on_spoil(move |job, how| spoil(spoiled.clone(), job, how)))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        let options =
            MongoOptions { database: namespace.name().to_owned(), clock, ..MongoOptions::default() };
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
        if name != "scheduler_schema" {
            database.collection::<Document>(&name).delete_many(doc! {}).await?;
        }
    }
    Ok(())
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
    let code = Suite::new(harness.clone()).main();
    harness.drop_all();
    code
}
