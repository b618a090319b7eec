//! Taking work from the store.

mod strategy;

pub use strategy::{AdaptivePolling, PollingMode};
