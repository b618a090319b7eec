//! The meaning of a database error, by its code. Texts differ between versions and languages; codes do not.

use std::borrow::Cow;

use sqlx::error::DatabaseError;

use crate::Dialect;

/// Recognizes the errors that a store treats specially.
pub trait ConstraintDetector {
    /// Whether a row with this key exists already.
    fn is_unique_violation(&self, error: &sqlx::Error) -> bool;

    /// Whether the row that this one refers to is missing, or a row that still refers to this one exists.
    fn is_foreign_key_violation(&self, error: &sqlx::Error) -> bool;

    /// Whether the server is read-only: a standby, or configured so. Another connection may lead to one that accepts
    /// writes. Such an error is [transient](Self::is_transient) too.
    fn is_read_only(&self, error: &sqlx::Error) -> bool;

    /// Whether the trouble is temporary, so that a retry may succeed. If the connection broke during a commit, the
    /// commit may have happened.
    fn is_transient(&self, error: &sqlx::Error) -> bool;

    /// Whether a table or a column is missing: there is no schema, or one of another version.
    fn is_schema_missing(&self, error: &sqlx::Error) -> bool;

    /// Whether the server refuses this user.
    fn is_access_denied(&self, error: &sqlx::Error) -> bool;

    /// Whether the statement was canceled, by an operator or by a timeout of the server.
    fn is_statement_canceled(&self, error: &sqlx::Error) -> bool;

    /// Whether the database cannot hold a value of the statement, because of its encoding, size, range or nesting. Only
    /// codes that say nothing about the state of the server count.
    fn is_content_refused(&self, error: &sqlx::Error) -> bool;

    /// Whether the server gave up this transaction in favor of others, or did not get a lock in time: once it is rolled
    /// back, nothing of it remains. Every lost race is [transient](Self::is_transient) too.
    fn is_lost_race(&self, error: &sqlx::Error) -> bool;
}

impl ConstraintDetector for Dialect {
    fn is_unique_violation(&self, error: &sqlx::Error) -> bool {
        self.meaning(error) == Some(Meaning::Unique)
    }

    fn is_foreign_key_violation(&self, error: &sqlx::Error) -> bool {
        self.meaning(error) == Some(Meaning::ForeignKey)
    }

    fn is_read_only(&self, error: &sqlx::Error) -> bool {
        self.meaning(error) == Some(Meaning::ReadOnly)
    }

    fn is_transient(&self, error: &sqlx::Error) -> bool {
        use sqlx::Error::{Io, PoolTimedOut, Protocol, Tls, WorkerCrashed};
        match error {
            Io(_) | Tls(_) | Protocol(_) | PoolTimedOut | WorkerCrashed => true,
            _ => {
                matches!(self.meaning(error), Some(Meaning::LostRace | Meaning::Passing | Meaning::ReadOnly))
            }
        }
    }

    fn is_schema_missing(&self, error: &sqlx::Error) -> bool {
        self.meaning(error) == Some(Meaning::SchemaMissing)
    }

    fn is_access_denied(&self, error: &sqlx::Error) -> bool {
        self.meaning(error) == Some(Meaning::AccessDenied)
    }

    fn is_statement_canceled(&self, error: &sqlx::Error) -> bool {
        self.meaning(error) == Some(Meaning::Canceled)
    }

    fn is_content_refused(&self, error: &sqlx::Error) -> bool {
        matches!(error, sqlx::Error::Encode(_)) || self.meaning(error) == Some(Meaning::Content)
    }

    fn is_lost_race(&self, error: &sqlx::Error) -> bool {
        self.meaning(error) == Some(Meaning::LostRace)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Unique,
    ForeignKey,
    LostRace,
    /// The server or the network is in trouble for now.
    Passing,
    /// The server is read-only: it is a standby now, or was configured so.
    ReadOnly,
    SchemaMissing,
    AccessDenied,
    Canceled,
    /// The database cannot hold a value.
    Content,
}

impl Dialect {
    fn meaning(self, error: &sqlx::Error) -> Option<Meaning> {
        let error = error.as_database_error()?;
        let code = self.code(error)?;
        match self {
            Self::Postgres => postgres(&code),
            Self::MySql => mysql(code.parse().ok()?),
            Self::Sqlite => sqlite(code.parse().ok()?, error.message()),
        }
    }

    /// The error's code: PostgreSQL's SQLSTATE, SQLite's extended code, MySQL's number (its SQLSTATE is 23000 for every
    /// constraint).
    pub(crate) fn code(self, error: &dyn DatabaseError) -> Option<Cow<'_, str>> {
        match self {
            Self::Postgres | Self::Sqlite => error.code(),
            Self::MySql => mysql_number(error).map(|number| number.to_string().into()),
        }
    }
}

/// The number of a MySQL error.
#[cfg(feature = "mysql")]
pub(crate) fn mysql_number(error: &dyn DatabaseError) -> Option<u16> {
    error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>().map(sqlx::mysql::MySqlDatabaseError::number)
}

