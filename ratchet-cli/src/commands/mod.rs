//! One file for each command.

#[cfg(feature = "sqlite")]
pub(crate) mod demo;
