//! Opening a file.

use std::borrow::Cow;
use std::path::{Path, PathBuf, absolute};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{StoreClock, StoreError, StoreErrorKind, StoreResult};
use ratchet_store_core::migrate::Scripts;
use ratchet_store_core::{
    ConstraintDetector as _, Dialect, Namespace, SchemaMigrator, SqlOptions, SqlStore, transient,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};

use crate::driver::SqliteDriver;
use crate::{SqliteStore, wakeup};

const OP: &str = "open";

/// The number of prepared scripts that the driver keeps for a connection: more than the store has.
const STATEMENT_CACHE: usize = 256;

/// Rows that the driver's thread may be ahead of the reader. Each wait for the reader costs two thread switches.
const ROW_BUFFER: usize = 1_024;

/// The migrations of the schema.
const MIGRATIONS: &[(&str, &str)] =
    &[("V001__baseline.sql", include_str!("../migrations/V001__baseline.sql"))];

/// The durability of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A commit survives a power cut: the file is flushed at every commit.
    #[default]
    Full,
    /// A commit survives the death of the process, but the last commits may be gone after a power cut or a crash of the
    /// system: accepted jobs, and outcomes, so that work is done again. The file stays whole. Faster, above all for
    /// small transactions.
    Normal,
}

/// The options of a store. The defaults are right for most.
///
/// ```
/// use ratchet_store_sqlite::{Durability, SqliteOptions};
///
/// let options = SqliteOptions::default().durability(Durability::Normal).readers(2);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub struct SqliteOptions {
    /// The prefix of the tables' names: empty unless set. SQLite has no schemas.
    pub namespace: Namespace,
    /// The durability of a commit.
    pub durability: Durability,
    /// The clock that decides; a clock other than the machine's is for tests.
    pub clock: StoreClock,
    /// Whether processes on the file notify each other of new work, by a small file beside it. Otherwise they find it
    /// by polling.
    pub wakeups: bool,
    /// Connections for reading, beside the one that writes.
    pub readers: usize,
    /// How long one try to write waits for a writer of another process. A try that fails is followed by a few more.
    pub busy_timeout: Duration,
    /// How long to wait for a free connection.
    pub acquire_timeout: Duration,
    /// How long one operation may take before its connection is given up.
    pub operation_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        let SqlOptions { namespace, clock, operation_timeout, .. } = SqlOptions::new(Namespace::bare());
        Self {
            namespace,
            durability: Durability::default(),
            clock,
            wakeups: true,
            readers: 4,
            busy_timeout: Duration::from_secs(10),
            // All calls of this process wait for one writer.
            acquire_timeout: operation_timeout,
            operation_timeout,
        }
    }
}

impl SqliteOptions {
    /// Sets the namespace, which is a prefix of the tables' names.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Sets the durability of a commit.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the clock that decides.
    pub fn clock(mut self, clock: StoreClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets whether processes on the file notify each other of new work.
    pub const fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// Sets the number of connections for reading, beside the one that writes.
    pub const fn readers(mut self, readers: usize) -> Self {
        self.readers = readers;
        self
    }

    /// Sets how long one try to write waits for a writer of another process.
    pub const fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Sets how long to wait for a free connection.
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

impl SqliteStore {
    /// Opens the store in the file at `path`, or at a URL that begins with `sqlite:`. The file is created if it is
    /// missing, and its tables are migrated.
    ///
    /// # Errors
    /// Says what is wrong with the file: no such directory, not a database, not to be written, or of a newer version
    /// of this program ([`NotMigrated`](StoreErrorKind::NotMigrated)).
    pub async fn open(path: impl AsRef<Path>) -> StoreResult<Self> {
        Self::open_with(path, SqliteOptions::default()).await
    }

    /// Opens the store with these options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> StoreResult<Self> {
        Self::open_at(DatabaseFile::of(path.as_ref())?, options).await
    }

    /// Opens the store in a file that the driver's own options describe: for a VFS, extensions, or pragmas of your own.
    /// Settings in [`SqliteOptions`] override those of the driver's options.
    ///
    /// ```no_run
    /// use ratchet_store_sqlite::sqlx::sqlite::SqliteConnectOptions;
    /// use ratchet_store_sqlite::{SqliteOptions, SqliteStore};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = SqliteConnectOptions::new().filename("jobs.db").pragma("cache_size", "-65536");
    /// let store = SqliteStore::from_options(file, SqliteOptions::default()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn from_options(file: SqliteConnectOptions, options: SqliteOptions) -> StoreResult<Self> {
        Self::open_at(DatabaseFile::described_by(file)?, options).await
    }

