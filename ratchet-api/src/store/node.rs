//! Nodes: registration, heartbeat, and recovery of the jobs of dead nodes.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Beat, BeatReply, JobClaim, Node, NodeInfo, Owner, StoreResult};

/// Registration, heartbeat and recovery of nodes.
#[async_trait]
pub trait NodeStore: Send + Sync + 'static {
    /// Opens the same store on a connection of its own, made on the caller's runtime, for the heartbeat thread.
    ///
    /// # Contract
    /// - `dedicated.same_data`: it sees and changes the same nodes and jobs.
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>>;

    /// Registers a node, alive for `lease`.
    ///
    /// # Contract
    /// - `node.join`: the node is listed with its info, started and alive from the store's present.
    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()>;

    /// Renews a lease and reports due work, cancel requests and dead owners to the node.
    ///
    /// # Contract
    /// - `beat.renews`: the lease runs for `beat.lease` from the store's present; a lease that had run out is renewed
    ///   too, as long as no other node has taken its jobs. Sub-second leases count.
    /// - `beat.refused`: a node that never joined, has left or was reaped is refused, now and later.
    /// - `beat.dead`: every other owner whose lease has run out and who still holds jobs is listed.
    /// - `beat.span`: the node's row keeps the start of its span of beats without a gap: a beat that comes more than
    ///   `beat.gap` after the one before, or by an earlier clock, or after beats that were allowed a longer gap, starts
    ///   a new span.
    /// - `beat.pulses`: if any owner is listed as dead, `pulses` holds the beats of the dead owners, of owners whose
    ///   lease runs and of owners that beat within the last lease of any dead one; the caller counts with this beat.
    /// - `beat.corrupt`: a node whose record cannot be read fails no beat of another. It is reported as a node that has
    ///   never beaten, with the lease of the caller, so that its death has to be proven like any other.
    /// - `beat.cancels`: the owner's running jobs whose cancel was requested are listed.
    /// - `beat.holds`: `holds_jobs` tells whether the owner holds any job.
    /// - `beat.due`: `due_work` tells whether any unpaused queue has a job that this owner could claim now, `next_due`
    ///   when the earliest other one becomes due, `next_fire` when the earliest active schedule fires; blocked, paused
    ///   and running jobs do not count.
    /// - `beat.suspects`: `suspects` tells whether any unpaused queue has a due job that is parked as a suspect.
    /// - `beat.load`: slots in use, slots in all and whether the node drains are stored from the newest beat for
    ///   readers, and decide nothing.
    /// - `beat.skew`: the difference of the node's clock to the store's is stored for readers, and decides nothing.
    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply>;

    /// Moves up to `limit` jobs of dead owners to `to`, which then commits each one as usual.
    ///
    /// # Contract
    /// - `recover.dead_only`: only jobs of owners whose lease has run out by the store's clock are moved, whatever the
    ///   caller believes.
    /// - `recover.moved`: a moved job stays RUNNING, belongs to `to` under a raised fence, and keeps its attempts, key,
    ///   permit and cancel request.
    /// - `recover.fences`: from then on the old owner can neither commit the moved jobs nor beat nor claim; an owner of
    ///   which no job was moved is left as it was.
    /// - `recover.disjoint`: two recoverers never get the same job, and a commit that won the race stays.
    /// - `recover.alive`: a `to` without a running lease gets nothing.
    /// - `recover.corrupt`: a job whose row cannot be read is moved like any other, marked `corrupt`, and hides no
    ///   other.
    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>>;

    /// Removes a stopping node from the list; `false` if it still holds jobs and therefore stays.
    ///
    /// # Contract
    /// - `node.leave`: a node that holds no job is gone at once; one that does stays, so that its jobs are recovered.
    async fn leave(&self, owner: &Owner) -> StoreResult<bool>;

    /// Every known node, by start time.
    ///
    /// # Contract
    /// - `node.listed`: each joined node that has not left or been purged, dead ones included.
    async fn nodes(&self) -> StoreResult<Vec<Node>>;

    /// Deletes nodes whose lease ran out more than `retention` ago and that hold no job; returns how many.
    ///
    /// # Contract
    /// - `node.purge`: nodes that are alive, or died more recently, or still hold a job stay.
    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64>;

    /// Corrects due times and leases after the store's clock went back by `by`, at some time within the last `within`.
    /// Returns how many jobs became due; if that is `limit` or more, there may be others.
    ///
    /// # Contract
    /// - `clock_back.due`: a waiting or paused job that would be due by now, had the clock not gone back, is due now;
    ///   but not one that got its due time within `within`, which may be by the new clock, nor a schedule, which goes
    ///   by the wall clock. A repeated call changes nothing more.
    /// - `clock_back.delay`: a job that got its due time by the old clock, at a time that has not come yet by the new
    ///   one, and that would wait for up to `by`, waits no longer than that; a job that waits for longer keeps its due
    ///   time.
    /// - `clock_back.nodes`: a node whose last beat lies ahead of the store's present counts as having beaten now: its
    ///   lease runs from now on, and a new span of beats starts.
    async fn clock_went_back(&self, by: Duration, within: Duration, limit: usize) -> StoreResult<u64>;
}
