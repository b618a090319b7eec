//! Opening a store.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{StoreClock, StoreError, StoreErrorKind, StoreResult};
use ratchet_store_core::migrate::Scripts;
use ratchet_store_core::{Namespace, SchemaMigrator, SqlOptions, SqlStore};
use sqlx::postgres::PgConnectOptions;

use crate::PostgresStore;
use crate::driver::PgDriver;
use crate::wakeup::WakeupChannel;

/// The number of prepared statements that the driver keeps for a connection: more than the store has.
const STATEMENT_CACHE: usize = 256;

/// The migrations of the schema.
const MIGRATIONS: &[(&str, &str)] =
    &[("V001__baseline.sql", include_str!("../migrations/V001__baseline.sql"))];

/// The pooler between the store and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooler {
    /// None, as far as is known. A store that finds a pooler after all fails to open: on a shared connection, a
    /// prepared statement may turn out to be that of another client.
    #[default]
    None,
    /// A pooler that leaves a connection to a client until the client disconnects, or that tells the prepared
    /// statements of its clients apart (PgBouncer since 1.21, with `max_prepared_statements` of 200 or more).
    Session,
    /// A pooler that reassigns a connection after each transaction, such as PgBouncer in transaction mode. Every
    /// operation becomes a transaction and no statement is prepared beforehand: right everywhere, but slower.
    Transaction,
}

/// The options of a store. The defaults are right for most.
///
/// ```
/// use ratchet_store_postgres::PostgresOptions;
///
/// let options = PostgresOptions::default().migrate(true).connections(5);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub struct PostgresOptions {
    /// Where the tables are: the schema `ratchet` unless set.
    pub namespace: Namespace,
    /// Whether opening also migrates the tables. Otherwise a store whose tables are not up to date fails to open, with
    /// a message that names `ratchet migrate`.
    pub migrate: bool,
    /// The clock that decides; a clock other than the server's is for tests.
    pub clock: StoreClock,
    /// The pooler between the store and the server.
    pub pooler: Pooler,
    /// Whether nodes notify each other of new work by `LISTEN` and `NOTIFY`, over one more connection each. Otherwise
    /// they find it by polling.
    pub wakeups: bool,
    /// The maximum number of connections. More than a few buy nothing.
    pub connections: usize,
    /// How long to wait for a free connection, and for the server to accept one.
    pub acquire_timeout: Duration,
    /// How long one operation may take before its connection is given up.
    pub operation_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let SqlOptions { namespace, clock, connections, acquire_timeout, operation_timeout, .. } =
            SqlOptions::new(Namespace::default());
        Self {
            namespace,
            migrate: false,
            clock,
            pooler: Pooler::None,
            wakeups: true,
            connections,
            acquire_timeout,
            operation_timeout,
        }
    }
}

impl PostgresOptions {
    /// Sets where the tables are.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Sets whether opening also migrates the tables.
    pub const fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Sets the clock that decides.
    pub fn clock(mut self, clock: StoreClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the kind of pooler between the store and the server.
    pub const fn pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self
    }

    /// Sets whether nodes notify each other of new work.
    pub const fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// Sets the maximum number of connections.
    pub const fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how long to wait for a free connection, and for the server to accept one.
    pub const fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.acquire_timeout = timeout;
        self
    }

    /// Sets how long one operation may take before its connection is given up.
    pub const fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }
}

impl PostgresStore {
    /// Opens the store at `url` and makes sure that the server answers and that the tables fit this program.
    ///
    /// # Errors
    /// [`Invalid`](StoreErrorKind::Invalid) if the URL is not one of PostgreSQL,
    /// [`NotMigrated`](StoreErrorKind::NotMigrated) if the tables are missing or of another version.
    pub async fn connect(url: &str, options: PostgresOptions) -> StoreResult<Self> {
        Self::from_options(driver_options(url)?, options).await
    }

    /// Opens the store at a server that the driver's own options describe: for sockets, certificates, or a password
    /// that is not in a URL.
    ///
    /// ```no_run
    /// use ratchet_store_postgres::sqlx::postgres::{PgConnectOptions, PgSslMode};
    /// use ratchet_store_postgres::{PostgresOptions, PostgresStore};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = PgConnectOptions::new().host("db").database("shop").ssl_mode(PgSslMode::VerifyFull);
    /// let store = PostgresStore::from_options(server, PostgresOptions::default()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn from_options(server: PgConnectOptions, options: PostgresOptions) -> StoreResult<Self> {
        let server = ours(server);
        migrator(server.clone(), options.namespace.clone())?.ensure("connect", options.migrate).await?;
        let store = Self::open(server, options)?;
        store.store.ping().await?;
        Ok(store)
    }

    /// Opens the store without contacting the server: for tables that a hook makes before the scheduler starts.
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

    /// Returns the migrator that makes the tables and brings them up to date. It is also a hook that does so before a
    /// scheduler starts.
    pub fn migrator(url: &str, namespace: Namespace) -> StoreResult<SchemaMigrator> {
        migrator(server(url)?, namespace)
    }

    fn open(server: PgConnectOptions, options: PostgresOptions) -> StoreResult<Self> {
        let wakeups = WakeupChannel::new(server.clone(), options.pooler, &options.namespace);
        let wakeups = options.wakeups.then_some(wakeups);
        let mut sql = SqlOptions::new(options.namespace);
        sql.clock = options.clock;
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

/// The options with which the store connects to the server at `url`.
pub(crate) fn server(url: &str) -> StoreResult<PgConnectOptions> {
    driver_options(url).map(ours)
}

/// Parses the URL. The driver takes any scheme, and its own error would repeat the URL, and with it the password.
fn driver_options(url: &str) -> StoreResult<PgConnectOptions> {
    let wrong = |what: String| StoreError::invalid("connect", what);
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    match scheme
        .filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)))
    {
        Some("postgres" | "postgresql") => {}
        Some(other) => {
            let advice = "a URL of PostgreSQL begins with `postgres://` or `postgresql://`";
            return Err(wrong(format!("the URL is one of `{other}`; {advice}")));
        }
        None => return Err(wrong("the URL does not begin with `postgres://` or `postgresql://`".into())),
    }
    PgConnectOptions::from_str(url).map_err(|_| wrong("the URL is not one of PostgreSQL".into()))
}

/// Adds the settings that the store needs of every connection.
fn ours(server: PgConnectOptions) -> PgConnectOptions {
    let server = match server.get_application_name() {
        Some(_) => server,
        None => server.application_name("ratchet"),
    };
    // Poolers refuse the parameter `extra_float_digits`, and no statement has floating point numbers.
    server.statement_cache_capacity(STATEMENT_CACHE).extra_float_digits(None)
}

fn migrator(server: PgConnectOptions, namespace: Namespace) -> StoreResult<SchemaMigrator> {
    let scripts = Scripts::new(MIGRATIONS)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "migrate", error.to_string()))?;
    Ok(SchemaMigrator::postgres(server, namespace, scripts))
}
