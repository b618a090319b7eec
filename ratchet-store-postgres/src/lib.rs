//! Ratchet's jobs in PostgreSQL.
//!
//! What a store owes is written in [`ratchet_api::store`], how a SQL store does it in [`ratchet_store_core`].
//! `docs/stores/postgresql.md` explains the tables and the claim. Here is what is PostgreSQL's own:
//!
//! - `queries/<area>/<name>.sql`: every statement, one a file, written for the schema `ratchet`;
//! - `driver`: connections, values and cells; `session`: what is asked of them, poolers, plans;
//! - `connect`: opening a store, and making its tables;
//! - `enlist`: storing jobs inside a transaction of yours.

mod connect;
mod driver;
mod enlist;
mod rare;
mod session;

pub use connect::{Pooler, PostgresOptions};
pub use enlist::InPostgres;
pub use ratchet_store_core::Namespace;

use ratchet_store_core::SqlStore;

/// A store in one schema of a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    store: SqlStore,
}

ratchet_api::delegate_store!(PostgresStore => store:
    StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
    JobBulkStore, BatchStore, NodeStore, LockStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore,
    WorkflowConditionStore, BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
