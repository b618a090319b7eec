//! One file for each command.

mod confirm;
#[cfg(feature = "sqlite")]
pub(crate) mod demo;
pub(crate) mod dlq;
pub(crate) mod explain;
pub(crate) mod jobs;
pub(crate) mod maintenance;
pub(crate) mod migrate;
pub(crate) mod nodes;
pub(crate) mod queues;
pub(crate) mod resources;
mod screen;
mod shop;
pub(crate) mod status;
pub(crate) mod worker;
