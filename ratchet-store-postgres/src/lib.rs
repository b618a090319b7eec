//! Ratchet's jobs in PostgreSQL.
//!
//! What a store owes is written in [`ratchet_api::store`]; `docs/stores/postgresql.md` explains the tables and the
//! claim. Where to look:
//!
//! - `queries/<area>/<name>.sql`: every statement, one a file, written for the schema `ratchet`;
//! - `params` and `statement`: how they are compiled for another schema, and bound;
//! - `session`: connections, transactions, re-runs, timeouts;
//! - `insert`, `claim`, `commit`: the operations that carry the load;
//! - `follow`: what the end of a job leads to, shared by commit, cancel and insert.

mod alert;
mod archive;
mod batch;
mod claim;
mod commit;
mod connect;
mod control;
mod crud;
mod error;
mod follow;
mod hold;
mod info;
mod insert;
mod lock;
mod node;
mod page;
mod params;
mod permit;
mod query;
mod record;
mod recurring;
mod row;
mod schema;
mod session;
mod statement;
mod values;

pub use connect::PostgresOptions;
pub use schema::Schema;

use std::time::Duration;

use chrono::{DateTime, Utc};
use ratchet_api::{Limits, StoreClock};

/// A store in one schema of a PostgreSQL database.
pub struct PostgresStore {
    pub(crate) sessions: session::Sessions,
    pub(crate) sql: statement::Statements,
    pub(crate) schema: Schema,
    pub(crate) clock: StoreClock,
    pub(crate) limits: Limits,
    pub(crate) operation_timeout: Duration,
    pub(crate) acquire_timeout: Duration,
}

impl PostgresStore {
    /// What a statement binds as `:now`: nothing, so that the server's clock decides, or a test's time.
    pub(crate) fn now(&self) -> Option<DateTime<Utc>> {
        self.clock.manual_now().map(ratchet_api::Timestamp::to_datetime)
    }
}

impl std::fmt::Debug for PostgresStore {
    /// Says where the data is, without the user and the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let server = self.sessions.options();
        f.debug_struct("PostgresStore")
            .field("host", &server.get_host())
            .field("port", &server.get_port())
            .field("database", &server.get_database())
            .field("schema", &self.schema.as_str())
            .finish()
    }
}
