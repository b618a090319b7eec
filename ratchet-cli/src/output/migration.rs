//! Output of schema versions.

use std::fmt;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use ratchet_store_core::migrate::{State, Status};
use serde::Serialize;

use super::{Instant, Table};

/// The result of a migration.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Applied {
    /// The versions that it applied; null if the store has no versions.
    pub(crate) applied: Option<Vec<String>>,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.applied.as_ref().map(Vec::len) {
            None => writeln!(f, "The collections and indexes are there."),
            Some(0) => writeln!(f, "Nothing to do: the schema is up to date."),
            Some(1) => writeln!(f, "The schema is up to date: 1 version was applied."),
            Some(many) => writeln!(f, "The schema is up to date: {many} versions were applied."),
        }
    }
}

/// The versions of the tables, compared with those of this program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Versions {
    /// Whether a store can use the tables.
    pub(crate) current: bool,
    /// The reason why a migration would be refused.
    refusal: Option<String>,
    versions: Vec<Version>,
}

#[derive(Clone, Debug, Serialize)]
struct Version {
    version: String,
    description: String,
    /// `applied`, `pending` or `unknown`.
    state: &'static str,
    applied_at: Option<Instant>,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Versions {
    pub(crate) fn of(status: &Status) -> Self {
        let version = |entry: &ratchet_store_core::migrate::Entry| {
            let (state, applied_at) = match entry.state {
                State::Applied(at) => ("applied", Some(at.into())),
                State::Pending => ("pending", None),
                State::Unknown(at) => ("unknown", Some(at.into())),
                _ => ("unknown", None),
            };
            let (version, description) = (entry.version.clone(), entry.description.clone());
            Version { version, description, state, applied_at }
        };
        Self {
            current: status.is_current(),
            refusal: status.refusal.as_ref().map(ToString::to_string),
            versions: status.entries.iter().map(version).collect(),
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["VERSION", "STATE", "APPLIED AT", "DESCRIPTION"]);
        for version in &self.versions {
            let at = version.applied_at.map(|at| at.to_string()).unwrap_or_default();
            // A version has leading zeros, so it is text.
            table.row([
                format!("V{}", version.version),
                version.state.to_owned(),
                at,
                version.description.clone(),
            ]);
        }
        write!(f, "{table}")?;
        match &self.refusal {
            Some(refusal) => writeln!(f, "\nA migration would be refused: {refusal}"),
            None if self.current => writeln!(f, "\nThe schema is up to date."),
            None => writeln!(f, "\nRun `ratchet migrate` to apply what is pending."),
        }
    }
}