    async fn open_at(place: DatabaseFile, options: SqliteOptions) -> StoreResult<Self> {
        if options.namespace.schema_name().is_some() {
            let advice = "SQLite has no schemas; use a prefix, or a file of its own";
            return Err(StoreError::invalid(OP, advice));
        }
        let file = place.file(&options);
        place.make_ready(&file).await?;
        migrator(file.clone(), options.namespace.clone())?.ensure(OP, true).await?;

        let wakeups = options.wakeups.then(|| wakeup::WakeupFile::beside(&place.path, &options.namespace));
        let mut sql = SqlOptions::new(options.namespace);
        sql.clock = options.clock;
        sql.connections = 1;
        sql.readers = Some(options.readers);
        sql.acquire_timeout = options.acquire_timeout;
        sql.operation_timeout = options.operation_timeout;
        let driver = Arc::new(SqliteDriver::new(&file, &sql.namespace)?);
        let store = SqlStore::new("sqlite", driver, &ratchet_store_core::texts!(), sql)?;
        Ok(Self { store, wakeups })
    }

    /// Returns the migrator that makes the tables and brings them up to date. Opening a store does so by itself.
    ///
    /// # Errors
    /// If there cannot be a file at `path`.
    pub fn migrator(path: impl AsRef<Path>, namespace: Namespace) -> StoreResult<SchemaMigrator> {
        let file = DatabaseFile::of(path.as_ref())?.file(&SqliteOptions::default());
        migrator(file.create_if_missing(true).journal_mode(SqliteJournalMode::Wal), namespace)
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.store.close().await;
    }
}

fn migrator(file: SqliteConnectOptions, namespace: Namespace) -> StoreResult<SchemaMigrator> {
    let scripts = Scripts::new(MIGRATIONS)
        .map_err(|error| StoreError::new(StoreErrorKind::Other, "migrate", error.to_string()))?;
    Ok(SchemaMigrator::sqlite(file, namespace, scripts))
}

/// The location of a database file.
struct DatabaseFile {
    path: PathBuf,
    /// The driver's options for the file.
    driver: SqliteConnectOptions,
}

impl DatabaseFile {
    /// Reads a path, or a URL of SQLite.
    fn of(path: &Path) -> StoreResult<Self> {
        let text = path.to_str().unwrap_or_default();
        if text.starts_with("sqlite:") {
            let file = SqliteConnectOptions::from_str(text).map_err(|error| {
                StoreError::invalid(OP, "the URL is not one of SQLite: `sqlite://jobs.db`").with_source(error)
            })?;
            return Self::described_by(file);
        }
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        if let Some(scheme) = scheme.filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        {
            let advice = "SQLite has files: give a path, or a URL that begins with `sqlite://`";
            return Err(StoreError::invalid(OP, format!("the URL is one of `{scheme}`; {advice}")));
        }
        Self::described_by(SqliteConnectOptions::new().filename(path))
    }

    /// Takes the path from the driver's options. An absolute path is never taken for a URI or for memory.
    fn described_by(driver: SqliteConnectOptions) -> StoreResult<Self> {
        let path = driver.get_filename();
        let text = path.to_str().unwrap_or_default();
        if text == ":memory:" || text.starts_with("file:sqlx-in-memory-") {
            let advice = "a store's connections meet in a file; for memory there is ratchet-store-memory";
            return Err(StoreError::invalid(OP, advice));
        }
        let path = absolute(path).map_err(|error| {
            StoreError::invalid(OP, format!("{} is not a path", path.display())).with_source(error)
        })?;
        Ok(Self { path, driver })
    }

    /// The options of every connection.
    fn file(&self, options: &SqliteOptions) -> SqliteConnectOptions {
        let synchronous = match options.durability {
            Durability::Full => SqliteSynchronous::Full,
            Durability::Normal => SqliteSynchronous::Normal,
        };
        let file = self.driver.clone().filename(&self.path);
        file.synchronous(synchronous)
            .busy_timeout(options.busy_timeout)
            .foreign_keys(true)
            .pragma("temp_store", "memory")
            .statement_cache_capacity(STATEMENT_CACHE)
            .row_buffer_size(ROW_BUFFER)
            .disable_statement_logging()
    }

