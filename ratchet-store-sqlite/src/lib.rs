//! Ratchet's jobs in a file of SQLite: the embedded default, for one machine and any number of processes on it.
//!
//! ```no_run
//! use ratchet_store_sqlite::SqliteStore;
//!
//! # async fn example() -> Result<(), ratchet_api::StoreError> {
//! let store = SqliteStore::open("jobs.db").await?;
//! # Ok(()) }
//! ```
//!
//! What a store owes is written in [`ratchet_api::store`], how a SQL store does it in [`ratchet_store_core`].
//! `docs/stores/sqlite.md` explains the tables, the claim and the settings. Here is what is SQLite's own:
//!
//! - `queries/<area>/<name>.sql`: every operation as a script, written for the schema `ratchet`;
//! - `driver`: connections, values and cells; `packed`: many rows in one cell;
//! - `open`: opening a file, and making its tables;
//! - `enlist`: storing jobs inside a transaction of yours.

mod driver;
mod enlist;
mod open;
mod packed;

pub use enlist::InSqlite;
pub use open::{Durability, SqliteOptions};
pub use ratchet_store_core::Namespace;

use ratchet_store_core::SqlStore;

/// A store in a file of SQLite.
#[derive(Debug)]
pub struct SqliteStore {
    store: SqlStore,
}

ratchet_api::delegate_store!(SqliteStore => store:
    StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, NodeStore, LockStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore,
    WorkflowConditionStore, BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
