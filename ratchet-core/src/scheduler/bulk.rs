//! Retries or cancels many jobs at once, by a filter.

use std::fmt;

use ratchet_api::store::{CancelVerdict, JobFilter, JobPage, PageRequest, RetryVerdict, Target};
use ratchet_api::{ControlError, Job, JobId, JobStatus, JobType, Sanitized};

use super::Client;

/// The number of jobs that are read, and retried or canceled in one transaction.
const CHUNK: usize = 500;

/// The states of jobs that can be canceled.
const LIVE: [JobStatus; 3] = [JobStatus::Pending, JobStatus::Running, JobStatus::Paused];

/// Many jobs that are about to be retried or canceled: see [`Client::retry_all`] and [`Client::cancel_all`].
///
/// They are retried or canceled newest first, 500 in a transaction. Nothing is done before [`run`](Self::run), and jobs
/// that are submitted while it runs are left alone. If it ends early, by an error or because the future was dropped,
/// the transactions that are done stay done; running it again goes on with the rest.
#[must_use = "nothing is done before `run`"]
pub struct Bulk<'a> {
    steering: Steering,
    filter: JobFilter,
    limit: usize,
    progress: Box<dyn FnMut(&Steered) + Send + 'a>,
}

struct Steering {
    client: Client,
    action: Action,
    /// Whether jobs that were changed after they were found are left alone.
    guarded: bool,
}

enum Action {
    Retry,
    Cancel(Sanitized),
}

/// The result of a bulk retry or cancellation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Steered {
    /// Jobs that were retried or canceled.
    pub done: u64,
    /// Those of them that were running, and were told to stop.
    pub told_to_stop: u64,
    /// Jobs that wait for these and were canceled with them, or wait again with them.
    pub dependents: u64,
    /// Jobs that changed after they were found. They were left alone.
    pub changed: u64,
    /// Dead letters that were left alone since a live job has their business key, or that of a dependent.
    pub key_taken: Vec<KeyTaken>,
    /// Rows that cannot be read. They were left alone.
    pub unreadable: Vec<JobId>,
}

/// A dead letter whose key another job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyTaken {
    /// The dead letter.
    pub job: JobId,
    /// The live job.
    pub holder: JobId,
}

impl Steered {
    /// The number of all jobs that were found.
    pub fn found(&self) -> u64 {
        self.done + self.changed + (self.key_taken.len() + self.unreadable.len()) as u64
    }
}

impl Client {
    /// Retries all dead letters that a filter finds, as [`retry`](Self::retry) does one.
    ///
    /// ```
    /// # async fn example(client: ratchet_core::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use ratchet_core::store::JobFilter;
    /// use ratchet_core::QueueName;
    ///
    /// let mut mails = JobFilter::default();
    /// mails.queue = Some(QueueName::new("mail")?);
    /// let retried = client.retry_all(mails).limit(10_000).on_progress(|so_far| println!("{}", so_far.done)).run().await?;
    /// println!("{} retried, {} have lost their key", retried.done, retried.key_taken.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_all<'a>(&self, filter: JobFilter) -> Bulk<'a> {
        let steering = Steering { client: self.clone(), action: Action::Retry, guarded: true };
        Bulk::new(steering, filter, &[JobStatus::Failed])
    }

    /// Cancels all live jobs that a filter finds, as [`cancel`](Self::cancel) does one. Schedules are left alone unless
    /// the filter names their type.
    ///
    /// A job that starts after it was found is canceled too, unless the filter names states.
    pub fn cancel_all<'a>(&self, mut filter: JobFilter, reason: &str) -> Bulk<'a> {
        if filter.types.is_empty() {
            filter.types = JobType::ALL.into_iter().filter(|one| *one != JobType::Recurring).collect();
        }
        let (action, guarded) = (Action::Cancel(self.reason(reason)), !filter.statuses.is_empty());
        Bulk::new(Steering { client: self.clone(), action, guarded }, filter, &LIVE)
    }
}

impl<'a> Bulk<'a> {
    fn new(steering: Steering, mut filter: JobFilter, possible: &[JobStatus]) -> Self {
        let nothing_possible = restrict(&mut filter.statuses, possible);
        let limit = if nothing_possible { 0 } else { usize::MAX };
        Self { steering, filter, limit, progress: Box::new(|_| {}) }
    }

