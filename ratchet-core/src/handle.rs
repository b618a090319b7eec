//! A job from the outside.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use ratchet_api::{Job, JobId, JobStatus, JsonText, StoreError};
use serde::de::DeserializeOwned;

use crate::Client;

/// How often a job is looked at while someone waits for its end: often at first, then less.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// A job that was submitted. `R` is what it returns when it succeeds.
pub struct JobHandle<R> {
    id: JobId,
    duplicate: bool,
    client: Client,
    result: PhantomData<fn() -> R>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// It failed for good.
    #[error("job {id} failed: {error}")]
    Failed {
        /// The job.
        id: JobId,
        /// Its last error, sanitized.
        error: String,
    },
    /// It was called off.
    #[error("job {id} was cancelled: {reason}")]
    Cancelled {
        /// The job.
        id: JobId,
        /// Why.
        reason: String,
    },
    /// It is not there any more: archived or deleted.
    #[error("job {0} is gone: it was archived or deleted before its result was read")]
    Gone(JobId),
    /// It succeeded and left no result: that was larger than is kept, or has no JSON form, as the job's log says, or its
    /// body returns nothing.
    #[error(
        "job {0} succeeded, but no result of it is kept; its log says why. Return less, or the key of what it made"
    )]
    NotKept(JobId),
    /// The result is of another type.
    #[error("the result of job {id} does not decode: {problem}")]
    Undecodable {
        /// The job.
        id: JobId,
        /// What serde says.
        problem: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<R> JobHandle<R> {
    pub(crate) const fn new(id: JobId, duplicate: bool, client: Client) -> Self {
        Self { id, duplicate, client, result: PhantomData }
    }

    /// The job.
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// Whether an earlier submission with the same idempotency key made this job, and this one made none.
    pub const fn is_duplicate(&self) -> bool {
        self.duplicate
    }

    /// The job as it is now; `None` if it is gone.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn job(&self) -> Result<Option<Job>, StoreError> {
        Ok(self.client.store().find(&[self.id]).await?.pop().flatten())
    }

    /// Waits until the job has ended.
    ///
    /// # Errors
    /// If it is gone, or the store fails.
    pub async fn ended(&self) -> Result<Job, ResultError> {
        let mut pause = FIRST_LOOK;
        loop {
            let job = self.job().await?.ok_or(ResultError::Gone(self.id))?;
            if job.ending.is_some() {
                return Ok(job);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }
}

impl<R: DeserializeOwned> JobHandle<R> {
    /// Waits for the job's result.
    ///
    /// # Errors
    /// If it did not succeed, or the result was not kept or does not decode.
    pub async fn result(&self) -> Result<R, ResultError> {
        let job = self.ended().await?;
        let id = self.id;
        match job.status {
            JobStatus::Succeeded => {
                let kept = job.ending.and_then(|ending| ending.result);
                // A type without content loses nothing.
                let nothing = || (size_of::<R>() == 0).then(|| JsonText::from_stored("null"));
                let result = kept.or_else(nothing).ok_or(ResultError::NotKept(id))?;
                result.decode().map_err(|error| ResultError::Undecodable { id, problem: error.to_string() })
            }
            JobStatus::Failed => Err(ResultError::Failed { id, error: job.last_error.unwrap_or_default() }),
            _ => Err(ResultError::Cancelled { id, reason: job.cancel_reason.unwrap_or_default() }),
        }
    }
}

impl<R> Clone for JobHandle<R> {
    fn clone(&self) -> Self {
        Self::new(self.id, self.duplicate, self.client.clone())
    }
}

impl<R> fmt::Debug for JobHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle")
            .field("id", &self.id)
            .field("duplicate", &self.duplicate)
            .finish_non_exhaustive()
    }
}
