//! The error of opening a connection.
//!
//! A server's own message names the user, the database or the host. So the error says which kind of thing is wrong,
//! with the server's code, and what to do about it; the message of the server is in no error and in no log.

use std::borrow::Cow;
use std::io::ErrorKind;

use ratchet_api::{StoreError, StoreErrorKind, why_unreachable};

use crate::{ConstraintDetector as _, Dialect};

/// The reason why no connection could be opened. Its texts never name a user, a password, a database or a host.
#[derive(thiserror::Error)]
#[error("{detail}{}", .code.as_ref().map(|code| format!(" (code {code})")).unwrap_or_default())]
pub struct ConnectError {
    kind: StoreErrorKind,
    detail: String,
    /// The database's error code, if it gave one.
    code: Option<String>,
    /// The driver's error, only if it concerns the network or a file: such errors contain no names.
    source: Option<sqlx::Error>,
}

ratchet_api::debug_as_display!(ConnectError);

impl ConnectError {
    /// Classifies an error of the driver.
    pub fn new(dialect: Dialect, error: sqlx::Error) -> Self {
        use sqlx::Error::{Configuration, Database, Io, Tls};
        let code = error.as_database_error().and_then(|error| dialect.code(error)).map(Cow::into_owned);
        let (kind, detail) = match &error {
            // The store's own advice: the driver reads no configuration when it connects.
            Configuration(advice) => (StoreErrorKind::Other, advice.to_string()),
            Database(_) if dialect != Dialect::Sqlite => {
                let (kind, detail) = refused(dialect, &error, code.as_deref().unwrap_or_default());
                (kind, detail.to_owned())
            }
            Database(_) => (StoreErrorKind::Unavailable, "the file cannot be opened".to_owned()),
            Io(error) => (StoreErrorKind::Unavailable, why_unreachable(error).to_owned()),
            Tls(_) => (
                StoreErrorKind::Unavailable,
                "no TLS connection to the server: it offers none, or a certificate of this side cannot be used; \
                 check the options for TLS in the URL"
                    .to_owned(),
            ),
            _ => (
                StoreErrorKind::Unavailable,
                "the connection ended before it was open; check the URL, and that the server runs".to_owned(),
            ),
        };
        let nameless = match &error {
            // A certificate error contains the names in the certificate.
            Io(error) => error.kind() != ErrorKind::InvalidData,
            Tls(_) => true,
            _ => dialect == Dialect::Sqlite,
        };
        Self { kind, detail, code, source: nameless.then_some(error) }
    }

    /// The kind of the error.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Converts it to an error of the store operation `op`, with the driver's error as source where that contains no
    /// names.
    pub(crate) fn during(self, op: &'static str) -> StoreError {
        let mut error = StoreError::new(self.kind, op, self.detail);
        if let Some(code) = self.code {
            error = error.with_code(code);
        }
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

/// Classifies the refusal of a server that answered, and says what to do about it.
fn refused(dialect: Dialect, error: &sqlx::Error, code: &str) -> (StoreErrorKind, &'static str) {
    let refusal = match meaning(dialect, code) {
        Refusal::Other if dialect.is_access_denied(error) => Refusal::Login,
        refusal => refusal,
    };
    match refusal {
        Refusal::Password => {
            (StoreErrorKind::Other, "the server refuses the password of the user; check both in the URL")
        }
        Refusal::User => (
            StoreErrorKind::Other,
            "the server does not let this user in; check the user in the URL, and whom the server lets in from here \
             and without TLS",
        ),
        Refusal::Login => (
            StoreErrorKind::Other,
            "the server refuses the user or its password; check both in the URL, and whom the server lets in",
        ),
        Refusal::NoDatabase => (
            StoreErrorKind::Other,
            "the server has no database of this name; create it, or check its name in the URL",
        ),
        Refusal::NoRight => (
            StoreErrorKind::Other,
            "the user may not connect to the database; grant it the right, or check the URL",
        ),
        Refusal::Full => (
            StoreErrorKind::Unavailable,
            "the server has too many connections; raise its limit, or have fewer nodes or `connections`",
        ),
        Refusal::NotNow => (
            StoreErrorKind::Unavailable,
            "the server takes no connections now: it starts, stops or recovers; try again",
        ),
        Refusal::Other => {
            (StoreErrorKind::Unavailable, "the server refuses the connection; its log says why")
        }
    }
}

enum Refusal {
    Password,
    User,
    /// The user or its password; the code does not say which.
    Login,
    NoDatabase,
    NoRight,
    Full,
    NotNow,
    Other,
}

fn meaning(dialect: Dialect, code: &str) -> Refusal {
    match (dialect, code) {
        (Dialect::Postgres, "28P01") => Refusal::Password,
        (Dialect::Postgres, "28000") => Refusal::User,
        (Dialect::Postgres, "3D000") | (Dialect::MySql, "1049") => Refusal::NoDatabase,
        (Dialect::Postgres, "42501") => Refusal::NoRight,
        (Dialect::MySql, "1040" | "1203" | "1226") => Refusal::Full,
        (Dialect::MySql, "1053") => Refusal::NotNow,
        (Dialect::Postgres, code) if code.starts_with("53") => Refusal::Full,
        (Dialect::Postgres, code) if code.starts_with("57P") => Refusal::NotNow,
        _ => Refusal::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_told_from_a_user() {
        assert!(matches!(meaning(Dialect::Postgres, "28P01"), Refusal::Password));
        assert!(matches!(meaning(Dialect::Postgres, "28000"), Refusal::User));
        assert!(matches!(meaning(Dialect::Postgres, "53300"), Refusal::Full));
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_trouble_with_tls_and_names_nobody() {
        let certificate = std::io::Error::new(ErrorKind::InvalidData, "not valid for name db.example");
        let error = ConnectError::new(Dialect::Postgres, certificate.into()).during("connect");
        assert!(error.to_string().contains("TLS"), "{error}");
        assert!(!format!("{error:?}").contains("db.example"), "{error:?}");
    }
}
