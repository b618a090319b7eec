//! Archiving and deletion of old jobs.
//!
//! No foreign key refers to a job, because each would cost a trigger at every end of one. So a removal first chooses
//! and locks the jobs, and removes them in a second statement, which sees everything that was tied to them by then.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{ArchiveFilter, ArchiveStore, Retention};
use ratchet_api::{ArchivedJob, Ending, Job, JobId, JobSpec, StoreResult};

use super::SqlStore;
use crate::store::lock_rows::ids_of;
use crate::store::row::{Cells, Problem, payload, read_readable};
use crate::store::session::Session;
use crate::store::values::{retention_millis, row_limit};

#[async_trait]
impl ArchiveStore for SqlStore {
    async fn archive(&self, retention: &Retention, limit: usize) -> StoreResult<u64> {
        self.transaction("archive", |session| Box::pin(archive(session, retention, limit))).await
    }

    async fn archived(&self, filter: &ArchiveFilter, limit: usize) -> StoreResult<Vec<ArchivedJob>> {
        self.read("archived", |session| Box::pin(archived(session, filter, limit))).await
    }

    async fn purge_archive(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        self.write("purge_archive", |session| {
            Box::pin(async move {
                let purge = session.sql().purge_archive.bind().arg("now", session.store().now());
                let purge = purge.arg("retention_ms", retention_millis(retention));
                purge.arg("lim", row_limit(limit)).run(session).await
            })
        })
        .await
    }
}

/// Moves old jobs into the archive.
async fn archive(session: &mut Session<'_>, retention: &Retention, limit: usize) -> StoreResult<u64> {
    let now = session.store().now();
    let choose = session.sql().choose_old.bind().arg("now", now);
    let choose = choose
        .arg("failed_ms", retention_millis(retention.failed))
        .arg("ended_ms", retention_millis(retention.ended));
    let old = choose.arg("lim", row_limit(limit)).jobs(session).await?;
    if !old.is_empty() {
        session.sql().archive.bind().arg("now", now).arg("job_ids", &old).run(session).await?;
    }
    remove(session, &old).await
}

/// Removes ended jobs.
pub(crate) async fn delete(session: &mut Session<'_>, jobs: &[JobId]) -> StoreResult<u64> {
    let ended = session.sql().choose_ended.bind().arg("job_ids", ids_of(jobs)).jobs(session).await?;
    remove(session, &ended).await
}

/// Removes old dead letters.
pub(crate) async fn purge_dead_letters(
    session: &mut Session<'_>,
    retention: Duration,
    limit: usize,
) -> StoreResult<u64> {
    let choose = session.sql().choose_dead_letters.bind().arg("now", session.store().now());
    let choose = choose.arg("retention_ms", retention_millis(retention));
    let old = choose.arg("lim", row_limit(limit)).jobs(session).await?;
    remove(session, &old).await
}

/// Removes locked jobs, with everything tied to them.
async fn remove(session: &mut Session<'_>, jobs: &[JobId]) -> StoreResult<u64> {
    if jobs.is_empty() {
        return Ok(0);
    }
    session.sql().remove.bind().arg("job_ids", jobs).run(session).await
}

async fn archived(
    session: &mut Session<'_>,
    filter: &ArchiveFilter,
    limit: usize,
) -> StoreResult<Vec<ArchivedJob>> {
    let list = session.sql().archived.bind();
    let rows = list
        .arg("target", filter.target.as_ref().map(|target| target.as_str()))
        .arg("business_key", filter.business_key.as_ref().map(|key| key.as_str()))
        .arg("before", filter.before)
        .arg("lim", row_limit(limit))
        .rows(session)
        .await?;
    Ok(read_readable(session.op(), "an archived job", &rows, archived_job))
}

/// A row of `scheduler_job_archive`.
fn archived_job(cells: Cells<'_>) -> Result<ArchivedJob, Problem> {
    let payload = payload(cells, "payload", "target", "method")?.ok_or("payload: missing")?;
    let mut spec = JobSpec::with_id(cells.get("job_id")?, payload);
    spec.job_type = cells.get("job_type")?;
    spec.priority = cells.get("priority")?;
    spec.queue = cells.get("queue")?;
    spec.business_key = cells.opt("business_key")?;
    spec.tags = cells.get("tags")?;
    let mut job = Job::pending(spec.into(), 0, cells.get("created_at")?);
    job.status = cells.get("final_status")?;
    job.attempts = cells.get("total_attempts")?;
    job.last_error = cells.opt("final_error")?;
    let mut ending = Ending::at(cells.get("terminated_at")?);
    ending.result = cells.opt("job_result")?;
    job.ending = Some(ending);
    ArchivedJob::of(job, cells.get("archived_at")?).ok_or_else(|| "the job has not ended".into())
}
