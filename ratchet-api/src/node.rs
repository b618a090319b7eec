//! Nodes as a store keeps them, and their beats.

use std::time::Duration;

use crate::{JobId, Owner, Pulse, Timestamp};

/// The data that a node registers when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// This incarnation of the node.
    pub owner: Owner,
    /// Its full label.
    pub label: String,
    /// The version of the program or of Ratchet.
    pub version: String,
    /// The methods that it can run, as [`JobPayload::call_name`](crate::JobPayload::call_name) writes them, aliases
    /// included.
    pub methods: Vec<String>,
    /// The queues that it serves.
    pub queues: Vec<String>,
}

impl NodeInfo {
    /// Creates the data of a node of which only the owner is known.
    pub fn new(owner: Owner) -> Self {
        Self {
            label: owner.label().to_owned(),
            owner,
            version: String::new(),
            methods: Vec::new(),
            queues: Vec::new(),
        }
    }
}

/// A heartbeat of a node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Beat {
    /// The owner that beats.
    pub owner: Owner,
    /// How long the node counts as alive after this beat.
    pub lease: Duration,
    /// The longest time since the previous beat that is not a gap; see [`Pulse`].
    pub gap: Duration,
    /// The time by the node's own clock, which shows its skew.
    pub node_time: Timestamp,
    /// Slots in use.
    pub running: u32,
    /// Slots in all.
    pub slots: u32,
    /// Whether it drains: it takes no new jobs.
    pub draining: bool,
}

impl Beat {
    /// Creates a beat of an idle node.
    pub fn new(owner: Owner, lease: Duration) -> Self {
        let (gap, node_time) = (lease / 2, Timestamp::node_now());
        Self { owner, lease, gap, node_time, running: 0, slots: 0, draining: false }
    }
}

/// The store's reply to a beat. It drives recovery, and makes up for lost wakeups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BeatReply {
    /// Whether the lease is renewed. If not, the node is fenced: it stops its work and joins anew.
    pub accepted: bool,
    /// The store's present.
    pub db_now: Timestamp,
    /// Owners whose lease has run out and who still hold jobs.
    pub dead: Vec<Owner>,
    /// The beats that decide whether the owners in `dead` really are dead, see [`death`](crate::death); empty if `dead`
    /// is.
    pub pulses: Vec<Pulse>,
    /// Jobs of this owner whose cancel was requested.
    pub cancel_requested: Vec<JobId>,
    /// Whether this owner holds any job.
    pub holds_jobs: bool,
    /// Whether some unpaused queue has a job that is due.
    pub due_work: bool,
    /// Whether some unpaused queue has a due job that may have killed a node; see
    /// [`ParkedOn::Suspect`](crate::ParkedOn::Suspect).
    pub suspects: bool,
    /// When the earliest job that is not due yet becomes due.
    pub next_due: Option<Timestamp>,
    /// When the next schedule fires.
    pub next_fire: Option<Timestamp>,
}

impl BeatReply {
    /// Creates the reply to a refused beat.
    pub const fn refused(db_now: Timestamp) -> Self {
        Self {
            accepted: false,
            db_now,
            dead: Vec::new(),
            pulses: Vec::new(),
            cancel_requested: Vec::new(),
            holds_jobs: false,
            due_work: false,
            suspects: false,
            next_due: None,
            next_fire: None,
        }
    }

    /// Creates the reply to an accepted beat, with nothing else to report.
    pub fn accepted(db_now: Timestamp) -> Self {
        Self { accepted: true, ..Self::refused(db_now) }
    }
}

/// A registered node, as others see it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Node {
    /// The data that it registered.
    pub info: NodeInfo,
    /// When it joined.
    pub started_at: Timestamp,
    /// When it last beat.
    pub heartbeat_at: Timestamp,
    /// The start of its present span of beats without a gap.
    pub beating_since: Timestamp,
    /// An upper bound for the time between two beats of that span.
    pub beat_gap: Duration,
    /// Until when it counts as alive.
    pub lease_until: Timestamp,
    /// Its jobs were taken over: it can only join anew.
    pub reaped: bool,
    /// Its clock minus the store's, in milliseconds, at the last beat.
    pub skew_millis: i64,
    /// Slots in use.
    pub running: u32,
    /// Slots in all.
    pub slots: u32,
    /// Whether it drains: it takes no new jobs, and waits for those that run.
    pub draining: bool,
}

impl Node {
    /// Creates a node that joined just now.
    pub fn joined(info: NodeInfo, now: Timestamp, lease: Duration) -> Self {
        Self {
            info,
            started_at: now,
            heartbeat_at: now,
            beating_since: now,
            beat_gap: Duration::ZERO,
            lease_until: now + lease,
            reaped: false,
            skew_millis: 0,
            running: 0,
            slots: 0,
            draining: false,
        }
    }

    /// Its beats, as [`death`](crate::death) takes them.
    pub fn pulse(&self) -> Pulse {
        Pulse {
            owner: self.info.owner.clone(),
            since: self.beating_since,
            last: self.heartbeat_at,
            gap: self.beat_gap,
            lease: self.lease_until.since(self.heartbeat_at),
            reaped: self.reaped,
        }
    }

    /// Whether its lease is running at `now`.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        !self.reaped && self.lease_until > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_alive_until_its_lease_ends_or_it_is_reaped() {
        let (joined, lease) = (Timestamp::from_millis(1_000), Duration::from_millis(500));
        let mut node = Node::joined(NodeInfo::new(Owner::incarnate("a")), joined, lease);
        assert!(node.is_alive(Timestamp::from_millis(1_499)));
        assert!(!node.is_alive(Timestamp::from_millis(1_500)));
        node.reaped = true;
        assert!(!node.is_alive(joined));
    }
}