/// Without the driver there are no MySQL errors.
#[cfg(not(feature = "mysql"))]
fn mysql_number(_: &dyn DatabaseError) -> Option<u16> {
    None
}

fn postgres(sqlstate: &str) -> Option<Meaning> {
    match sqlstate {
        "23505" => Some(Meaning::Unique),
        "23503" => Some(Meaning::ForeignKey),
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => Some(Meaning::LostRace),
        // Shutdown, crash, starting up; idle for too long, also inside a transaction.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => Some(Meaning::Passing),
        // The server is read-only.
        "25006" => Some(Meaning::ReadOnly),
        "57014" => Some(Meaning::Canceled),
        // No such table, column, schema.
        "42P01" | "42703" | "3F000" => Some(Meaning::SchemaMissing),
        // Too long, out of range, a character that the encoding lacks (two codes), invalid text or binary form of a
        // type, a time out of range, a check constraint, a limit of the program, nested too deeply.
        "22001" | "22003" | "22021" | "22P05" | "22P02" | "22P03" | "22008" | "23514" | "54000" | "54001" => {
            Some(Meaning::Content)
        }
        code if code.starts_with("08") || code.starts_with("53") => Some(Meaning::Passing),
        code if code.starts_with("28") => Some(Meaning::AccessDenied),
        _ => None,
    }
}

fn mysql(number: u16) -> Option<Meaning> {
    match number {
        // Duplicate entry, and the same with the name of the key.
        1062 | 1586 => Some(Meaning::Unique),
        // Parent and child, each also in the form that hides the other table from users without rights on it.
        1216 | 1217 | 1451 | 1452 => Some(Meaning::ForeignKey),
        // MariaDB's snapshot conflict, lock wait timeout, deadlock, NOWAIT.
        1020 | 1205 | 1213 | 3572 => Some(Meaning::LostRace),
        // Too many connections, shutdown, network trouble (4), connection killed (MariaDB), idle for too long.
        1040 | 1053 | 1158..=1161 | 1927 | 4031 => Some(Meaning::Passing),
        // No majority in the cluster, read-only in two ways, not the primary of the group.
        1047 | 1290 | 1836 | 3100 => Some(Meaning::ReadOnly),
        // Interrupted, and the two servers' ways to say that a statement took too long.
        1317 | 1969 | 3024 => Some(Meaning::Canceled),
        // No such database, column, table.
        1049 | 1054 | 1146 => Some(Meaning::SchemaMissing),
        1044 | 1045 | 1698 => Some(Meaning::AccessDenied),
        // Packet too large, out of range, incorrect value, too long, invalid JSON text, nested too deeply, a check
        // constraint (two servers).
        1153 | 1264 | 1366 | 1406 | 3140 | 3157 | 3819 | 4025 => Some(Meaning::Content),
        _ => None,
    }
}

