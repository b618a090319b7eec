//! The MongoDB store: a database for each place.

mod explain;
mod fill;
mod probe;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use async_trait::async_trait;
use futures::TryStreamExt as _;
use mongodb::bson::{Document, RawDocumentBuf, Uuid, doc};
use mongodb::options::{ClientOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Collection, Database};
use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{JobId, StoreClock, whole_millis};
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};

use super::{Bench, Counted, Plan, Progress, TestDatabase};
use crate::backlog::{BOOST, Backlog};
use crate::conflicts::Contention;
use crate::lane::Lane;
use crate::latency::{WakeReceiver, WakeSender};
use crate::usage::process_cpu;

const JOBS: &str = "scheduler_job";

pub(super) struct Mongo {
    url: String,
    side: Client,
    /// The server's process, if it runs on this machine.
    process: Option<u32>,
}

impl Mongo {
    pub(super) async fn open() -> Result<Self> {
        let url = ratchet_servers::url(Server::Mongodb)?;
        let side = Client::with_uri_str(&url).await?;
        let process = status(&side).await?.get_i64("pid").ok().and_then(|pid| u32::try_from(pid).ok());
        let is_here = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|n| n.contains("mongod"))
        };
        Ok(Self { url, side, process: process.filter(is_here) })
    }
}

async fn status(client: &Client) -> Result<Document> {
    Ok(client.database("admin").run_command(doc! { "serverStatus": 1 }).await?)
}

/// A counter of the server, by its path.
fn count(status: &Document, path: &[&str]) -> Result<u64> {
    let [parts @ .., name] = path else { bail!("a counter has a name") };
    let part = parts.iter().try_fold(status, |part, name| part.get_document(name))?;
    let number = part.get(name).and_then(|number| number.as_i64().or_else(|| number.as_i32().map(i64::from)));
    Ok(u64::try_from(number.with_context(|| format!("the server does not count {name}"))?)?)
}

#[async_trait]
impl Bench for Mongo {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    async fn remarks(&self) -> Result<Vec<String>> {
        let admin = self.side.database("admin");
        let version = status(&self.side).await?.get_str("version")?.to_owned();
        let set = admin.run_command(doc! { "replSetGetConfig": 1 }).await?;
        let members = set.get_document("config")?.get_array("members")?.len();
        let mut remarks = vec![format!("MongoDB {version}, a replica set of {members}")];
        if !set.get_document("config")?.get_bool("writeConcernMajorityJournalDefault").unwrap_or(true) {
            let warning = "WARNING: a majority does not wait for the journal: these figures are NOT those of a durable server";
            remarks.push(warning.to_owned());
        }
        Ok(remarks)
    }

    fn least_of_probe(&self) -> Option<f64> {
        Some(0.7)
    }

    async fn log_bytes(&self) -> Result<Option<u64>> {
        Ok(Some(count(&status(&self.side).await?, &["wiredTiger", "log", "log bytes written"])?))
    }

    async fn contention(&self) -> Result<Option<Contention>> {
        let status = status(&self.side).await?;
        Ok(Some(Contention {
            conflicts: count(&status, &["metrics", "operation", "writeConflicts"])?,
            begun: count(&status, &["transactions", "totalStarted"])?,
            committed: count(&status, &["transactions", "totalCommitted"])?,
        }))
    }

    fn server_cpu(&self) -> Option<Duration> {
        process_cpu(self.process?)
    }

    async fn place(&self) -> Result<Box<dyn TestDatabase>> {
        let database = format!("ratchet_bench_{:016x}", rand::random::<u64>());
        Ok(Box::new(MongoPlace { url: self.url.clone(), database }))
    }

    fn place_at(&self, address: &str) -> Result<Box<dyn TestDatabase>> {
        Ok(Box::new(MongoPlace { url: self.url.clone(), database: address.to_owned() }))
    }

    /// Two: no command both renews a lease and reads the news.
    fn statements_of_a_beat(&self) -> f64 {
        2.0
    }

    /// The claim by hand is one command and takes one job.
    fn most_of_wake_probe(&self) -> f64 {
        2.0
    }
}

struct MongoPlace {
    url: String,
    database: String,
}

