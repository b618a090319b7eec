//! The queries that the SQL stores share: their tables have the same names.

use anyhow::Result;
use async_trait::async_trait;
use ratchet_api::JobId;
use uuid::Uuid;

use super::{Excess, Recorded, Rest};

/// Counts business keys with more than one live job.
const KEYS_IN_EXCESS: &str = "SELECT count(*) FROM (
    SELECT 1 FROM scheduler_job_queue WHERE business_key IS NOT NULL GROUP BY business_key HAVING count(*) > 1
) twice";
/// Counts idempotency keys with more than one job.
const IDEMPOTENCY_KEYS_IN_EXCESS: &str = "SELECT count(*) FROM (
    SELECT 1 FROM scheduler_job WHERE idempotency_key IS NOT NULL GROUP BY idempotency_key HAVING count(*) > 1
) twice";
/// Counts resources with more permits than their limit.
const RESOURCES_IN_EXCESS: &str = "SELECT count(*) FROM scheduler_resource_limit l WHERE l.max_concurrent < (
    SELECT count(*) FROM scheduler_resource_permit p WHERE p.resource_name = l.resource_name
)";
const PERMITS: &str = "SELECT count(*) FROM scheduler_resource_permit";
const KEYS: &str = "SELECT count(*) FROM scheduler_business_key_reservation";
pub(super) const RECORDED: &str = "SELECT job_id, fence, node_id, status FROM scheduler_job_execution";

const LOSE_A_JOB: &str =
    "DELETE FROM scheduler_job WHERE job_id = (SELECT job_id FROM scheduler_job ORDER BY job_id LIMIT 1)";
const RECORD_TWICE: &str =
    "INSERT INTO scheduler_job_execution (job_id, fence, node_id, status, attempt, recorded_at)
    SELECT job_id, fence + 1000, node_id, status, attempt, recorded_at FROM scheduler_job_execution
    WHERE status = 'SUCCEEDED' ORDER BY job_id DESC LIMIT 1";

/// A SQL database.
#[async_trait]
pub(super) trait Sql: Sync {
    /// The number that this query returns.
    async fn count(&self, query: &'static str) -> Result<i64>;
    /// Runs a statement.
    async fn execute(&self, statement: &'static str) -> Result<()>;
}

pub(super) async fn excess(database: &impl Sql) -> Result<Excess> {
    Ok(Excess {
        keys: database.count(KEYS_IN_EXCESS).await?,
        idempotency_keys: database.count(IDEMPOTENCY_KEYS_IN_EXCESS).await?,
        resources: database.count(RESOURCES_IN_EXCESS).await?,
    })
}

pub(super) async fn rest(database: &impl Sql) -> Result<Rest> {
    Ok(Rest { permits: database.count(PERMITS).await?, keys: database.count(KEYS).await? })
}

pub(super) async fn spoil(database: &impl Sql) -> Result<()> {
    database.execute(LOSE_A_JOB).await?;
    database.execute(RECORD_TWICE).await
}

/// A row of [`RECORDED`].
pub(super) fn recorded((job, fence, owner, result): (Uuid, i64, String, String)) -> Recorded {
    Recorded { job: JobId::from_uuid(job), fence, owner, result }
}
