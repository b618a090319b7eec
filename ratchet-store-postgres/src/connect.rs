//! Opening a store.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{Limits, StoreClock, StoreError, StoreErrorKind, StoreResult};
use ratchet_store_core::migrate::Scripts;
use ratchet_store_core::{Namespace, SchemaMigrator, SqlOptions, SqlStore};
use sqlx::postgres::PgConnectOptions;

use crate::PostgresStore;
use crate::driver::PgDriver;
use crate::wakeup::Place;

/// The driver keeps this many prepared statements a connection: more than the store has.
const STATEMENT_CACHE: usize = 256;

/// The steps of the schema.
const MIGRATIONS: &[(&str, &str)] =
    &[("V001__baseline.sql", include_str!("../migrations/V001__baseline.sql"))];

/// What stands between the store and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing, as far as is known. A store that finds a pooler after all fails to open: on a shared connection, a
    /// prepared statement may turn out to be somebody else's.
    #[default]
    None,
    /// A pooler that leaves a connection to a client until it goes, or that tells the prepared statements of its
    /// clients apart (PgBouncer since 1.21, with `max_prepared_statements` of 200 or more).
    Session,
    /// A pooler that gives a connection away after each transaction, such as PgBouncer in transaction mode. Every
    /// operation becomes a transaction and no statement is prepared beforehand: right everywhere, but slower.
    Transaction,
}

/// How to open a store. The default is right for most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Where the tables are: the schema `ratchet` unless set.
    pub namespace: Namespace,
    /// Whether opening also brings the tables up to date. Else a store whose tables are not fails to open, with a
    /// message that names `ratchet migrate`.
    pub migrate: bool,
    /// The clock that decides; another than the server's is for tests.
    pub clock: StoreClock,
    /// How big the parts of a job may be.
    pub limits: Limits,
    /// What stands between the store and the server.
    pub pooler: Pooler,
    /// Whether nodes tell each other about new work by `LISTEN` and `NOTIFY`, over one more connection each. Else they find
    /// it by polling.
    pub wakeups: bool,
    /// The most connections at once. More than a few buy nothing.
    pub connections: usize,
    /// How long to wait for a free connection, and for the server to accept one.
    pub acquire_timeout: Duration,
    /// How long one operation may take before its connection is given up.
    pub operation_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let SqlOptions { namespace, clock, limits, connections, acquire_timeout, operation_timeout, .. } =
            SqlOptions::new(Namespace::default());
        Self {
            namespace,
            migrate: false,
            clock,
            limits,
            pooler: Pooler::None,
            wakeups: true,
            connections,
            acquire_timeout,
            operation_timeout,
        }
    }
}

impl PostgresStore {
    /// Opens the store at `url` and makes sure that the server answers and that the tables fit this program.
    ///
    /// # Errors
    /// [`NotMigrated`](StoreErrorKind::NotMigrated) if the tables are missing or of another version.
    pub async fn connect(url: &str, options: PostgresOptions) -> StoreResult<Self> {
        let server = server(url)?;
        migrator(server.clone(), options.namespace.clone())?.ensure(options.migrate).await?;
        let store = Self::open(server, options)?;
        store.store.ping().await?;
        Ok(store)
    }

    /// Opens the store without asking the server anything: for tables that a hook makes before the scheduler starts.
    ///
    /// ```no_run
    /// # async fn start(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// use ratchet_store_postgres::{PostgresOptions, PostgresStore};
    ///
    /// let options = PostgresOptions::default();
    /// let migrator = PostgresStore::migrator(url, options.namespace.clone())?;
    /// let store = PostgresStore::lazy(url, options)?;
    /// // Ratchet::builder(store).hook(migrator) …
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the URL is not one of PostgreSQL.
    pub fn lazy(url: &str, options: PostgresOptions) -> StoreResult<Self> {
        Self::open(server(url)?, options)
    }

    /// What makes the tables and brings them up to date. It is also a hook that does so before a scheduler starts.
    pub fn migrator(url: &str, namespace: Namespace) -> StoreResult<SchemaMigrator> {
        migrator(server(url)?, namespace)
    }

    fn open(server: PgConnectOptions, options: PostgresOptions) -> StoreResult<Self> {
        let wakeups = Place::new(server.clone(), options.pooler, &options.namespace);
        let wakeups = options.wakeups.then_some(wakeups);
        let mut sql = SqlOptions::new(options.namespace);
        sql.clock = options.clock;
        sql.limits = options.limits;
        sql.connections = options.connections;
        sql.acquire_timeout = options.acquire_timeout;
        sql.operation_timeout = options.operation_timeout;
        let driver = Arc::new(PgDriver::new(server, options.pooler));
        let store = SqlStore::new("postgres", driver, &ratchet_store_core::texts!(), sql)?;
        Ok(Self { store, wakeups })
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.store.close().await;
    }
}

/// The driver's own error would repeat the URL, and with it the password.
pub(crate) fn server(url: &str) -> StoreResult<PgConnectOptions> {
    let server = PgConnectOptions::from_str(url)
        .map_err(|_| StoreError::invalid("connect", "the URL is not one of PostgreSQL"))?;
    let server = server.application_name("ratchet").statement_cache_capacity(STATEMENT_CACHE);
    // Poolers refuse it, and no statement has floating point numbers.
    Ok(server.extra_float_digits(None))
}

fn migrator(server: PgConnectOptions, namespace: Namespace) -> StoreResult<SchemaMigrator> {
    let scripts = Scripts::new(MIGRATIONS)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "migrate", error.to_string()))?;
    Ok(SchemaMigrator::postgres(server, namespace, scripts))
}
