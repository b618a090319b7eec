//! Nodes: who is alive, and what becomes of the work of those who are not.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Beat, BeatReply, JobClaim, Node, NodeInfo, Owner, StoreResult};

/// Registration, heartbeat and recovery.
#[async_trait]
pub trait NodeStore: Send + Sync + 'static {
    /// The same store on a connection of its own, made on the caller's runtime, for the heartbeat thread.
    ///
    /// # Contract
    /// - `dedicated.same_data`: it sees and changes the same nodes and jobs.
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>>;

    /// Makes a node known, alive for `lease`.
    ///
    /// # Contract
    /// - `node.join`: the node is listed with what it told, started and alive from the store's present.
    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()>;

    /// Renews a lease and tells the node what it should know.
    ///
    /// # Contract
    /// - `beat.renews`: the lease runs for `beat.lease` from the store's present; also one that had run out, as long as
    ///   nobody took its jobs. Sub-second leases count.
    /// - `beat.refused`: a node that never joined, has left or was reaped is refused and stays so.
    /// - `beat.dead`: every other owner whose lease has run out and who still holds jobs is listed.
    /// - `beat.span`: the node's row keeps since when it beats without a gap: a beat that comes more than `beat.gap` after
    ///   the one before, or by an earlier clock, or after beats that were allowed a longer gap, begins anew.
    /// - `beat.pulses`: if anybody is listed as dead, the beats are told of the dead, of those whose lease runs and of those
    ///   who beat within the last lease of any of the dead; whoever beats counts with this beat.
    /// - `beat.corrupt`: a node whose record cannot be read fails no beat of another. It is told as one with the lease of
    ///   whoever asks that has never beaten, so that its death has to be proven like any other.
    /// - `beat.cancels`: the owner's running jobs that were asked to be canceled are listed.
    /// - `beat.holds`: `holds_jobs` tells whether the owner holds any job.
    /// - `beat.due`: `due_work` tells whether any unpaused queue has a job that this owner could claim now, `next_due` when the
    ///   earliest other one becomes due, `next_fire` when the earliest active schedule fires; blocked, paused and
    ///   running jobs do not count.
    /// - `beat.suspects`: `suspects` tells whether any unpaused queue has a due job that is parked as a suspect.
    /// - `beat.load`: slots in use, slots in all and whether the node drains are kept for readers as the newest beat tells
    ///   them, and decide nothing.
    /// - `beat.skew`: the node's clock against the store's is kept for readers and decides nothing.
    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply>;

    /// Moves up to `limit` jobs of dead owners to `to`, which then commits each one as usual.
    ///
    /// # Contract
    /// - `recover.dead_only`: only jobs of owners whose lease has run out by the store's clock are moved, whatever the
    ///   caller believes.
    /// - `recover.moved`: a moved job stays RUNNING, belongs to `to` under a raised fence, and keeps its attempts, key,
    ///   permit and cancel request.
    /// - `recover.fences`: from then on the old owner can neither commit what was moved nor beat nor claim; an owner of whom
    ///   nothing was moved is left as it was.
    /// - `recover.disjoint`: two recoverers never get the same job, and a commit that won the race stays.
    /// - `recover.alive`: a `to` without a running lease gets nothing.
    /// - `recover.corrupt`: a job whose row cannot be read is moved like any other, marked `corrupt`, and hides no other.
    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>>;

    /// A node that stops takes itself off the list; `false` if it still holds jobs and therefore stays.
    ///
    /// # Contract
    /// - `node.leave`: a node that holds no job is gone at once; one that does stays, to be recovered from.
    async fn leave(&self, owner: &Owner) -> StoreResult<bool>;

    /// Every known node, by start time.
    ///
    /// # Contract
    /// - `node.listed`: each joined node that has not left or been purged, dead ones included.
    async fn nodes(&self) -> StoreResult<Vec<Node>>;

    /// Forgets nodes whose lease ran out more than `retention` ago and who hold no job; answers how many.
    ///
    /// # Contract
    /// - `node.purge`: nodes that are alive, or died more recently, or still hold a job stay.
    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64>;

    /// Mends what would wait in vain after the store's clock went back by `by`, at some time within the last `within`.
    /// Answers how many jobs became due; if that is `limit` or more, there may be others.
    ///
    /// # Contract
    /// - `clock_back.due`: a waiting or paused job that would be due by now, had the clock not gone back, is due now; but not
    ///   one that got its due time within `within`, which may be by the new clock, nor a schedule, which goes by the
    ///   wall clock. Sent twice it changes no more than once.
    /// - `clock_back.delay`: a job that got its due time by the old clock, at a time that has not come yet by the new one, and
    ///   that would wait for up to `by`, waits no longer than that; who waits for longer keeps its due time.
    /// - `clock_back.nodes`: a node whose last beat lies ahead of the store's present counts as having beaten now: its lease
    ///   runs from now on, and its span of beats begins anew.
    async fn clock_went_back(&self, by: Duration, within: Duration, limit: usize) -> StoreResult<u64>;
}
