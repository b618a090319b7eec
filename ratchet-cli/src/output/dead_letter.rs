//! Output of dead letters.

use std::fmt;

use ratchet_api::store::DeadLetterGroup;
use ratchet_api::{Fingerprint, JobId, TargetName};
use serde::Serialize;

use super::{Instant, Table};

/// Dead letters, grouped by fingerprint.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    #[serde(skip)]
    now: Instant,
}

#[derive(Clone, Debug, Serialize)]
struct Group {
    fingerprint: Fingerprint,
    count: u64,
    target: TargetName,
    /// The error of the newest one.
    error: String,
    newest: JobId,
    last_at: Instant,
}

impl Groups {
    pub(crate) fn of(groups: Vec<DeadLetterGroup>, now: Instant) -> Self {
        let group = |group: DeadLetterGroup| Group {
            fingerprint: group.fingerprint,
            count: group.count,
            target: group.target,
            error: group.error,
            newest: group.newest,
            last_at: group.last_at.into(),
        };
        Self { groups: groups.into_iter().map(group).collect(), now }
    }
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return writeln!(f, "There are no dead letters.");
        }
        let mut table = Table::new(["FINGERPRINT", "COUNT", "TARGET", "NEWEST JOB", "LAST", "ERROR"]);
        for group in &self.groups {
            table.row([
                group.fingerprint.as_str().to_owned(),
                group.count.to_string(),
                group.target.to_string(),
                group.newest.to_string(),
                group.last_at.seen_from(self.now),
                group.error.clone(),
            ]);
        }
        write!(f, "{table}")
    }
}
