//! Compares the state that a database records with the scripts that a program has. No I/O here.

use std::collections::BTreeSet;

use ratchet_api::Timestamp;

use super::script::checksum;
use super::{MigrationRefusal, Script, Scripts, Version};

/// A row of `ratchet_schema_version`.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) applied_at: Timestamp,
    pub(crate) checksum: Option<String>,
}

impl Recorded {
    /// The version number; `None` if the text is not one, so no program of ours wrote it.
    pub(crate) fn number(&self) -> Option<Version> {
        self.version.parse().ok()
    }
}

/// The progress of a script on a server that cannot undo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Midway {
    pub(crate) version: String,
    /// How many statements are done.
    pub(crate) done: usize,
    /// Whether the next statement was sent and its result is not known.
    pub(crate) in_flight: bool,
    /// The checksum of the statements that are done.
    pub(crate) checksum: String,
}

/// The state that is found in a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Every table, as the catalogue names it.
    tables: BTreeSet<String>,
    /// Whether names that differ only in capital letters are the same name.
    folds_case: bool,
    pub(crate) recorded: Vec<Recorded>,
    pub(crate) midway: Option<Midway>,
}

impl Survey {
    pub(crate) fn new(tables: Vec<String>, folds_case: bool) -> Self {
        let tables = tables.into_iter().map(|table| if folds_case { table.to_lowercase() } else { table });
        Self { tables: tables.collect(), folds_case, ..Self::default() }
    }

    pub(crate) fn has_table(&self, name: &str) -> bool {
        if self.folds_case { self.tables.contains(&name.to_lowercase()) } else { self.tables.contains(name) }
    }
}

/// The scripts that are still to be applied, in order, if they fit the state of the database.
///
/// `made` are the tables that the scripts make.
pub(crate) fn pending<'s>(
    scripts: &'s Scripts,
    made: &BTreeSet<String>,
    survey: &Survey,
) -> Result<Vec<&'s Script>, MigrationRefusal> {
    for row in &survey.recorded {
        check(scripts, row)?;
    }
    let applied: BTreeSet<Version> = survey.recorded.iter().filter_map(Recorded::number).collect();
    let pending: Vec<&Script> = scripts.iter().filter(|script| !applied.contains(&script.version)).collect();
    match (applied.last(), pending.first()) {
        (Some(newest), Some(first)) if first.version < *newest => {
            return Err(MigrationRefusal::OutOfOrder { version: first.version, newest: *newest });
        }
        (None, _) if survey.midway.is_none() => refuse_untracked(made, survey)?,
        _ => {}
    }
    if let Some(midway) = &survey.midway {
        match pending.first() {
            Some(first) if midway.version == first.version.to_string() => {}
            _ => return Err(unknown(scripts, &midway.version)),
        }
    }
    Ok(pending)
}

/// Refuses tables of ours without a recorded version: it is unknown what made them.
fn refuse_untracked(made: &BTreeSet<String>, survey: &Survey) -> Result<(), MigrationRefusal> {
    let tables: Vec<String> = made.iter().filter(|name| survey.has_table(name)).cloned().collect();
    if tables.is_empty() { Ok(()) } else { Err(MigrationRefusal::Untracked { tables }) }
}

fn check(scripts: &Scripts, row: &Recorded) -> Result<(), MigrationRefusal> {
    let Some(script) = row.number().and_then(|version| scripts.get(version)) else {
        return Err(unknown(scripts, &row.version));
    };
    let (version, now) = (script.version, script.checksum());
    match row.checksum.as_deref().map(str::trim) {
        None | Some("") => Err(MigrationRefusal::NoChecksum { version, expected: now }),
        Some(recorded) if recorded != now => {
            Err(MigrationRefusal::Changed { version, recorded: recorded.to_owned(), now })
        }
        Some(_) => Ok(()),
    }
}

fn unknown(scripts: &Scripts, version: &str) -> MigrationRefusal {
    let newest = scripts.newest();
    match version.parse::<Version>() {
        Ok(number) if newest.is_none_or(|newest| number > newest) => {
            MigrationRefusal::Newer { version: version.to_owned(), newest }
        }
        _ => MigrationRefusal::Unknown { version: version.to_owned() },
    }
}

