//! The SQL store: its operations, with the order of steps and the verdicts that are the same for every SQL database.
//!
//! A dialect supplies the texts of the statements ([`Texts`]) and a [`Driver`]; nothing here knows which one it is.
//!
//! - [`statement`]: the list of statements, and binding values to them by name;
//! - [`session`]: connections, transactions, re-runs, timeouts;
//! - [`row`]: rows into values;
//! - [`insert`], [`claim`], [`commit`]: the operations that carry the load;
//! - [`hold`]: locking jobs before they are changed; [`follow`]: the cascade of an ended job, shared by commit, cancel
//!   and insert;
//! - the rest: one file for each part of the contract.

mod alert;
mod archive;
mod batch;
mod cascade;
mod claim;
mod commit;
mod control;
mod corrupt;
mod crud;
mod error;
mod info;
mod insert;
mod lock;
mod lock_rows;
mod node;
mod page;
mod permit;
mod query;
mod record;
mod recurring;
mod row;
mod session;
mod statement;
mod values;

pub use statement::Texts;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::JobStore;
use ratchet_api::{StoreClock, StoreError, StoreErrorKind, StoreResult, Timestamp};

use crate::driver::{Driver, Work};
use crate::{Dialect, Namespace};
use session::Sessions;
use statement::Statements;

/// The options of a store. A dialect's own options are made of these.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqlOptions {
    /// Where the tables are.
    pub namespace: Namespace,
    /// The clock that decides; a clock other than the database's is for tests.
    pub clock: StoreClock,
    /// The maximum number of connections. More than a few buy nothing.
    pub connections: usize,
    /// Connections for reading alone, for a database with one writer.
    pub readers: Option<usize>,
    /// How long to wait for a free connection, and for the database to accept one.
    pub acquire_timeout: Duration,
    /// How long one operation may take before its connection is given up.
    pub operation_timeout: Duration,
}

impl SqlOptions {
    /// Creates the default options for the tables in this namespace.
    #[must_use]
    pub fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            clock: StoreClock::Server,
            connections: 8,
            readers: None,
            acquire_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(30),
        }
    }
}

/// A store in a SQL database.
pub struct SqlStore {
    name: &'static str,
    driver: Arc<dyn Driver>,
    sessions: Sessions,
    sql: Arc<Statements>,
    options: SqlOptions,
    crowd: claim::Crowd,
    parkings: claim::Parkings,
}

impl SqlStore {
    /// Creates a store from a driver and the texts of its dialect; `name` is what logs and metrics call it. Connections
    /// are opened when they are needed.
    ///
    /// # Errors
    /// If a text cannot become a statement.
    pub fn new(
        name: &'static str,
        driver: Arc<dyn Driver>,
        texts: &Texts,
        options: SqlOptions,
    ) -> StoreResult<Self> {
        let begin = driver.begin(Work::Write);
        let sql = Arc::new(Statements::compile(texts, driver.dialect(), &options.namespace, begin)?);
        Ok(Self::open(name, driver, sql, options))
    }

    fn open(name: &'static str, driver: Arc<dyn Driver>, sql: Arc<Statements>, options: SqlOptions) -> Self {
        let (sessions, crowd, parkings) = (Sessions::new(&options), Default::default(), Default::default());
        Self { name, sessions, driver, sql, options, crowd, parkings }
    }

    /// The same store with a pool of one connection of its own.
    fn alone(&self) -> Self {
        let mut options = self.options.clone();
        options.connections = 1;
        options.readers = options.readers.map(|_| 1);
        Self::open(self.name, Arc::clone(&self.driver), Arc::clone(&self.sql), options)
    }

    /// The SQL store behind `store`, if it is one of this dialect. This is how a transaction of a driver finds its
    /// store.
    ///
    /// # Errors
    /// [`Unsupported`](StoreErrorKind::Unsupported) if it is another.
    pub fn behind(store: &dyn JobStore, dialect: Dialect) -> StoreResult<&Self> {
        let found = store.as_any().downcast_ref().filter(|store: &&Self| store.driver.dialect() == dialect);
        let name = store.name();
        let other = || format!("a transaction of {dialect:?} cannot take jobs of the store {name}");
        found.ok_or_else(|| StoreError::new(StoreErrorKind::Unsupported, "insert_in", other()))
    }

    /// The options that the store was opened with.
    pub const fn options(&self) -> &SqlOptions {
        &self.options
    }

    /// Makes sure that the database answers.
    pub async fn ping(&self) -> StoreResult<()> {
        self.read("connect", |session| Box::pin(session.raw("SELECT 1"))).await
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.sessions.close().await;
    }

    /// The value that a statement binds as `:now`: `None`, so that the database's clock decides, or a test's time.
    fn now(&self) -> Option<Timestamp> {
        self.options.clock.manual_now()
    }
}

impl fmt::Debug for SqlStore {
    /// Shows where the data is; a driver shows that without the user and the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("name", &self.name)
            .field("driver", &self.driver)
            .field("namespace", &self.options.namespace)
            .finish_non_exhaustive()
    }
}
