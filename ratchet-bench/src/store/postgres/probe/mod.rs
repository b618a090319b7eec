//! The same work by hand: one statement for each step, on a connection that nobody shares, in tables that have no more
//! than this work needs. It takes jobs in the order of an index, not in the exact one, and checks nothing that it
//! can do without.

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use ratchet_api::{JobId, JobPayload, whole_millis};
use sqlx::PgConnection;
use uuid::Uuid;

use super::PgPlace;
use crate::lane::{Lane, RUN};
use crate::store::payload;

/// Makes the tables and opens so many lanes.
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

/// A row of `claim.sql` and one of `load.sql`: read in full, as any worker would.
type Claimed =
    (Uuid, i64, String, String, i16, DateTime<Utc>, Option<DateTime<Utc>>, i64, i64, i64, i64, bool);
type Loaded = (Uuid, String, String, i16, i64, String, i64, String, String, String, DateTime<Utc>);

struct ProbeLane {
    connection: PgConnection,
    owner: String,
    payload: JobPayload,
    ready: VecDeque<Vec<Uuid>>,
    /// What is claimed.
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
        let inserted = sqlx::query(include_str!("insert.sql"))
            .bind(ids)
            .bind(vec![self.payload.text().as_str(); count])
            .bind(self.payload.target().as_str())
            .bind(self.payload.method().as_str())
            .execute(&mut self.connection)
            .await?;
        ensure!(inserted.rows_affected() == count as u64, "a job was not stored");
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
