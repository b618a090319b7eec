//! One file for each command.

#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod dlq;
pub(crate) mod jobs;
pub(crate) mod migrate;
pub(crate) mod queues;
pub(crate) mod status;
