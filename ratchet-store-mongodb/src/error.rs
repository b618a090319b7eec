//! Mapping of driver errors to store errors, by code and label, never by text.

use std::error::Error as StdError;
use std::fmt;

use mongodb::error::{
    Error, ErrorKind, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure,
};
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};

const DUPLICATE_KEY: i32 = 11000;
const WRITE_CONFLICT: i32 = 112;
const NO_SUCH_TRANSACTION: i32 = 251;
const MAX_TIME_EXPIRED: i32 = 50;
const LOCK_TIMEOUT: i32 = 24;
/// Codes of a failover: the primary stepped down or will, a member is unreachable, a cursor or snapshot is gone.
const FAILING_OVER: [i32; 18] =
    [6, 7, 43, 89, 91, 133, 134, 189, 237, 239, 246, 262, 9001, 10107, 11600, 11602, 13435, 13436];
const NO_TRANSACTIONS: i32 = 20;
/// Codes of refused content: bad value, too deep, not BSON, too large, refused by a validator, index key too long.
const CONTENT: [i32; 6] = [2, 15, 22, 10334, 121, 17280];
const REFUSED_WRITE: &str = "the server refused the write";
/// The message for a write that an election could still roll back.
pub(crate) const NOT_ON_A_MAJORITY: &str = "the write is not known to be on a majority";
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;

/// Conversion of driver errors, naming the operation that failed.
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

/// Whether it is unknown if the transaction was committed; committing again is safe.
pub(crate) fn is_unknown_commit(error: &Error) -> bool {
    error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
}

/// Whether a unique index refused the write.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    code_of(error) == Some(DUPLICATE_KEY)
}

/// The positions in an unordered insert that a unique index refused; `None` if anything else went wrong.
pub(crate) fn duplicates(error: &Error) -> Option<Vec<usize>> {
    let ErrorKind::InsertMany(many) = error.kind.as_ref() else { return None };
    if many.write_concern_error.is_some() {
        return None;
    }
    let errors = many.write_errors.as_ref()?;
    errors.iter().map(|error| (error.code == DUPLICATE_KEY).then_some(error.index)).collect()
}

/// The error for a URL that cannot be parsed. The driver's own message would repeat parts of it.
pub(crate) fn unreadable_url(op: &'static str, error: &Error) -> StoreError {
    match error.kind.as_ref() {
        ErrorKind::DnsResolve { .. } => classify(op, error),
        _ => StoreError::invalid(
            op,
            "the URL is not one of MongoDB; special characters in user and password are written as %XX",
        ),
    }
}

fn classify(op: &'static str, error: &Error) -> StoreError {
    // The server's text can contain the user's values, so it goes to the debug log and into no error.
    tracing::debug!(op, %error, "driver call failed");
    let trouble = StoreError::new(kind_of(error), op, describe(error));
    let trouble = match code_of(error) {
        Some(code) => trouble.with_code(code.to_string()),
        None => trouble,
    };
    match error.contains_label(TRANSIENT_TRANSACTION_ERROR) {
        true => trouble.with_source(RunAgain(error.clone())),
        false => trouble,
    }
}

/// An error of a transaction that can be run again. It carries the driver's error and shows nothing of its text.
struct RunAgain(Error);

impl fmt::Display for RunAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the transaction can be run again from its beginning")
    }
}

impl fmt::Debug for RunAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for RunAgain {}

/// The error to return from a transaction that submits jobs, so that code that repeats transactions by the driver's
/// labels repeats this one.
///
/// An error of a transaction that lost a race is the driver's own, with the label `TransientTransactionError`. Any
/// other is [custom](Error::custom), with its text.
///
/// ```no_run
/// use mongodb::bson::doc;
/// use ratchet_api::{Enlist as _, Submission};
/// use ratchet_store_mongodb::{MongoStore, driver_error, mongodb};
///
/// async fn place_order(jobs: MongoStore, receipt: Submission) -> mongodb::error::Result<()> {
///     let orders = jobs.client().database("shop").collection("orders");
///     let mut session = jobs.client().start_session().await?;
///     let order = async move |session: &mut mongodb::ClientSession| {
///         orders.insert_one(doc! { "cake": 1 }).session(&mut *session).await?;
///         session.insert_in(&jobs, std::slice::from_ref(&receipt)).await.map_err(driver_error)?;
///         Ok(())
///     };
///     session.start_transaction().and_run2(order).await
/// }
/// ```
pub fn driver_error(error: impl StdError + Send + Sync + 'static) -> Error {
    let mut next: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(cause) = next {
        if let Some(RunAgain(error)) = cause.downcast_ref() {
            return error.clone();
        }
        next = cause.source();
    }
    Error::custom(error.to_string())
}

fn kind_of(error: &Error) -> StoreErrorKind {
    let passing = [TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, "RetryableWriteError"];
    if passing.iter().any(|label| error.contains_label(label)) {
        return StoreErrorKind::Transient;
    }
    if may_be_taken_back(error) {
        return StoreErrorKind::Transient;
    }
    match (error.kind.as_ref(), code_of(error).and_then(kind_of_code)) {
        (_, Some(kind)) => kind,
        (ErrorKind::BsonSerialization(_) | ErrorKind::Bson(_), None) => StoreErrorKind::RefusedContent,
        (ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }, None) => StoreErrorKind::Transient,
        (ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. }, None) => {
            StoreErrorKind::Unavailable
        }
        (ErrorKind::InvalidArgument { .. }, None) => StoreErrorKind::Invalid,
        (ErrorKind::SessionsNotSupported, None) => StoreErrorKind::Unsupported,
        _ => StoreErrorKind::Other,
    }
}

/// The kind that a server's error code stands for, if the code alone is enough.
fn kind_of_code(code: i32) -> Option<StoreErrorKind> {
    match code {
        DUPLICATE_KEY => Some(StoreErrorKind::Conflict),
        WRITE_CONFLICT | NO_SUCH_TRANSACTION | MAX_TIME_EXPIRED | LOCK_TIMEOUT => {
            Some(StoreErrorKind::Transient)
        }
        code if FAILING_OVER.contains(&code) => Some(StoreErrorKind::Transient),
        NO_TRANSACTIONS => Some(StoreErrorKind::Unsupported),
        code if CONTENT.contains(&code) => Some(StoreErrorKind::RefusedContent),
        _ => None,
    }
}

/// An error reported in the reply to a plain write command, which the driver does not turn into an error.
pub(crate) fn refused_write(op: &'static str, code: i32) -> StoreError {
    let kind = kind_of_code(code).unwrap_or(StoreErrorKind::Other);
    StoreError::new(kind, op, REFUSED_WRITE).with_code(code.to_string())
}

/// Whether a write was done but is not known to be on a majority.
fn may_be_taken_back(error: &Error) -> bool {
    match error.kind.as_ref() {
        ErrorKind::Write(WriteFailure::WriteConcernError(_)) => true,
        ErrorKind::InsertMany(many) => many.write_concern_error.is_some(),
        _ => false,
    }
}

fn describe(error: &Error) -> String {
    if may_be_taken_back(error) {
        return NOT_ON_A_MAJORITY.to_owned();
    }
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
        (_, Some(_)) => REFUSED_WRITE.to_owned(),
        (ErrorKind::Io(error), _) => format!("connection lost: {}", error.kind()),
        (ErrorKind::DnsResolve { .. }, _) => {
            "the name of the host is not known; check the host in the URL, and the name service".to_owned()
        }
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
