//! The result of `SchemaMigrator::status`.

use std::fmt;

use ratchet_api::Timestamp;

use super::history::{Recorded, Survey};
use super::{MigrationRefusal, Scripts, Version};

/// A schema compared with the scripts that a program knows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Every script and every recorded version, in order.
    pub entries: Vec<Entry>,
    /// The reason why a migration would be refused.
    pub refusal: Option<MigrationRefusal>,
}

/// A script or a recorded version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The version as it is recorded, or would be.
    pub version: String,
    /// The description of the script.
    pub description: String,
    /// Whether it is applied.
    pub state: State,
}

/// Whether a version is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Recorded, with a script of that version.
    Applied(Timestamp),
    /// Not recorded.
    Pending,
    /// Recorded, but no script is known for it.
    Unknown(Timestamp),
}

impl Status {
    pub(super) fn new(scripts: &Scripts, survey: &Survey, refusal: Option<MigrationRefusal>) -> Self {
        let is_known = |row: &Recorded| row.number().is_some_and(|version| scripts.get(version).is_some());
        let recorded = survey.recorded.iter().map(|row| Entry {
            version: row.version.clone(),
            description: row.description.clone(),
            state: if is_known(row) {
                State::Applied(row.applied_at)
            } else {
                State::Unknown(row.applied_at)
            },
        });
        let is_recorded = |version| survey.recorded.iter().any(|row| row.number() == Some(version));
        let pending = scripts.iter().filter(|script| !is_recorded(script.version)).map(|script| Entry {
            version: script.version.to_string(),
            description: script.description.clone(),
            state: State::Pending,
        });
        let mut entries: Vec<Entry> = recorded.chain(pending).collect();
        // Versions that are not numbers come last.
        entries.sort_by_key(|entry| {
            (
                entry.version.parse::<Version>().map_or(u64::MAX, |version| version.0.into()),
                entry.version.clone(),
            )
        });
        Self { entries, refusal }
    }

    /// Whether a store can work on the schema: nothing is pending and nothing is wrong.
    pub fn is_current(&self) -> bool {
        self.refusal.is_none() && self.entries.iter().all(|entry| matches!(entry.state, State::Applied(_)))
    }

    /// The versions that are not applied.
    pub fn pending(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.state == State::Pending)
    }
}

impl fmt::Display for Status {
    /// Writes a line for each version, and one for the refusal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Entry { version, description, state } in &self.entries {
            let state = match state {
                State::Applied(at) => format!("applied {at}"),
                State::Pending => "pending".to_owned(),
                State::Unknown(at) => format!("unknown, applied {at}"),
            };
            writeln!(f, "{version}  {description}  {state}")?;
        }
        match &self.refusal {
            Some(refusal) => writeln!(f, "refused: {refusal}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(version: &str) -> Recorded {
        let applied_at = Timestamp::from_millis(0);
        Recorded { version: version.into(), description: "step".into(), applied_at, checksum: None }
    }

    #[test]
    fn applied_pending_and_unknown_versions_are_listed_in_order() {
        let scripts = Scripts::new(&[("V1__a.sql", ""), ("V2__b.sql", ""), ("V10__c.sql", "")]).unwrap();
        let mut survey = Survey::default();
        survey.recorded = vec![row("x"), row("011"), row("001")];
        let status = Status::new(&scripts, &survey, None);
        let at = Timestamp::from_millis(0);
        let states: Vec<_> =
            status.entries.iter().map(|entry| (entry.version.as_str(), entry.state)).collect();
        assert_eq!(
            states,
            [
                ("001", State::Applied(at)),
                ("002", State::Pending),
                ("010", State::Pending),
                ("011", State::Unknown(at)),
                ("x", State::Unknown(at)),
            ]
        );
        assert!(!status.is_current());
        assert_eq!(status.pending().count(), 2);
    }
}
