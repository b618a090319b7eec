//! A SQLite file.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use ratchet_store_sqlite::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{Connection as _, Row as _, SqliteConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::sql::{self, RECORDED, Sql, recorded};
use super::{Change, Excess, Recorded, Rest, Witness, hold};

/// A database in a file.
pub(crate) struct Sqlite {
    file: PathBuf,
    /// A transaction that locks out all writers while it exists.
    lock: Mutex<Option<SqliteConnection>>,
    /// The disk of the file, if one was made for this run.
    disk: Option<Disk>,
}

/// A small file system in memory, unmounted on drop.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// The size: more than the database needs.
    const SIZE: &str = "size=64m";

    fn mount(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir(&folder)?;
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", Self::SIZE, "tmpfs"]).arg(&folder).status()?;
        ensure!(mounted.success(), "a disk that is full needs a tmpfs, which only root may mount");
        Ok(Self { folder })
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    /// Writes until the disk is full to the last byte.
    fn fill(&self) -> Result<()> {
        let (mut file, mut size) = (File::create(self.filler())?, 1 << 20);
        let nothing = vec![0; size];
        while size > 0 {
            match file.write(&nothing[..size]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => size /= 2,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a worker that is about to be killed may have files open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

impl Sqlite {
    /// Creates it in this folder, or on a small disk of its own below it.
    pub(crate) async fn make(folder: &Path, on_a_disk: bool) -> Result<Self> {
        let disk = on_a_disk.then(|| Disk::mount(folder.join("disk"))).transpose()?;
        let file = disk.as_ref().map_or(folder, |disk| &disk.folder).join("jobs.db");
        let place = Self { file, lock: Mutex::default(), disk };
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

    /// Holds a write lock, so that no other connection can write.
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

    async fn fill_disk(&self) -> Result<()> {
        self.disk.as_ref().context("the disk is not that of this run alone")?.fill()
    }

    async fn free_disk(&self) -> Result<()> {
        let disk = self.disk.as_ref().context("the disk is not that of this run alone")?;
        Ok(std::fs::remove_file(disk.filler())?)
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

    async fn excess(&self) -> Result<Excess> {
        sql::excess(self).await
    }

    async fn rest(&self) -> Result<Rest> {
        sql::rest(self).await
    }

    async fn spoil(&self) -> Result<()> {
        sql::spoil(self).await
    }

    async fn remove(&self) -> Result<()> {
        let whole: String =
            sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut self.connection().await?).await?;
        anyhow::ensure!(whole == "ok", "the file is damaged: {whole}");
        Ok(())
    }
}

#[async_trait]
impl Sql for Sqlite {
    async fn count(&self, query: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(query).fetch_one(&mut self.connection().await?).await?)
    }

    async fn execute(&self, statement: &'static str) -> Result<()> {
        sqlx::query(statement).execute(&mut self.connection().await?).await?;
        Ok(())
    }
}
