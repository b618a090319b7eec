//! Schedules, and changes of jobs that do not end them.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{JobBatchStatusStore, NewRecurring, ProgressReport, RecurringStore, SavedRecurring};
use ratchet_api::{
    BusinessKey, Fence, Job, JobClaim, JobId, NewJob, Owner, ParkedOn, QueueName, Sanitized, StoreError,
    StoreErrorKind, StoreResult, Tag, Timestamp,
};

use super::SqlStore;
use crate::driver::Row;
use crate::store::claim::{pick_up, pick_up_parked, pick_up_unreachable};
use crate::store::corrupt::{SCHEDULE, end_corrupt};
use crate::store::info::present;
use crate::store::insert::{JobColumns, Waits, store};
use crate::store::lock_rows::{ids_of, lock_rows};
use crate::store::row::{self, Cells, read_all, read_readable};
use crate::store::session::Session;
use crate::store::values::{retention_millis, row_limit};

/// The number of tries of a save that loses the key to a job that is gone again when it is looked up.
const ATTEMPTS: usize = 10;

#[async_trait]
impl RecurringStore for SqlStore {
    async fn save_recurring(&self, recurring: &NewRecurring) -> StoreResult<SavedRecurring> {
        const OP: &str = "save_recurring";
        let Some(key) = &recurring.spec.business_key else {
            return Err(StoreError::invalid(
                OP,
                "a schedule is known by its business key, and this has none",
            ));
        };
        let mut job = NewJob::new(recurring.spec.payload.clone());
        job.spec = recurring.spec.clone();
        self.transaction(OP, |session| Box::pin(save(session, key, &job, recurring))).await
    }

    async fn due_recurring(&self, limit: usize) -> StoreResult<Vec<Job>> {
        loop {
            let (due, corrupt) = self.read(DUE, |session| Box::pin(due(session, limit))).await?;
            if corrupt.is_empty() {
                return Ok(due);
            }
            // Corrupt schedules would stay before the others for ever.
            let end = self.transaction(DUE, |session| Box::pin(end_corrupt(session, &corrupt, SCHEDULE)));
            if end.await? == 0 {
                return Ok(due);
            }
        }
    }
}

const DUE: &str = "due_recurring";

/// Schedules that are due, and the ids of those that cannot be read.
async fn due(session: &mut Session<'_>, limit: usize) -> StoreResult<(Vec<Job>, Vec<JobId>)> {
    let due = session.sql().due_recurring.bind().arg("now", session.store().now());
    let rows = due.arg("lim", row_limit(limit)).rows(session).await?;
    let (mut due, mut corrupt) = (Vec::new(), Vec::new());
    for row in &rows {
        match row::job(Cells(row)) {
            Ok(job) => due.push(job),
            Err(problem) => {
                let id = Cells(row).must(session.op(), "job_id")?;
                tracing::error!(job = %id, %problem, "schedule cannot be read: it will be dead-lettered");
                corrupt.push(id);
            }
        }
    }
    Ok((due, corrupt))
}

/// Reads schedules; one that cannot be read must not keep the others from firing.
pub(crate) fn readable(op: &'static str, rows: &[Box<dyn Row>]) -> Vec<Job> {
    read_readable(op, "a schedule", rows, row::job)
}

/// Saves a schedule. The key's reservation decides between two nodes that save at once.
async fn save(
    session: &mut Session<'_>,
    key: &BusinessKey,
    job: &NewJob,
    recurring: &NewRecurring,
) -> StoreResult<SavedRecurring> {
    let now = present(session).await?;
    let mut columns = JobColumns::default();
    columns.push(job, Waits::default());
    for _ in 0..ATTEMPTS {
        if let Some(saved) = update(session, key, &columns, recurring, now).await? {
            return Ok(saved);
        }
        let fates = store(session, &columns, Some(now)).await?;
        if fates.iter().all(|fate| fate.stored) {
            make(session, key, job.spec.id, recurring).await?;
            return Ok(SavedRecurring::Created(job.spec.id));
        }
    }
    Err(StoreError::new(StoreErrorKind::Transient, session.op(), "the business key changes hands too fast"))
}

/// Changes the schedule that holds the key; `None` if nobody holds it.
async fn update(
    session: &mut Session<'_>,
    key: &BusinessKey,
    columns: &JobColumns<'_>,
    recurring: &NewRecurring,
    now: Timestamp,
) -> StoreResult<Option<SavedRecurring>> {
    let find = session.sql().find_by_business_key.bind().arg("business_key", key.as_str());
    let rows = find.rows(session).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let holder: JobId = Cells(row).must(session.op(), "job_id")?;
    match lock_rows(session, &[holder]).await?.get(&holder) {
        Some(held) if held.is_schedule() => {}
        Some(held) if !held.status().is_terminal() => return Ok(Some(SavedRecurring::KeyTaken { holder })),
        _ => return Ok(None),
    }
    let update = columns.bind(&session.sql().update_schedule, Some(now));
    update
        .arg("holder", holder)
        .arg("cron", &recurring.recurrence.cron)
        .arg("zone", &recurring.recurrence.zone)
        .arg("next_fire", recurring.recurrence.next_fire)
        .run(session)
        .await?;
    Ok(Some(SavedRecurring::Updated(holder)))
}

