//! Opening a store.

use std::str::FromStr;
use std::time::Duration;

use ratchet_api::{Limits, StoreClock, StoreError, StoreResult};
use sqlx::postgres::PgConnectOptions;

use crate::PostgresStore;
use crate::schema::Schema;
use crate::session::Sessions;
use crate::statement::Statements;

/// The driver keeps this many prepared statements a connection: more than the store has.
const STATEMENT_CACHE: usize = 256;

/// How to open a store. The default is right for most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The schema that holds the tables.
    pub schema: Schema,
    /// The clock that decides; another than the server's is for tests.
    pub clock: StoreClock,
    /// How big the parts of a job may be.
    pub limits: Limits,
    /// The most connections at once. More than a few buy nothing.
    pub connections: usize,
    /// How long to wait for a free connection, and for the server to accept one.
    pub acquire_timeout: Duration,
    /// How long one operation may take before its connection is given up.
    pub operation_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: Schema::default(),
            clock: StoreClock::Server,
            limits: Limits::default(),
            connections: 8,
            acquire_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(30),
        }
    }
}

impl PostgresStore {
    /// Opens the store at `url` and makes sure that the server answers.
    pub async fn connect(url: &str, options: PostgresOptions) -> StoreResult<Self> {
        // The driver's error would repeat the URL, and with it the password.
        let server = PgConnectOptions::from_str(url)
            .map_err(|_| StoreError::invalid("connect", "the URL is not one of PostgreSQL"))?
            .application_name("ratchet")
            .statement_cache_capacity(STATEMENT_CACHE);
        let store = Self::open(server, options);
        store.run("connect", |session| Box::pin(session.raw("SELECT 1"))).await?;
        Ok(store)
    }

    pub(crate) fn open(server: PgConnectOptions, options: PostgresOptions) -> Self {
        Self {
            sessions: Sessions::new(server, options.connections, options.acquire_timeout),
            sql: Statements::compile(&options.schema),
            schema: options.schema,
            clock: options.clock,
            limits: options.limits,
            operation_timeout: options.operation_timeout,
            acquire_timeout: options.acquire_timeout,
        }
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.sessions.close().await;
    }
}
