//! A backlog written directly into the tables.

use anyhow::Result;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::backlog::{Backlog, Row, State};
use crate::job::payload;
use crate::store::Progress;

const CHUNK: usize = 10_000;

#[derive(Default)]
struct Columns {
    ids: Vec<Uuid>,
    queues: Vec<&'static str>,
    priorities: Vec<i16>,
    due: Vec<DateTime<Utc>>,
    states: Vec<&'static str>,
    blocked: Vec<i64>,
}

pub(super) async fn fill(
    connection: &mut PgConnection,
    backlog: Backlog,
    progress: &mut Progress,
) -> Result<()> {
    let payload = payload()?;
    let mut columns = Columns::default();
    let mut rows = backlog.rows().peekable();
    while let Some(row) = rows.next() {
        columns.push(row);
        if columns.ids.len() == CHUNK || rows.peek().is_none() {
            progress.add(columns.ids.len());
            std::mem::take(&mut columns).insert(connection, payload.text().as_str()).await?;
        }
    }
    Ok(())
}

impl Columns {
    fn push(&mut self, row: Row) {
        self.ids.push(row.id.as_uuid());
        self.queues.push(row.queue);
        self.priorities.push(row.priority.ordinal());
        self.due.push(row.due.to_datetime());
        self.states.push(if row.state == State::Paused { "PAUSED" } else { "PENDING" });
        self.blocked.push((row.state == State::Blocked).into());
    }

    async fn insert(self, connection: &mut PgConnection, payload: &str) -> Result<()> {
        sqlx::query(include_str!("fill.sql"))
            .bind(self.ids)
            .bind(self.queues)
            .bind(self.priorities)
            .bind(self.due)
            .bind(self.states)
            .bind(self.blocked)
            .bind(payload)
            .execute(connection)
            .await?;
        Ok(())
    }
}
