//! Ratchet's jobs in PostgreSQL.
//!
//! The contract of a store is written in [`ratchet_api::store`], its implementation for SQL in [`ratchet_store_core`].
//! `docs/stores/postgresql.md` explains the tables and the claim. This crate has the parts of PostgreSQL alone:
//!
//! - `queries/<area>/<name>.sql`: every statement, one a file, written for the schema `ratchet`;
//! - `driver`: connections, values and cells; `session`: session settings, poolers, plans;
//! - `connect`: opening a store, and making its tables;
//! - `enlist`: storing jobs inside a transaction of yours;
//! - `wakeup`: telling other nodes about new work.

mod connect;
mod driver;
mod enlist;
mod rare;
mod session;
mod wakeup;

pub use connect::{Pooler, PostgresOptions};
pub use enlist::InPostgres;
pub use ratchet_store_core::Namespace;
/// The driver, in the version whose options and transactions the store takes.
pub use sqlx;
pub use wakeup::PgNotifyCoordinator;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_api::spi::ClusterCoordinator;
use ratchet_api::store::StoreInfo;
use ratchet_api::{StoreResult, Timestamp};
use ratchet_store_core::SqlStore;

/// A store in one schema of a PostgreSQL database.
pub struct PostgresStore {
    store: SqlStore,
    /// `None` if wakeups are off.
    wakeups: Option<wakeup::WakeupChannel>,
}

#[async_trait]
impl StoreInfo for PostgresStore {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        let place = self.wakeups.clone()?;
        Some(Arc::new(PgNotifyCoordinator::at(place)))
    }

    async fn database_time(&self) -> StoreResult<Timestamp> {
        self.store.database_time().await
    }

    fn as_any(&self) -> &dyn Any {
        self.store.as_any()
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

ratchet_api::delegate_store!(PostgresStore => store:
    JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, NodeStore, LockStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore,
    WorkflowConditionStore, BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