    /// Stops after this many jobs.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = self.limit.min(limit);
        self
    }

    /// Calls `progress` after each transaction with the result so far.
    pub fn on_progress(mut self, progress: impl FnMut(&Steered) + Send + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// How many jobs it would find now, counted up to `most`: for a confirmation before [`run`](Self::run).
    ///
    /// # Errors
    /// If the store fails.
    pub async fn count(&self, most: usize) -> Result<usize, ControlError> {
        let (most, mut met) = (most.min(self.limit), 0);
        let mut page = PageRequest::first(CHUNK.min(most));
        while page.limit > 0 {
            let found = self.steering.client.store().query_jobs(&self.filter, &page).await?;
            met += found.jobs.len() + found.unreadable.len();
            page = PageRequest { after: found.next, limit: found.next.map_or(0, |_| CHUNK.min(most - met)) };
        }
        Ok(met)
    }

    /// Retries or cancels the jobs.
    ///
    /// # Errors
    /// If the store fails. The transactions that are done stay done, and progress was called for them.
    pub async fn run(mut self) -> Result<Steered, ControlError> {
        let mut steered = Steered::default();
        let mut page = PageRequest::first(CHUNK.min(self.limit));
        // Each page is below the one before, so a job that fails again at once is not found twice.
        while page.limit > 0 {
            let found = self.steering.client.store().query_jobs(&self.filter, &page).await?;
            let met = found.jobs.len() + found.unreadable.len();
            self.limit -= met;
            page = PageRequest { after: found.next, limit: found.next.map_or(0, |_| CHUNK.min(self.limit)) };
            if met > 0 {
                self.steering.steer(found, &mut steered).await?;
                (self.progress)(&steered);
            }
        }
        Ok(steered)
    }
}

impl Steering {
    async fn steer(&self, found: JobPage, steered: &mut Steered) -> Result<(), ControlError> {
        steered.unreadable.extend(found.unreadable);
        let seen = |job: &Job| match self.guarded {
            true => (job.spec.id, job.fence).into(),
            false => job.spec.id.into(),
        };
        let targets: Vec<Target> = found.jobs.iter().map(seen).collect();
        match &self.action {
            Action::Retry => self.retry(&found.jobs, &targets, steered).await,
            Action::Cancel(reason) => self.cancel(found.jobs, &targets, reason, steered).await,
        }
    }

    async fn retry(
        &self,
        jobs: &[Job],
        targets: &[Target],
        steered: &mut Steered,
    ) -> Result<(), ControlError> {
        let verdicts = self.client.store().retry(targets).await?;
        let mut highest = None;
        for (job, verdict) in jobs.iter().zip(verdicts) {
            match verdict {
                RetryVerdict::Retried { revived } => {
                    steered.done += 1;
                    steered.dependents += revived.len() as u64;
                    highest = highest.max(Some(job.spec.priority));
                }
                RetryVerdict::KeyTaken { holder } => {
                    steered.key_taken.push(KeyTaken { job: job.spec.id, holder });
                }
                RetryVerdict::NotFailed(_) | RetryVerdict::Stale(_) | RetryVerdict::Unknown => {
                    steered.changed += 1;
                }
            }
        }
        if let Some(priority) = highest {
            self.client.wake_up(priority);
        }
        Ok(())
    }

    async fn cancel(
        &self,
        jobs: Vec<Job>,
        targets: &[Target],
        reason: &Sanitized,
        steered: &mut Steered,
    ) -> Result<(), ControlError> {
        let verdicts = self.client.store().cancel(targets, reason).await?;
        for (job, verdict) in jobs.into_iter().zip(verdicts) {
            match &verdict {
                CancelVerdict::Canceled { dependents } => {
                    steered.done += 1;
                    steered.dependents += dependents.len() as u64;
                }
                CancelVerdict::Requested { dependents } => {
                    steered.done += 1;
                    steered.told_to_stop += 1;
                    steered.dependents += dependents.len() as u64;
                }
                CancelVerdict::AlreadyEnded(_) | CancelVerdict::Stale(_) | CancelVerdict::Unknown => {
                    steered.changed += 1;
                }
            }
            self.client.tell_cancel(Some(job), &verdict);
        }
        Ok(())
    }
}

/// Leaves only the states that are possible; returns whether there are none.
fn restrict(statuses: &mut Vec<JobStatus>, possible: &[JobStatus]) -> bool {
    if statuses.is_empty() {
        statuses.extend(possible);
    }
    statuses.retain(|status| possible.contains(status));
    statuses.is_empty()
}

impl fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk")
            .field("filter", &self.filter)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobStatus::{Failed, Pending, Running, Succeeded};

    #[test]
    fn only_what_is_possible_is_looked_for() {
        for (wanted, left) in [
            (vec![], vec![Pending, Running]),
            (vec![Running, Succeeded], vec![Running]),
            (vec![Failed, Succeeded], vec![]),
        ] {
            let mut statuses = wanted;
            assert_eq!(restrict(&mut statuses, &[Pending, Running]), left.is_empty());
            assert_eq!(statuses, left);
        }
    }
}
