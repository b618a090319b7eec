//! Batches: locking and writing their counters.

use ratchet_api::{Batch, BatchId, BatchProgress, StoreResult, Timestamp};
use uuid::Uuid;

use crate::row::{Cells, Problem, read_all};
use crate::session::Session;

/// A batch whose row is locked until the transaction ends.
#[derive(Clone, Debug)]
pub(crate) struct HeldBatch {
    pub(crate) id: BatchId,
    pub(crate) progress: BatchProgress,
    pub(crate) completed_at: Option<Timestamp>,
    /// To be added to what its children took.
    pub(crate) ran_ms: i64,
}

impl HeldBatch {
    /// Completes the batch if its time has come; answers whether it did so now. Once completed it stays so.
    pub(crate) fn complete(&mut self, now: Timestamp) -> bool {
        let completes = self.progress.is_complete() && self.completed_at.is_none();
        if completes {
            self.completed_at = Some(now);
        }
        completes
    }
}

/// Locks batches in the order of their ids.
pub(crate) async fn hold_batches(session: &mut Session<'_>, ids: &[BatchId]) -> StoreResult<Vec<HeldBatch>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = ids.iter().map(|id| id.parent().as_uuid()).collect();
    let rows = session.sql().hold_batches.bind().arg("batch_ids", ids).rows(session).await?;
    let held = |cells: Cells<'_>| {
        let batch = batch(cells)?;
        Ok(HeldBatch { id: batch.id, progress: batch.progress, completed_at: batch.completed_at, ran_ms: 0 })
    };
    read_all(session.op(), &rows, held)
}

/// Writes batches that are held.
pub(crate) async fn update_batches(session: &mut Session<'_>, batches: &[HeldBatch]) -> StoreResult<()> {
    let count = |of: fn(&BatchProgress) -> u64| -> Vec<i64> {
        batches.iter().map(|batch| i64::try_from(of(&batch.progress)).unwrap_or(i64::MAX)).collect()
    };
    let update = session.sql().update_batches.bind();
    update
        .arg("batch_ids", batches.iter().map(|batch| batch.id.parent().as_uuid()).collect::<Vec<_>>())
        .arg("totals", count(|progress| progress.total))
        .arg("completed", count(|progress| progress.completed))
        .arg("failed", count(|progress| progress.failed))
        .arg("closed", batches.iter().map(|batch| batch.progress.closed).collect::<Vec<_>>())
        .arg("completed_at", batches.iter().map(|b| b.completed_at.map(Timestamp::to_datetime)).collect::<Vec<_>>())
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
