//! The engine of Ratchet: it takes jobs from a store, runs them, and records what became of them.
//!
//! It knows [`ratchet_api`] only, and never names a database.

pub mod defaults;
pub mod poller;
