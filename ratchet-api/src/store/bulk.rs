//! Storing many jobs at once, and removing many.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Inserted, JobId, StoreResult, Submission};

/// Bulk operations: insert, delete, dead-letter purge.
#[async_trait]
pub trait JobBulkStore: Send + Sync + 'static {
    /// Stores submissions and returns one verdict for each, in order.
    ///
    /// # Contract
    /// - `insert.pending`: a stored job is PENDING with the fence [`Fence::FIRST`](crate::Fence::FIRST), 0 attempts and
    ///   no owner, and reads back exactly as it was given: every option, and payload, params and callbacks byte for
    ///   byte.
    /// - `insert.due`: it is due at its delay after the store's present, or at the instant that the submission names.
    /// - `insert.atomic`: one submission is stored as a whole or not at all.
    /// - `insert.isolated`: a refused submission never affects its neighbours, and no call raises a database error that
    ///   would end a surrounding transaction.
    /// - `insert.replay`: inserting a submission again answers [`Inserted::Existing`] with the head's own id and
    ///   changes nothing, even after the job has run or has been archived with its idempotency key.
    /// - `insert.id_taken`: a submission whose head is new but which has another job with a stored id is refused.
    /// - `insert.idempotent`: an idempotency key that was ever used answers `Existing` with the first job's id, also
    ///   within one call, under a race, and after that job has ended, been archived or deleted.
    /// - `insert.business_key`: a business key held by a live job (pending, running or paused) answers
    ///   [`Inserted::KeyTaken`]; under a race exactly one submission gets it.
    /// - `insert.keys_exact`: keys are compared byte for byte: case, accents, width, trailing spaces and Unicode
    ///   normal form all count.
    /// - `insert.invalid`: a submission that [`Submission::validate`] refuses is answered with
    ///   [`Refusal::Invalid`](crate::Refusal::Invalid) and not stored.
    /// - `insert.edges`: a job that an edge leads to is blocked by as many parents as it needs; `depends_on` is the
    ///   parent of its first edge.
    /// - `insert.edge_outside`: an edge from a stored live job is accepted and raises that job's edge count without
    ///   touching its fence; from an unknown job it is refused.
    /// - `insert.edge_ended`: an edge from an ended job is decided at once by
    ///   [`Edge::decided_by`](crate::Edge::decided_by); where that gives `None`, the submission is refused with
    ///   `ParentEnded`. A paused dead letter counts as FAILED here. A job that can no longer get what it needs is
    ///   stored as CANCELED, with its own dependents.
    /// - `insert.batch`: the parent of a batch is blocked until the batch is complete; children are counted in its
    ///   total. A closed batch without children is complete at once.
    /// - `insert.batch_closed`: a child for a closed batch is refused, one for an open batch is added to its total.
    /// - `insert.supersede`: a superseded job that is pending or paused becomes CANCELED with `superseded_by` set, in
    ///   the same transaction, and frees its business key for its successor; any other refuses the submission.
    /// - `insert.fire_once`: a fire is stored at most once for a master and an instant, also under a race, and moves
    ///   the master's next fire; later ones answer `AlreadyFired`. A master that is paused, canceled or unknown
    ///   refuses it.
    async fn insert(&self, submissions: &[Submission]) -> StoreResult<Vec<Inserted>>;

    /// Removes ended jobs with their history, logs, tags, edges and batches; returns how many there were.
    ///
    /// # Contract
    /// - `delete.ended`: only ended jobs are removed, with all that belongs to them; live and unknown ones are left
    ///   alone and not counted.
    async fn delete(&self, jobs: &[JobId]) -> StoreResult<u64>;

    /// Removes up to `limit` dead letters that ended more than `retention` ago; returns how many.
    ///
    /// # Contract
    /// - `purge_dlq.old_failures`: only FAILED jobs past their retention go, with all that belongs to them, at most
    ///   `limit`, in whichever order costs the store least.
    async fn purge_dead_letters(&self, retention: Duration, limit: usize) -> StoreResult<u64>;
}
