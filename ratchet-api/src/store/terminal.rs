//! Outcomes and cancellation of jobs, with all their consequences.

use async_trait::async_trait;

use crate::{Fence, JobId, JobStatus, Outcome, Owner, Sanitized, StoreResult, Verdict};

/// A job to control, and optionally the fence that it was read with.
///
/// With a fence, the call acts only if the job has not changed since: optimistic locking for people and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The job.
    pub id: JobId,
    /// The fence it must still have.
    pub fence: Option<Fence>,
}

impl From<JobId> for Target {
    fn from(id: JobId) -> Self {
        Self { id, fence: None }
    }
}

impl From<(JobId, Fence)> for Target {
    fn from((id, fence): (JobId, Fence)) -> Self {
        Self { id, fence: Some(fence) }
    }
}

/// The verdict on a cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelVerdict {
    /// It had not started and is CANCELED now, with these dependents.
    Canceled {
        /// Jobs that were canceled with it, nearest first.
        dependents: Vec<JobId>,
    },
    /// It runs: readers see CANCELED from now on, and its body is told to stop.
    Requested {
        /// Jobs that were canceled with it, nearest first.
        dependents: Vec<JobId>,
    },
    /// It has ended, or its cancel was accepted before. Nothing was done.
    AlreadyEnded(JobStatus),
    /// It has another fence by now. Nothing was done.
    Stale(JobStatus),
    /// There is no such job.
    Unknown,
}

/// Outcomes and cancellation.
#[async_trait]
pub trait JobTerminalStore: Send + Sync + 'static {
    /// Records outcomes with all their consequences; one verdict for each, in order.
    ///
    /// # Contract
    /// - `commit.fenced`: an outcome is recorded only for the present owner and fence; any other changes nothing at all
    ///   and answers `LeaseLost`. An expired lease alone does not matter as long as no other owner has taken the job
    ///   over.
    /// - `commit.once`: sending a recorded outcome again answers `AlreadyRecorded` and does nothing twice, except for a
    ///   hand-back or parking without a run, which leaves no history row to recognise it by and answers `LeaseLost`.
    /// - `commit.isolated`: an outcome that is not recorded never affects its neighbours.
    /// - `commit.corrupt`: a dead letter is recorded for a row that cannot be read as for any other, and its readable
    ///   fields stay. A job whose queue state is gone answers `LeaseLost`, never an error: it is FAILED with the error
    ///   class `CorruptRow` from then on. A fence that was set back by hand keeps no outcome from being recorded,
    ///   whatever the history contains.
    /// - `commit.fence_raised`: a recorded outcome raises the fence by one.
    /// - `commit.succeeded`: the job is SUCCEEDED with its result byte for byte, its timing, no owner, no pick-up time
    ///   and no error.
    /// - `commit.retry`: the job is PENDING, due after the delay from the store's present, one attempt more, the
    ///   error kept; its key stays reserved.
    /// - `commit.dead_letter`: the job is FAILED with its error; one attempt more if
    ///   [`consumes_attempt`](crate::DeadReason::consumes_attempt), one crash more if it is
    ///   [`Crashed`](crate::DeadReason::Crashed).
    /// - `commit.hand_back`: the job is PENDING after the delay with attempts unchanged; only `Crashed` raises
    ///   `crash_count`, and stores the outcome's [crash](crate::Outcome::crash) record, in the history row too.
    /// - `commit.park`: the job is PENDING and parked on the given reason; all else is as after a hand-back that keeps
    ///   the due time.
    /// - `commit.suspect`: a job that is handed back as a [suspect](crate::Outcome::suspect) is parked as one; any
    ///   other job that is handed back is not parked.
    /// - `commit.keeps_due`: a hand-back that [keeps the due time](crate::End::keeps_due) leaves it as it was, or at
    ///   the store's present if that is earlier: the job keeps its place in the queue.
    /// - `commit.canceled`: the job is CANCELED with its reason.
    /// - `commit.history`: every outcome leaves one history row for its fence, except a hand-back or parking without a
    ///   run that is no crash.
    /// - `commit.releases`: an end frees the business key; leaving RUNNING frees the permit, in the same transaction.
    /// - `commit.timing`: start and end are counted back from the store's present, the end is never before the start,
    ///   and the queue wait runs from due to claimed.
    /// - `commit.satisfy`: a satisfied edge lowers the child's `blocked_by` and `open_parents`; at 0 blocked it can be
    ///   claimed, due now if its time has come, and is listed as released.
    /// - `commit.refuse`: a refused edge lowers `open_parents`; a child with fewer open parents than it needs is
    ///   CANCELED, all edges that lead from it are refused, and so on; all of them are listed.
    /// - `commit.decided_edge`: an effect on an edge that is already decided, or that does not exist, does nothing.
    /// - `commit.undecided_edge`: an edge of an ended job that no effect decided is decided by the job's final status
    ///   with [`Edge::decided_by`](crate::Edge::decided_by), and is refused where that gives `None`. After a retry or
    ///   hand-back edges stay open, whatever the effects say.
    /// - `commit.submit`: submissions are stored with the outcome, whatever its end, and after that end has freed its
    ///   keys and permit; a refused one is reported and undoes nothing.
    /// - `commit.edges_changed`: if a job that succeeds or fails for good has a higher edge count than was seen,
    ///   nothing is done and its edges are returned with that count; an outcome that has seen the count is recorded,
    ///   however few of the edges are left.
    /// - `commit.cancel_wins`: once a cancel was requested, any committed outcome records CANCELED with its history
    ///   row, drops result and effects, and answers `CanceledInstead`; sent again it answers `AlreadyRecorded`.
    /// - `commit.batch`: the end of a child counts once in its batch, success as completed, the rest as failed;
    ///   concurrent commits are all counted; the last one of a closed batch completes it once and releases its parent.
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>>;

    /// Cancels jobs; one verdict for each, in order.
    ///
    /// # Contract
    /// - `cancel.waiting`: a pending or paused job becomes CANCELED at once and frees its key.
    /// - `cancel.running`: a running job stays with its owner, keeps key and permit until it ends, and reads as
    ///   CANCELED.
    /// - `cancel.once`: canceling an ended job, or one whose cancel was accepted, changes nothing.
    /// - `cancel.cascade`: every dependent that can no longer get what it needs is canceled in the same call, nearest
    ///   first, whatever its depth.
    /// - `cancel.batch`: a canceled child that had not ended counts as failed in its batch: at once if it waited, with
    ///   its outcome if it ran.
    /// - `cancel.many`: a call with many jobs does, all at once, the same as one call for each job in turn.
    /// - `cancel.stale`: with a fence that is not the present one, nothing is done.
    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>>;
}
