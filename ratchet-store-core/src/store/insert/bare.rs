//! Jobs without keys and tags: the majority, and cheaper to insert than others.
//!
//! Only a row with the same id can conflict with such a job, and that is rare: so the statement checks nothing and
//! returns nothing. It fails as a whole, and the caller falls back to the general statement.

use ratchet_api::{Inserted, JobId, NewJob, StoreResult};

use super::Placed;
use super::columns::{JobColumns, Waits};
use crate::store::session::Session;

/// Whether nothing but its id can conflict with stored rows.
pub(crate) fn is_bare(job: &NewJob) -> bool {
    job.spec.idempotency_key.is_none() && job.spec.business_key.is_none() && job.spec.tags.is_empty()
}

/// Inserts bare jobs of different ids. Fails with a conflict if one of them exists already.
pub(crate) async fn insert(
    session: &mut Session<'_>,
    jobs: &[Placed<'_>],
) -> StoreResult<Vec<(usize, Inserted)>> {
    let mut columns = BareColumns::default();
    for (_, job) in jobs {
        columns.push(job);
    }
    let now = session.store().now();
    let insert = columns.specs.bind(&session.sql().insert_bare, now);
    insert
        .arg("own_ids", &columns.ids)
        .arg("own_payloads", &columns.payloads)
        .arg("own_specs", &columns.spec_of)
        .run(session)
        .await?;
    Ok(jobs.iter().map(|(place, _)| (*place, Inserted::New)).collect())
}

/// The columns of bare jobs. Jobs in one call are mostly alike: their common values are sent once for each run of them.
#[derive(Default)]
struct BareColumns<'a> {
    specs: JobColumns<'a>,
    ids: Vec<JobId>,
    payloads: Vec<&'a str>,
    /// The number of each job's spec, from 1.
    spec_of: Vec<i64>,
}

impl<'a> BareColumns<'a> {
    fn push(&mut self, job: &'a NewJob) {
        self.ids.push(job.spec.id);
        self.payloads.push(job.spec.payload.text().as_str());
        self.specs.push(job, Waits::default());
        self.specs.pop_if_alike();
        self.spec_of.push(self.specs.job_ids.len() as i64);
    }
}
