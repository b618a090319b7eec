//! The queries of a command line and a dashboard.

use async_trait::async_trait;
use ratchet_api::store::{
    DeadLetterGroup, JobFilter, JobPage, JobQueryStore, JobStory, PageRequest, Parking, QueueHealth,
};
use ratchet_api::{
    Batch, BatchId, Fingerprint, Job, JobId, JobStatus, JobType, QueueName, StoreResult, TargetName,
    Timestamp,
};

use super::SqlStore;
use crate::store::alert::alerts_of;
use crate::store::batch::batch;
use crate::store::cascade::edges_from;
use crate::store::page::{limit_and_one, page};
use crate::store::record::{edges_to, executions, logs};
use crate::store::recurring::readable;
use crate::store::row::{self, Cells, Problem, read_all, read_readable};
use crate::store::session::Session;
use crate::store::values::row_limit;

/// The maximum number of log lines in a job's story, from the first on.
const STORY_LOG_LINES: usize = 1_000;

#[async_trait]
impl JobQueryStore for SqlStore {
    async fn query_jobs(&self, filter: &JobFilter, page: &PageRequest) -> StoreResult<JobPage> {
        self.read("query_jobs", |session| Box::pin(query(session, filter, page))).await
    }

    async fn job_story(&self, job: JobId) -> StoreResult<Option<JobStory>> {
        self.read("job_story", |session| Box::pin(story(session, job))).await
    }

    async fn queue_health(&self) -> StoreResult<Vec<(QueueName, QueueHealth)>> {
        self.read("queue_health", |session| {
            Box::pin(async move {
                let rows =
                    session.sql().queue_health.bind().arg("now", session.store().now()).rows(session).await?;
                Ok(read_readable(session.op(), "the health of a queue", &rows, health))
            })
        })
        .await
    }

    async fn parkings(&self) -> StoreResult<Vec<Parking>> {
        self.read("parkings", |session| {
            Box::pin(async move {
                let rows = session.sql().parkings.bind().rows(session).await?;
                Ok(read_readable(session.op(), "what jobs are parked on", &rows, |cells| {
                    let (queue, on) = (cells.get("queue")?, cells.get("parked_on")?);
                    Ok(Parking { queue, on, jobs: cells.get("jobs")?, oldest: cells.get("oldest")? })
                }))
            })
        })
        .await
    }

    async fn dead_letters(&self, limit: usize) -> StoreResult<Vec<DeadLetterGroup>> {
        self.read("dead_letters", |session| {
            Box::pin(async move {
                let rows =
                    session.sql().dead_letters.bind().arg("lim", row_limit(limit)).rows(session).await?;
                Ok(read_readable(session.op(), "a group of dead letters", &rows, dead_letter_group))
            })
        })
        .await
    }

    async fn recurring(&self) -> StoreResult<Vec<Job>> {
        self.read("recurring", |session| {
            Box::pin(async move {
                let rows = session.sql().recurring.bind().rows(session).await?;
                Ok(readable(session.op(), &rows))
            })
        })
        .await
    }

    async fn batches(&self, after: Option<BatchId>, limit: usize) -> StoreResult<Vec<Batch>> {
        self.read("batches", |session| {
            Box::pin(async move {
                let list = session.sql().batches.bind().arg("after", after.map(|id| id.parent()));
                let rows = list.arg("lim", row_limit(limit)).rows(session).await?;
                Ok(read_readable(session.op(), "a batch", &rows, batch))
            })
        })
        .await
    }
}

async fn query(session: &mut Session<'_>, filter: &JobFilter, wanted: &PageRequest) -> StoreResult<JobPage> {
    let query = session.sql().query_jobs.bind();
    let rows = query
        .arg("after", wanted.after)
        .arg("statuses", filter.statuses.iter().map(|status| JobStatus::as_str(*status)).collect::<Vec<_>>())
        .arg("types", filter.types.iter().map(|job_type| JobType::as_str(*job_type)).collect::<Vec<_>>())
        .arg("queue", filter.queue.as_ref().map(|queue| queue.as_str()))
        .arg("target", filter.target.as_ref().map(|target| target.as_str()))
        .arg("method", filter.method.as_ref().map(|method| method.as_str()))
        .arg("business_key", filter.business_key.as_ref().map(|key| key.as_str()))
        .arg("principal", filter.caller_principal.as_deref())
        .arg("created_from", filter.created_from)
        .arg("created_until", filter.created_until)
        .arg("ended_from", filter.ended_from)
        .arg("ended_until", filter.ended_until)
        .arg("fingerprint", filter.fingerprint.as_ref().map(|fingerprint| fingerprint.as_str()))
        .arg("tags", filter.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>())
        .arg("lim", limit_and_one(wanted.limit))
        .rows(session)
        .await?;
    Ok(page(&rows, wanted.limit))
}

async fn story(session: &mut Session<'_>, id: JobId) -> StoreResult<Option<JobStory>> {
    let rows = session.sql().find.bind().arg("job_ids", vec![id]).rows(session).await?;
    let Some(job) = read_all(session.op(), &rows, row::job)?.pop() else { return Ok(None) };
    let mut story = JobStory::of(job);
    story.executions = executions(session, id).await?;
    story.logs = logs(session, id, None, STORY_LOG_LINES).await?;
    story.parents = edges_to(session, &[id]).await?;
    story.dependents = edges_from(session, [&id]).await?;
    story.alerts = alerts_of(session, id).await?;
    Ok(Some(story))
}

fn health(cells: Cells<'_>) -> Result<(QueueName, QueueHealth), Problem> {
    let mut health = QueueHealth::default();
    health.paused = cells.get("paused")?;
    health.ready = cells.get("ready")?;
    health.parked = cells.get("parked")?;
    health.scheduled = cells.get("scheduled")?;
    health.blocked = cells.get("blocked")?;
    health.running = cells.get("running")?;
    health.set_aside = cells.get("set_aside")?;
    health.failed = cells.get("failed")?;
    health.oldest_wait = cells.opt("oldest_wait_ms").unwrap_or_default();
    let by_priority: Vec<i64> = cells.get("by_priority")?;
    for (ready, counted) in health.ready_by_priority.iter_mut().zip(by_priority) {
        *ready = u64::try_from(counted)?;
    }
    Ok((QueueName::readable(&cells.shown("queue")), health))
}

fn dead_letter_group(cells: Cells<'_>) -> Result<DeadLetterGroup, Problem> {
    let fingerprint = Fingerprint::from_stored(cells.shown("error_fingerprint"));
    let (target, error) = (TargetName::readable(&cells.shown("target")), cells.shown("terminal_error"));
    let last_at = cells.get("terminated_at").unwrap_or(Timestamp::MIN);
    let mut group = DeadLetterGroup::new(fingerprint, target, error, cells.get("job_id")?, last_at);
    group.count = cells.get("members")?;
    Ok(group)
}
