//! Single-job operations, built on the batched ones.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    DeadReason, End, ErrorRecord, HandBackReason, JobClaim, JobId, JobStatus, JsonText, Outcome, Owner,
    Sanitized, StoreError, StoreErrorKind, StoreResult, Verdict,
};

use super::{CancelVerdict, JobStore, PauseVerdict, ResumeVerdict, RetryVerdict};

/// The answer to a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cas {
    /// The job was as expected and is changed now.
    Applied,
    /// The job was in this state instead, and is unchanged. `None` if it does not exist.
    Stale(Option<JobStatus>),
}

/// Single-job operations on any store.
#[async_trait]
pub trait JobStoreExt: JobStore {
    /// Moves a job from RUNNING to SUCCEEDED.
    async fn mark_succeeded(
        &self,
        owner: &Owner,
        claim: &JobClaim,
        result: Option<JsonText>,
    ) -> StoreResult<Verdict> {
        self.commit_one(owner, claim, End::Succeeded { result }).await
    }

    /// Moves a job from RUNNING to FAILED, for good.
    async fn mark_failed(&self, owner: &Owner, claim: &JobClaim, error: ErrorRecord) -> StoreResult<Verdict> {
        self.commit_one(owner, claim, End::DeadLetter { error, reason: DeadReason::Exhausted }).await
    }

    /// Moves a job from RUNNING to PENDING after a failure.
    async fn schedule_retry(
        &self,
        owner: &Owner,
        claim: &JobClaim,
        error: ErrorRecord,
        delay: Duration,
    ) -> StoreResult<Verdict> {
        self.commit_one(owner, claim, End::Retry { delay, error }).await
    }

    /// Moves a job from RUNNING to PENDING; no attempt is consumed.
    async fn hand_back(&self, owner: &Owner, claim: &JobClaim, delay: Duration) -> StoreResult<Verdict> {
        self.commit_one(owner, claim, End::HandBack { delay, reason: HandBackReason::Released }).await
    }

    /// Hands back every job that `owner` holds; returns how many there were.
    async fn reset_running(&self, owner: &Owner) -> StoreResult<usize> {
        let end = End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
        let held = self.owned(owner).await?;
        let outcomes: Vec<_> =
            held.iter().map(|claim| Outcome::new(claim.id, claim.fence, end.clone())).collect();
        let verdicts = self.commit(owner, &outcomes).await?;
        Ok(verdicts.iter().filter(|verdict| verdict.is_settled()).count())
    }

    /// The state of a job; `None` if it does not exist.
    async fn status_of(&self, job: JobId) -> StoreResult<Option<JobStatus>> {
        Ok(self.find(&[job]).await?.into_iter().flatten().next().map(|job| job.status))
    }

    /// Moves a job from `expected` to `new`, unless the job was changed first.
    ///
    /// A move out of SUCCEEDED or CANCELED, a claim, and any move that is not in the
    /// [transition table](crate::TRANSITIONS) never happen here, so asking for one is an error rather than a lost race.
    async fn compare_and_swap_status(
        &self,
        id: JobId,
        expected: JobStatus,
        new: JobStatus,
        error: Option<ErrorRecord>,
        reason: &Sanitized,
    ) -> StoreResult<Cas> {
        const OP: &str = "compare_and_swap_status";
        use JobStatus::{Canceled, Failed, Paused, Pending, Running, Succeeded};
        let illegal = || StoreError::invalid(OP, format!("no move leads from {expected} to {new}"));
        if expected == Canceled || !expected.can_move(new) || (expected, new) == (Pending, Running) {
            return Err(illegal());
        }
        let Some(job) = self.find(&[id]).await?.pop().flatten() else { return Ok(Cas::Stale(None)) };
        if job.status != expected {
            return Ok(Cas::Stale(Some(job.status)));
        }
        let target = [(id, job.fence).into()];
        let applied = match (expected, new) {
            (Running, to) => {
                let owner =
                    job.picked_by.ok_or_else(|| StoreError::corrupt(OP, id, "running without an owner"))?;
                let needed =
                    || StoreError::invalid(OP, format!("a move from RUNNING to {to} needs an error"));
                let end = match to {
                    Succeeded => End::Succeeded { result: None },
                    Canceled => End::Canceled { reason: reason.clone() },
                    Failed => {
                        End::DeadLetter { error: error.ok_or_else(needed)?, reason: DeadReason::Exhausted }
                    }
                    _ => End::Retry { delay: Duration::ZERO, error: error.ok_or_else(needed)? },
                };
                let mut outcome = Outcome::new(id, job.fence, end);
                outcome.edges_seen = job.edge_count;
                let verdicts = self.commit(&owner, &[outcome]).await?;
                matches!(verdicts.as_slice(), [Verdict::Recorded(_)])
            }
            (_, Canceled) => matches!(
                self.cancel(&target, reason).await?.as_slice(),
                [CancelVerdict::Canceled { .. } | CancelVerdict::Requested { .. }]
            ),
            (_, Paused) => matches!(self.pause(&target).await?.as_slice(), [PauseVerdict::Paused]),
            (Failed, Pending) => {
                matches!(self.retry(&target).await?.as_slice(), [RetryVerdict::Retried { .. }])
            }
            (Paused, to) if job.paused_from == Some(to) => {
                matches!(self.resume(&target).await?.as_slice(), [ResumeVerdict::Resumed(_)])
            }
            _ => return Err(illegal()),
        };
        Ok(if applied { Cas::Applied } else { Cas::Stale(self.status_of(id).await?) })
    }

    /// Commits one outcome without run and effects.
    async fn commit_one(&self, owner: &Owner, claim: &JobClaim, end: End) -> StoreResult<Verdict> {
        let mut outcome = Outcome::new(claim.id, claim.fence, end);
        outcome.edges_seen = claim.edge_count;
        let verdicts = self.commit(owner, &[outcome]).await?;
        verdicts
            .into_iter()
            .next()
            .ok_or_else(|| StoreError::new(StoreErrorKind::Other, "commit", "the store gave no verdict"))
    }
}

impl<T: JobStore + ?Sized> JobStoreExt for T {}