    /// Makes sure that the file exists, is a database, can be written, and lets readers and a writer work at once.
    async fn make_ready(&self, file: &SqliteConnectOptions) -> StoreResult<()> {
        let new = file.clone().create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        let is_busy = |error: &sqlx::Error| Dialect::Sqlite.is_lost_race(error);
        let mode =
            transient::rerun(is_busy, || journal_mode(&new)).await.map_err(|error| self.explain(error))?;
        if mode == "wal" {
            return Ok(());
        }
        let advice = format!(
            "{}: the file system cannot share memory between processes (journal mode {mode}); use a local disk",
            self.path.display()
        );
        Err(StoreError::new(StoreErrorKind::Unsupported, OP, advice))
    }

    /// Explains an error of the first access.
    fn explain(&self, error: sqlx::Error) -> StoreError {
        /// The low byte of an extended code is the primary one.
        const PRIMARY: u32 = 0xff;
        let code = error.as_database_error().and_then(|error| error.code()).map(Cow::into_owned);
        let number = code.as_deref().and_then(|code| code.parse::<u32>().ok());
        let (kind, what) = match number.map(|number| number & PRIMARY) {
            Some(26) => (StoreErrorKind::Invalid, "is not a database of SQLite"),
            Some(11) => (StoreErrorKind::Corrupt, "is damaged; restore it from a backup"),
            Some(8) => (
                StoreErrorKind::Other,
                "cannot be written; a store writes the file and its directory: check the rights on both, and that the disk is not mounted for reading alone",
            ),
            Some(14) if self.path.is_dir() => (StoreErrorKind::Invalid, "is a directory, not a file"),
            Some(14) if !self.path.parent().is_some_and(Path::is_dir) => {
                (StoreErrorKind::Invalid, "is in a directory that does not exist; make it first")
            }
            Some(5 | 6) => (StoreErrorKind::Transient, "is in use by others all the time; try again"),
            _ => (
                StoreErrorKind::Unavailable,
                "cannot be opened; check the path, and the rights to write the file and its directory",
            ),
        };
        let trouble = StoreError::new(kind, OP, format!("{} {what}", self.path.display()));
        match code {
            Some(code) => trouble.with_code(code).with_source(error),
            None => trouble.with_source(error),
        }
    }
}

/// Writes something that a read-only file refuses, and undoes it. To begin a transaction is not enough.
const TOUCH: &str = "BEGIN IMMEDIATE; CREATE TABLE ratchet_touched (touched); ROLLBACK";

/// Touches the file as a writer and returns its journal mode.
async fn journal_mode(file: &SqliteConnectOptions) -> sqlx::Result<String> {
    let mut connection: SqliteConnection = file.connect().await?;
    sqlx::raw_sql(TOUCH).execute(&mut connection).await?;
    let mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use ratchet_store_core::Statement;
    use ratchet_store_core::driver::{Driver as _, Work};

    use super::*;

    fn place(name: &str) -> (tempfile::TempDir, DatabaseFile) {
        let dir = tempfile::TempDir::new().expect("there is room for files");
        let place = DatabaseFile::of(&dir.path().join(name)).expect("a path");
        (dir, place)
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_refused() {
        let (_dir, place) = place("jobs.db");
        let file = place.file(&SqliteOptions::default());
        place.make_ready(&file).await.expect("it is made");
        let error = place.make_ready(&file.read_only(true)).await.expect_err("it is refused");
        assert_eq!(error.kind(), StoreErrorKind::Other);
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }

    /// Nobody can create a file there, not even root.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_directory_that_cannot_be_written_is_refused_with_advice() {
        let error = SqliteStore::open("/proc/jobs.db").await.expect_err("it is refused");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(error.to_string().contains("rights to write the file and its directory"), "{error}");
    }

    #[tokio::test]
    async fn a_commit_is_as_sure_as_the_options_say_and_a_reader_cannot_write() {
        let (_dir, place) = place("jobs.db");
        place.make_ready(&place.file(&SqliteOptions::default())).await.expect("it is made");
        for (durability, synchronous) in [(Durability::Full, 2), (Durability::Normal, 1)] {
            let options = SqliteOptions { durability, ..SqliteOptions::default() };
            let driver = SqliteDriver::new(&place.file(&options), &Namespace::bare()).expect("texts");
            for (work, query_only) in [(Work::Write, 0), (Work::Read, 1)] {
                let mut connection = driver.connect(work).await.expect("it opens");
                let text =
                    "SELECT s.synchronous, q.query_only FROM pragma_synchronous s, pragma_query_only q";
                let settings = Statement::compile(text, Dialect::Sqlite, &Namespace::bare()).expect("a text");
                let row = connection.fetch(&settings, &[]).await.expect("an answer").remove(0);
                assert_eq!(row.int("synchronous").ok(), Some(Some(synchronous)));
                assert_eq!(row.int("query_only").ok(), Some(Some(query_only)));
            }
        }
    }
}
