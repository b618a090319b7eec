//! Makes stores for the conformance suite: a schema of its own for each case.

use std::sync::Arc;

use async_trait::async_trait;
use ratchet_api::store::JobStore;
use ratchet_api::{JobId, StoreClock, StoreError, StoreResult};
use ratchet_servers::Server;
use ratchet_store_postgres::{Namespace as Schema, Pooler, PostgresOptions, PostgresStore};
use ratchet_tck::{Namespace, Spoil, StoreHarness};
use sqlx::{Connection as _, PgConnection};

use super::{drop_schema, url};

/// Stores on PostgreSQL or on PgBouncer.
pub(crate) struct PgHarness {
    pub(crate) server: Server,
    pub(crate) pooler: Pooler,
}

impl PgHarness {
    fn url(&self) -> StoreResult<String> {
        ratchet_servers::url(self.server).map_err(|error| StoreError::invalid("connect", error.to_string()))
    }
}

#[async_trait]
impl StoreHarness for PgHarness {
    async fn namespace(&self) -> StoreResult<Namespace> {
        let name = format!("tck_{:032x}", rand::random::<u128>());
        PostgresStore::migrator(&self.url()?, Schema::schema(&name)?)?.migrate(|_| {}).await?;
        let (dropped, spoiled, cut) = (Schema::schema(&name)?, name.clone(), name.clone());
        Ok(Namespace::new(name)
            .on_close(move || async move { drop_schema(&dropped).await })
            .on_spoil(move |job, how| spoil(spoiled.clone(), job, how))
            .on_interrupt(move || cut_wakeups(cut.clone())))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        let mut options = PostgresOptions::default();
        options.namespace = Schema::schema(namespace.name())?;
        options.pooler = self.pooler;
        options.clock = clock;
        options.connections = 3;
        Ok(Arc::new(PostgresStore::connect(&self.url()?, options).await?))
    }
}

/// Ends the connections over which the nodes of a schema notify each other of new work.
pub(crate) async fn cut_wakeups(schema: String) -> StoreResult<()> {
    let mut connection = PgConnection::connect(&url()).await.expect("the server answers");
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
    let cut = sqlx::query_scalar::<_, i64>(cut).bind(format!("ratchet-wakeup {schema}"));
    assert!(cut.fetch_one(&mut connection).await.expect("an answer") > 0, "nobody is connected");
    Ok(())
}

/// Damages a job as a person with a shell could who also knows how to get past the constraints.
async fn spoil(schema: String, job: JobId, how: Spoil) -> StoreResult<()> {
    let damages: &[&'static str] = match how {
        Spoil::UnknownType => &["UPDATE scheduler_job SET job_type = 'NOBODY' WHERE job_id = $1"],
        Spoil::UnknownBackoff => &["UPDATE scheduler_job SET backoff_policy = 'NOBODY' WHERE job_id = $1"],
        Spoil::QueueState => &["UPDATE scheduler_job_queue SET max_retries = -1 WHERE job_id = $1"],
        Spoil::LastVersion => {
            &["UPDATE scheduler_job_queue SET version = 9223372036854775807 WHERE job_id = $1"]
        }
        Spoil::QueueStateGone => &["DELETE FROM scheduler_job_queue WHERE job_id = $1"],
        Spoil::Priority => &["UPDATE scheduler_job_queue SET priority = 7 WHERE job_id = $1"],
        Spoil::QueueName => &[
            "UPDATE scheduler_job_queue SET queue = '' WHERE job_id = $1",
            "UPDATE scheduler_job SET queue = '' WHERE job_id = $1",
        ],
        Spoil::TargetName => &["UPDATE scheduler_job SET target = '' WHERE job_id = $1"],
        Spoil::FirstVersion => &["UPDATE scheduler_job_queue SET version = 1 WHERE job_id = $1"],
        // The server generates the numbers, but accepts an explicit one.
        Spoil::LogNumber => &["WITH newest AS (
                DELETE FROM scheduler_job_log
                WHERE log_id = (SELECT max(l.log_id) FROM scheduler_job_log l WHERE l.job_id = $1)
                RETURNING job_id, fence, ts, level, message
            )
            INSERT INTO scheduler_job_log (log_id, job_id, fence, ts, level, message) OVERRIDING SYSTEM VALUE
            SELECT 9223372036854775807, n.* FROM newest n"],
        Spoil::OwnerName => &["UPDATE scheduler_job_queue SET picked_by = '' WHERE job_id = $1"],
        Spoil::OwnerBeats => &["UPDATE scheduler_node SET beat_gap_ms = -1 WHERE node_id = (
                   SELECT q.picked_by FROM scheduler_job_queue q WHERE q.job_id = $1
               )"],
    };
    let mut connection = PgConnection::connect(&url()).await.expect("the server answers");
    let path = sqlx::query("SELECT set_config('search_path', $1, false)").bind(schema);
    path.execute(&mut connection).await.expect("the path is set");
    let unguarded =
        "ALTER TABLE scheduler_job_queue DROP CONSTRAINT IF EXISTS scheduler_job_queue_priority_check";
    sqlx::query(unguarded).execute(&mut connection).await.expect("the constraint goes");
    let mut changed = 0;
    for damage in damages {
        let spoiled = sqlx::query(*damage).bind(job.as_uuid()).execute(&mut connection).await;
        changed += spoiled.expect("the row is written").rows_affected();
    }
    assert!(changed > 0, "job {job} exists");
    Ok(())
}
