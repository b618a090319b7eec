//! Claiming jobs.

use std::time::Duration;

use async_trait::async_trait;

use crate::{JobClaim, Outcome, Owner, QueueLimit, QueueName, StoreResult, Verdict};

use super::JobTerminalStore;

/// A node's request to claim jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// The claiming owner.
    pub owner: Owner,
    /// The queues to claim from, and the limit of each.
    pub queues: Vec<QueueLimit>,
    /// Waiting this long raises the priority by one; `None` for no boost.
    pub boost_interval: Option<Duration>,
}

impl ClaimRequest {
    /// Up to `limit` jobs of the default queue, with the usual boost of one step in 15 minutes.
    pub fn new(owner: Owner, limit: usize) -> Self {
        Self::of_queues(owner, vec![QueueLimit { queue: QueueName::default(), limit }])
    }

    /// Up to the given limit of jobs of each of these queues.
    pub const fn of_queues(owner: Owner, queues: Vec<QueueLimit>) -> Self {
        Self { owner, queues, boost_interval: Some(Duration::from_secs(15 * 60)) }
    }
}

/// Atomic claiming.
#[async_trait]
pub trait JobClaimStore: JobTerminalStore {
    /// Moves due jobs to RUNNING for their new owner and returns them.
    ///
    /// # Contract
    /// - `claim.due`: only PENDING jobs that are due by the store's clock and blocked by nothing are claimed.
    /// - `claim.parked`: a parked job is claimed only by an owner whose node lists the method that it is parked on, or
    ///   while the resource that it is parked on has a free permit, and a suspect is not claimed; but a job past its
    ///   `expires_at`, or parked on something that this version does not know, is claimed by any owner. It then takes
    ///   its place among the others in the order of `claim.order`, and is no longer parked.
    /// - `claim.parked_room`: one call takes no more jobs parked on a resource than it has free permits, the best
    ///   first.
    /// - `claim.parked_alike`: instead of claiming a job, a call may park it if it lacks the same as jobs that are
    ///   already parked in its queue: a method that the owner's node does not list, or a free permit. That hides no job
    ///   that the owner could run.
    /// - `claim.owned`: a claimed job is RUNNING, picked by the owner at the store's present, with a raised fence that
    ///   the claim carries; its other fields are those of the row.
    /// - `claim.disjoint`: concurrent calls never return the same job, and none waits for another.
    /// - `claim.order`: within one queue, highest [`boosted`](crate::JobPriority::boosted) priority first, then
    ///   earliest due time, then lowest id; exactly the best ones are taken and the answer is in that order, queues in
    ///   the order of the request. When several owners have just claimed at the same time, a store may leave some jobs
    ///   to the other owners and take others with the same boosted priority instead.
    /// - `claim.limit`: no queue gives more jobs than its limit, and a queue with fewer gives all of them.
    /// - `claim.queue`: jobs come only from the requested queues, and from none that is paused.
    /// - `claim.lease`: an owner without a running lease gets nothing.
    /// - `claim.expired`: a job past its `expires_at` is claimed like any other and marked `expired`.
    /// - `claim.corrupt`: a row that cannot be read, or whose fence cannot be raised, is claimed like any other and
    ///   marked `corrupt` with the problem, so that its owner records its end; it hides no other.
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>>;

    /// Returns every job that `owner` holds; called after a claim whose reply was lost, and once per lease.
    ///
    /// # Contract
    /// - `owned.all`: exactly the RUNNING jobs of this owner, with their present fences, lowest id first.
    /// - `owned.corrupt`: one of them whose row cannot be read is marked `corrupt` and hides no other.
    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>>;

    /// Records outcomes, then claims. A store may do both in one transaction; the default does them in turn.
    ///
    /// # Contract
    /// - `commit_and_claim.both`: the answers are those of `commit` followed by `claim`: what the commit released or
    ///   made due can be claimed by the same call.
    async fn commit_and_claim(
        &self,
        owner: &Owner,
        outcomes: &[Outcome],
        request: &ClaimRequest,
    ) -> StoreResult<(Vec<Verdict>, Vec<JobClaim>)> {
        let verdicts = if outcomes.is_empty() { Vec::new() } else { self.commit(owner, outcomes).await? };
        Ok((verdicts, self.claim(request).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: S41
    #[test]
    fn a_claim_boosts_by_one_step_in_15_minutes_unless_told() {
        let request = ClaimRequest::new(Owner::incarnate("a"), 3);
        assert_eq!(request.boost_interval, Some(Duration::from_mins(15)));
        assert_eq!(request.queues, [QueueLimit { queue: QueueName::default(), limit: 3 }]);
    }
}
