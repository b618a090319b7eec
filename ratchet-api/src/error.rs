//! Errors of stores and of the operations that users call. `docs/errors.md` says what to do about each.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{InvalidName, InvalidSubmission, JobId, JobStatus, OneLine, Refusal, debug_as_display};

/// The result of a store call.
pub type StoreResult<T> = Result<T, StoreError>;

/// An error of a store. Callers branch on [`kind`](Self::kind), never on text.
///
/// Expected answers are not errors: a lost race, a taken key and an unknown job are verdicts.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    op: &'static str,
    detail: String,
    code: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The kind of a store error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// A constraint refused the write. The contract avoids this; seeing it means a bug or a foreign writer.
    Conflict,
    /// A passing error: a deadlock, a lost connection, a timeout. Nothing or all of it happened; try again.
    Transient,
    /// The server cannot be reached at all.
    Unavailable,
    /// The schema is missing or of another version.
    NotMigrated,
    /// The store does not offer this operation.
    Unsupported,
    /// A stored row holds a value that no version of this program writes.
    Corrupt,
    /// The call itself is not valid.
    Invalid,
    /// The database cannot hold a value of this call: its encoding, size or nesting. Sending the same again is of no
    /// use. A store reports it only for error codes that mean nothing else; an error of the server itself (read-only, a
    /// missing grant, a full disk) is another kind.
    RefusedContent,
    /// Anything else.
    Other,
}

impl StoreError {
    /// Creates an error of this kind in this operation; `detail` describes it and, where it helps, the remedy.
    pub fn new(kind: StoreErrorKind, op: &'static str, detail: impl Into<String>) -> Self {
        Self { kind, op, detail: detail.into(), code: None, source: None }
    }

    /// Adds the code that the database gave: an SQLSTATE, an error number.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Adds the source error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Creates the error for an operation that this store does not have.
    pub fn unsupported(op: &'static str) -> Self {
        Self::new(StoreErrorKind::Unsupported, op, "this store does not offer the operation")
    }

    /// Creates the error for a row that cannot be read.
    pub fn corrupt(op: &'static str, row: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self::new(StoreErrorKind::Corrupt, op, format!("row {row}: {problem}; mend or delete the row"))
    }

    /// Creates the error for a call that is not valid.
    pub fn invalid(op: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Invalid, op, detail)
    }

    /// The kind of error.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The operation that failed.
    pub const fn op(&self) -> &'static str {
        self.op
    }

    /// The code that the database gave, if it gave one.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Whether trying again may help.
    pub const fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Transient | StoreErrorKind::Unavailable)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // On one line: text from a server or a row must not forge a log line.
        write!(f, "store operation `{}`: {}", self.op, OneLine(&self.detail))?;
        match &self.code {
            Some(code) => write!(f, " (code {})", OneLine(code)),
            None => Ok(()),
        }
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Explains why a server cannot be reached and which part of its address to check, without quoting the address.
///
/// ```
/// use std::io::{Error, ErrorKind};
///
/// use ratchet_api::why_unreachable;
///
/// let refused = why_unreachable(&Error::from(ErrorKind::ConnectionRefused));
/// assert!(refused.starts_with("no server listens at this port"));
/// ```
pub fn why_unreachable(error: &io::Error) -> &'static str {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable,
        InvalidData, InvalidInput, NetworkUnreachable, NotFound, PermissionDenied, TimedOut, UnexpectedEof,
    };
    match error.kind() {
        ConnectionRefused => {
            "no server listens at this port of the host; check host and port in the URL, and that the server runs"
        }
        TimedOut => {
            "the host does not answer in time; check the host in the URL, the network and its firewalls"
        }
        HostUnreachable | NetworkUnreachable | AddrNotAvailable => {
            "there is no way to the host; check the host in the URL, and the network"
        }
        NotFound => "the socket is not there; check its path in the URL, and that the server runs",
        PermissionDenied => {
            "the system does not allow the connection; check the rights on the socket, and firewalls"
        }
        InvalidData => {
            "the TLS handshake failed: the server's certificate is not trusted, is not one for this host, or what \
             answers does not speak TLS; check the options for TLS in the URL"
        }
        ConnectionReset | ConnectionAborted | UnexpectedEof => {
            "the server ended the connection before it was open; check the port and the options for TLS in the URL, \
             and the server's log"
        }
        InvalidInput => "the host in the URL is not one; check its spelling",
        // An error of the name resolver has no OS error code, and no kind of its own.
        _ if error.raw_os_error().is_none() => {
            "the name of the host is not known; check the host in the URL, and the name service"
        }
        _ => "the server cannot be reached; check host and port in the URL, and that the server runs",
    }
}

