//! The database's own record of every change of every job, by triggers or a change stream that no node knows of.

mod change_stream;
mod mongodb;
mod postgres;
mod sql;
mod sqlite;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use clap::ValueEnum;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;

use crate::plan::Scenario;
use mongodb::Mongodb;
pub(crate) use mongodb::open as open_mongodb;
use postgres::Postgres;
pub(crate) use postgres::open as open_postgres;
use sqlite::Sqlite;

/// The stores that can be tortured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    Postgres,
    Mongodb,
    Sqlite,
}

/// A change of a queue row, or of the queue part of a job's document. An insert has no old part, a delete no new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) job: JobId,
    /// Milliseconds since the epoch, by the database.
    pub(crate) at: i64,
    pub(crate) old: Option<Hold>,
    pub(crate) new: Option<Hold>,
    /// The end of the old owner's lease.
    pub(crate) old_lease: Option<i64>,
    /// The due time before the change.
    pub(crate) due: Option<i64>,
}

/// The status, owner and fence of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) status: String,
    pub(crate) owner: Option<String>,
    pub(crate) fence: i64,
}

/// A row of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) job: JobId,
    pub(crate) fence: i64,
    pub(crate) owner: String,
    pub(crate) result: String,
}

/// Counts of states that must never exist, not even for a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Business keys with more than one live job.
    pub(crate) keys: i64,
    /// Idempotency keys with more than one job.
    pub(crate) idempotency_keys: i64,
    /// Resources with more permits than their limit.
    pub(crate) resources: i64,
}

impl Excess {
    /// The maximum of both, field by field.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            keys: self.keys.max(other.keys),
            idempotency_keys: self.idempotency_keys.max(other.idempotency_keys),
            resources: self.resources.max(other.resources),
        }
    }
}

/// Counts of rows that should not be left when all jobs have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) permits: i64,
    pub(crate) keys: i64,
}

/// A database made for this run.
#[async_trait]
pub(crate) trait Witness: Send + Sync {
    /// Opens a store on it for the submitter.
    async fn store(&self) -> Result<Arc<dyn JobStore>>;
    /// The arguments by which a worker finds it.
    fn address(&self) -> Vec<String>;
    /// Cuts all connections.
    async fn cut(&self) -> Result<()>;
    /// Allows connections again.
    async fn mend(&self) -> Result<()>;
    /// Crashes the server, which then starts again; `false` if there is none.
    async fn crash(&self) -> Result<bool>;
    /// Kills the primary. A standby is read-only for `reading` before it is promoted; members of a replica set elect
    /// another one by themselves. Returns the time when writes were accepted again.
    async fn fail_over(&self, _reading: Duration) -> Result<i64> {
        bail!("this store has no standby")
    }
    /// Tells the primary to step down; returns the time when another one accepted writes.
    async fn step_down(&self) -> Result<i64> {
        bail!("this store has no primary that steps down")
    }
    /// Fills the disk of the database.
    async fn fill_disk(&self) -> Result<()> {
        bail!("this store has no disk of its own")
    }
    /// Frees the disk again.
    async fn free_disk(&self) -> Result<()> {
        bail!("this store has no disk of its own")
    }
    /// Every change so far, in order.
    async fn changes(&self) -> Result<Vec<Change>>;
    /// Every recorded outcome so far.
    async fn recorded(&self) -> Result<Vec<Recorded>>;
    /// The current counts of states that must never exist.
    async fn excess(&self) -> Result<Excess>;
    /// The current counts of leftover rows.
    async fn rest(&self) -> Result<Rest>;
    /// Deletes a job, and records a second success of another, to test the check.
    async fn spoil(&self) -> Result<()>;
    /// Removes the database.
    async fn remove(&self) -> Result<()>;
}

/// Creates an empty database.
pub(crate) async fn make(store: StoreName, scenario: Scenario, folder: &Path) -> Result<Box<dyn Witness>> {
    Ok(match store {
        StoreName::Postgres => Box::new(Postgres::make(scenario == Scenario::Failover).await?),
        StoreName::Mongodb => Box::new(Mongodb::make(scenario).await?),
        StoreName::Sqlite => Box::new(Sqlite::make(folder, scenario == Scenario::DiskFull).await?),
    })
}

/// The owner part of a queue row; `None` if there was no row.
fn hold(status: Option<String>, owner: Option<String>, fence: Option<i64>) -> Option<Hold> {
    Some(Hold { status: status?, owner, fence: fence? })
}
