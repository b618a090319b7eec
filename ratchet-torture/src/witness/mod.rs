//! What the database saw: every change of every job, noted by triggers or read from a change stream, of which no node
//! knows.

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
    /// Until when the old owner counted as alive.
    pub(crate) old_lease: Option<i64>,
    /// When it was due before.
    pub(crate) due: Option<i64>,
}

/// Who held a job, and how.
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

/// What must never be seen, not even for a moment.
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
    /// The worse of both.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            keys: self.keys.max(other.keys),
            idempotency_keys: self.idempotency_keys.max(other.idempotency_keys),
            resources: self.resources.max(other.resources),
        }
    }
}

/// What is left when everything has ended, and should not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) permits: i64,
    pub(crate) keys: i64,
}

/// A database that was made for this run.
#[async_trait]
pub(crate) trait Witness: Send + Sync {
    /// A store on it, for those who submit.
    async fn store(&self) -> Result<Arc<dyn JobStore>>;
    /// What a worker needs to find it.
    fn address(&self) -> Vec<String>;
    /// Cuts everybody off.
    async fn cut(&self) -> Result<()>;
    /// And lets them back.
    async fn mend(&self) -> Result<()>;
    /// Ends the server in the hardest way, after which it starts again; `false` if there is none.
    async fn crash(&self) -> Result<bool>;
    /// Kills the primary. A standby only reads for so long before it is promoted; members of a replica set elect another by
    /// themselves. Answers when writes were taken again.
    async fn fail_over(&self, _reading: Duration) -> Result<i64> {
        bail!("this store has no standby")
    }
    /// Tells the primary to step down; answers when another one took writes.
    async fn step_down(&self) -> Result<i64> {
        bail!("this store has no primary that steps down")
    }
    /// Leaves no room on the disk of the database.
    async fn fill_disk(&self) -> Result<()> {
        bail!("this store has no disk of its own")
    }
    /// And makes room again.
    async fn free_disk(&self) -> Result<()> {
        bail!("this store has no disk of its own")
    }
    /// Every change so far, in order.
    async fn changes(&self) -> Result<Vec<Change>>;
    /// Every recorded outcome so far.
    async fn recorded(&self) -> Result<Vec<Recorded>>;
    /// What must never be seen, as it is now.
    async fn excess(&self) -> Result<Excess>;
    /// What is left now.
    async fn rest(&self) -> Result<Rest>;
    /// Loses a job, and records a success of another a second time.
    async fn spoil(&self) -> Result<()>;
    /// Nobody needs it any more.
    async fn remove(&self) -> Result<()>;
}

/// Makes an empty database.
pub(crate) async fn make(store: StoreName, scenario: Scenario, folder: &Path) -> Result<Box<dyn Witness>> {
    Ok(match store {
        StoreName::Postgres => Box::new(Postgres::make(scenario == Scenario::Failover).await?),
        StoreName::Mongodb => Box::new(Mongodb::make(scenario).await?),
        StoreName::Sqlite => Box::new(Sqlite::make(folder, scenario == Scenario::DiskFull).await?),
    })
}

/// A queue row that was or is there.
fn hold(status: Option<String>, owner: Option<String>, fence: Option<i64>) -> Option<Hold> {
    Some(Hold { status: status?, owner, fence: fence? })
}