impl From<InvalidName> for StoreError {
    fn from(error: InvalidName) -> Self {
        Self::invalid("name", error.to_string())
    }
}

/// Why a job was not submitted.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// A live job holds the business key.
    #[error("business key `{key}` is held by live job {holder}; wait for it, cancel it or replace it")]
    KeyTaken {
        /// The key.
        key: String,
        /// The job that holds it.
        holder: JobId,
    },
    /// A job of another target or method was submitted with the idempotency key before. Nothing is stored: a handle of
    /// that job would hand out the result of other work.
    #[error(
        "idempotency key `{key}` belongs to job {holder}, which calls `{method}`; give each kind of work keys of its own"
    )]
    IdempotencyMismatch {
        /// The key.
        key: String,
        /// The job that has it.
        holder: JobId,
        /// The call of that job, as `target.method`.
        method: String,
    },
    /// The job itself is not acceptable.
    #[error(transparent)]
    Invalid(#[from] InvalidSubmission),
    /// The store refused it because of the stored jobs that it refers to.
    #[error(transparent)]
    Refused(Refusal),
    /// The class policy does not allow the target.
    #[error("target `{target}` is not allowed by the class policy; add its prefix to the policy")]
    Denied {
        /// The target.
        target: String,
    },
    /// An argument or a param has no JSON form.
    #[error("{0}")]
    Argument(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an operation on a stored job failed. Expected answers are in its verdict, not here.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The job was changed by another caller first.
    #[error("job {id} was changed meanwhile and is now {status}; read it again and decide anew")]
    OptimisticLock {
        /// The job.
        id: JobId,
        /// Its present status.
        status: JobStatus,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

debug_as_display!(StoreError, SubmitError, ControlError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_error_names_the_operation_and_keeps_its_cause() {
        let cause = "x".parse::<i32>().unwrap_err();
        let error = StoreError::new(StoreErrorKind::Other, "commit", "no answer").with_source(cause.clone());
        assert_eq!((error.kind(), error.op()), (StoreErrorKind::Other, "commit"));
        assert_eq!(error.to_string(), "store operation `commit`: no answer");
        assert_eq!(error.source().unwrap().to_string(), cause.to_string());
        assert!(StoreError::unsupported("commit").source().is_none());
        let forged = StoreError::corrupt("load", 7, "a\nERROR b");
        assert_eq!(forged.to_string(), r"store operation `load`: row 7: a\nERROR b; mend or delete the row");
        let coded = error.clone().with_code("25006");
        assert_eq!((error.code(), coded.code()), (None, Some("25006")));
        assert_eq!(coded.to_string(), "store operation `commit`: no answer (code 25006)");
        assert_eq!(coded.source().unwrap().to_string(), cause.to_string(), "a copy keeps its cause");
    }

    #[test]
    fn only_passing_trouble_is_tried_again() {
        use StoreErrorKind::{
            Conflict, Corrupt, Invalid, NotMigrated, Other, RefusedContent, Transient, Unavailable,
            Unsupported,
        };
        let is_transient = |kind| StoreError::new(kind, "claim", "").is_transient();
        assert_eq!([Transient, Unavailable].map(is_transient), [true; 2]);
        let lasting = [Conflict, NotMigrated, Unsupported, Corrupt, Invalid, RefusedContent, Other];
        assert_eq!(lasting.map(is_transient), [false; 7]);
    }

    #[test]
    fn a_bad_name_is_an_invalid_call() {
        let error = StoreError::from(crate::Tag::new("").unwrap_err());
        assert_eq!(error.kind(), StoreErrorKind::Invalid);
        assert_eq!(error.to_string(), "store operation `name`: tag is empty");
    }
}
