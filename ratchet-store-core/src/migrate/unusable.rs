//! What a server, a database or a user lacks for a store to work, found out when a store is opened instead of with the first job.

use ratchet_api::StoreErrorKind;

/// Why a store cannot work, though the server answers and the tables fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The server repeats what another one writes.
    #[error("the server is a standby, which only reads; connect to the primary, or promote this one")]
    Standby,
    /// Transactions only read unless they say otherwise.
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
        /// What the server calls it.
        encoding: String,
    },
    /// The user may not do all that a store does.
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
    /// What kind of trouble it is. A server that only reads may write soon.
    pub const fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Standby | Self::ReadOnly => StoreErrorKind::Unavailable,
            Self::Encoding { .. } => StoreErrorKind::Unsupported,
            Self::NoGrant { .. } => StoreErrorKind::Other,
        }
    }
}