/// The number of statements to skip because they are done.
pub(crate) fn resume(
    script: &Script,
    statements: &[&str],
    midway: Option<&Midway>,
) -> Result<usize, MigrationRefusal> {
    let Some(midway) = midway else { return Ok(0) };
    match statements.get(..midway.done) {
        Some(done) if checksum(done) == midway.checksum => Ok(midway.done),
        _ => Err(MigrationRefusal::ChangedMidway { version: script.version, statements: midway.done }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts(versions: &[u32]) -> Scripts {
        let names: Vec<String> = versions.iter().map(|version| format!("V{version}__step.sql")).collect();
        let files: Vec<(&str, &'static str)> = names.iter().map(|name| (name.as_str(), "SELECT 1")).collect();
        Scripts::new(&files).unwrap()
    }

    fn row(version: &str, checksum: Option<&str>) -> Recorded {
        Recorded {
            version: version.to_owned(),
            description: "step".to_owned(),
            applied_at: Timestamp::from_millis(0),
            checksum: checksum.map(str::to_owned),
        }
    }

    fn good(version: &str) -> Recorded {
        row(version, Some(&scripts(&[1]).iter().next().unwrap().checksum()))
    }

    fn made() -> BTreeSet<String> {
        ["scheduler_job".to_owned(), "idx".to_owned()].into()
    }

    fn judge(versions: &[u32], survey: &Survey) -> Result<Vec<u32>, MigrationRefusal> {
        let scripts = scripts(versions);
        pending(&scripts, &made(), survey).map(|list| list.iter().map(|script| script.version.0).collect())
    }

    fn recorded(rows: Vec<Recorded>) -> Survey {
        Survey { recorded: rows, ..Survey::new(made().into_iter().collect(), false) }
    }

    // shows: S177
    #[test]
    fn only_what_is_not_recorded_is_pending() {
        assert_eq!(judge(&[1, 2, 3], &Survey::default()), Ok(vec![1, 2, 3]));
        assert_eq!(judge(&[1, 2, 3], &recorded(vec![good("001")])), Ok(vec![2, 3]));
        assert_eq!(judge(&[1, 2], &recorded(vec![good("001"), good("2")])), Ok(vec![]));
    }

    // shows: S177
    #[test]
    fn what_is_not_known_is_refused() {
        let version = Version(1);
        let expected = scripts(&[1]).iter().next().unwrap().checksum();
        let newest = Some(Version(2));
        for (rows, refusal) in [
            (vec![good("001"), good("003")], MigrationRefusal::Newer { version: "003".into(), newest }),
            (vec![good("000")], MigrationRefusal::Unknown { version: "000".into() }),
            (vec![good("1.1")], MigrationRefusal::Unknown { version: "1.1".into() }),
            (vec![row("001", None)], MigrationRefusal::NoChecksum { version, expected: expected.clone() }),
            (
                vec![row("001", Some(" "))],
                MigrationRefusal::NoChecksum { version, expected: expected.clone() },
            ),
            (
                vec![row("001", Some("x"))],
                MigrationRefusal::Changed { version, recorded: "x".into(), now: expected },
            ),
            (vec![good("002")], MigrationRefusal::OutOfOrder { version, newest: Version(2) }),
        ] {
            assert_eq!(judge(&[1, 2], &recorded(rows)), Err(refusal));
        }
    }

    #[test]
    fn tables_of_ours_without_a_version_are_refused_and_those_of_others_are_not() {
        let with = |names: &[&str], folds_case| {
            Survey::new(names.iter().map(|name| (*name).to_owned()).collect(), folds_case)
        };
        let refusal = MigrationRefusal::Untracked { tables: vec!["scheduler_job".into()] };
        assert_eq!(judge(&[1], &with(&["scheduler_job", "users"], false)), Err(refusal.clone()));
        assert_eq!(judge(&[1], &with(&["SCHEDULER_JOB"], true)), Err(refusal));
        assert_eq!(judge(&[1], &with(&["SCHEDULER_JOB"], false)), Ok(vec![1]));
        assert_eq!(judge(&[1], &with(&["users", "ratchet_schema_version"], true)), Ok(vec![1]));
    }

    #[test]
    fn a_script_that_stopped_midway_is_pending_and_its_tables_are_expected() {
        let midway = |version: &str| Survey {
            midway: Some(Midway {
                version: version.into(),
                done: 1,
                in_flight: true,
                checksum: String::new(),
            }),
            ..recorded(Vec::new())
        };
        assert_eq!(judge(&[1, 2], &midway("001")), Ok(vec![1, 2]));
        let newer = MigrationRefusal::Newer { version: "003".into(), newest: Some(Version(2)) };
        assert_eq!(judge(&[1, 2], &midway("003")), Err(newer));
        assert_eq!(judge(&[1, 2], &midway("002")), Err(MigrationRefusal::Unknown { version: "002".into() }));
    }

    #[test]
    fn a_script_goes_on_behind_what_is_done_if_that_is_still_the_same() {
        let scripts = scripts(&[1]);
        let script = scripts.iter().next().unwrap();
        let midway =
            Midway { version: "001".into(), done: 2, in_flight: false, checksum: checksum(&["a", "b"]) };
        let go_on = |statements: &[&str]| resume(script, statements, Some(&midway));
        let changed = MigrationRefusal::ChangedMidway { version: Version(1), statements: 2 };
        assert_eq!(resume(script, &["a"], None), Ok(0));
        assert_eq!(go_on(&["a", "b", "mended"]), Ok(2));
        assert_eq!(go_on(&["a", "x", "c"]), Err(changed.clone()));
        assert_eq!(go_on(&["ab"]), Err(changed));
    }
}
