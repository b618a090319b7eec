//! The differences between stores. Each store is one file here.

mod fill;
mod memory;
mod mongodb;
mod postgres;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use clap::ValueEnum;
use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{JobId, StoreClock};
use serde::Serialize;

use crate::backlog::Backlog;
use crate::conflicts::Contention;
use crate::enqueue::Shop;
use crate::lane::Lane;
use crate::latency::{WakeReceiver, WakeSender};

pub(crate) use fill::Progress;

/// The stores that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    Memory,
    Postgres,
    Mongodb,
    Sqlite,
}

/// Opens the store of this name, on the server that the environment names.
pub(crate) async fn open(name: StoreName) -> Result<Arc<dyn Bench>> {
    Ok(match name {
        StoreName::Memory => Arc::new(memory::Memory),
        StoreName::Postgres => Arc::new(postgres::Postgres::open().await?),
        StoreName::Sqlite => Arc::new(sqlite::Sqlite),
        StoreName::Mongodb => Arc::new(mongodb::Mongo::open().await?),
    })
}

/// A store and its server.
#[async_trait]
pub(crate) trait Bench: Send + Sync {
    fn name(&self) -> &'static str;

    /// Remarks that readers need to judge the figures.
    async fn remarks(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Whether claims must not slow down with the backlog.
    fn claims_stay_fast(&self) -> bool {
        true
    }

    /// The least share of the probe's speed, at batches of 500, that passes.
    fn least_of_probe(&self) -> Option<f64> {
        None
    }

    /// How many times longer than by hand the pick-up of another process's job may take.
    fn most_of_wake_probe(&self) -> f64 {
        1.5
    }

    /// The number of statements of a heartbeat.
    fn statements_of_a_beat(&self) -> f64 {
        1.0
    }

    /// Bytes of the server's write-ahead log or journal so far.
    async fn log_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The number of writing transactions so far.
    async fn commits(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The counters of contention between nodes so far.
    async fn contention(&self) -> Result<Option<Contention>> {
        Ok(None)
    }

    /// The number of connections that the store has by default.
    fn usual_connections(&self) -> usize {
        1
    }

    /// The server's processor time so far, if it runs on this machine.
    fn server_cpu(&self) -> Option<Duration> {
        None
    }

    /// Makes an empty place for jobs.
    async fn place(&self) -> Result<Box<dyn TestDatabase>>;

    /// The place that another process made, by its [address](TestDatabase::address).
    fn place_at(&self, _address: &str) -> Result<Box<dyn TestDatabase>> {
        bail!("another process cannot open this store");
    }
}

/// A store, and a counter of the statements that it sent.
pub(crate) type Counted = (Arc<dyn JobStore>, Box<dyn Fn() -> u64 + Send + Sync>);

/// A place for jobs: a schema, a file, a database.
#[async_trait]
pub(crate) trait TestDatabase: Send + Sync {
    /// Opens the store on it.
    async fn connect(&self, clock: StoreClock, connections: usize) -> Result<Arc<dyn JobStore>>;

    /// Stores a backlog, through the store or directly in the database, which may be faster.
    async fn fill(&self, backlog: Backlog, progress: &mut Progress) -> Result<()> {
        let store = self.connect(StoreClock::Server, 1).await?;
        fill::through(store.as_ref(), backlog, progress).await
    }

    /// Does the work that the server would do by itself after a while: statistics, hint bits, a checkpoint.
    async fn tidy(&self) -> Result<()> {
        Ok(())
    }

    /// The best jobs of a queue by the literal rule, found by sorting all due ones: in the database if possible.
    async fn literal(&self, backlog: Backlog, queue: &str, limit: usize) -> Result<Vec<JobId>> {
        Ok(backlog.best(queue, limit))
    }

    /// The number of rows locked by the claim that took this job, if that can be found out.
    async fn locked_with(&self, _job: JobId) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The plan of this claim, if the database tells it. No step may read more than `most` rows.
    async fn plan(&self, _clock: StoreClock, _request: &ClaimRequest, _most: u64) -> Result<Option<Plan>> {
        Ok(None)
    }

    /// Lanes that do the same work by hand: connections of their own to tables of their own.
    async fn probe(&self, _lanes: usize) -> Result<Option<Vec<Box<dyn Lane>>>> {
        Ok(None)
    }

    /// A user who submits inside transactions, if the store supports that.
    async fn shop(&self) -> Result<Option<Box<dyn Shop>>> {
        Ok(None)
    }

    /// The address by which another process finds this place, if one can.
    fn address(&self) -> Option<String> {
        None
    }

    /// The running side of a wakeup by hand, if the store has wakeups. Made before the submitting side.
    async fn wake_receiver(&self) -> Result<Option<Box<dyn WakeReceiver>>> {
        Ok(None)
    }

    /// The submitting side of a wakeup by hand.
    async fn wake_sender(&self) -> Result<Option<Box<dyn WakeSender>>> {
        Ok(None)
    }

    /// Opens the store so that its statements are counted.
    async fn connect_counted(&self) -> Result<Option<Counted>> {
        Ok(None)
    }

    /// Removes everything.
    async fn close(self: Box<Self>) -> Result<()>;
}

/// The plan of a claim, as the database reported it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Plan {
    /// Steps that grow with the backlog.
    pub(crate) objections: Vec<String>,
    /// The most rows that any step read.
    pub(crate) most_read: Option<u64>,
}
