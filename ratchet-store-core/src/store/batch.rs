//! Batches: reading, closing, locking and writing their counters.

use async_trait::async_trait;
use ratchet_api::store::{BatchMetricsStore, BatchStore, Closed, JobPage, PageRequest};
use ratchet_api::{Batch, BatchId, BatchMetrics, BatchProgress, JobId, JobStatus, StoreResult, Timestamp};

use super::SqlStore;
use crate::store::cascade::Cascade;
use crate::store::info::present;
use crate::store::page::{limit_and_one, page};
use crate::store::row::{Cells, Problem, read_readable};
use crate::store::session::Session;

#[async_trait]
impl BatchStore for SqlStore {
    async fn find_batches(&self, batches: &[BatchId]) -> StoreResult<Vec<Option<Batch>>> {
        self.read("find_batches", |session| Box::pin(find(session, batches))).await
    }

    async fn close_batch(&self, batch: BatchId) -> StoreResult<Closed> {
        self.transaction("close_batch", |session| Box::pin(close(session, batch))).await
    }

    async fn batch_children(
        &self,
        batch: BatchId,
        status: Option<JobStatus>,
        page: &PageRequest,
    ) -> StoreResult<JobPage> {
        self.read("batch_children", |session| Box::pin(children(session, batch, status, page))).await
    }
}

#[async_trait]
impl BatchMetricsStore for SqlStore {
    async fn batch_metrics(&self, batch: BatchId) -> StoreResult<Option<BatchMetrics>> {
        self.read("batch_metrics", |session| {
            Box::pin(async move {
                let metrics = session.sql().batch_metrics.bind().arg("batch_id", batch.parent());
                let rows = metrics.rows(session).await?;
                Ok(read_readable(session.op(), "a batch", &rows, self::metrics).pop())
            })
        })
        .await
    }
}

async fn find(session: &mut Session<'_>, ids: &[BatchId]) -> StoreResult<Vec<Option<Batch>>> {
    let parents: Vec<JobId> = ids.iter().map(|id| id.parent()).collect();
    let rows = session.sql().find_batches.bind().arg("batch_ids", parents).rows(session).await?;
    let mut found = vec![None; ids.len()];
    let read = |cells: Cells<'_>| Ok((cells.get::<u32>("place")?, batch(cells)?));
    for (place, batch) in read_readable(session.op(), "a batch", &rows, read) {
        found[place as usize - 1] = Some(batch);
    }
    Ok(found)
}

async fn close(session: &mut Session<'_>, id: BatchId) -> StoreResult<Closed> {
    let now = present(session).await?;
    let Some(mut batch) = lock_batches(session, &[id]).await?.pop() else { return Ok(Closed::Unknown) };
    if batch.progress.closed {
        return Ok(Closed::AlreadyClosed);
    }
    batch.progress.closed = true;
    let progress = batch.progress;
    Cascade::new(now, 1).update_batch(session, batch).await?;
    Ok(Closed::Closed(progress))
}

async fn children(
    session: &mut Session<'_>,
    batch: BatchId,
    status: Option<JobStatus>,
    wanted: &PageRequest,
) -> StoreResult<JobPage> {
    let children = session.sql().batch_children.bind();
    let rows = children
        .arg("batch_id", batch.parent())
        .arg("after", wanted.after)
        .arg("status", status.map(JobStatus::as_str))
        .arg("lim", limit_and_one(wanted.limit))
        .rows(session)
        .await?;
    Ok(page(&rows, wanted.limit))
}

fn metrics(cells: Cells<'_>) -> Result<BatchMetrics, Problem> {
    let mut metrics = BatchMetrics::default();
    metrics.child_count = cells.get("total_items")?;
    metrics.success_count = cells.get("completed_items")?;
    metrics.failure_count = cells.get("failed_items")?;
    metrics.child_execution = cells.get("child_execution_ms")?;
    metrics.total_duration = cells.opt("total_duration_ms")?;
    Ok(metrics)
}

/// A batch whose row is locked until the transaction ends.
#[derive(Clone, Debug)]
pub(crate) struct LockedBatch {
    pub(crate) id: BatchId,
    pub(crate) progress: BatchProgress,
    pub(crate) completed_at: Option<Timestamp>,
    /// The execution time to add to the sum of its children.
    pub(crate) ran_ms: i64,
}

impl LockedBatch {
    /// Completes the batch if it is closed and every child has ended; returns whether it did so now. A completed batch
    /// stays completed.
    pub(crate) fn complete(&mut self, now: Timestamp) -> bool {
        let completes = self.progress.is_complete() && self.completed_at.is_none();
        if completes {
            self.completed_at = Some(now);
        }
        completes
    }
}

/// Locks batches in the order of their ids.
pub(crate) async fn lock_batches(
    session: &mut Session<'_>,
    ids: &[BatchId],
) -> StoreResult<Vec<LockedBatch>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<JobId> = ids.iter().map(|id| id.parent()).collect();
    let rows = session.sql().lock_batches.bind().arg("batch_ids", ids).rows(session).await?;
    let held = |cells: Cells<'_>| {
        let batch = batch(cells)?;
        Ok(LockedBatch {
            id: batch.id,
            progress: batch.progress,
            completed_at: batch.completed_at,
            ran_ms: 0,
        })
    };
    Ok(read_readable(session.op(), "a batch", &rows, held))
}

/// Writes locked batches.
pub(crate) async fn update_batches(session: &mut Session<'_>, batches: &[LockedBatch]) -> StoreResult<()> {
    if batches.is_empty() {
        return Ok(());
    }
    let count = |of: fn(&BatchProgress) -> u64| -> Vec<i64> {
        batches.iter().map(|batch| i64::try_from(of(&batch.progress)).unwrap_or(i64::MAX)).collect()
    };
    let update = session.sql().update_batches.bind();
    update
        .arg("batch_ids", batches.iter().map(|batch| batch.id.parent()).collect::<Vec<_>>())
        .arg("totals", count(|progress| progress.total))
        .arg("completed", count(|progress| progress.completed))
        .arg("failed", count(|progress| progress.failed))
        .arg("closed", batches.iter().map(|batch| batch.progress.closed).collect::<Vec<_>>())
        .arg("completed_at", batches.iter().map(|b| b.completed_at).collect::<Vec<_>>())
        .arg("ran_ms", batches.iter().map(|batch| batch.ran_ms).collect::<Vec<_>>())
        .run(session)
        .await?;
    Ok(())
}

/// A row of `scheduler_batch`.
pub(crate) fn batch(cells: Cells<'_>) -> Result<Batch, Problem> {
    let mut progress = BatchProgress::new(cells.get("total_items")?, cells.get("closed")?);
    progress.completed = cells.get("completed_items")?;
    progress.failed = cells.get("failed_items")?;
    let mut batch = Batch::new(cells.get("batch_id")?, progress, cells.get("created_at")?);
    batch.completed_at = cells.opt("completed_at")?;
    Ok(batch)
}
