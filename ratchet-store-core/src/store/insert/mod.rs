//! Inserting submissions.
//!
//! Submissions of one job on its own, the usual case, are stored many at a time by one statement. Any other submission
//! is stored alone: its references are locked and checked, and then it is written.

mod bare;
mod columns;
mod compound;
mod plain;

pub(crate) use columns::{JobColumns, Waits, key_hash};
pub(crate) use plain::store;

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::JobBulkStore;
use ratchet_api::{Inserted, JobId, Limits, NewJob, Refusal, StoreErrorKind, StoreResult, Submission};

use crate::driver::Connection;
use crate::store::SqlStore;
use crate::store::session::Session;

const OP: &str = "insert";

/// The maximum number of jobs, and bytes of text, in one statement.
const MAX_JOBS: usize = 2_000;
const MAX_BYTES: usize = 8 * 1024 * 1024;

#[async_trait]
impl JobBulkStore for SqlStore {
    async fn insert(&self, submissions: &[Submission]) -> StoreResult<Vec<Inserted>> {
        let mut plan = Plan::of(submissions.iter());
        for step in &plan.steps {
            match step {
                Step::Plain(jobs) => plan.verdicts.extend(self.insert_plain(jobs).await?),
                Step::Compound(place, submission) => {
                    let work =
                        self.transaction(OP, |session| Box::pin(compound::insert(session, submission)));
                    plan.verdicts.push((*place, work.await?));
                }
            }
        }
        plan.verdicts()
    }

    async fn delete(&self, jobs: &[JobId]) -> StoreResult<u64> {
        self.transaction("delete", |session| Box::pin(crate::store::archive::delete(session, jobs))).await
    }

    async fn purge_dead_letters(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        self.transaction("purge_dead_letters", |session| {
            Box::pin(crate::store::archive::purge_dead_letters(session, retention, limit))
        })
        .await
    }
}

impl SqlStore {
    async fn insert_plain(&self, jobs: &[Placed<'_>]) -> StoreResult<Vec<(usize, Inserted)>> {
        if jobs.iter().all(|(_, job)| bare::is_bare(job)) {
            match self.write(OP, |session| Box::pin(bare::insert(session, jobs))).await {
                Err(error) if error.kind() == StoreErrorKind::Conflict => {}
                done => return done,
            }
        }
        if plain::needs_transaction(jobs) {
            return self.transaction(OP, |session| Box::pin(plain::insert(session, jobs))).await;
        }
        self.write(OP, |session| Box::pin(plain::insert(session, jobs))).await
    }

    /// Stores submissions inside a transaction that a user began on `connection`.
    ///
    /// Only the user may commit it, or run it again: nothing is repeated here, and no timeout gives the connection up.
    /// No statement provokes a unique error, which would end the user's transaction.
    pub async fn insert_in<'a>(
        &'a self,
        connection: Box<dyn Connection + 'a>,
        submissions: &[Submission],
    ) -> StoreResult<Vec<Inserted>> {
        let submissions: Vec<&Submission> = submissions.iter().collect();
        self.enlisted("insert_in", connection, |session| Box::pin(insert_all(session, &submissions))).await
    }
}

/// Stores submissions inside an open transaction.
pub(crate) async fn insert_all(
    session: &mut Session<'_>,
    submissions: &[&Submission],
) -> StoreResult<Vec<Inserted>> {
    let mut plan = Plan::of(submissions.iter().copied());
    for step in &plan.steps {
        match step {
            Step::Plain(jobs) => plan.verdicts.extend(plain::insert(session, jobs).await?),
            Step::Compound(place, submission) => {
                plan.verdicts.push((*place, compound::insert(session, submission).await?));
            }
        }
    }
    plan.verdicts()
}

/// A job on its own, with its position in the call.
type Placed<'a> = (usize, &'a NewJob);

/// A part of a call that is stored at once.
enum Step<'a> {
    Plain(Vec<Placed<'a>>),
    Compound(usize, &'a Submission),
}

/// A call in steps that give the same answers as one submission after the other.
struct Plan<'a> {
    steps: Vec<Step<'a>>,
    verdicts: Vec<(usize, Inserted)>,
}

impl<'a> Plan<'a> {
    fn of(submissions: impl Iterator<Item = &'a Submission>) -> Self {
        let mut plan = Self { steps: Vec::new(), verdicts: Vec::new() };
        let mut group = Group::default();
        for (place, submission) in submissions.enumerate() {
            if let Err(invalid) = submission.validate(&Limits::MAX) {
                plan.verdicts.push((place, Inserted::Refused(Refusal::Invalid(invalid))));
            } else if let Some(job) = on_its_own(submission) {
                if !group.takes(job) {
                    plan.steps.extend(group.close());
                    group = Group::default();
                    group.takes(job);
                }
                group.jobs.push((place, job));
            } else {
                plan.steps.extend(std::mem::take(&mut group).close());
                plan.steps.push(Step::Compound(place, submission));
            }
        }
        plan.steps.extend(group.close());
        plan
    }

    /// One verdict for each submission, in order.
    fn verdicts(mut self) -> StoreResult<Vec<Inserted>> {
        self.verdicts.sort_by_key(|(place, _)| *place);
        Ok(self.verdicts.into_iter().map(|(_, verdict)| verdict).collect())
    }
}

/// The job of a submission that consists of one job alone.
fn on_its_own(submission: &Submission) -> Option<&NewJob> {
    let Submission { jobs, edges, batch: None, supersedes: None, fire: None, .. } = submission else {
        return None;
    };
    match (jobs.as_slice(), edges.as_slice()) {
        ([job], []) if job.spec.batch.is_none() => Some(job),
        _ => None,
    }
}

/// Jobs that can be stored by one statement: no two share an id or a key, so that no verdict depends on another job.
#[derive(Default)]
struct Group<'a> {
    jobs: Vec<Placed<'a>>,
    ids: HashSet<JobId>,
    idempotency_keys: HashSet<&'a str>,
    business_keys: HashSet<&'a str>,
    bytes: usize,
}

impl<'a> Group<'a> {
    /// Whether the job fits in; if so, its id, keys and size count from now on.
    fn takes(&mut self, job: &'a NewJob) -> bool {
        let spec = &job.spec;
        let (idempotency_key, business_key) = (
            spec.idempotency_key.as_ref().map(|key| key.as_str()),
            spec.business_key.as_ref().map(|key| key.as_str()),
        );
        let clashes = self.ids.contains(&spec.id)
            || idempotency_key.is_some_and(|key| self.idempotency_keys.contains(key))
            || business_key.is_some_and(|key| self.business_keys.contains(key));
        if clashes || self.ids.len() >= MAX_JOBS || self.bytes > MAX_BYTES {
            return false;
        }
        self.ids.insert(spec.id);
        self.idempotency_keys.extend(idempotency_key);
        self.business_keys.extend(business_key);
        self.bytes +=
            spec.payload.text().as_str().len() + spec.params.as_ref().map_or(0, |p| p.as_str().len());
        true
    }

    fn close(self) -> Option<Step<'a>> {
        (!self.jobs.is_empty()).then_some(Step::Plain(self.jobs))
    }
}
