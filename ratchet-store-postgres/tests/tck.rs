//! The conformance suite on a real PostgreSQL: a schema of its own for each case.

mod common;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_api::store::JobStore;
use ratchet_api::{JobId, StoreClock, StoreError, StoreResult};
use ratchet_store_postgres::{Namespace as Schema, PostgresOptions, PostgresStore};
use ratchet_tck::{Namespace, Spoil, StoreHarness, Suite};
use sqlx::{Connection as _, PgConnection};

const URL: &str = "RATCHET_TEST_POSTGRES_URL";

/// What is not built yet.
const NOT_YET_BUILT: &[&str] = &[];

fn main() -> ExitCode {
    Suite::new(PgHarness).not_yet_built(NOT_YET_BUILT).main()
}

struct PgHarness;

#[async_trait]
impl StoreHarness for PgHarness {
    async fn namespace(&self) -> StoreResult<Namespace> {
        let name = format!("tck_{:032x}", rand::random::<u128>());
        PostgresStore::migrator(&url()?, Schema::schema(&name)?)?.migrate(|_| {}).await?;
        let (dropped, spoiled) = (Schema::schema(&name)?, name.clone());
        Ok(Namespace::new(name)
            .on_close(move || async move { common::drop_schema(&dropped).await })
            .on_spoil(move |job, how| spoil(spoiled.clone(), job, how)))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        Ok(Arc::new(store(namespace.name(), clock).await?))
    }
}

async fn store(schema: &str, clock: StoreClock) -> StoreResult<PostgresStore> {
    let mut options = PostgresOptions::default();
    options.namespace = Schema::schema(schema)?;
    options.clock = clock;
    options.connections = 3;
    PostgresStore::connect(&url()?, options).await
}

fn url() -> StoreResult<String> {
    let advice = format!(
        "{URL} is not set; run `cargo xtask servers up postgres` and `eval \"$(cargo xtask servers env)\"`"
    );
    std::env::var(URL).map_err(|_| StoreError::invalid("connect", advice))
}

/// Writes a word that nobody knows into the description of a job.
async fn spoil(schema: String, job: JobId, how: Spoil) -> StoreResult<()> {
    let update = match how {
        Spoil::UnknownType => "UPDATE scheduler_job SET job_type = 'NOBODY' WHERE job_id = $1",
        Spoil::UnknownBackoff => "UPDATE scheduler_job SET backoff_policy = 'NOBODY' WHERE job_id = $1",
    };
    let mut connection = PgConnection::connect(&url()?).await.expect("the server answers");
    let path = sqlx::query("SELECT set_config('search_path', $1, false)").bind(schema);
    path.execute(&mut connection).await.expect("the path is set");
    let spoiled = sqlx::query(update).bind(job.as_uuid()).execute(&mut connection).await;
    assert_eq!(spoiled.expect("the row is written").rows_affected(), 1, "job {job} exists");
    Ok(())
}
