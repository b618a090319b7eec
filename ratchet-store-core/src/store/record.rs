//! The records beside the jobs: history, logs, tags and edges.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore};
use ratchet_api::{Edge, Execution, JobId, LogLine, NewLogLine, StoreResult, Tag};

use super::SqlStore;
use crate::store::cascade;
use crate::store::lock_rows::ids_of;
use crate::store::row::{self, Cells, Problem, read_readable};
use crate::store::session::Session;
use crate::store::values::{retention_millis, row_limit};

#[async_trait]
impl ExecutionStore for SqlStore {
    async fn executions(&self, job: JobId) -> StoreResult<Vec<Execution>> {
        self.read("executions", |session| Box::pin(executions(session, job))).await
    }
}

#[async_trait]
impl JobLogStore for SqlStore {
    async fn append_logs(&self, lines: &[NewLogLine]) -> StoreResult<()> {
        self.write("append_logs", |session| {
            Box::pin(async move {
                let append = session.sql().append_logs.bind();
                append
                    .arg("job_ids", ids_of(lines.iter().map(|line| &line.job)))
                    .arg("fences", lines.iter().map(|line| line.fence.version()).collect::<Vec<_>>())
                    .arg("levels", lines.iter().map(|line| line.level.as_str()).collect::<Vec<_>>())
                    .arg("messages", lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>())
                    .arg("now", session.store().now())
                    .run(session)
                    .await
                    .map(drop)
            })
        })
        .await
    }

    async fn logs(&self, job: JobId, after: Option<u64>, limit: usize) -> StoreResult<Vec<LogLine>> {
        self.read("logs", |session| Box::pin(logs(session, job, after, limit))).await
    }

    async fn purge_logs(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        self.write("purge_logs", |session| {
            Box::pin(async move {
                let purge = session.sql().purge_logs.bind().arg("now", session.store().now());
                let purge =
                    purge.arg("retention_ms", retention_millis(retention)).arg("lim", row_limit(limit));
                purge.run(session).await
            })
        })
        .await
    }
}

#[async_trait]
impl TagStore for SqlStore {
    async fn add_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool> {
        self.write("add_tags", |session| {
            Box::pin(async move {
                let add = session.sql().add_tags.bind().arg("job_id", job).arg("tags", texts(tags));
                Cells(&add.row(session).await?).must(session.op(), "known")
            })
        })
        .await
    }

    async fn remove_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool> {
        self.write("remove_tags", |session| {
            Box::pin(async move {
                let remove = session.sql().remove_tags.bind().arg("job_id", job).arg("tags", texts(tags));
                Cells(&remove.row(session).await?).must(session.op(), "known")
            })
        })
        .await
    }

    async fn jobs_by_tag(&self, tag: &Tag, after: Option<JobId>, limit: usize) -> StoreResult<Vec<JobId>> {
        self.read("jobs_by_tag", |session| {
            Box::pin(async move {
                let find = session.sql().jobs_by_tag.bind().arg("tag", tag.as_str());
                find.arg("after", after).arg("lim", row_limit(limit)).jobs(session).await
            })
        })
        .await
    }
}

#[async_trait]
impl WorkflowConditionStore for SqlStore {
    async fn edges_from(&self, parents: &[JobId]) -> StoreResult<Vec<Edge>> {
        self.read("edges_from", |session| Box::pin(cascade::edges_from(session, parents))).await
    }

    async fn edges_to(&self, children: &[JobId]) -> StoreResult<Vec<Edge>> {
        self.read("edges_to", |session| Box::pin(edges_to(session, children))).await
    }
}

fn texts(tags: &[Tag]) -> Vec<&str> {
    tags.iter().map(|tag| tag.as_str()).collect()
}

pub(crate) async fn executions(session: &mut Session<'_>, job: JobId) -> StoreResult<Vec<Execution>> {
    let rows = session.sql().executions.bind().arg("job_id", job).rows(session).await?;
    Ok(read_readable(session.op(), "an attempt", &rows, execution))
}

pub(crate) async fn logs(
    session: &mut Session<'_>,
    job: JobId,
    after: Option<u64>,
    limit: usize,
) -> StoreResult<Vec<LogLine>> {
    let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let logs = session.sql().logs.bind().arg("job_id", job);
    let rows = logs.arg("after", after).arg("lim", row_limit(limit)).rows(session).await?;
    Ok(read_readable(session.op(), "a line of a log", &rows, |cells| {
        let (seq, fence, at) = (cells.get("log_id")?, cells.get("fence")?, cells.get("ts")?);
        Ok(LogLine::new(seq, fence, at, cells.get("level")?, cells.get("message")?))
    }))
}

pub(crate) async fn edges_to(session: &mut Session<'_>, children: &[JobId]) -> StoreResult<Vec<Edge>> {
    let rows = session.sql().edges_to.bind().arg("children", ids_of(children)).rows(session).await?;
    Ok(read_readable(session.op(), "an edge", &rows, row::edge))
}

/// A row of `scheduler_job_execution`.
fn execution(cells: Cells<'_>) -> Result<Execution, Problem> {
    let (job, fence, owner) = (cells.get("job_id")?, cells.get("fence")?, cells.get("node_id")?);
    let (result, attempt) = (cells.get("status")?, cells.get("attempt")?);
    let mut execution = Execution::new(job, fence, owner, result, attempt, cells.get("recorded_at")?);
    execution.started_at = cells.opt("started_at")?;
    execution.duration = cells.opt("duration_ms")?;
    execution.error_class = cells.opt("error_class")?;
    execution.error = cells.opt("error_message")?;
    Ok(execution)
}
