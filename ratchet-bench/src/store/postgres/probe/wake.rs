//! A wakeup by hand: insert and `NOTIFY` on one side, receive and claim on the other.

use anyhow::Result;
use async_trait::async_trait;
use ratchet_api::{JobId, JobPayload};
use sqlx::PgConnection;
use sqlx::postgres::PgListener;

use super::{Claimed, PgPlace, insert};
use crate::job::payload;
use crate::latency::{WakeReceiver, WakeSender};

/// The cheapest notification: a hint need not wait for the disk.
const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '2')";

fn channel(place: &PgPlace) -> String {
    format!("{}_by_hand", place.schema)
}

struct PgSender {
    connection: PgConnection,
    channel: String,
    payload: JobPayload,
}

/// The submitting side, made after the running one.
pub(crate) async fn sender(place: &PgPlace) -> Result<Box<dyn WakeSender>> {
    let connection = place.connection().await?;
    Ok(Box::new(PgSender { connection, channel: channel(place), payload: payload()? }))
}

#[async_trait]
impl WakeSender for PgSender {
    async fn insert(&mut self) -> Result<JobId> {
        let job = JobId::generate();
        insert(&mut self.connection, vec![job.as_uuid()], &self.payload).await?;
        Ok(job)
    }

    async fn notify(&mut self) -> Result<()> {
        sqlx::query(NOTIFY).bind(&self.channel).execute(&mut self.connection).await?;
        Ok(())
    }
}

struct PgReceiver {
    hears: PgListener,
    claims: PgConnection,
}

/// Creates the tables and the running side.
pub(crate) async fn receiver(place: &PgPlace) -> Result<Box<dyn WakeReceiver>> {
    sqlx::raw_sql(include_str!("tables.sql")).execute(&mut place.connection().await?).await?;
    let mut hears = PgListener::connect(&place.url).await?;
    hears.listen(&channel(place)).await?;
    Ok(Box::new(PgReceiver { hears, claims: place.connection().await? }))
}

#[async_trait]
impl WakeReceiver for PgReceiver {
    async fn claimed(&mut self) -> Result<Vec<JobId>> {
        self.hears.recv().await?;
        let claim = sqlx::query_as(include_str!("claim.sql")).bind("by hand").bind(50_i64);
        let claimed: Vec<Claimed> = claim.fetch_all(&mut self.claims).await?;
        Ok(claimed.into_iter().map(|claimed| JobId::from_uuid(claimed.0)).collect())
    }
}
