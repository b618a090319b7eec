//! Submits many jobs at once.

use ratchet_api::{Enlist, Inserted, StoreResult, Submission, SubmitError};

use super::client::{Client, Wakeup};
use super::enqueue::Enqueue;
use crate::{Call, JobHandle};

/// A job that can be enqueued: a call, or a call with more settings.
pub trait IntoEnqueue<R> {
    /// Describes the job.
    fn into_enqueue(self, client: &Client) -> Enqueue<R>;
}

impl<R> IntoEnqueue<R> for Call<R> {
    fn into_enqueue(self, client: &Client) -> Enqueue<R> {
        client.enqueue(self)
    }
}

impl<R> IntoEnqueue<R> for Enqueue<R> {
    fn into_enqueue(self, _: &Client) -> Enqueue<R> {
        self
    }
}

/// An answer for each job, in order.
type Handles<R> = Vec<Result<JobHandle<R>, SubmitError>>;

impl Client {
    /// Submits many jobs, all by one call to the store; an answer for each, in order.
    ///
    /// ```
    /// # struct Mailer;
    /// # #[ratchet_core::jobs(target = "shop.Mailer")]
    /// # impl Mailer { #[job] async fn send(&self, order: u64) { let _ = order; } }
    /// # async fn example(client: ratchet_core::Client, orders: Vec<u64>) -> Result<(), ratchet_core::SubmitError> {
    /// client.enqueue_many(orders.iter().map(|order| Mailer::job().send(*order))).await?;
    ///
    /// // With more to say about each:
    /// let mails = orders.iter().map(|order| {
    ///     client.enqueue(Mailer::job().send(*order)).idempotency_key(format!("mail {order}"))
    /// });
    /// client.enqueue_many(mails).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store fails. An error of one job is in its answer, and keeps no other from being stored.
    pub async fn enqueue_many<R>(
        &self,
        jobs: impl IntoIterator<Item = impl IntoEnqueue<R>>,
    ) -> Result<Handles<R>, SubmitError> {
        let described = self.describe_many(jobs);
        let good = good(&described);
        let inserted = self.store().insert(&good).await;
        let handles = self.handles(described, inserted).await?;
        self.wake(Wakeup::of(&good));
        Ok(handles)
    }

    /// Submits many jobs inside a transaction of yours: they exist once you commit, and never if you do not. After the
    /// commit, call [`committed`](JobHandle::committed) on each, and they run without waiting for the next poll; that
    /// is one wakeup, however many they are.
    ///
    /// # Errors
    /// If the store fails. An error of one job is in its answer, and keeps no other from being stored.
    pub async fn enqueue_many_in<M, R>(
        &self,
        tx: &mut impl Enlist<M>,
        jobs: impl IntoIterator<Item = impl IntoEnqueue<R>>,
    ) -> Result<Handles<R>, SubmitError> {
        let described = self.describe_many(jobs);
        let inserted = tx.insert_in(self.store(), &good(&described)).await;
        let wakeups: Vec<_> = described.iter().map(|job| Wakeup::of(job.as_ref().ok())).collect();
        let handles = self.handles(described, inserted).await?;
        let in_transaction =
            |(handle, wakeup): (Result<JobHandle<R>, _>, _)| handle.map(|job| job.in_transaction(wakeup));
        Ok(handles.into_iter().zip(wakeups).map(in_transaction).collect())
    }

    fn describe_many<R>(
        &self,
        jobs: impl IntoIterator<Item = impl IntoEnqueue<R>>,
    ) -> Vec<Result<Submission, SubmitError>> {
        let describe = |job: Enqueue<R>| {
            let submission = job.one_of_many()?;
            self.check(&submission).inspect_err(|_| self.count(&submission, None))?;
            Ok(submission)
        };
        jobs.into_iter().map(|job| describe(job.into_enqueue(self))).collect()
    }

    async fn handles<R>(
        &self,
        described: Vec<Result<Submission, SubmitError>>,
        inserted: StoreResult<Vec<Inserted>>,
    ) -> Result<Handles<R>, SubmitError> {
        if inserted.is_err() {
            described.iter().flatten().for_each(|submission| self.count(submission, None));
        }
        let inserted = inserted?;
        let existing = self.existing(&inserted).await;
        let mut inserted = inserted.into_iter();
        let answer = |described: Result<Submission, SubmitError>| {
            let submission = described?;
            let inserted = inserted.next().unwrap_or(Inserted::New);
            self.count(&submission, Some(&inserted));
            self.handle_knowing(&submission, inserted, &existing)
        };
        Ok(described.into_iter().map(answer).collect())
    }
}

fn good(described: &[Result<Submission, SubmitError>]) -> Vec<Submission> {
    described.iter().filter_map(|one| one.as_ref().ok()).cloned().collect()
}
