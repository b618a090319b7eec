//! Migration errors, and what to do about them. `docs/migrations.md` has the long form.

use std::time::Duration;

use ratchet_api::{StoreError, StoreErrorKind};

use super::Unusable;
use super::Version;
use crate::{ConnectError, Dialect, TextError};

/// The reason why a schema was not migrated.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The database is in a state that the migrator does not touch.
    #[error(transparent)]
    Refused(#[from] MigrationRefusal),
    /// Another process is migrating the same namespace.
    #[error(
        "another migration held the lock for {} s; wait for it to end and run this one again, or allow a longer wait",
        waited.as_secs_f64()
    )]
    Locked {
        /// How long the migrator waited for the lock.
        waited: Duration,
    },
    /// A table was in use at every try.
    #[error(
        "script {version} could not lock a table in {tries} tries; end the long transaction that uses it and run the \
         migration again"
    )]
    Blocked {
        /// The script.
        version: Version,
        /// How often it was tried.
        tries: u32,
        /// The last error of the server.
        source: sqlx::Error,
    },
    /// The server refused a script.
    #[error("script {version} failed{}; {}", at(*.statement), fate(*.undone))]
    Failed {
        /// The script.
        version: Version,
        /// The statement, counted from 1, where they are sent one by one.
        statement: Option<usize>,
        /// Whether the server undid all of the script.
        undone: bool,
        /// The error of the server.
        source: sqlx::Error,
    },
    /// The connection broke in a script.
    #[error(
        "the connection was lost in script {version}; run the migration again, and it goes on from what was done"
    )]
    Interrupted {
        /// The script.
        version: Version,
        /// The error of the driver.
        source: sqlx::Error,
    },
    /// The text of a script cannot be used in this namespace.
    #[error("script {version} cannot be used")]
    Text {
        /// The script.
        version: Version,
        /// The error in the text.
        source: TextError,
    },
    /// The server is not one that the scripts are written for.
    #[error("`{found}` is not supported; use PostgreSQL, MySQL, MariaDB or SQLite")]
    Product {
        /// The name that the server gives itself.
        found: String,
    },
    /// No connection could be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server, the database or the user's rights are not sufficient for a store.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The server failed outside of a script.
    #[error("cannot {doing}")]
    Database {
        /// The step that failed, as a verb phrase.
        doing: &'static str,
        /// The error of the server.
        source: sqlx::Error,
    },
}

ratchet_api::debug_as_display!(MigrateError);

fn at(statement: Option<usize>) -> String {
    statement.map(|number| format!(" in statement {number}")).unwrap_or_default()
}

const fn fate(undone: bool) -> &'static str {
    if undone {
        "what it did is undone"
    } else {
        "what it did before is noted, and the next run goes on from there"
    }
}

impl MigrateError {
    pub(crate) const fn connect(dialect: Dialect) -> impl FnOnce(sqlx::Error) -> Self {
        move |error| Self::Connect(ConnectError::new(dialect, error))
    }

    pub(crate) const fn database(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Self {
        move |source| Self::Database { doing, source }
    }
}

/// A state of the database that no run of the migrator leads to, so nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MigrationRefusal {
    /// Tables exist, but no version is recorded for them.
    #[error(
        "the tables {} exist, but no version is recorded; if they were installed by hand, record their version with \
         `adopt`, otherwise choose another namespace", tables.join(", ")
    )]
    Untracked {
        /// The tables that the scripts would have made.
        tables: Vec<String>,
    },
    /// A newer program migrated the database.
    #[error("the database has version {version}, this program knows {} at most; use the newer program", known(*.newest))]
    Newer {
        /// The version in the database.
        version: String,
        /// The newest one that this program has a script for.
        newest: Option<Version>,
    },
    /// A recorded version has no script.
    #[error(
        "the database has version {version}, for which this program has no script; use the program that made it"
    )]
    Unknown {
        /// The version in the database.
        version: String,
    },
    /// A script was changed after it was applied.
    #[error(
        "script {version} was changed after it was applied (recorded {recorded}, now {now}); restore its text, and put \
         the change into a new script"
    )]
    Changed {
        /// The script.
        version: Version,
        /// The checksum in the database.
        recorded: String,
        /// The checksum of the script.
        now: String,
    },
    /// A version is recorded without the checksum that would identify the applied text.
    #[error(
        "version {version} is recorded without a checksum; check what was applied, then set the checksum of its row to \
         {expected}"
    )]
    NoChecksum {
        /// The script.
        version: Version,
        /// The checksum of the script that this program has.
        expected: String,
    },
    /// A new script has a lower number than one that is applied already.
    #[error("script {version} is new, but {newest} is applied already; give it a number above {newest}")]
    OutOfOrder {
        /// The script.
        version: Version,
        /// The newest applied one.
        newest: Version,
    },
    /// A script that was applied in part was changed in the part that was applied.
    #[error(
        "the first {statements} statements of script {version} are applied, and were changed since; restore their text \
         and run the migration again"
    )]
    ChangedMidway {
        /// The script.
        version: Version,
        /// How many statements are applied.
        statements: usize,
    },
    /// A version is recorded already, and adopting is only for tables without one.
    #[error("version {version} is recorded already; there is nothing to adopt")]
    Tracked {
        /// A recorded version.
        version: String,
    },
}

