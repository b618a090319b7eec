//! The Ratchet store on MongoDB.
//!
//! A job is one document, so most of what happens to it is one atomic update: claiming, plain outcomes, recovery,
//! heartbeats and locks need no transaction. An operation on several documents (keys that last, edges, batches,
//! permits) is a `unit` of work: read, decide in plain Rust, write what changed, in one transaction that is run again
//! as a whole if another one was faster. `docs/stores/mongodb.md` has the details.
//!
//! ```no_run
//! use ratchet_store_mongodb::{MongoOptions, MongoStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MongoStore::connect("mongodb://localhost/?replicaSet=rs0", MongoOptions::default()).await?;
//! # Ok(()) }
//! ```

mod client;
mod clock;
mod codec;
mod collections;
mod enlist;
mod error;
mod indexes;
mod reach;
mod startup;
mod store;
mod unit;
mod wakeup;

pub use client::{MongoOptions, MongoStore};
pub use enlist::InMongo;
pub use error::driver_error;
/// The driver, in the version whose clients the store accepts.
pub use mongodb;
