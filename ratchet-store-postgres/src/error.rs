//! What the driver reports, in the words of the contract.

use std::error::Error as _;

use ratchet_api::{StoreError, StoreErrorKind};

const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK_DETECTED: &str = "40P01";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const QUERY_CANCELED: &str = "57014";
const UNDEFINED_TABLE: &str = "42P01";
const UNDEFINED_COLUMN: &str = "42703";
const INVALID_SCHEMA_NAME: &str = "3F000";

/// Classes of SQLSTATE, by their first two characters.
const CONNECTION_EXCEPTION: &str = "08";
const INTEGRITY_VIOLATION: &str = "23";
const INVALID_AUTHORIZATION: &str = "28";
const INSUFFICIENT_RESOURCES: &str = "53";
const OPERATOR_INTERVENTION: &str = "57";

/// An error of a statement.
pub(crate) fn classify(op: &'static str, error: sqlx::Error) -> StoreError {
    let code = sqlstate(&error);
    let (kind, detail) = match &error {
        sqlx::Error::Database(_) => of_sqlstate(code.as_deref().unwrap_or_default()),
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            (StoreErrorKind::Transient, "the connection was lost")
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
            (StoreErrorKind::Corrupt, "a column has a value that no version of this program wrote")
        }
        _ => (StoreErrorKind::Other, "the driver failed"),
    };
    StoreError::new(kind, op, detail).with_source(error)
}

/// An error of opening a connection.
pub(crate) fn unreachable(op: &'static str, error: sqlx::Error) -> StoreError {
    match sqlstate(&error) {
        Some(code) if code.starts_with(INVALID_AUTHORIZATION) => {
            StoreError::new(StoreErrorKind::Other, op, "the server refuses the user; check the URL")
        }
        _ => StoreError::new(StoreErrorKind::Unavailable, op, "the server cannot be reached; check the URL"),
    }
    .with_source(error)
}

fn of_sqlstate(code: &str) -> (StoreErrorKind, &'static str) {
    match code {
        SERIALIZATION_FAILURE | DEADLOCK_DETECTED => {
            (StoreErrorKind::Transient, "the transaction lost against others too often; try again")
        }
        LOCK_NOT_AVAILABLE | QUERY_CANCELED => {
            (StoreErrorKind::Transient, "the server stopped the statement; try again")
        }
        UNDEFINED_TABLE | UNDEFINED_COLUMN | INVALID_SCHEMA_NAME => (
            StoreErrorKind::NotMigrated,
            "the schema is missing or of another version; run `ratchet migrate`",
        ),
        _ => match code.get(..2).unwrap_or_default() {
            INTEGRITY_VIOLATION => (StoreErrorKind::Conflict, "a constraint refused the write"),
            CONNECTION_EXCEPTION | INSUFFICIENT_RESOURCES | OPERATOR_INTERVENTION => {
                (StoreErrorKind::Transient, "the server is in passing trouble; try again")
            }
            _ => (StoreErrorKind::Other, "the server refused the statement"),
        },
    }
}

/// Whether the server undid the whole transaction for the sake of others, so that running it again may succeed.
pub(crate) fn is_lost_race(error: &StoreError) -> bool {
    let code = driver_error(error).and_then(sqlstate);
    matches!(code.as_deref(), Some(SERIALIZATION_FAILURE | DEADLOCK_DETECTED))
}

/// Whether the connection is still good after this error: the server answered, and did not say goodbye.
pub(crate) fn leaves_connection_usable(error: &StoreError) -> bool {
    match driver_error(error) {
        None => true,
        Some(error) => sqlstate(error).is_some_and(|code| {
            code == QUERY_CANCELED
                || !(code.starts_with(OPERATOR_INTERVENTION) || code.starts_with(CONNECTION_EXCEPTION))
        }),
    }
}

fn driver_error(error: &StoreError) -> Option<&sqlx::Error> {
    error.source().and_then(|source| source.downcast_ref())
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_become_kinds_that_callers_branch_on() {
        for (code, kind) in [
            ("40P01", StoreErrorKind::Transient),
            ("57P01", StoreErrorKind::Transient),
            ("53300", StoreErrorKind::Transient),
            ("23505", StoreErrorKind::Conflict),
            ("42P01", StoreErrorKind::NotMigrated),
            ("22P02", StoreErrorKind::Other),
            ("", StoreErrorKind::Other),
        ] {
            assert_eq!(of_sqlstate(code).0, kind, "{code}");
        }
    }

    #[test]
    fn a_lost_connection_is_passing_trouble_and_the_connection_is_not_kept() {
        let error = classify("claim", sqlx::Error::Io(std::io::ErrorKind::BrokenPipe.into()));
        assert!(error.is_transient());
        assert!(!leaves_connection_usable(&error));
        assert!(!is_lost_race(&error));
    }
}
