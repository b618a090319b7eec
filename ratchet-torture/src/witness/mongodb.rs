//! A MongoDB database: behind a proxy that can cut it off, or in a replica set of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use futures::TryStreamExt as _;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use ratchet_servers::Server;
use ratchet_store_mongodb::mongodb::bson::{Document, Uuid, doc};
use ratchet_store_mongodb::mongodb::options::ReadConcern;
use ratchet_store_mongodb::mongodb::{Client, Collection, Database};
use ratchet_store_mongodb::{MongoOptions, MongoStore};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::change_stream::{JOBS, Reader};
use super::{Change, Excess, Recorded, Rest, Witness};
use crate::plan::Scenario;
use crate::proxy::Proxy;
use crate::replica_set::ReplicaSet;

const EXECUTIONS: &str = "scheduler_job_execution";
const LIMITS: &str = "scheduler_resource_limit";
const PERMITS: &str = "scheduler_resource_permit";

/// A database with a unique name.
pub(crate) struct Mongodb {
    /// The database, not through the proxy.
    database: Database,
    /// The URL for workers and the submitter.
    url: String,
    reader: Reader,
    way: Way,
}

/// The route from workers to the database.
enum Way {
    /// Through a proxy to the server of the tests.
    Proxy(Proxy),
    /// To every member of a set that was made for this run.
    Members(Mutex<ReplicaSet>),
}

impl Mongodb {
    /// Creates it on the server of the tests, or in a replica set of its own if members are to be killed.
    pub(crate) async fn make(scenario: Scenario) -> Result<Self> {
        let given = ratchet_servers::url(Server::Mongodb)?;
        let members = match scenario {
            Scenario::Failover => 3,
            Scenario::Restart => 1,
            _ => 0,
        };
        let (past, url, way) = if members > 0 {
            let set = ReplicaSet::start(&given, members).await?;
            (set.url(), set.url(), Way::Members(Mutex::new(set)))
        } else {
            let proxy = proxy_to(&given).await?;
            // A driver that discovers the members of the set would bypass the proxy.
            let url = format!("mongodb://127.0.0.1:{}/?directConnection=true", proxy.port());
            (given, url, Way::Proxy(proxy))
        };
        let name = format!("torture_{:016x}", rand::random::<u64>());
        drop(open(&past, &name).await?);
        let database = Client::with_uri_str(past).await?.database(&name);
        let reader = Reader::start(database.clone()).await?;
        Ok(Self { database, url, reader, way })
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    /// The number of results of a pipeline that reads everything from one snapshot.
    async fn count(&self, collection: &str, mut pipeline: Vec<Document>) -> Result<i64> {
        pipeline.push(doc! { "$count": "n" });
        let collection = self.collection(collection);
        let reading = collection.aggregate(pipeline).read_concern(ReadConcern::snapshot());
        let rows: Vec<Document> = reading.await?.try_collect().await?;
        Ok(rows.first().map_or(0, |row| row.get_i32("n").unwrap_or(i32::MAX)).into())
    }

    /// The number of values of this field that several jobs share.
    async fn shared(&self, field: &str) -> Result<i64> {
        let pipeline = vec![
            doc! { "$match": { field: { "$exists": true } } },
            doc! { "$group": { "_id": format!("${field}"), "jobs": { "$sum": 1 } } },
            doc! { "$match": { "jobs": { "$gt": 1 } } },
        ];
        self.count(JOBS, pipeline).await
    }

    /// The replica set, locked while it is changed.
    async fn set(&self) -> Result<tokio::sync::MutexGuard<'_, ReplicaSet>> {
        match &self.way {
            Way::Members(set) => Ok(set.lock().await),
            Way::Proxy(_) => bail!("the replica set is not that of this run alone"),
        }
    }
}

/// A proxy to the primary of this set.
async fn proxy_to(url: &str) -> Result<Proxy> {
    let hello = Client::with_uri_str(url).await?.database("admin").run_command(doc! { "hello": 1 }).await?;
    let address = hello.get_str("me").context("the server is no member of a replica set")?;
    let (host, port) = address.rsplit_once(':').context("the server has no port")?;
    Proxy::to(host, port.parse()?).await
}

/// A store in this database.
pub(crate) async fn open(url: &str, database: &str) -> Result<Arc<dyn JobStore>> {
    Ok(Arc::new(MongoStore::connect(url, MongoOptions::default().database(database)).await?))
}