impl MongoPlace {
    /// The store over a client with these further options.
    async fn store(
        &self,
        clock: StoreClock,
        tell: impl FnOnce(&mut ClientOptions) + Send,
    ) -> Result<MongoStore> {
        let mut client = ClientOptions::parse(&self.url).await?;
        tell(&mut client);
        let options = MongoOptions::default().database(self.database.clone()).clock(clock);
        Ok(MongoStore::from_options(client, options).await?)
    }

    /// The database, over a client with the store's write concern.
    async fn database(&self) -> Result<Database> {
        let mut client = ClientOptions::parse(&self.url).await?;
        let durable = WriteConcern::builder().w(mongodb::options::Acknowledgment::Majority).journal(true);
        client.write_concern = Some(durable.build());
        client.read_concern = Some(ReadConcern::majority());
        Ok(Client::with_options(client)?.database(&self.database))
    }

    async fn jobs(&self) -> Result<Collection<RawDocumentBuf>> {
        Ok(self.database().await?.collection(JOBS))
    }
}

#[async_trait]
impl TestDatabase for MongoPlace {
    /// A client opens connections as it needs them: a lane needs one.
    async fn connect(&self, clock: StoreClock, _connections: usize) -> Result<Arc<dyn JobStore>> {
        Ok(Arc::new(self.store(clock, |_| {}).await?))
    }

    async fn fill(&self, backlog: Backlog, progress: &mut Progress) -> Result<()> {
        fill::fill(self, backlog, progress).await
    }

    async fn tidy(&self) -> Result<()> {
        self.database().await?.run_command(doc! { "planCacheClear": JOBS }).await?;
        let admin = Client::with_uri_str(&self.url).await?.database("admin");
        admin.run_command(doc! { "fsync": 1 }).await?;
        Ok(())
    }

    async fn literal(&self, backlog: Backlog, queue: &str, limit: usize) -> Result<Vec<JobId>> {
        let waited = doc! { "$subtract": [millis(backlog.now.as_millis()), "$scheduled_time"] };
        let levels = doc! { "$floor": { "$divide": [waited, whole_millis(BOOST)] } };
        let pipeline = vec![
            doc! { "$match": {
                "status": "PENDING", "blocked_by": 0, "queue.name": queue,
                "scheduled_time": { "$lte": millis(backlog.now.as_millis()) },
            } },
            doc! { "$project": { "scheduled_time": 1, "rank": { "$add": ["$queue.priority", levels] } } },
            doc! { "$sort": { "rank": -1, "scheduled_time": 1, "_id": 1 } },
            doc! { "$limit": i64::try_from(limit)? },
        ];
        let found: Vec<Document> = self.jobs().await?.aggregate(pipeline).await?.try_collect().await?;
        found.iter().map(id).collect()
    }

    async fn plan(&self, clock: StoreClock, request: &ClaimRequest, most: u64) -> Result<Option<Plan>> {
        explain::plan(self, clock, request, most).await.map(Some)
    }

    async fn probe(&self, lanes: usize) -> Result<Option<Vec<Box<dyn Lane>>>> {
        probe::lanes(self, lanes).await.map(Some)
    }

    fn address(&self) -> Option<String> {
        Some(self.database.clone())
    }

    async fn wake_receiver(&self) -> Result<Option<Box<dyn WakeReceiver>>> {
        wake::receiver(&self.url, &self.database).await.map(Some)
    }

    async fn wake_sender(&self) -> Result<Option<Box<dyn WakeSender>>> {
        wake::sender(&self.url, &self.database).await.map(Some)
    }

    async fn connect_counted(&self) -> Result<Option<Counted>> {
        wake::counted(&self.url, &self.database).await.map(Some)
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(Client::with_uri_str(&self.url).await?.database(&self.database).drop().await?)
    }
}

fn millis(instant: i64) -> mongodb::bson::DateTime {
    mongodb::bson::DateTime::from_millis(instant)
}

fn uuid(id: JobId) -> Uuid {
    Uuid::from_bytes(id.as_uuid().into_bytes())
}

/// The id of a job's document.
fn id(found: &Document) -> Result<JobId> {
    let id = found.get("_id").context("a document without an id")?;
    let mongodb::bson::Bson::Binary(binary) = id else { anyhow::bail!("the id of a job is no UUID") };
    ensure!(binary.bytes.len() == 16, "the id of a job is no UUID");
    Ok(JobId::from_uuid(uuid::Uuid::from_slice(&binary.bytes)?))
}
