//! What the database saw: every change of every job, kept by triggers that no node knows of.

mod postgres;
mod sqlite;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use clap::ValueEnum;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use uuid::Uuid;

use crate::plan::Scenario;
use postgres::Postgres;
pub(crate) use postgres::open as open_postgres;
use sqlite::Sqlite;

/// The stores that can be tortured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    Postgres,
    Sqlite,
}

/// A change of a queue row. An insert has no old part, a delete no new one.
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

/// How many business keys have more than one live job.
const KEYS_IN_EXCESS: &str = "SELECT count(*) FROM (
    SELECT 1 FROM scheduler_job_queue WHERE business_key IS NOT NULL GROUP BY business_key HAVING count(*) > 1
) twice";
/// How many idempotency keys have more than one job.
const IDEMPOTENCY_KEYS_IN_EXCESS: &str = "SELECT count(*) FROM (
    SELECT 1 FROM scheduler_job WHERE idempotency_key IS NOT NULL GROUP BY idempotency_key HAVING count(*) > 1
) twice";
/// How many resources have more permits than their limit.
const RESOURCES_IN_EXCESS: &str = "SELECT count(*) FROM scheduler_resource_limit l WHERE l.max_concurrent < (
    SELECT count(*) FROM scheduler_resource_permit p WHERE p.resource_name = l.resource_name
)";
const PERMITS: &str = "SELECT count(*) FROM scheduler_resource_permit";
const KEYS: &str = "SELECT count(*) FROM scheduler_business_key_reservation";
const RECORDED: &str = "SELECT job_id, fence, node_id, status FROM scheduler_job_execution";

const LOSE_A_JOB: &str =
    "DELETE FROM scheduler_job WHERE job_id = (SELECT job_id FROM scheduler_job ORDER BY job_id LIMIT 1)";
const RECORD_TWICE: &str =
    "INSERT INTO scheduler_job_execution (job_id, fence, node_id, status, attempt, recorded_at)
    SELECT job_id, fence + 1000, node_id, status, attempt, recorded_at FROM scheduler_job_execution
    WHERE status = 'SUCCEEDED' ORDER BY job_id DESC LIMIT 1";

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
    /// Kills the primary and promotes its standby, which only reads for so long before; answers when it was promoted.
    async fn fail_over(&self, _reading: Duration) -> Result<i64> {
        bail!("this store has no standby")
    }
    /// Every change so far, in order.
    async fn changes(&self) -> Result<Vec<Change>>;
    /// Every recorded outcome so far.
    async fn recorded(&self) -> Result<Vec<Recorded>>;
    /// The number that this query answers.
    async fn count(&self, query: &'static str) -> Result<i64>;

    async fn excess(&self) -> Result<Excess> {
        Ok(Excess {
            keys: self.count(KEYS_IN_EXCESS).await?,
            idempotency_keys: self.count(IDEMPOTENCY_KEYS_IN_EXCESS).await?,
            resources: self.count(RESOURCES_IN_EXCESS).await?,
        })
    }

    async fn rest(&self) -> Result<Rest> {
        Ok(Rest { permits: self.count(PERMITS).await?, keys: self.count(KEYS).await? })
    }

    /// Runs a statement.
    async fn execute(&self, statement: &'static str) -> Result<()>;

    /// Loses a job, and records a success of another a second time.
    async fn spoil(&self) -> Result<()> {
        self.execute(LOSE_A_JOB).await?;
        self.execute(RECORD_TWICE).await
    }

    /// Nobody needs it any more.
    async fn remove(&self) -> Result<()>;
}

/// Makes an empty database.
pub(crate) async fn make(store: StoreName, scenario: Scenario, folder: &Path) -> Result<Box<dyn Witness>> {
    Ok(match store {
        StoreName::Postgres => Box::new(Postgres::make(scenario == Scenario::Failover).await?),
        StoreName::Sqlite => Box::new(Sqlite::make(folder).await?),
    })
}

/// A row of [`RECORDED`].
fn recorded((job, fence, owner, result): (Uuid, i64, String, String)) -> Recorded {
    Recorded { job: JobId::from_uuid(job), fence, owner, result }
}

/// A queue row that was or is there.
fn hold(status: Option<String>, owner: Option<String>, fence: Option<i64>) -> Option<Hold> {
    Some(Hold { status: status?, owner, fence: fence? })
}
