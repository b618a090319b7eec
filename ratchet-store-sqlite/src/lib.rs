//! Ratchet's jobs in a file of SQLite: the embedded default, for one machine and any number of processes on it.
//!
//! ```no_run
//! use ratchet_store_sqlite::SqliteStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::open("jobs.db").await?;
//! # Ok(()) }
//! ```
//!
//! The contract of a store is written in [`ratchet_api::store`], its implementation for SQL in [`ratchet_store_core`].
//! `docs/stores/sqlite.md` explains the tables, the claim and the settings. This crate has the parts of SQLite alone:
//!
//! - `queries/<area>/<name>.sql`: every operation as a script, written for the schema `ratchet`;
//! - `driver`: connections, values and cells; `packed`: many rows in one cell;
//! - `open`: opening a file, and making its tables;
//! - `enlist`: storing jobs inside a transaction of yours;
//! - `wakeup`: telling other processes about new work.

mod driver;
mod enlist;
mod open;
mod packed;
mod wakeup;

pub use enlist::InSqlite;
pub use open::{Durability, SqliteOptions};
pub use ratchet_store_core::Namespace;
/// The driver, in the version whose options and transactions the store takes.
pub use sqlx;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_api::spi::ClusterCoordinator;
use ratchet_api::store::StoreInfo;
use ratchet_api::{StoreResult, Timestamp};
use ratchet_store_core::SqlStore;

/// A store in a file of SQLite.
pub struct SqliteStore {
    store: SqlStore,
    /// `None` if wakeups are off.
    wakeups: Option<wakeup::WakeupFile>,
}

#[async_trait]
impl StoreInfo for SqliteStore {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        let place = self.wakeups.clone()?;
        Some(Arc::new(wakeup::FileCoordinator::new(place)))
    }

    async fn database_time(&self) -> StoreResult<Timestamp> {
        self.store.database_time().await
    }

    fn as_any(&self) -> &dyn Any {
        self.store.as_any()
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

ratchet_api::delegate_store!(SqliteStore => store:
    JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, NodeStore, LockStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore,
    WorkflowConditionStore, BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
