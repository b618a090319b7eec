//! The SQLite store: a folder for each place, with the store's file and the probe's.

mod explain;
mod probe;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{JobId, StoreClock};
use ratchet_store_sqlite::{SqliteOptions, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use super::{Bench, Plan, Progress, TestDatabase};
use crate::backlog::{BOOST, Backlog, Row, State};
use crate::enqueue::Shop;
use crate::job::payload;
use crate::lane::Lane;
use crate::usage::own_writes;

const CHUNK: usize = 10_000;

pub(super) struct Sqlite;

#[async_trait]
impl Bench for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn remarks(&self) -> Result<Vec<String>> {
        let place = std::env::temp_dir();
        Ok(vec![format!(
            "SQLite, synchronous = FULL, in {} (set TMPDIR for another disk); log B are all bytes written",
            place.display()
        )])
    }

    fn least_of_probe(&self) -> Option<f64> {
        Some(0.6)
    }

    async fn log_bytes(&self) -> Result<Option<u64>> {
        Ok(own_writes())
    }

    fn usual_connections(&self) -> usize {
        SqliteOptions::default().readers
    }

    async fn place(&self) -> Result<Box<dyn TestDatabase>> {
        Ok(Box::new(SqlitePlace { folder: TempDir::with_prefix("ratchet-bench-")? }))
    }
}

struct SqlitePlace {
    folder: TempDir,
}

impl SqlitePlace {
    const FILE: &str = "store.db";

    /// A connection with the store's settings.
    async fn connection(&self, file: &str) -> Result<SqliteConnection> {
        let file = Path::join(self.folder.path(), file);
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("cache_size", "-16000")
            .pragma("wal_autocheckpoint", "4000")
            .row_buffer_size(1_024)
            .busy_timeout(Duration::from_secs(60));
        Ok(options.disable_statement_logging().connect().await?)
    }
}

#[async_trait]
impl TestDatabase for SqlitePlace {
    async fn connect(&self, clock: StoreClock, connections: usize) -> Result<Arc<dyn JobStore>> {
        let mut options = SqliteOptions::default();
        options.clock = clock;
        options.readers = connections;
        options.operation_timeout = Duration::from_secs(600);
        options.acquire_timeout = Duration::from_secs(600);
        Ok(Arc::new(SqliteStore::open_with(self.folder.path().join(Self::FILE), options).await?))
    }

    async fn fill(&self, backlog: Backlog, progress: &mut Progress) -> Result<()> {
        // Creates the tables.
        drop(self.connect(StoreClock::Server, 1).await?);
        let mut connection = self.connection(Self::FILE).await?;
        // All in memory, so that each page is written once: smaller transactions write index pages again and again.
        let begin = "PRAGMA synchronous = OFF; PRAGMA cache_size = -2000000; BEGIN IMMEDIATE";
        sqlx::raw_sql(begin).execute(&mut connection).await?;
        let payload = payload()?;
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut rows = backlog.rows().peekable();
        while let Some(row) = rows.next() {
            chunk.push(cells(&row));
            if chunk.len() == CHUNK || rows.peek().is_none() {
                let fill = sqlx::query(include_str!("fill.sql")).bind(serde_json::to_string(&chunk)?);
                fill.bind(payload.text().as_str().to_owned()).execute(&mut connection).await?;
                progress.add(chunk.len());
                chunk.clear();
            }
        }
        sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
        Ok(())
    }

    async fn tidy(&self) -> Result<()> {
        let mut connection = self.connection(Self::FILE).await?;
        sqlx::raw_sql("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
        Ok(())
    }

    async fn literal(&self, backlog: Backlog, queue: &str, limit: usize) -> Result<Vec<JobId>> {
        let ids = sqlx::query_scalar::<_, Uuid>(include_str!("literal.sql"))
            .bind(queue)
            .bind(backlog.now.as_millis())
            .bind(i64::try_from(BOOST.as_millis())?)
            .bind(i64::try_from(limit)?)
            .fetch_all(&mut self.connection(Self::FILE).await?)
            .await?;
        Ok(ids.into_iter().map(JobId::from_uuid).collect())
    }

    async fn plan(&self, _: StoreClock, _: &ClaimRequest, _: u64) -> Result<Option<Plan>> {
        explain::plan(&mut self.connection(Self::FILE).await?).await.map(Some)
    }

    async fn probe(&self, lanes: usize) -> Result<Option<Vec<Box<dyn Lane>>>> {
        probe::lanes(self, lanes).await.map(Some)
    }

    async fn shop(&self) -> Result<Option<Box<dyn Shop>>> {
        probe::shop(self).await.map(Some)
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.folder.close()?)
    }
}

/// The parameters of `fill.sql` for a row.
fn cells(row: &Row) -> (String, &'static str, i16, i64, &'static str, u8) {
    let status = if row.state == State::Paused { "PAUSED" } else { "PENDING" };
    let id = row.id.as_uuid().simple().to_string();
    let blocked = u8::from(row.state == State::Blocked);
    (id, row.queue, row.priority.ordinal(), row.due.as_millis(), status, blocked)
}