fn known(newest: Option<Version>) -> String {
    newest.map_or_else(|| "none".to_owned(), |version| version.to_string())
}

impl MigrateError {
    /// Converts it to an error of the store operation `op`. Its source does not repeat its text.
    pub(crate) fn during(self, op: &'static str) -> StoreError {
        let kind = match &self {
            Self::Connect(_) | Self::Text { .. } | Self::Product { .. } => StoreErrorKind::Other,
            Self::Failed { .. } | Self::Database { .. } => StoreErrorKind::Other,
            Self::Refused(_) => StoreErrorKind::NotMigrated,
            Self::Locked { .. } | Self::Blocked { .. } | Self::Interrupted { .. } => {
                StoreErrorKind::Transient
            }
            Self::Unusable(unusable) => unusable.kind(),
        };
        let error = StoreError::new(kind, op, self.to_string());
        match self {
            Self::Connect(refused) => refused.during(op),
            Self::Text { source, .. } => error.with_source(source),
            Self::Blocked { source, .. }
            | Self::Failed { source, .. }
            | Self::Interrupted { source, .. }
            | Self::Database { source, .. } => error.with_source(source),
            Self::Refused(_) | Self::Locked { .. } | Self::Product { .. } | Self::Unusable(_) => error,
        }
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        error.during("migrate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        let version = Version(2);
        for (refusal, advice) in [
            (MigrationRefusal::Untracked { tables: vec!["a".into(), "b".into()] }, "a, b exist"),
            (
                MigrationRefusal::Newer { version: "007".into(), newest: Some(version) },
                "use the newer program",
            ),
            (MigrationRefusal::Unknown { version: "x".into() }, "use the program that made it"),
            (
                MigrationRefusal::Changed { version, recorded: "a".into(), now: "b".into() },
                "restore its text",
            ),
            (
                MigrationRefusal::NoChecksum { version, expected: "abc".into() },
                "set the checksum of its row to abc",
            ),
            (MigrationRefusal::OutOfOrder { version, newest: Version(3) }, "a number above 003"),
            (MigrationRefusal::ChangedMidway { version, statements: 4 }, "restore their text"),
            (MigrationRefusal::Tracked { version: "001".into() }, "nothing to adopt"),
        ] {
            assert!(refusal.to_string().contains(advice), "{refusal}");
            let error = StoreError::from(MigrateError::from(refusal));
            assert_eq!(error.kind(), StoreErrorKind::NotMigrated);
        }
    }

    #[test]
    fn a_failed_script_says_what_became_of_it() {
        let failed = |statement, undone| {
            let source = sqlx::Error::RowNotFound;
            MigrateError::Failed { version: Version(2), statement, undone, source }.to_string()
        };
        assert_eq!(failed(None, true), "script 002 failed; what it did is undone");
        assert_eq!(
            failed(Some(3), false),
            "script 002 failed in statement 3; what it did before is noted, and the next run goes on from there"
        );
    }

    #[test]
    fn waiting_for_others_is_passing_trouble() {
        let locked = MigrateError::Locked { waited: Duration::from_millis(1500) };
        assert!(locked.to_string().starts_with("another migration held the lock for 1.5 s;"));
        assert!(StoreError::from(locked).is_transient());
    }
}
