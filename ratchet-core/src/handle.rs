//! The handle of a submitted job.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use ratchet_api::{Job, JobId, JobStatus, JsonText, StoreError};
use serde::de::DeserializeOwned;

use crate::Client;
use crate::scheduler::client::Wakeup;

/// The first pause between two reads of a job whose end is awaited. It doubles up to [`LONGEST_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// The handle of a job that was submitted. `R` is the type that it returns when it succeeds.
pub struct JobHandle<R> {
    id: JobId,
    origin: Origin,
    client: Client,
    result: PhantomData<fn() -> R>,
}

/// How the job gets into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This submission stored it, or the handle was made from an id.
    New,
    /// An earlier submission stored it.
    Duplicate,
    /// It is stored later, with the outcome of the body that enqueued it.
    WithOutcome,
    /// It is stored by a transaction of the caller, once that is committed; `committed` sends this wakeup.
    InTransaction(Wakeup),
}

/// The reason why there is no result.
#[derive(thiserror::Error)]
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
    /// It was canceled.
    #[error("job {id} was canceled: {reason}")]
    Canceled {
        /// The job.
        id: JobId,
        /// Why.
        reason: String,
    },
    /// It was enqueued by a body, and is stored when that one has succeeded: not yet, or never if it failed.
    #[error(
        "job {0} is stored with the outcome of the job that enqueued it, and is not there yet; do not wait for it in that body"
    )]
    NotYetStored(JobId),
    /// It no longer exists: it was archived or deleted.
    #[error("job {0} is gone: it was archived or deleted before its result was read")]
    Gone(JobId),
    /// It succeeded, and its result is not stored: it was larger than is kept or has no JSON form, or its body returns
    /// nothing.
    #[error("the result of job {id} is not stored{}", because(.reason.as_deref()))]
    NotKept {
        /// The job.
        id: JobId,
        /// Why it was not kept, from the job's log: `not kept: 70,002 bytes, the limit is 65,536 …`; `None` if the log
        /// does not say, or not any more.
        reason: Option<String>,
    },
    /// The result is of another type.
    #[error("the result of job {id} does not decode: {problem}")]
    Undecodable {
        /// The job.
        id: JobId,
        /// The message of serde.
        problem: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

ratchet_api::debug_as_display!(ResultError);

/// The beginning of the line in a job's log about a result that is not kept. It is stored before the end of the job is.
pub(crate) const NOT_KEPT: &str = "the result is not kept: ";

/// The number of lines of a job's log in one read.
const LINES: usize = 500;

fn because(reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!(": {reason}; return less, or the key of what the job made"),
        None => "; the job returned nothing, or its log has been cleaned up".to_owned(),
    }
}

impl<R> JobHandle<R> {
    pub(crate) const fn new(id: JobId, origin: Origin, client: Client) -> Self {
        Self { id, origin, client, result: PhantomData }
    }

    /// The job.
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// The handle of a job that was stored inside a transaction, if it was not there before.
    pub(crate) fn in_transaction(mut self, wakeup: Wakeup) -> Self {
        if self.origin == Origin::New {
            self.origin = Origin::InTransaction(wakeup);
        }
        self
    }

    /// Reports that the transaction in which [`submit_in`](crate::Enqueue::submit_in) stored the job is committed: this
    /// node and the others poll at once. Without it the job waits for the next poll. For a job that was stored in
    /// another way it does nothing.
    ///
    /// ```
    /// # async fn example<M>(client: ratchet_core::Client, mut tx: impl ratchet_core::Enlist<M>)
    /// #     -> Result<(), ratchet_core::SubmitError> {
    /// # use ratchet_core::Call;
    /// let job = client.enqueue(Call::<()>::new("shop.Mailer", "send")).submit_in(&mut tx).await?;
    /// // tx.commit().await?;
    /// job.committed();
    /// # Ok(()) }
    /// ```
    pub fn committed(&self) {
        if let Origin::InTransaction(wakeup) = self.origin {
            self.client.wake(wakeup);
        }
    }

    /// Whether an earlier submission with the same idempotency key made this job, and this one made none.
    pub const fn is_duplicate(&self) -> bool {
        matches!(self.origin, Origin::Duplicate)
    }

    /// The job as it is now; `None` if it is gone.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn job(&self) -> Result<Option<Job>, StoreError> {
        Ok(self.client.store().find(&[self.id]).await?.pop().flatten())
    }

    /// The reason why the result was not kept, from the job's log.
    async fn why_not_kept(&self) -> Result<Option<String>, StoreError> {
        let (mut after, mut reason) = (None, None);
        loop {
            let lines = self.client.store().logs(self.id, after, LINES).await?;
            let told = lines.iter().rev().find_map(|line| line.message.strip_prefix(NOT_KEPT));
            reason = told.map(|why| format!("not kept: {why}")).or(reason);
            match lines.last() {
                Some(last) if lines.len() == LINES => after = Some(last.seq),
                _ => return Ok(reason),
            }
        }
    }

    /// Waits until the job has ended.
    ///
    /// # Errors
    /// If it is gone, or the store fails.
    pub async fn ended(&self) -> Result<Job, ResultError> {
        let mut pause = FIRST_LOOK;
        loop {
            let Some(job) = self.job().await? else {
                return Err(match self.origin {
                    Origin::WithOutcome => ResultError::NotYetStored(self.id),
                    Origin::New | Origin::Duplicate | Origin::InTransaction(_) => ResultError::Gone(self.id),
                });
            };
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
                // A type without content needs no stored result.
                let nothing = || (size_of::<R>() == 0).then(|| JsonText::from_stored("null"));
                let Some(result) = kept.or_else(nothing) else {
                    return Err(ResultError::NotKept { id, reason: self.why_not_kept().await? });
                };
                result.decode().map_err(|error| ResultError::Undecodable { id, problem: error.to_string() })
            }
            JobStatus::Failed => Err(ResultError::Failed { id, error: job.last_error.unwrap_or_default() }),
            _ => Err(ResultError::Canceled { id, reason: job.cancel_reason.unwrap_or_default() }),
        }
    }
}

impl<R> Clone for JobHandle<R> {
    fn clone(&self) -> Self {
        Self::new(self.id, self.origin, self.client.clone())
    }
}

impl<R> fmt::Debug for JobHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle")
            .field("id", &self.id)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