async fn make(
    session: &mut Session<'_>,
    key: &BusinessKey,
    id: JobId,
    recurring: &NewRecurring,
) -> StoreResult<()> {
    let make = session.sql().make_schedule.bind().arg("job_id", id).arg("business_key", key.as_str());
    make.arg("cron", &recurring.recurrence.cron)
        .arg("zone", &recurring.recurrence.zone)
        .arg("next_fire", recurring.recurrence.next_fire)
        .run(session)
        .await?;
    Ok(())
}

/// The filter for schedules to end; an empty field does not restrict.
#[derive(Default)]
struct Matching<'a> {
    key: Option<&'a BusinessKey>,
    tag: Option<&'a Tag>,
    keep: &'a [BusinessKey],
    older_than: Option<Duration>,
}

async fn cancel_matching(
    session: &mut Session<'_>,
    matching: &Matching<'_>,
    reason: &Sanitized,
) -> StoreResult<Vec<JobId>> {
    let cancel = session.sql().cancel_matching.bind();
    cancel
        .arg("now", session.store().now())
        .arg("reason", reason.as_str())
        .arg("business_key", matching.key.map(|key| key.as_str()))
        .arg("tag", matching.tag.map(|tag| tag.as_str()))
        .arg("keep", matching.keep.iter().map(|key| key.as_str()).collect::<Vec<_>>())
        .arg("older_than_ms", matching.older_than.map(retention_millis))
        .jobs(session)
        .await
}

#[async_trait]
impl JobBatchStatusStore for SqlStore {
    async fn pick_up_parked(
        &self,
        owner: &Owner,
        queue: &QueueName,
        on: &ParkedOn,
        limit: usize,
    ) -> StoreResult<Vec<JobClaim>> {
        self.write("pick_up_parked", |session| Box::pin(pick_up_parked(session, owner, queue, on, limit)))
            .await
    }

    async fn pick_up(&self, owner: &Owner, jobs: &[JobId]) -> StoreResult<Vec<JobClaim>> {
        self.write("pick_up", |session| Box::pin(pick_up(session, owner, jobs))).await
    }

    async fn pick_up_unreachable(&self, owner: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        self.write("pick_up_unreachable", |session| Box::pin(pick_up_unreachable(session, owner, limit)))
            .await
    }

    async fn report_progress(&self, reports: &[ProgressReport]) -> StoreResult<Vec<bool>> {
        self.write("report_progress", |session| Box::pin(report_progress(session, reports))).await
    }

    async fn cancel_recurring_by_key(&self, key: &BusinessKey, reason: &Sanitized) -> StoreResult<u64> {
        let matching = Matching { key: Some(key), ..Matching::default() };
        let work = self.write("cancel_recurring_by_key", |session| {
            Box::pin(cancel_matching(session, &matching, reason))
        });
        Ok(work.await?.len() as u64)
    }

    async fn cancel_recurring_by_tag(&self, tag: &Tag, reason: &Sanitized) -> StoreResult<u64> {
        let matching = Matching { tag: Some(tag), ..Matching::default() };
        let work = self.write("cancel_recurring_by_tag", |session| {
            Box::pin(cancel_matching(session, &matching, reason))
        });
        Ok(work.await?.len() as u64)
    }

    async fn cancel_undeclared_recurring(
        &self,
        declared: &Tag,
        keep: &[BusinessKey],
        older_than: Duration,
        reason: &Sanitized,
    ) -> StoreResult<Vec<JobId>> {
        if keep.is_empty() {
            return Ok(Vec::new());
        }
        let matching = Matching { tag: Some(declared), keep, older_than: Some(older_than), key: None };
        let work = self.write("cancel_undeclared_recurring", |session| {
            Box::pin(cancel_matching(session, &matching, reason))
        });
        work.await
    }
}

async fn report_progress(session: &mut Session<'_>, reports: &[ProgressReport]) -> StoreResult<Vec<bool>> {
    let progress: Result<Vec<String>, _> =
        reports.iter().map(|report| serde_json::to_string(&report.progress())).collect();
    let progress = progress.map_err(|error| {
        StoreError::new(StoreErrorKind::Other, session.op(), "progress is not JSON").with_source(error)
    })?;
    let report = session.sql().report_progress.bind();
    let rows = report
        .arg("job_ids", ids_of(reports.iter().map(|report| &report.id)))
        .arg("fences", reports.iter().map(|report| report.fence.version()).collect::<Vec<_>>())
        .arg("progress", &progress)
        .rows(session)
        .await?;
    let kept: Vec<(JobId, Fence)> =
        read_all(session.op(), &rows, |cells| Ok((cells.get("job_id")?, cells.get("version")?)))?;
    Ok(reports.iter().map(|report| kept.contains(&(report.id, report.fence))).collect())
}
