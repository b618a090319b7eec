//! Brings the tables of a namespace to the version that a program needs.
//!
//! A [`SchemaMigrator`] applies [`Scripts`] in order and records each in `ratchet_schema_version` with a checksum of
//! its text. Any number of nodes may do so at once: an advisory lock admits one, and the others then find nothing left
//! to do. The process may be killed at any moment: the next run goes on, and there is no stale flag to clear, because
//! the server releases the lock with the connection.
//!
//! | | PostgreSQL | SQLite | MySQL, MariaDB |
//! |---|---|---|---|
//! | lock | `pg_advisory_xact_lock` | `BEGIN IMMEDIATE` | `GET_LOCK` |
//! | a script is | one transaction | one transaction | its statements, see below |
//! | after a kill or an error | as before the script | as before the script | goes on at the open statement |
//!
//! On MySQL every change of a table commits by itself, so a script cannot be undone. The migrator therefore notes in
//! `ratchet_schema_progress` which statement comes next before it sends it. Statements that change rows are committed
//! together with that note. If it is killed while a change of a table is under way, the next run sends that one
//! statement again and accepts "exists already" and "is gone already" as success. The table of notes is dropped with
//! the last script.
//!
//! It changes only states that it knows; every [`MigrationRefusal`] says what to do. `docs/migrations.md` is the guide.

mod by_hand;
mod error;
mod history;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod product;
mod script;
mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
mod status;
mod unusable;
mod versions;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
pub use error::{MigrateError, MigrationRefusal};
use ratchet_api::spi::{HookError, SchedulerLifecycleHook};
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};
pub use script::{InvalidVersion, Script, ScriptError, Scripts, Version};
pub use status::{Entry, State, Status};
pub use unusable::Unusable;

use self::history::Survey;
use self::session::{Database, Limits, Session, Trouble};
use crate::transient::jittered;
use crate::{ConstraintDetector as _, Namespace, params};

/// Applies the scripts of a store to a database.
///
/// ```no_run
/// # #[cfg(feature = "sqlite")] {
/// use ratchet_store_core::{Namespace, SchemaMigrator};
/// use ratchet_store_core::migrate::Scripts;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let scripts = Scripts::new(&[("V001__baseline.sql", "CREATE TABLE ratchet.scheduler_job (job_id BLOB PRIMARY KEY);")])?;
/// let file = sqlx::sqlite::SqliteConnectOptions::new().filename("jobs.db").create_if_missing(true);
/// let migrator = SchemaMigrator::sqlite(file, Namespace::bare(), scripts);
/// migrator.migrate(|progress| println!("{progress}")).await?;
/// assert!(migrator.status().await?.is_current());
/// # Ok(()) } }
/// ```
#[derive(Clone)]
pub struct SchemaMigrator {
    database: Database,
    namespace: Namespace,
    scripts: Scripts,
    limits: Limits,
}

/// The progress of a migration.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum MigrationProgress<'s> {
    /// A script begins, or goes on where it stopped.
    Applying(&'s Script),
    /// The script is applied and recorded.
    Applied(&'s Script),
    /// A table that the script needs is in use; the script will be tried again.
    Waiting {
        /// The script.
        script: &'s Script,
        /// How often it was tried.
        tries: u32,
    },
}

impl fmt::Display for MigrationProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, script) = match self {
            Self::Applying(script) => ("applying", script),
            Self::Applied(script) => ("applied", script),
            Self::Waiting { script, .. } => ("waiting for a table for", script),
        };
        write!(f, "{what} {} {}", script.version, script.description)
    }
}

/// Migrates before the scheduler starts to poll; if the migration fails, the scheduler does not start.
#[async_trait]
impl SchedulerLifecycleHook for SchemaMigrator {
    async fn before_start(&self) -> Result<(), HookError> {
        Ok(self.ensure("migrate", true).await?)
    }
}

impl SchemaMigrator {
    const FIRST_PAUSE: Duration = Duration::from_millis(500);
    const LONGEST_PAUSE: Duration = Duration::from_secs(5);

