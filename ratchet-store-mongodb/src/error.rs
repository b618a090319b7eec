//! Errors of the driver, by code and label, never by text.

use mongodb::error::{
    Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure,
};
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};

const DUPLICATE_KEY: i32 = 11000;
const WRITE_CONFLICT: i32 = 112;
const NO_SUCH_TRANSACTION: i32 = 251;
const MAX_TIME_EXPIRED: i32 = 50;
const LOCK_TIMEOUT: i32 = 24;
/// The primary stepped down, or is about to.
const NOT_PRIMARY: [i32; 7] = [91, 189, 10107, 11600, 11602, 13435, 13436];
const NO_TRANSACTIONS: i32 = 20;
/// Bad value, too deep, not BSON, too large, refused by a validator, the key of an index too long.
const CONTENT: [i32; 6] = [2, 15, 22, 10334, 121, 17280];
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;

/// Names the operation in which the driver failed.
pub(crate) trait During<T> {
    /// Turns a driver's error into a store's.
    fn during(self, op: &'static str) -> StoreResult<T>;
}

impl<T> During<T> for Result<T, Error> {
    fn during(self, op: &'static str) -> StoreResult<T> {
        self.map_err(|error| classify(op, &error))
    }
}

impl<T> During<T> for Result<T, bson::error::Error> {
    fn during(self, op: &'static str) -> StoreResult<T> {
        self.map_err(|error| {
            StoreError::new(StoreErrorKind::RefusedContent, op, format!("not storable: {error}"))
        })
    }
}

/// Whether the transaction was committed or not cannot be told, and committing again is safe.
pub(crate) fn is_unknown_commit(error: &Error) -> bool {
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
}

/// Whether a unique index refused the write.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    code_of(error) == Some(DUPLICATE_KEY)
}

/// The places of an unordered insert that a unique index refused; `None` if anything else went wrong.
pub(crate) fn duplicates(error: &Error) -> Option<Vec<usize>> {
    let ErrorKind::InsertMany(many) = error.kind.as_ref() else { return None };
    if many.write_concern_error.is_some() {
        return None;
    }
    let errors = many.write_errors.as_ref()?;
    errors.iter().map(|error| (error.code == DUPLICATE_KEY).then_some(error.index)).collect()
}

fn classify(op: &'static str, error: &Error) -> StoreError {
    // The server's text can carry values of the user's, so it goes to the debug log and into no error.
    tracing::debug!(op, %error, "mongodb");
    let trouble = StoreError::new(kind_of(error), op, describe(error));
    match code_of(error) {
        Some(code) => trouble.with_code(code.to_string()),
        None => trouble,
    }
}

fn kind_of(error: &Error) -> StoreErrorKind {
    let passing = [TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, "RetryableWriteError"];
    if passing.iter().any(|label| error.contains_label(label)) {
        return StoreErrorKind::Transient;
    }
    match (error.kind.as_ref(), code_of(error)) {
        (_, Some(DUPLICATE_KEY)) => StoreErrorKind::Conflict,
        (_, Some(WRITE_CONFLICT | NO_SUCH_TRANSACTION | MAX_TIME_EXPIRED | LOCK_TIMEOUT)) => {
            StoreErrorKind::Transient
        }
        (_, Some(code)) if NOT_PRIMARY.contains(&code) => StoreErrorKind::Transient,
        (_, Some(NO_TRANSACTIONS)) => StoreErrorKind::Unsupported,
        (_, Some(code)) if CONTENT.contains(&code) => StoreErrorKind::RefusedContent,
        (ErrorKind::BsonSerialization(_) | ErrorKind::Bson(_), _) => StoreErrorKind::RefusedContent,
        (ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }, _) => StoreErrorKind::Transient,
        (ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. }, _) => StoreErrorKind::Unavailable,
        (ErrorKind::InvalidArgument { .. }, _) => StoreErrorKind::Invalid,
        (ErrorKind::SessionsNotSupported, _) => StoreErrorKind::Unsupported,
        _ => StoreErrorKind::Other,
    }
}

fn describe(error: &Error) -> String {
    match (error.kind.as_ref(), code_of(error)) {
        (_, Some(NO_TRANSACTIONS)) => {
            "the server has no transactions: run it as a replica set, also with one member".to_owned()
        }
        (ErrorKind::Authentication { .. }, _) | (_, Some(AUTHENTICATION_FAILED)) => {
            "the server refuses the user or its password; check both in the URL".to_owned()
        }
        (_, Some(UNAUTHORIZED)) => {
            "the user lacks a right; give it the role `readWrite` on the database".to_owned()
        }
        (ErrorKind::Command(command), _) => {
            format!("the server answered {}", command.code_name)
        }
        (_, Some(_)) => "the server refused the write".to_owned(),
        (ErrorKind::Io(error), _) => format!("connection lost: {}", error.kind()),
        (ErrorKind::ServerSelection { .. }, _) => "no server answers at the given address".to_owned(),
        (ErrorKind::InvalidArgument { message, .. }, _) => message.clone(),
        _ => "the driver failed; its own words are in the debug log".to_owned(),
    }
}

fn code_of(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        ErrorKind::InsertMany(many) => match &many.write_errors {
            Some(errors) => errors.first().map(|error| error.code),
            None => many.write_concern_error.as_ref().map(|concern| concern.code),
        },
        _ => None,
    }
}
