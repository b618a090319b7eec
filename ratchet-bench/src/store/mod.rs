//! What differs between stores. A new one is one more file here.

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

/// The store of this name, on the server that the environment tells.
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

    /// What readers should know before they believe a figure.
    async fn remarks(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Whether claims must not slow down with the backlog.
    fn claims_stay_fast(&self) -> bool {
        true
    }

    /// The least share of the probe's speed, at batches of 500, that is good enough.
    fn least_of_probe(&self) -> Option<f64> {
        None
    }

    /// How much longer than by hand a job of another process may take to be picked up.
    fn most_of_wake_probe(&self) -> f64 {
        1.5
    }

    /// How many statements a heartbeat is.
    fn statements_of_a_beat(&self) -> f64 {
        1.0
    }

    /// Bytes of the server's log so far: what it writes to make commits last.
    async fn log_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// How many transactions have written something so far.
    async fn commits(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// How often nodes were in each other's way so far.
    async fn contention(&self) -> Result<Option<Contention>> {
        Ok(None)
    }

    /// How many connections the store has unless told otherwise.
    fn usual_connections(&self) -> usize {
        1
    }

    /// The server's processor time so far, if it runs on this machine.
    fn server_cpu(&self) -> Option<Duration> {
        None
    }

    /// Makes an empty place for jobs.
    async fn place(&self) -> Result<Box<dyn Place>>;

    /// The place that another process has made, by its [address](Place::address).
    fn place_at(&self, _address: &str) -> Result<Box<dyn Place>> {
        bail!("another process cannot open this store");
    }
}

/// A store, and how many statements it has sent so far.
pub(crate) type Counted = (Arc<dyn JobStore>, Box<dyn Fn() -> u64 + Send + Sync>);

/// A place for jobs: a schema, a file, a database.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// Opens the store on it.
    async fn connect(&self, clock: StoreClock, connections: usize) -> Result<Arc<dyn JobStore>>;

    /// Stores a backlog. The store itself can do it; behind its back it may go faster.
    async fn fill(&self, backlog: Backlog, progress: &mut Progress) -> Result<()> {
        let store = self.connect(StoreClock::Server, 1).await?;
        fill::through(store.as_ref(), backlog, progress).await
    }

    /// Does what the server would do by itself after a while: statistics, hint bits, a checkpoint.
    async fn tidy(&self) -> Result<()> {
        Ok(())
    }

    /// The best jobs of a queue by the literal rule, found by sorting all that are due: in the database if it can.
    async fn literal(&self, backlog: Backlog, queue: &str, limit: usize) -> Result<Vec<JobId>> {
        Ok(backlog.best(queue, limit))
    }

    /// How many rows the claim that took this job has locked, if that can be found out.
    async fn locked_with(&self, _job: JobId) -> Result<Option<u64>> {
        Ok(None)
    }

    /// How the database finds the rows of this claim, if it tells. No step may read more than `most` rows.
    async fn plan(&self, _clock: StoreClock, _request: &ClaimRequest, _most: u64) -> Result<Option<Plan>> {
        Ok(None)
    }

    /// The same work by hand: connections of its own to tables of its own.
    async fn probe(&self, _lanes: usize) -> Result<Option<Vec<Box<dyn Lane>>>> {
        Ok(None)
    }

    /// A user who submits inside of transactions, if the store can do that.
    async fn shop(&self) -> Result<Option<Box<dyn Shop>>> {
        Ok(None)
    }

    /// Where another process finds it, if one can.
    fn address(&self) -> Option<String> {
        None
    }

    /// A wakeup by hand, if the store has wakeups: the side that runs, which comes first.
    async fn wake_receiver(&self) -> Result<Option<Box<dyn WakeReceiver>>> {
        Ok(None)
    }

    /// The side that submits.
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

/// What the database said about the way that it takes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Plan {
    /// What grows with the backlog.
    pub(crate) objections: Vec<String>,
    /// The most rows that any step read.
    pub(crate) most_read: Option<u64>,
}
