//! Cluster membership of a node: heartbeat, lease, recovery.

mod beat_interval;
pub(crate) mod heartbeat;
pub(crate) mod lease;
pub(crate) mod recovery;
mod skew;
mod steps;
pub(crate) mod unknown;
pub(crate) mod unreachable;
