//! Lists of jobs, a page at a time.

use ratchet_api::store::JobPage;
use ratchet_api::{JobId, StoreResult};

use crate::driver::Row;
use crate::store::row::{self, Cells};

/// One row more than asked for tells whether there is another page.
pub(crate) fn limit_and_one(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// Rows of `vw_jobs` as a page; a row that cannot be read is named and hides no other.
pub(crate) fn page(op: &'static str, rows: &[Box<dyn Row>], limit: usize) -> StoreResult<JobPage> {
    let mut page = JobPage::default();
    let mut last = None;
    for row in rows.iter().take(limit) {
        let id: JobId = Cells(row).must(op, "job_id")?;
        last = Some(id);
        match row::job(Cells(row)) {
            Ok(job) => page.jobs.push(job),
            Err(_) => page.unreadable.push(id),
        }
    }
    page.next = last.filter(|_| rows.len() > limit);
    Ok(page)
}
