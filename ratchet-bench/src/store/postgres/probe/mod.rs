//! The same work by hand: one statement for each step, on a connection of its own, in tables with no more than this
//! work needs. It takes jobs in the order of an index, not in the exact one, and skips every check that it can.

mod wake;

pub(super) use wake::{receiver as wake_receiver, sender as wake_sender};

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use ratchet_api::{JobId, JobPayload, whole_millis};
use ratchet_core::Enqueue;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::PgPlace;
use crate::enqueue::Shop;
use crate::job::payload;
use crate::lane::{Lane, RUN};

/// Creates the tables and opens the lanes.
pub(super) async fn lanes(place: &PgPlace, count: usize) -> Result<Vec<Box<dyn Lane>>> {
    sqlx::raw_sql(include_str!("tables.sql")).execute(&mut place.connection().await?).await?;
    let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
    for at in 0..count {
        lanes.push(Box::new(ProbeLane {
            connection: place.connection().await?,
            owner: format!("probe-{at}-{}", JobId::generate()),
            payload: payload()?,
            ready: VecDeque::new(),
            ids: Vec::new(),
            fences: Vec::new(),
        }));
    }
    Ok(lanes)
}

/// Creates the user's table and opens a connection for them.
pub(super) async fn shop(place: &PgPlace) -> Result<Box<dyn Shop>> {
    let mut connection = place.connection().await?;
    let orders = "CREATE TABLE orders (id uuid PRIMARY KEY, placed_at timestamptz NOT NULL)";
    sqlx::raw_sql(orders).execute(&mut connection).await?;
    Ok(Box::new(PgShop { connection, payload: payload()? }))
}

struct PgShop {
    connection: PgConnection,
    payload: JobPayload,
}

const ORDER: &str = "INSERT INTO orders (id, placed_at) VALUES ($1, now())";

#[async_trait]
impl Shop for PgShop {
    async fn order(&mut self, job: Enqueue<()>) -> Result<()> {
        let mut tx = self.connection.begin().await?;
        sqlx::query(ORDER).bind(JobId::generate().as_uuid()).execute(&mut *tx).await?;
        job.submit_in(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    async fn order_by_hand(&mut self) -> Result<()> {
        let mut tx = self.connection.begin().await?;
        sqlx::query(ORDER).bind(JobId::generate().as_uuid()).execute(&mut *tx).await?;
        insert(&mut tx, vec![JobId::generate().as_uuid()], &self.payload).await?;
        Ok(tx.commit().await?)
    }
}

/// Stores jobs with these ids.
async fn insert(connection: &mut PgConnection, ids: Vec<Uuid>, payload: &JobPayload) -> Result<()> {
    let count = ids.len();
    let inserted = sqlx::query(include_str!("insert.sql"))
        .bind(ids)
        .bind(vec![payload.text().as_str(); count])
        .bind(payload.target().as_str())
        .bind(payload.method().as_str())
        .execute(connection)
        .await?;
    ensure!(inserted.rows_affected() == count as u64, "a job was not stored");
    Ok(())
}

/// A row of `claim.sql` with one of `load.sql`, read in full as any worker would.
type Claimed =
    (Uuid, i64, String, String, i16, DateTime<Utc>, Option<DateTime<Utc>>, i64, i64, i64, i64, bool);
type Loaded = (Uuid, String, String, i16, i64, String, i64, String, String, String, DateTime<Utc>);

struct ProbeLane {
    connection: PgConnection,
    owner: String,
    payload: JobPayload,
    ready: VecDeque<Vec<Uuid>>,
    /// The claimed jobs.
    ids: Vec<Uuid>,
    fences: Vec<i64>,
}

impl ProbeLane {
    fn hold(&mut self, claimed: &[Claimed]) -> usize {
        (self.ids, self.fences) = claimed.iter().map(|row| (row.0, row.1)).unzip();
        claimed.len()
    }
}

#[async_trait]
impl Lane for ProbeLane {
    fn prepare(&mut self, jobs: usize, batch: usize) -> Result<()> {
        let ids: Vec<Uuid> = std::iter::repeat_with(|| JobId::generate().as_uuid()).take(jobs).collect();
        self.ready = ids.chunks(batch).map(<[_]>::to_vec).collect();
        Ok(())
    }

    async fn insert(&mut self) -> Result<usize> {
        let Some(ids) = self.ready.pop_front() else { return Ok(0) };
        let count = ids.len();
        insert(&mut self.connection, ids, &self.payload).await?;
        Ok(count)
    }

    async fn claim(&mut self, limit: usize) -> Result<usize> {
        let claim = sqlx::query_as(include_str!("claim.sql")).bind(&self.owner).bind(limit as i64);
        let claimed = claim.fetch_all(&mut self.connection).await?;
        Ok(self.hold(&claimed))
    }

    async fn load(&mut self) -> Result<()> {
        let load = sqlx::query_as(include_str!("load.sql")).bind(&self.ids);
        let loaded: Vec<Loaded> = load.fetch_all(&mut self.connection).await?;
        ensure!(loaded.len() == self.ids.len(), "a job was not loaded");
        Ok(())
    }

    async fn commit(&mut self) -> Result<()> {
        let commit = sqlx::query(include_str!("commit.sql"))
            .bind(&self.owner)
            .bind(&self.ids)
            .bind(&self.fences)
            .bind(whole_millis(RUN.started_ago))
            .bind(whole_millis(RUN.ran_for))
            .execute(&mut self.connection)
            .await?;
        ensure!(commit.rows_affected() == self.ids.len() as u64, "an outcome was refused");
        Ok(())
    }

    async fn commit_and_claim(&mut self, limit: usize) -> Result<usize> {
        let claimed = sqlx::query_as(include_str!("fused.sql"))
            .bind(&self.owner)
            .bind(limit as i64)
            .bind(&self.ids)
            .bind(&self.fences)
            .bind(whole_millis(RUN.started_ago))
            .bind(whole_millis(RUN.ran_for))
            .fetch_all(&mut self.connection)
            .await?;
        Ok(self.hold(&claimed))
    }
}
