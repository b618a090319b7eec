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

/// The cases of features that are not built yet.
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
        // A missing file need not be removed.
        drop(std::fs::remove_file(part));
    }
}

/// Damages a job as a person with a shell could who also knows how to get past the constraints.
async fn spoil(file: PathBuf, job: JobId, how: Spoil) -> StoreResult<()> {
    let damages: &[&'static str] = match how {
        Spoil::UnknownType => &["UPDATE scheduler_job SET job_type = 'NOBODY' WHERE job_id = ?"],
        Spoil::UnknownBackoff => &["UPDATE scheduler_job SET backoff_policy = 'NOBODY' WHERE job_id = ?"],
        Spoil::QueueState => &["UPDATE scheduler_job_queue SET max_retries = -1 WHERE job_id = ?"],
        Spoil::LastVersion => {
            &["UPDATE scheduler_job_queue SET version = 9223372036854775807 WHERE job_id = ?"]
        }
        Spoil::QueueStateGone => &["DELETE FROM scheduler_job_queue WHERE job_id = ?"],
        Spoil::Priority => &["UPDATE scheduler_job_queue SET priority = 7 WHERE job_id = ?"],
        Spoil::QueueName => &[
            "UPDATE scheduler_job_queue SET queue = '' WHERE job_id = ?",
            "UPDATE scheduler_job SET queue = '' WHERE job_id = ?",
        ],
        Spoil::TargetName => &["UPDATE scheduler_job SET target = '' WHERE job_id = ?"],
        Spoil::FirstVersion => &["UPDATE scheduler_job_queue SET version = 1 WHERE job_id = ?"],
        Spoil::LogNumber => &["UPDATE scheduler_job_log SET log_id = 9223372036854775807 WHERE log_id = (
                   SELECT max(l.log_id) FROM scheduler_job_log l WHERE l.job_id = ?
               )"],
        Spoil::OwnerName => {
            &["UPDATE scheduler_job_queue SET picked_by = CAST(x'ff' AS TEXT) WHERE job_id = ?"]
        }
        Spoil::OwnerBeats => &["UPDATE scheduler_node SET beat_gap_ms = -1 WHERE node_id = (
                   SELECT q.picked_by FROM scheduler_job_queue q WHERE q.job_id = ?
               )"],
    };
    let options = SqliteConnectOptions::new().filename(file).pragma("ignore_check_constraints", "on");
    let mut connection = options.connect().await.expect("the file can be opened");
    let mut changed = 0;
    for damage in damages {
        let spoiled = sqlx::query(*damage).bind(job.as_uuid()).execute(&mut connection).await;
        changed += spoiled.expect("the row is written").rows_affected();
    }
    assert!(changed > 0, "job {job} exists");
    connection.close().await.expect("the file can be closed");
    Ok(())
}
