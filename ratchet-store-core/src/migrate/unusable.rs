//! Shortcomings of a server, a database or a user that keep a store from working. They are found when a store is opened
//! instead of with the first job.

use ratchet_api::StoreErrorKind;

/// The reason why a store cannot work although the server answers and the tables fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The server is a standby: it replicates another one.
    #[error("the server is a standby, which only reads; connect to the primary, or promote this one")]
    Standby,
    /// Transactions are read-only by default.
    #[error(
        "the server only reads; switch `default_transaction_read_only` off for the server, the database and the user"
    )]
    ReadOnly,
    /// The database cannot hold every text.
    #[error(
        "the database has the encoding {encoding}, which cannot hold every text; make one with `CREATE DATABASE … \
         ENCODING 'UTF8' TEMPLATE template0`"
    )]
    Encoding {
        /// The server's name for the encoding.
        encoding: String,
    },
    /// The user lacks rights that a store needs.
    #[error(
        "the user lacks rights: {}; GRANT SELECT, INSERT, UPDATE, DELETE on the tables, and SELECT on `vw_jobs`",
        lacking.join(", ")
    )]
    NoGrant {
        /// Each is a right and the table that it is missing on.
        lacking: Vec<String>,
    },
}

impl Unusable {
    /// The kind of the error. A read-only server may accept writes soon.
    pub const fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Standby | Self::ReadOnly => StoreErrorKind::Unavailable,
            Self::Encoding { .. } => StoreErrorKind::Unsupported,
            Self::NoGrant { .. } => StoreErrorKind::Other,
        }
    }
}
