//! The same work by hand: one writer that all lanes share, one script for each step, in tables with no more than this
//! work needs. It takes jobs in the order of an index, not in the exact one, and skips every check that it can.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use ratchet_api::{JobId, JobPayload, Timestamp, whole_millis};
use ratchet_core::Enqueue;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, Connection as _, SqliteConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::SqlitePlace;
use crate::enqueue::Shop;
use crate::job::payload;
use crate::lane::{Lane, RUN};

/// Creates the tables in a file of their own and opens the lanes.
pub(super) async fn lanes(place: &SqlitePlace, count: usize) -> Result<Vec<Box<dyn Lane>>> {
    let mut writer = place.connection("probe.db").await?;
    sqlx::raw_sql(include_str!("tables.sql")).execute(&mut writer).await?;
    let writer = Arc::new(Mutex::new(writer));
    let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
    for at in 0..count {
        lanes.push(Box::new(ProbeLane {
            writer: Arc::clone(&writer),
            reader: place.connection("probe.db").await?,
            owner: format!("probe-{at}-{}", JobId::generate()),
            payload: payload()?,
            ready: VecDeque::new(),
            held: Vec::new(),
        }));
    }
    Ok(lanes)
}

/// Creates the user's tables and opens connections for them, one to each file.
pub(super) async fn shop(place: &SqlitePlace) -> Result<Box<dyn Shop>> {
    let orders = "CREATE TABLE orders (id BLOB NOT NULL PRIMARY KEY, placed_at INTEGER NOT NULL)";
    let mut with_store = place.connection(SqlitePlace::FILE).await?;
    let mut with_probe = place.connection("probe.db").await?;
    for connection in [&mut with_store, &mut with_probe] {
        sqlx::raw_sql(orders).execute(connection).await?;
    }
    Ok(Box::new(SqliteShop { with_store, with_probe, payload: payload()? }))
}

struct SqliteShop {
    with_store: SqliteConnection,
    with_probe: SqliteConnection,
    payload: JobPayload,
}

#[async_trait]
impl Shop for SqliteShop {
    async fn order(&mut self, job: Enqueue<()>) -> Result<()> {
        let mut tx = self.with_store.begin_with("BEGIN IMMEDIATE").await?;
        let order = sqlx::query("INSERT INTO orders (id, placed_at) VALUES (?1, ?2)");
        order.bind(JobId::generate().as_uuid()).bind(now()).execute(&mut *tx).await?;
        job.submit_in(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    async fn order_by_hand(&mut self) -> Result<()> {
        let order = sqlx::query(include_str!("order.sql"))
            .bind(JobId::generate().as_uuid())
            .bind(JobId::generate().as_uuid())
            .bind(now())
            .bind(self.payload.text().as_str().to_owned())
            .bind(self.payload.target().as_str().to_owned())
            .bind(self.payload.method().as_str().to_owned());
        order.execute(&mut self.with_probe).await?;
        Ok(())
    }
}

/// A row of `claim.sql` with one of `load.sql`, read in full as any worker would.
type Claimed = (Uuid, i64, String, String, i64, i64, Option<i64>, i64, i64, i64, i64, bool);
type Loaded = (Uuid, String, String, i64, i64, String, i64, String, String, String, i64);

struct ProbeLane {
    writer: Arc<Mutex<SqliteConnection>>,
    reader: SqliteConnection,
    owner: String,
    payload: JobPayload,
    ready: VecDeque<Vec<String>>,
    /// The claimed jobs, with their fences.
    held: Vec<(Uuid, i64)>,
}

impl ProbeLane {
    fn hold(&mut self, claimed: &[Claimed]) -> usize {
        self.held = claimed.iter().map(|row| (row.0, row.1)).collect();
        claimed.len()
    }

    /// The parameters of `commit.sql` and `fused.sql`.
    fn outcomes(&self, limit: usize) -> Result<SqliteArguments> {
        let outcomes: Vec<(String, i64)> = self.held.iter().map(|(id, fence)| (hex(id), *fence)).collect();
        let mut arguments = SqliteArguments::default();
        let mut add = || -> Result<(), sqlx::error::BoxDynError> {
            arguments.add(self.owner.clone())?;
            arguments.add(limit as i64)?;
            arguments.add(now())?;
            arguments.add(serde_json::to_string(&outcomes)?)?;
            arguments.add(whole_millis(RUN.started_ago))?;
            arguments.add(whole_millis(RUN.ran_for))
        };
        add().map_err(sqlx::Error::Encode)?;
        Ok(arguments)
    }
}

fn hex(id: &Uuid) -> String {
    id.simple().to_string()
}

fn now() -> i64 {
    Timestamp::node_now().as_millis()
}

#[async_trait]
impl Lane for ProbeLane {
    fn prepare(&mut self, jobs: usize, batch: usize) -> Result<()> {
        let ids: Vec<String> =
            std::iter::repeat_with(|| hex(&JobId::generate().as_uuid())).take(jobs).collect();
        self.ready = ids.chunks(batch).map(<[_]>::to_vec).collect();
        Ok(())
    }

    async fn insert(&mut self) -> Result<usize> {
        let Some(ids) = self.ready.pop_front() else { return Ok(0) };
        let jobs: Vec<(&str, &str)> =
            ids.iter().map(|id| (id.as_str(), self.payload.text().as_str())).collect();
        let insert = sqlx::query(include_str!("insert.sql"))
            .bind(serde_json::to_string(&jobs)?)
            .bind(self.payload.target().as_str().to_owned())
            .bind(self.payload.method().as_str().to_owned())
            .bind(now());
        insert.execute(&mut *self.writer.lock().await).await?;
        Ok(ids.len())
    }

    async fn claim(&mut self, limit: usize) -> Result<usize> {
        let claim = sqlx::query_as(include_str!("claim.sql"));
        let claim = claim.bind(self.owner.clone()).bind(limit as i64).bind(now());
        let claimed = claim.fetch_all(&mut *self.writer.lock().await).await?;
        Ok(self.hold(&claimed))
    }

    async fn load(&mut self) -> Result<()> {
        let ids: Vec<String> = self.held.iter().map(|(id, _)| hex(id)).collect();
        let load = sqlx::query_as(include_str!("load.sql")).bind(serde_json::to_string(&ids)?);
        let loaded: Vec<Loaded> = load.fetch_all(&mut self.reader).await?;
        ensure!(loaded.len() == self.held.len(), "a job was not loaded");
        Ok(())
    }

    async fn commit(&mut self) -> Result<()> {
        let commit = sqlx::query_with(include_str!("commit.sql"), self.outcomes(0)?);
        commit.execute(&mut *self.writer.lock().await).await?;
        Ok(())
    }

    async fn commit_and_claim(&mut self, limit: usize) -> Result<usize> {
        let fused = sqlx::query_as_with(include_str!("fused.sql"), self.outcomes(limit)?);
        let claimed = fused.fetch_all(&mut *self.writer.lock().await).await?;
        Ok(self.hold(&claimed))
    }
}