/// An attempt in the history, in its job's document or in one of its own.
#[derive(Deserialize)]
struct Execution {
    job: Uuid,
    fence: i64,
    owner: String,
    result: String,
}

#[async_trait]
impl Witness for Mongodb {
    async fn store(&self) -> Result<Arc<dyn JobStore>> {
        open(&self.url, self.database.name()).await
    }

    fn address(&self) -> Vec<String> {
        ["--mongodb", &self.url, "--database", self.database.name()].map(str::to_owned).into()
    }

    async fn cut(&self) -> Result<()> {
        match &self.way {
            Way::Proxy(proxy) => proxy.cut(),
            Way::Members(_) => bail!("no proxy leads to a replica set"),
        }
        Ok(())
    }

    async fn mend(&self) -> Result<()> {
        if let Way::Proxy(proxy) = &self.way {
            proxy.mend();
        }
        Ok(())
    }

    async fn crash(&self) -> Result<bool> {
        self.set().await?.kill_primary().await?;
        Ok(true)
    }

    async fn fail_over(&self, _reading: Duration) -> Result<i64> {
        self.set().await?.kill_primary().await
    }

    async fn step_down(&self) -> Result<i64> {
        self.set().await?.step_down().await
    }

    async fn changes(&self) -> Result<Vec<Change>> {
        self.reader.stop().await
    }

    async fn recorded(&self) -> Result<Vec<Recorded>> {
        let fields = |job: &str, of: &str| {
            doc! { "_id": 0, "job": job, "fence": format!("{of}.fence"), "owner": format!("{of}.owner"),
            "result": format!("{of}.result") }
        };
        let newest = vec![doc! { "$unwind": "$history" }, doc! { "$project": fields("$_id", "$history") }];
        let older = vec![doc! { "$project": fields("$_id.job", "$$ROOT") }];
        let mut recorded = Vec::new();
        for (collection, pipeline) in [(JOBS, newest), (EXECUTIONS, older)] {
            let rows = self.collection(collection).aggregate(pipeline).with_type::<Execution>().await?;
            let rows: Vec<Execution> = rows.try_collect().await?;
            recorded.extend(rows.into_iter().map(|Execution { job, fence, owner, result }| Recorded {
                job: JobId::from_uuid(uuid::Uuid::from_bytes(job.bytes())),
                fence,
                owner,
                result,
            }));
        }
        Ok(recorded)
    }

    async fn excess(&self) -> Result<Excess> {
        let permits =
            doc! { "from": PERMITS, "localField": "_id", "foreignField": "_id.resource", "as": "permits" };
        let given = doc! { "$size": "$permits" };
        // The counter decides, so it must be right as well.
        let wrong = doc! { "$or": [{ "$gt": [&given, "$max_concurrent"] }, { "$ne": [&given, "$in_use"] }] };
        let resources = vec![doc! { "$lookup": permits }, doc! { "$match": { "$expr": wrong } }];
        Ok(Excess {
            keys: self.shared("queue.business_key").await?,
            idempotency_keys: self.shared("spec.idempotency_key").await?,
            resources: self.count(LIMITS, resources).await?,
        })
    }

    async fn rest(&self) -> Result<Rest> {
        let reserved = vec![doc! { "$match": { "queue.business_key": { "$exists": true } } }];
        Ok(Rest { permits: self.count(PERMITS, Vec::new()).await?, keys: self.count(JOBS, reserved).await? })
    }

    async fn spoil(&self) -> Result<()> {
        let jobs = self.collection(JOBS);
        jobs.find_one_and_delete(doc! {}).sort(doc! { "_id": 1 }).await?;
        let later = doc! { "fence": { "$add": [{ "$last": "$history.fence" }, 1_000_i64] } };
        let again = doc! { "$mergeObjects": [{ "$last": "$history" }, later] };
        let twice = vec![doc! { "$set": { "history": { "$concatArrays": ["$history", [again]] } } }];
        jobs.find_one_and_update(doc! { "status": "SUCCEEDED" }, twice).sort(doc! { "_id": -1 }).await?;
        Ok(())
    }

    async fn remove(&self) -> Result<()> {
        match &self.way {
            Way::Proxy(_) => Ok(self.database.drop().await?),
            Way::Members(set) => set.lock().await.stop().await,
        }
    }
}