    /// Creates a migrator for PostgreSQL.
    #[cfg(feature = "postgres")]
    pub fn postgres(
        server: sqlx::postgres::PgConnectOptions,
        namespace: Namespace,
        scripts: Scripts,
    ) -> Self {
        Self::new(Database::Postgres(Box::new(server)), namespace, scripts)
    }

    /// Creates a migrator for MySQL and MariaDB.
    #[cfg(feature = "mysql")]
    pub fn mysql(server: sqlx::mysql::MySqlConnectOptions, namespace: Namespace, scripts: Scripts) -> Self {
        Self::new(Database::MySql(Box::new(server)), namespace, scripts)
    }

    /// Creates a migrator for a SQLite file.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(file: sqlx::sqlite::SqliteConnectOptions, namespace: Namespace, scripts: Scripts) -> Self {
        Self::new(Database::Sqlite(Box::new(file)), namespace, scripts)
    }

    fn new(database: Database, namespace: Namespace, scripts: Scripts) -> Self {
        Self { database, namespace, scripts, limits: Limits::default() }
    }

    /// Sets how long to wait while another process migrates: 30 s by default, whole seconds on MySQL.
    #[must_use]
    pub const fn lock_wait(mut self, wait: Duration) -> Self {
        self.limits.lock_wait = wait;
        self
    }

    /// Sets how long a script may wait for a table that is in use: 3 s by default, whole seconds on MySQL.
    ///
    /// All other sessions that want the table queue behind the script meanwhile, so it gives way and tries again.
    #[must_use]
    pub const fn table_wait(mut self, wait: Duration) -> Self {
        self.limits.table_wait = wait;
        self
    }

    /// Sets how often a script that finds a table in use is tried: 10 times by default.
    #[must_use]
    pub const fn tries(mut self, tries: u32) -> Self {
        self.limits.tries = tries;
        self
    }

    /// Returns the applied and the pending versions, and whether [`migrate`](Self::migrate) would refuse. Changes
    /// nothing.
    ///
    /// # Errors
    /// If the database cannot be read. A state that would be refused is in the result.
    pub async fn status(&self) -> Result<Status, MigrateError> {
        let mut session = self.database.open(&self.namespace, self.limits).await?;
        let status = self.look(session.as_mut()).await;
        close(session).await;
        status
    }

    /// Applies the pending scripts in order, and returns the versions that this run applied.
    ///
    /// # Errors
    /// The scripts before a failed one stay applied; run it again once the cause is fixed.
    ///
    /// # Cancellation safety
    /// Dropping the future is like killing the process: the next run goes on.
    pub async fn migrate(
        &self,
        mut on_progress: impl FnMut(MigrationProgress<'_>) + Send,
    ) -> Result<Vec<Version>, MigrateError> {
        let mut session = self.database.open(&self.namespace, self.limits).await?;
        let applied = self.apply_all(session.as_mut(), &mut on_progress).await;
        close(session).await;
        applied
    }

    /// Makes sure that a store can work: migrates if `migrate` is set, otherwise reads the status; then checks the
    /// server for everything that a store needs of it. Errors name `op`, the operation for which this is done.
    ///
    /// # Errors
    /// [`NotMigrated`](StoreErrorKind::NotMigrated) if the tables do not fit this program, [`Unusable`] if the server
    /// is read-only, the database cannot hold every text or the user lacks a right; each says what to do.
    pub async fn ensure(&self, op: &'static str, migrate: bool) -> StoreResult<()> {
        let opened = self.database.open(&self.namespace, self.limits).await;
        let mut session = opened.map_err(|error| error.during(op))?;
        let ensured = self.ensure_in(session.as_mut(), op, migrate).await;
        close(session).await;
        ensured
    }

    async fn ensure_in(&self, session: &mut dyn Session, op: &'static str, migrate: bool) -> StoreResult<()> {
        if migrate {
            let namespace = Some(&self.namespace).filter(|namespace| **namespace != Namespace::bare());
            let namespace = namespace.map(tracing::field::display);
            let mut tell = |step: MigrationProgress<'_>| tracing::info!(namespace, "{step}");
            self.apply_all(session, &mut tell).await.map_err(|error| error.during(op))?;
        } else {
            let status = self.look(session).await.map_err(|error| error.during(op))?;
            self.is_current(op, &status)?;
        }
        let tables = self.tables().map_err(|error| error.during(op))?.into_iter().collect::<Vec<_>>();
        usable(session, &tables).await.map_err(|error| error.during(op))
    }

    /// Reads the status of the namespace.
    async fn look(&self, session: &mut dyn Session) -> Result<Status, MigrateError> {
        let survey = survey(session).await?;
        let pending = self.pending(&survey)?;
        Ok(Status::new(&self.scripts, &survey, pending.err()))
    }

    /// Refuses tables that do not fit this program.
    fn is_current(&self, op: &'static str, status: &Status) -> StoreResult<()> {
        if let Some(refusal) = &status.refusal {
            return Err(MigrateError::from(refusal.clone()).during(op));
        }
        let pending: Vec<&str> = status.pending().map(|entry| entry.version.as_str()).collect();
        if pending.is_empty() {
            return Ok(());
        }
        let advice = format!(
            "{}: version {} is not applied; run `ratchet migrate`, or open the store with `migrate`",
            self.namespace,
            pending.join(", ")
        );
        Err(StoreError::new(StoreErrorKind::NotMigrated, op, advice))
    }

    /// Records that the scripts up to a version are applied, without running them: for tables that were installed by
    /// hand and have no version yet. The shape of the tables is not checked.
    ///
    /// # Errors
    /// [`MigrationRefusal::Tracked`] if any version is recorded, [`MigrationRefusal::Unknown`] if there is no such script.
    pub async fn adopt(&self, through: Version) -> Result<(), MigrateError> {
        if self.scripts.get(through).is_none() {
            return Err(MigrationRefusal::Unknown { version: through.to_string() }.into());
        }
        let mut session = self.database.open(&self.namespace, self.limits).await?;
        let adopted = self.record_through(session.as_mut(), through).await;
        close(session).await;
        adopted
    }

    async fn record_through(&self, session: &mut dyn Session, through: Version) -> Result<(), MigrateError> {
        self.lock(session).await?;
        let before = survey(session).await?;
        let recorded = before.recorded.first().map(|row| &row.version);
        if let Some(version) = recorded.or_else(|| before.midway.as_ref().map(|midway| &midway.version)) {
            return Err(MigrationRefusal::Tracked { version: version.clone() }.into());
        }
        let recording = async {
            session.prepare(&before).await?;
            for script in self.scripts.iter().filter(|script| script.version <= through) {
                session.record(script).await?;
            }
            let after = session.survey().await?;
            session.tidy(&after).await
        };
        recording.await.map_err(MigrateError::database("record the schema's version"))
    }

    async fn apply_all(
        &self,
        session: &mut dyn Session,
        on_progress: &mut (impl FnMut(MigrationProgress<'_>) + Send),
    ) -> Result<Vec<Version>, MigrateError> {
        // A migration that cannot work is not begun.
        usable(session, &[]).await?;
        let mut applied = Vec::new();
        while let Some(script) = self.step(session, on_progress).await? {
            on_progress(MigrationProgress::Applied(script));
            applied.push(script.version);
        }
        Ok(applied)
    }

    /// Applies the next script, waiting for tables in use. `None` if no script is pending.
    async fn step(
        &self,
        session: &mut dyn Session,
        on_progress: &mut (impl FnMut(MigrationProgress<'_>) + Send),
    ) -> Result<Option<&Script>, MigrateError> {
        for tries in 1.. {
            self.lock(session).await?;
            let (script, source) = match self.apply_next(session, on_progress).await? {
                Attempt::Done(script) => return Ok(script),
                Attempt::InTheWay(script, source) => (script, source),
            };
            if tries >= self.limits.tries {
                return Err(MigrateError::Blocked { version: script.version, tries, source });
            }
            on_progress(MigrationProgress::Waiting { script, tries });
            tokio::time::sleep(jittered(Self::FIRST_PAUSE, Self::LONGEST_PAUSE, tries, rand::random())).await;
        }
        unreachable!("the loop ends by returning")
    }

    async fn lock(&self, session: &mut dyn Session) -> Result<(), MigrateError> {
        let locked = session.lock().await.map_err(MigrateError::database("take the migration lock"))?;
        if locked { Ok(()) } else { Err(MigrateError::Locked { waited: self.limits.lock_wait }) }
    }

    async fn apply_next(
        &self,
        session: &mut dyn Session,
        on_progress: &mut (impl FnMut(MigrationProgress<'_>) + Send),
    ) -> Result<Attempt<'_>, MigrateError> {
        let survey = survey(session).await?;
        let next = self.pending(&survey)??.into_iter().next();
        let Some(script) = next else {
            session.tidy(&survey).await.map_err(MigrateError::database("end the migration"))?;
            return Ok(Attempt::Done(None));
        };
        on_progress(MigrationProgress::Applying(script));
        let version = script.version;
        let Err(trouble) = apply(session, script, &survey).await else {
            return Ok(Attempt::Done(Some(script)));
        };
        let dialect = self.database.dialect();
        match trouble {
            Trouble::Text(source) => Err(MigrateError::Text { version, source }),
            Trouble::Refused(refusal) => Err(refusal.into()),
            Trouble::Server { source, .. } if dialect.is_lost_race(&source) => {
                session.abandon().await.map_err(MigrateError::database("give way to others"))?;
                Ok(Attempt::InTheWay(script, source))
            }
            Trouble::Server { source, .. } if dialect.is_transient(&source) => {
                Err(MigrateError::Interrupted { version, source })
            }
            Trouble::Server { statement, source } => {
                let undone = dialect.undoes_scripts();
                Err(MigrateError::Failed { version, statement, undone, source })
            }
        }
    }

    /// The pending scripts, or the reason why the database is refused.
    fn pending(&self, survey: &Survey) -> Result<Result<Vec<&Script>, MigrationRefusal>, MigrateError> {
        Ok(history::pending(&self.scripts, &self.tables()?, survey))
    }

    /// The tables that the scripts make.
    fn tables(&self) -> Result<BTreeSet<String>, MigrateError> {
        let mut made = BTreeSet::new();
        for script in self.scripts.iter() {
            let names = params::names(script.sql, self.database.dialect());
            let names = names.map_err(|source| MigrateError::Text { version: script.version, source })?;
            made.extend(names.into_iter().map(|name| self.namespace.table(name)));
        }
        made.remove(&self.namespace.table(versions::NAME));
        Ok(made)
    }
}

/// The result of one try to apply a script.
enum Attempt<'s> {
    Done(Option<&'s Script>),
    /// Another session used a table that the script needs.
    InTheWay(&'s Script, sqlx::Error),
}

async fn apply(session: &mut dyn Session, script: &Script, survey: &Survey) -> Result<(), Trouble> {
    session.prepare(survey).await?;
    session.run(script, survey).await?;
    session.record(script).await?;
    session.commit().await?;
    Ok(())
}

async fn usable(session: &mut dyn Session, tables: &[String]) -> Result<(), MigrateError> {
    let asked = session.unusable(tables).await.map_err(MigrateError::database("ask what the user may do"))?;
    asked.map_or(Ok(()), |unusable| Err(unusable.into()))
}

async fn survey(session: &mut dyn Session) -> Result<Survey, MigrateError> {
    session.survey().await.map_err(MigrateError::database("read the schema's version"))
}

/// Closes the session, which also releases the lock and rolls back uncommitted changes. It does not wait for a server
/// that is gone.
async fn close(session: Box<dyn Session>) {
    let _ = tokio::time::timeout(Duration::from_secs(1), session.close()).await;
}
