//! Manual retry of dead letters.

use async_trait::async_trait;

use crate::{JobId, JobStatus, StoreResult};

use super::Target;

/// The verdict on a manual retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryVerdict {
    /// It is PENDING again, and these dependents, which its failure had canceled, wait again.
    Retried {
        /// Jobs that wait again, nearest first.
        revived: Vec<JobId>,
    },
    /// It is not FAILED. Nothing was done.
    NotFailed(JobStatus),
    /// Its business key, or that of a dependent, is held by a live job. Nothing was done.
    KeyTaken {
        /// The job that holds it.
        holder: JobId,
    },
    /// It has another fence by now. Nothing was done.
    Stale(JobStatus),
    /// There is no such job.
    Unknown,
}

/// Manual retry. Automatic retries are outcomes: [`End::Retry`](crate::End::Retry).
#[async_trait]
pub trait JobRetryStore: Send + Sync + 'static {
    /// Revives FAILED jobs; one verdict for each, in order.
    ///
    /// # Contract
    /// - `retry.revived`: a FAILED job becomes PENDING, due now, with attempts 0, crash count 0, no error and a
    ///   raised fence; nothing else can be retried.
    /// - `retry.key`: its business key is reserved again in the same transaction; if a live job holds it, nothing is
    ///   done.
    /// - `retry.dependents`: every edge that its failure had refused is open again. Dependents that were canceled for
    ///   such refusals wait again once enough of their parents are open or satisfied, and so do their own dependents;
    ///   dependents that were released by its failure, or were canceled by hand, stay as they are.
    /// - `retry.batch`: a child no longer counts as failed; a batch that was completed does not complete again.
    /// - `retry.many`: a call with many jobs does, all at once, the same as one call for each job in turn.
    /// - `retry.stale`: with a fence that is not the present one, nothing is done.
    async fn retry(&self, jobs: &[Target]) -> StoreResult<Vec<RetryVerdict>>;
}
