//! Lists of jobs, a page at a time.

use ratchet_api::JobId;
use ratchet_api::store::JobPage;

use crate::driver::Row;
use crate::store::row::{self, Cells};

/// The limit plus one: one row more than requested tells whether there is another page.
pub(crate) fn limit_and_one(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// Rows of `vw_jobs` as a page; a row that cannot be read is listed by its id and hides no other. One without an id is
/// left out: statements that make pages pass over such rows, so that a page never consists of them.
pub(crate) fn page(rows: &[Box<dyn Row>], limit: usize) -> JobPage {
    let mut page = JobPage::default();
    let mut last = None;
    for row in rows.iter().take(limit) {
        let Ok(id) = Cells(row).get::<JobId>("job_id") else { continue };
        last = Some(id);
        match row::job(Cells(row)) {
            Ok(job) => page.jobs.push(job),
            Err(_) => page.unreadable.push(id),
        }
    }
    page.next = last.filter(|_| rows.len() > limit);
    page
}
