//! A wakeup by hand: insert, `NOTIFY`, hear, claim.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use ratchet_api::{JobId, JobPayload};
use sqlx::PgConnection;
use sqlx::postgres::PgListener;

use super::{Claimed, PgPlace, insert};
use crate::job::payload;
use crate::latency::WakeProbe;

struct PgWake {
    submits: PgConnection,
    hears: PgListener,
    runs: PgConnection,
    channel: String,
    payload: JobPayload,
}

/// Makes the tables and opens the connections of both sides.
pub(crate) async fn probe(place: &PgPlace) -> Result<Box<dyn WakeProbe>> {
    sqlx::raw_sql(include_str!("tables.sql")).execute(&mut place.connection().await?).await?;
    let channel = format!("{}_by_hand", place.schema);
    let mut hears = PgListener::connect(&place.url).await?;
    hears.listen(&channel).await?;
    let (submits, runs) = (place.connection().await?, place.connection().await?);
    Ok(Box::new(PgWake { submits, hears, runs, channel, payload: payload()? }))
}

#[async_trait]
impl WakeProbe for PgWake {
    async fn wake(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        insert(&mut self.submits, vec![JobId::generate().as_uuid()], &self.payload).await?;
        let notify = sqlx::query("SELECT pg_notify($1, '2')").bind(&self.channel);
        notify.execute(&mut self.submits).await?;
        self.hears.recv().await?;
        let claim = sqlx::query_as(include_str!("claim.sql")).bind("by hand").bind(50_i64);
        let claimed: Vec<Claimed> = claim.fetch_all(&mut self.runs).await?;
        ensure!(claimed.len() == 1, "{} jobs were claimed", claimed.len());
        Ok(begun.elapsed())
    }
}
