//! Why no connection could be opened.
//!
//! What a server says then names the user, the database or the host. So the error says which kind of thing is wrong, with
//! the server's code, and what to do about it; the words of the server are in no error and in no log.

use ratchet_api::StoreErrorKind;

use crate::{ConstraintDetector as _, Dialect};

/// Why no connection could be opened. No text of it names a user, a password, a database or a host.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct ConnectError {
    kind: StoreErrorKind,
    detail: String,
    /// An error of the way to the server, or of a file: there are no names in it.
    source: Option<sqlx::Error>,
}

impl ConnectError {
    /// What the driver's error means.
    pub fn new(dialect: Dialect, error: sqlx::Error) -> Self {
        use sqlx::Error::{Configuration, Database, Io, Tls};
        let (kind, detail) = match &error {
            // Ours: the driver reads no configuration when it connects.
            Configuration(advice) => (StoreErrorKind::Other, advice.to_string()),
            Database(_) if dialect != Dialect::Sqlite => refused(dialect, &error),
            Database(_) => (StoreErrorKind::Unavailable, "the file cannot be opened".to_owned()),
            Io(error) => {
                let advice = "check host and port in the URL, and that the server runs";
                (
                    StoreErrorKind::Unavailable,
                    format!("the database cannot be reached ({}); {advice}", error.kind()),
                )
            }
            Tls(_) => {
                let advice = "check its certificate, and the options for TLS in the URL";
                (StoreErrorKind::Unavailable, format!("no TLS connection to the server; {advice}"))
            }
            _ => (
                StoreErrorKind::Unavailable,
                "the connection ended before it was open; check the URL, and that the server runs".to_owned(),
            ),
        };
        let nameless = matches!(error, Io(_) | Tls(_)) || dialect == Dialect::Sqlite;
        Self { kind, detail, source: nameless.then_some(error) }
    }

    /// What kind of trouble it is.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// What is wrong and what to do, and the driver's error where it names nobody.
    pub(crate) fn into_parts(self) -> (StoreErrorKind, String, Option<sqlx::Error>) {
        (self.kind, self.detail, self.source)
    }
}

/// What a server that answered has against the connection.
fn refused(dialect: Dialect, error: &sqlx::Error) -> (StoreErrorKind, String) {
    let code = error.as_database_error().and_then(|error| dialect.code(error)).unwrap_or_default();
    let refusal = if dialect.is_access_denied(error) { Refusal::Login } else { meaning(dialect, &code) };
    let (kind, what, advice) = match refusal {
        Refusal::Login => (
            StoreErrorKind::Other,
            "the server refuses the user or its password",
            "check both in the URL, and whom the server lets in",
        ),
        Refusal::NoDatabase => (
            StoreErrorKind::Other,
            "the server has no database of this name",
            "create it, or check its name in the URL",
        ),
        Refusal::NoRight => (
            StoreErrorKind::Other,
            "the user may not connect to the database",
            "grant it the right, or check the URL",
        ),
        Refusal::Full => (
            StoreErrorKind::Unavailable,
            "the server has no connection left",
            "raise its limit, or have fewer nodes or `connections`",
        ),
        Refusal::NotNow => (
            StoreErrorKind::Unavailable,
            "the server takes no connections now",
            "it starts, stops or recovers; try again",
        ),
        Refusal::Other => {
            (StoreErrorKind::Unavailable, "the server refuses the connection", "its log says why")
        }
    };
    (kind, format!("{what} ({code}); {advice}"))
}

enum Refusal {
    Login,
    NoDatabase,
    NoRight,
    Full,
    NotNow,
    Other,
}

fn meaning(dialect: Dialect, code: &str) -> Refusal {
    match (dialect, code) {
        (Dialect::Postgres, "3D000") | (Dialect::MySql, "1049") => Refusal::NoDatabase,
        (Dialect::Postgres, "42501") => Refusal::NoRight,
        (Dialect::MySql, "1040" | "1203" | "1226") => Refusal::Full,
        (Dialect::MySql, "1053") => Refusal::NotNow,
        (Dialect::Postgres, code) if code.starts_with("53") => Refusal::Full,
        (Dialect::Postgres, code) if code.starts_with("57P") => Refusal::NotNow,
        _ => Refusal::Other,
    }
}