fn sqlite(extended: u32, message: &str) -> Option<Meaning> {
    /// The low byte of an extended code is the primary one.
    const PRIMARY: u32 = 0xff;
    match extended {
        // Unique index, primary key, row id.
        2067 | 1555 | 2579 => Some(Meaning::Unique),
        787 => Some(Meaning::ForeignKey),
        // A check constraint, a value of the wrong type for its column, larger than a value may be, the wrong type
        // where only one will do.
        275 | 3091 | 18 | 20 => Some(Meaning::Content),
        // Busy and locked in all their forms, such as 517, busy because of an old snapshot.
        code if matches!(code & PRIMARY, 5 | 6) => Some(Meaning::LostRace),
        // The disk is full, or too full for the index of the log to grow. Space may become free again.
        13 | 4874 => Some(Meaning::Passing),
        // A generic error has no code of its own, only a message.
        1 if message.starts_with("no such table") || message.starts_with("no such column") => {
            Some(Meaning::SchemaMissing)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::fmt;

    use sqlx::error::ErrorKind;

    use super::*;

    /// An error as a driver would report it. Its text says something else on purpose.
    #[derive(Debug)]
    struct Fake(&'static str);

    impl fmt::Display for Fake {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("duplicate entry, deadlock, foreign key")
        }
    }

    impl StdError for Fake {}

    impl DatabaseError for Fake {
        fn message(&self) -> &str {
            "duplicate entry, deadlock, foreign key"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::UniqueViolation
        }
    }

    fn error(code: &'static str) -> sqlx::Error {
        sqlx::Error::Database(Box::new(Fake(code)))
    }

    // shows: S173
    #[test]
    fn postgresql_is_read_by_its_sqlstate() {
        use Meaning::{
            AccessDenied, Canceled, Content, ForeignKey, LostRace, Passing, ReadOnly, SchemaMissing, Unique,
        };
        for (code, meaning) in [
            ("22001", Some(Content)),
            ("22003", Some(Content)),
            ("22008", Some(Content)),
            ("22021", Some(Content)),
            ("22P02", Some(Content)),
            ("22P03", Some(Content)),
            ("22P05", Some(Content)),
            ("23514", Some(Content)),
            ("54000", Some(Content)),
            ("54001", Some(Content)),
            // A missing grant is a state of the server.
            ("42501", None),
            ("23505", Some(Unique)),
            ("23503", Some(ForeignKey)),
            ("40001", Some(LostRace)),
            ("40P01", Some(LostRace)),
            ("55P03", Some(LostRace)),
            ("57P01", Some(Passing)),
            ("25P03", Some(Passing)),
            ("57P02", Some(Passing)),
            ("57P03", Some(Passing)),
            ("08006", Some(Passing)),
            ("08P01", Some(Passing)),
            ("53300", Some(Passing)),
            ("57014", Some(Canceled)),
            ("25006", Some(ReadOnly)),
            ("23502", None),
            ("42P01", Some(SchemaMissing)),
            ("42703", Some(SchemaMissing)),
            ("3F000", Some(SchemaMissing)),
            ("28P01", Some(AccessDenied)),
            ("42601", None),
            ("", None),
        ] {
            assert_eq!(Dialect::Postgres.meaning(&error(code)), meaning, "{code}");
        }
    }

    // shows: S173
    #[test]
    fn sqlite_is_read_by_its_extended_code() {
        use Meaning::{Content, ForeignKey, LostRace, Passing, Unique};
        for (code, meaning) in [
            ("275", Some(Content)),
            ("3091", Some(Content)),
            ("18", Some(Content)),
            ("20", Some(Content)),
            // The disk is full, also for the index of the log.
            ("13", Some(Passing)),
            ("4874", Some(Passing)),
            // Read-only files and disk errors are states of the machine.
            ("8", None),
            ("10", None),
            ("2067", Some(Unique)),
            ("1555", Some(Unique)),
            ("2579", Some(Unique)),
            ("787", Some(ForeignKey)),
            ("5", Some(LostRace)),
            ("6", Some(LostRace)),
            ("261", Some(LostRace)),
            ("517", Some(LostRace)),
            ("262", Some(LostRace)),
            ("19", None),
            ("1299", None),
            ("1", None),
            ("x", None),
        ] {
            assert_eq!(Dialect::Sqlite.meaning(&error(code)), meaning, "{code}");
        }
    }

    // shows: S173
    #[test]
    fn mysql_is_read_by_its_error_number() {
        use Meaning::{
            AccessDenied, Canceled, Content, ForeignKey, LostRace, Passing, ReadOnly, SchemaMissing, Unique,
        };
        for (number, meaning) in [
            (1062, Some(Unique)),
            (1586, Some(Unique)),
            (1451, Some(ForeignKey)),
            (1452, Some(ForeignKey)),
            (1213, Some(LostRace)),
            (1205, Some(LostRace)),
            (1020, Some(LostRace)),
            (3572, Some(LostRace)),
            (1053, Some(Passing)),
            (1153, Some(Content)),
            (1264, Some(Content)),
            (1366, Some(Content)),
            (1406, Some(Content)),
            (3140, Some(Content)),
            (3157, Some(Content)),
            (3819, Some(Content)),
            (4025, Some(Content)),
            (1047, Some(ReadOnly)),
            (1290, Some(ReadOnly)),
            (1836, Some(ReadOnly)),
            (3100, Some(ReadOnly)),
            (1146, Some(SchemaMissing)),
            (1045, Some(AccessDenied)),
            (1317, Some(Canceled)),
            (1048, None),
        ] {
            assert_eq!(mysql(number), meaning, "{number}");
        }
        // The SQLSTATE that all constraints share, and an error of another driver, say nothing.
        assert_eq!(Dialect::MySql.meaning(&error("23000")), None);
        assert_eq!(Dialect::MySql.meaning(&error("1062")), None);
    }

    #[test]
    fn the_questions_are_answered_from_the_meaning() {
        let of = |code| {
            let (dialect, error) = (Dialect::Postgres, error(code));
            let constraints = [dialect.is_unique_violation(&error), dialect.is_foreign_key_violation(&error)];
            (constraints, dialect.is_transient(&error), dialect.is_lost_race(&error))
        };
        assert_eq!(of("23505"), ([true, false], false, false));
        assert_eq!(of("23503"), ([false, true], false, false));
        assert_eq!(of("40P01"), ([false, false], true, true));
        assert_eq!(of("57P01"), ([false, false], true, false));
        assert_eq!(of("42601"), ([false, false], false, false));
    }

    #[test]
    fn a_lost_connection_is_transient_but_no_lost_race() {
        for dialect in [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite] {
            let broken = || sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into());
            assert!(dialect.is_transient(&broken()));
            assert!(!dialect.is_lost_race(&broken()));
            assert!(!dialect.is_unique_violation(&broken()));
            assert!(!dialect.is_transient(&sqlx::Error::RowNotFound));
        }
    }
}
