//! The interface of a migration to its database, which each dialect implements.

use std::time::Duration;

use async_trait::async_trait;

use super::history::Survey;
use super::script::checksum;
use super::{MigrateError, MigrationRefusal, Script, Unusable};
use crate::{Dialect, Namespace, Statement, TextError};

/// A connection of its own for one migration. Dropping it releases the lock and rolls back uncommitted changes.
#[async_trait]
pub(super) trait Session: Send {
    /// Waits for the lock and begins; `false` if another process held it for too long.
    async fn lock(&mut self) -> sqlx::Result<bool>;

    /// The reason why a store cannot work on these tables, as far as the server can tell.
    async fn unusable(&mut self, _tables: &[String]) -> sqlx::Result<Option<Unusable>> {
        Ok(None)
    }

    /// Reads the state of the namespace.
    async fn survey(&mut self) -> sqlx::Result<Survey>;

    /// Creates the schema and the table of versions, if they are missing.
    async fn prepare(&mut self, survey: &Survey) -> sqlx::Result<()>;

    /// Runs a script, or the rest of it.
    async fn run(&mut self, script: &Script, survey: &Survey) -> Result<(), Trouble>;

    /// Records a script as applied.
    async fn record(&mut self, script: &Script) -> sqlx::Result<()>;

    /// Commits, and releases the lock.
    async fn commit(&mut self) -> sqlx::Result<()>;

    /// Undoes everything that can be undone, and releases the lock.
    async fn abandon(&mut self) -> sqlx::Result<()>;

    /// Removes everything that only an unfinished migration needs, and releases the lock.
    async fn tidy(&mut self, survey: &Survey) -> sqlx::Result<()>;

    /// Closes the connection properly.
    async fn close(self: Box<Self>);
}

/// The reason why a script did not run to its end.
#[derive(Debug)]
pub(super) enum Trouble {
    Text(TextError),
    Refused(MigrationRefusal),
    Server { statement: Option<usize>, source: sqlx::Error },
}

impl From<TextError> for Trouble {
    fn from(error: TextError) -> Self {
        Self::Text(error)
    }
}

impl From<sqlx::Error> for Trouble {
    fn from(source: sqlx::Error) -> Self {
        Self::Server { statement: None, source }
    }
}

/// Compiles one of the migrator's own texts.
pub(super) fn compile(
    text: &'static str,
    dialect: Dialect,
    namespace: &Namespace,
) -> sqlx::Result<Statement> {
    Statement::compile(text, dialect, namespace).map_err(|error| sqlx::Error::Configuration(error.into()))
}

/// The id of a lock that only migrations of one namespace share.
pub(super) fn lock_id(place: &[&str]) -> i64 {
    let digits = checksum(&[&["ratchet_schema_migration"], place].concat());
    // The first eight bytes of the checksum; the sign does not matter.
    digits.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default().cast_signed()
}

/// The timeouts, and the number of tries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) lock_wait: Duration,
    pub(super) table_wait: Duration,
    pub(super) tries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lock_wait: Duration::from_secs(30), table_wait: Duration::from_secs(3), tries: 10 }
    }
}

/// The database of the tables, with the options of its connections.
#[derive(Clone)]
pub(super) enum Database {
    #[cfg(feature = "postgres")]
    Postgres(Box<sqlx::postgres::PgConnectOptions>),
    #[cfg(feature = "mysql")]
    MySql(Box<sqlx::mysql::MySqlConnectOptions>),
    #[cfg(feature = "sqlite")]
    Sqlite(Box<sqlx::sqlite::SqliteConnectOptions>),
}

impl Database {
    const CONNECT_WAIT: Duration = Duration::from_secs(10);

    pub(super) fn dialect(&self) -> Dialect {
        match *self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Dialect::Postgres,
            #[cfg(feature = "mysql")]
            Self::MySql(_) => Dialect::MySql,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }

    /// Connects, and makes sure that the scripts are written for this server.
    pub(super) async fn open(
        &self,
        namespace: &Namespace,
        limits: Limits,
    ) -> Result<Box<dyn Session>, MigrateError> {
        let opened = tokio::time::timeout(Self::CONNECT_WAIT, self.connect(namespace, limits)).await;
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut).into();
        opened.map_err(|_| MigrateError::connect(self.dialect())(late()))?
    }

    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
        allow(unused_variables, reason = "without a driver there is no database")
    )]
    async fn connect(&self, namespace: &Namespace, limits: Limits) -> Result<Box<dyn Session>, MigrateError> {
        match *self {
            #[cfg(feature = "postgres")]
            Self::Postgres(ref server) => super::postgres::open(server, namespace, limits).await,
            #[cfg(feature = "mysql")]
            Self::MySql(ref server) => super::mysql::open(server, namespace, limits).await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(ref file) => super::sqlite::open(file, namespace, limits).await,
        }
    }
}
