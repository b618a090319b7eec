//! The conformance suite on SQLite: a file of its own for each case.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_api::store::JobStore;
use ratchet_api::{JobId, StoreClock, StoreResult};
use ratchet_store_sqlite::{Durability, SqliteOptions, SqliteStore};
use ratchet_tck::{Namespace, Spoil, StoreHarness, Suite};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

/// What is not built yet.
const NOT_YET_BUILT: &[&str] = &[];

fn main() -> ExitCode {
    let dir = TempDir::with_prefix("ratchet-tck-").expect("there is room for files");
    Suite::new(SqliteHarness(dir)).not_yet_built(NOT_YET_BUILT).wakeups().main()
}

struct SqliteHarness(TempDir);

#[async_trait]
impl StoreHarness for SqliteHarness {
    async fn namespace(&self) -> StoreResult<Namespace> {
        let file = self.0.path().join(format!("{}.db", JobId::generate()));
        let (spoiled, removed) = (file.clone(), file.clone());
        Ok(Namespace::new(file.display().to_string())
            .on_close(move || async move { remove(&removed) })
            .on_spoil(move |job, how| spoil(spoiled.clone(), job, how)))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        let mut options = SqliteOptions::default();
        options.clock = clock;
        options.durability = Durability::Normal;
        Ok(Arc::new(SqliteStore::open_with(namespace.name(), options).await?))
    }
}

fn remove(file: &Path) {
    for end in ["", "-wal", "-shm", "-wakeup"] {
        let mut part = file.as_os_str().to_owned();
        part.push(end);
        // What is not there need not go.
        drop(std::fs::remove_file(part));
    }
}

/// Writes a word that nobody knows into the description of a job.
async fn spoil(file: PathBuf, job: JobId, how: Spoil) -> StoreResult<()> {
    let update = match how {
        Spoil::UnknownType => "UPDATE scheduler_job SET job_type = 'NOBODY' WHERE job_id = ?",
        Spoil::UnknownBackoff => "UPDATE scheduler_job SET backoff_policy = 'NOBODY' WHERE job_id = ?",
    };
    let mut connection =
        SqliteConnectOptions::new().filename(file).connect().await.expect("the file can be opened");
    let spoiled = sqlx::query(update).bind(job.as_uuid()).execute(&mut connection).await;
    assert_eq!(spoiled.expect("the row is written").rows_affected(), 1, "job {job} exists");
    connection.close().await.expect("the file can be closed");
    Ok(())
}
