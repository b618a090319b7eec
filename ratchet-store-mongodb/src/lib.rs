//! The Ratchet store on MongoDB.
//!
//! A job is one document, so most of what happens to it is one atomic update: claiming, plain outcomes, recovery,
//! heartbeats and locks need no transaction. What touches several documents (keys that last, edges, batches, permits)
//! is a `unit` of work: read, decide in plain Rust, write what changed, in one transaction that is run again as a
//! whole if another one was faster. `docs/stores/mongodb.md` tells the whole story.
//!
//! ```no_run
//! use ratchet_store_mongodb::{MongoOptions, MongoStore};
//!
//! # async fn example() -> ratchet_api::StoreResult<()> {
//! let store = MongoStore::connect("mongodb://localhost/?replicaSet=rs0", MongoOptions::default()).await?;
//! # Ok(()) }
//! ```

mod client;
mod clock;
mod codec;
mod collections;
mod error;
mod indexes;
mod startup;
mod store;
mod unit;

pub use client::{MongoOptions, MongoStore};
