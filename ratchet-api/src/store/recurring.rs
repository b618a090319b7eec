//! Schedules: masters that make a job at each fire.

use async_trait::async_trait;

use crate::{BusinessKey, Job, JobId, JobSpec, Recurrence, StoreResult};

/// A schedule to be stored. The business key identifies it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewRecurring {
    /// The job that each fire makes; has a business key and the type [`JobType::Recurring`](crate::JobType::Recurring).
    pub spec: JobSpec,
    /// When it fires.
    pub recurrence: Recurrence,
}

impl NewRecurring {
    /// A schedule with this key.
    pub fn new(key: BusinessKey, mut spec: JobSpec, recurrence: Recurrence) -> Self {
        spec.job_type = crate::JobType::Recurring;
        spec.business_key = Some(key);
        Self { spec, recurrence }
    }
}

/// The result of saving a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedRecurring {
    /// It was created.
    Created(JobId),
    /// One with this key existed and was changed in place.
    Updated(JobId),
    /// A live job that is no schedule holds the key.
    KeyTaken {
        /// The job that holds it.
        holder: JobId,
    },
}

/// Recurring masters. Fires go through [`JobBulkStore::insert`](super::JobBulkStore::insert).
#[async_trait]
pub trait RecurringStore: Send + Sync + 'static {
    /// Stores a schedule, or changes the one with the same business key in place.
    ///
    /// # Contract
    /// - `recurring.created`: a new master holds its business key, reads as PENDING and is never claimed.
    /// - `recurring.updated`: saving the same key again keeps id, creation time, pause and caller; `next_fire` is kept
    ///   unless cron or zone changed; everything else is taken over. Two nodes saving at once leave one master.
    async fn save_recurring(&self, recurring: &NewRecurring) -> StoreResult<SavedRecurring>;

    /// Active masters whose fire is due, earliest first, at most `limit`.
    ///
    /// # Contract
    /// - `recurring.due`: only masters that are active and due by the store's clock, earliest fire first.
    /// - `recurring.corrupt`: a due master that cannot be read is FAILED from then on with the error class
    ///   `CorruptRow`, its key is free, and it hides no other, whatever the limit.
    async fn due_recurring(&self, limit: usize) -> StoreResult<Vec<Job>>;
}
