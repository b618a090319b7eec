//! Driver errors in the terms of the store contract.

use std::borrow::Cow;
use std::error::Error as _;

use ratchet_api::{StoreError, StoreErrorKind};

use crate::{ConnectError, ConstraintDetector as _, Dialect};

/// Classifies an error of a statement, on a connection of the store or of a transaction that a user began.
pub(super) fn classify(
    dialect: Dialect,
    op: &'static str,
    in_users_transaction: bool,
    error: sqlx::Error,
) -> StoreError {
    let (kind, detail) = match &error {
        _ if dialect.is_lost_race(&error) => {
            (StoreErrorKind::Transient, "the transaction lost against others too often; try again")
        }
        // The connection is dropped, and the next one may lead to a server that accepts writes.
        sqlx::Error::Database(_) if dialect.is_read_only(&error) => (
            StoreErrorKind::Transient,
            "the server only reads; it is a standby, or was told to. Connect to the primary",
        ),
        sqlx::Error::Database(_) if dialect.is_transient(&error) => {
            (StoreErrorKind::Transient, "the server is in passing trouble; try again")
        }
        sqlx::Error::Database(_) if dialect.is_statement_canceled(&error) => {
            (StoreErrorKind::Transient, "the server stopped the statement; try again")
        }
        sqlx::Error::Database(_) if dialect.is_schema_missing(&error) => {
            let advice = match in_users_transaction {
                true => {
                    "the tables of the store are not where this transaction is, or of another version; begin it on the \
                     database of the store, or run `ratchet migrate`"
                }
                false => "the schema is missing or of another version; run `ratchet migrate`",
            };
            (StoreErrorKind::NotMigrated, advice)
        }
        _ if dialect.is_content_refused(&error) => {
            (StoreErrorKind::RefusedContent, "the database cannot hold a value of this call")
        }
        sqlx::Error::Database(error) if is_constraint(&error.kind()) => {
            (StoreErrorKind::Conflict, "a constraint refused the write")
        }
        sqlx::Error::Database(_) => (StoreErrorKind::Other, "the server refused the statement"),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
            (StoreErrorKind::Corrupt, "a column has a value that no version of this program wrote")
        }
        _ if dialect.is_transient(&error) => (StoreErrorKind::Transient, "the connection was lost"),
        _ => (StoreErrorKind::Other, "the driver failed"),
    };
    coded(dialect, StoreError::new(kind, op, detail), error)
}

/// Adds the driver's error as the source, and the database's code.
fn coded(dialect: Dialect, trouble: StoreError, error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|error| dialect.code(error)).map(Cow::into_owned);
    let trouble = match code {
        Some(code) => trouble.with_code(code),
        None => trouble,
    };
    trouble.with_source(error)
}

fn is_constraint(kind: &sqlx::error::ErrorKind) -> bool {
    !matches!(kind, sqlx::error::ErrorKind::Other)
}

/// Classifies an error of opening a connection.
pub(super) fn unreachable(dialect: Dialect, op: &'static str, error: sqlx::Error) -> StoreError {
    ConnectError::new(dialect, error).during(op)
}

/// Whether the server rolled back the whole transaction in favor of others, so that a re-run may succeed.
pub(super) fn is_lost_race(dialect: Dialect, error: &StoreError) -> bool {
    driver_error(error).is_some_and(|error| dialect.is_lost_race(error))
}

/// Whether the connection is still usable after this error: the server answered, and did not close it.
pub(super) fn leaves_connection_usable(dialect: Dialect, error: &StoreError) -> bool {
    match driver_error(error) {
        None => true,
        Some(error) => {
            error.as_database_error().is_some()
                && (dialect.is_lost_race(error) || !dialect.is_transient(error))
        }
    }
}

fn driver_error(error: &StoreError) -> Option<&sqlx::Error> {
    error.source().and_then(|source| source.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_passing_trouble_and_the_connection_is_not_kept() {
        for dialect in [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite] {
            let error =
                classify(dialect, "claim", false, sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into()));
            assert!(error.is_transient());
            assert!(!leaves_connection_usable(dialect, &error));
            assert!(!is_lost_race(dialect, &error));
        }
    }
}
