//! Rows that cannot be read and that no owner holds: they end as dead letters, so that no later call finds them again.
//!
//! A row that an owner holds is ended by its owner's outcome: a claim marks it as `corrupt`.

use std::collections::HashMap;

use ratchet_api::{BatchId, Fingerprint, JobId, JobStatus, StoreResult};

use crate::store::cascade::Cascade;
use crate::store::info::present;
use crate::store::row::{Cells, read_all};
use crate::store::session::Session;

/// The error of a live job without a queue row, which can only have been deleted by hand.
pub(crate) const QUEUE_ROW_GONE: &str = "CorruptRow: the queue row of this job is gone";

/// The error of a schedule that cannot be read, and so can never fire.
pub(crate) const SCHEDULE: &str = "CorruptRow: this schedule cannot be read";

/// Ends as FAILED those of these jobs that have neither a queue row nor an end, with the cascade. Returns their number.
///
/// `error` must quote nothing from the row: it is stored unsanitized.
pub(crate) async fn end_corrupt(
    session: &mut Session<'_>,
    jobs: &[JobId],
    error: &'static str,
) -> StoreResult<usize> {
    let fingerprint = Fingerprint::of("", "CorruptRow", error);
    let end = session.sql().end_corrupt.bind().arg("now", session.store().now());
    let end = end.arg("job_ids", jobs.to_vec()).arg("error", error).arg("fingerprint", fingerprint.as_str());
    let rows = end.rows(session).await?;
    let read = |cells: Cells<'_>| {
        let batch: Option<BatchId> = cells.opt("batch_id").unwrap_or_default();
        Ok((cells.get::<JobId>("job_id")?, batch))
    };
    let ended = read_all(session.op(), &rows, read)?;
    if ended.is_empty() {
        return Ok(0);
    }
    for (job, _) in &ended {
        tracing::error!(op = session.op(), %job, error, "job dead-lettered: its row is damaged");
    }
    let mut follow = Cascade::new(present(session).await?, ended.len());
    for (cause, (_, batch)) in ended.iter().enumerate() {
        if let Some(batch) = batch {
            follow.count_outcome(cause, *batch, JobStatus::Failed, 0);
        }
    }
    let failed = ended.iter().enumerate().map(|(cause, (job, _))| (*job, (JobStatus::Failed, cause)));
    follow.decide_open(session, &failed.collect::<HashMap<_, _>>(), Vec::new()).await?;
    follow.finish(session).await?;
    Ok(ended.len())
}
