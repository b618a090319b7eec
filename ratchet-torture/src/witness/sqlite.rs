//! A file of SQLite's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use ratchet_store_sqlite::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{Connection as _, Row as _, SqliteConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::{Change, RECORDED, Recorded, Witness, hold, recorded};

/// A file.
pub(crate) struct Sqlite {
    file: PathBuf,
    /// Locks everybody out for as long as it is there.
    lock: Mutex<Option<SqliteConnection>>,
}

impl Sqlite {
    pub(crate) async fn make(folder: &Path) -> Result<Self> {
        let place = Self { file: folder.join("jobs.db"), lock: Mutex::default() };
        drop(SqliteStore::open(&place.file).await?);
        sqlx::raw_sql(include_str!("sqlite.sql")).execute(&mut place.connection().await?).await?;
        Ok(place)
    }

    async fn connection(&self) -> Result<SqliteConnection> {
        let options = SqliteConnectOptions::new().filename(&self.file).busy_timeout(Duration::from_secs(60));
        Ok(SqliteConnection::connect_with(&options).await?)
    }
}

#[async_trait]
impl Witness for Sqlite {
    async fn store(&self) -> Result<Arc<dyn JobStore>> {
        Ok(Arc::new(SqliteStore::open(&self.file).await?))
    }

    fn address(&self) -> Vec<String> {
        vec!["--sqlite".to_owned(), self.file.display().to_string()]
    }

    /// Nobody can write while somebody else does.
    async fn cut(&self) -> Result<()> {
        let mut connection = self.connection().await?;
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await?;
        *self.lock.lock().await = Some(connection);
        Ok(())
    }

    async fn mend(&self) -> Result<()> {
        if let Some(connection) = self.lock.lock().await.take() {
            connection.close().await?;
        }
        Ok(())
    }

    async fn crash(&self) -> Result<bool> {
        Ok(false)
    }

    async fn changes(&self) -> Result<Vec<Change>> {
        let rows = sqlx::query("SELECT * FROM torture_change ORDER BY seq");
        let rows = rows.fetch_all(&mut self.connection().await?).await?;
        let change = |row: SqliteRow| -> Result<Change> {
            Ok(Change {
                job: JobId::from_uuid(row.try_get::<Uuid, _>("job_id")?),
                at: row.try_get("at")?,
                old: hold(row.try_get("old_status")?, row.try_get("old_owner")?, row.try_get("old_fence")?),
                new: hold(row.try_get("new_status")?, row.try_get("new_owner")?, row.try_get("new_fence")?),
                old_lease: row.try_get("old_lease")?,
                due: row.try_get("due")?,
            })
        };
        rows.into_iter().map(change).collect()
    }

    async fn recorded(&self) -> Result<Vec<Recorded>> {
        let rows = sqlx::query_as(RECORDED).fetch_all(&mut self.connection().await?).await?;
        Ok(rows.into_iter().map(recorded).collect())
    }

    async fn count(&self, query: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(query).fetch_one(&mut self.connection().await?).await?)
    }

    async fn execute(&self, statement: &'static str) -> Result<()> {
        sqlx::query(statement).execute(&mut self.connection().await?).await?;
        Ok(())
    }

    async fn remove(&self) -> Result<()> {
        let whole: String =
            sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut self.connection().await?).await?;
        anyhow::ensure!(whole == "ok", "the file is damaged: {whole}");
        Ok(())
    }
}
