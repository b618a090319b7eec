//! Being one of several nodes.

pub(crate) mod heartbeat;
