//! Being one of several nodes.

pub(crate) mod heartbeat;
pub(crate) mod lease;
mod pace;
pub(crate) mod recovery;
mod skew;
mod steps;
pub(crate) mod unknown;
pub(crate) mod unreachable;
