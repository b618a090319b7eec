//! `mutants.lock`: the tests that catch each mutant, and the sources for which that was verified.
//!
//! A result is valid while its hash is: the mutant, the crate that it changes and the crate of the tests. So a run
//! tries what changed, a tenth of the rest drawn by the commit's hash, and what has not been verified for long.

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    bank::Mutant,
    committed,
    trees::{Trees, folder_of},
};

const FILE: &str = "mutants.lock";
const HEADER: &str = "\
# Which tests catch which mutant. Written by `cargo xtask tck --mutants`; commit it, do not edit it.
# `hash` covers the mutant and the source trees of the crate that it changes and of the crate that tests it;
# `verified` is the commit on which, or on top of which, it was tried last.
";
/// The number of commits after which an entry is tried again.
const MAX_AGE: usize = 20;
/// One in this many valid entries is tried again.
const SHARE: u8 = 10;

/// The result for one mutant that was caught.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) verified: String,
    /// The cases (`area::name`) and unit tests (`crate::path`) that failed; none if the suite hung or crashed.
    pub(crate) caught_by: Vec<String>,
}

/// The whole file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Lock {
    #[serde(default, rename = "mutant")]
    pub(crate) entries: Vec<Entry>,
}

impl Lock {
    /// The lock of this checkout; empty if there is none.
    pub(crate) fn read(workspace: &Path) -> Result<Self> {
        committed::read(workspace, FILE)
    }

    pub(crate) fn write(&self, workspace: &Path) -> Result<()> {
        committed::write(workspace, FILE, HEADER, self)
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Replaces the result of a mutant, and drops those that are no longer in the bank.
    pub(crate) fn replace(&mut self, bank: &[Mutant], name: &str, entry: Option<Entry>) {
        let is_known = |name: &str| bank.iter().any(|mutant| mutant.name == name);
        self.entries.retain(|old| is_known(&old.name) && old.name != name);
        self.entries.extend(entry);
        self.entries.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

/// The reason for which a mutant is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// It has no entry, or another hash.
    Changed,
    /// It has not been verified for [`MAX_AGE`] commits.
    Aged,
    /// The commit's hash drew it.
    Drawn,
    /// The caller asked for it.
    Asked,
}

/// The rules for which mutants are due.
pub(crate) struct Due<'a> {
    pub(crate) lock: &'a Lock,
    /// The number of commits since a commit; `None` if it is not part of the history.
    pub(crate) age: &'a dyn Fn(&str) -> Option<usize>,
    pub(crate) commit: &'a str,
}

impl Due<'_> {
    /// The reason for which a mutant with this hash is due; `None` if its entry is valid.
    pub(crate) fn reason(&self, name: &str, hash: &str) -> Option<Reason> {
        let Some(entry) = self.lock.entry(name).filter(|entry| entry.hash == hash) else {
            return Some(Reason::Changed);
        };
        if (self.age)(&entry.verified).is_none_or(|age| age >= MAX_AGE) {
            return Some(Reason::Aged);
        }
        draw(self.commit, name).is_multiple_of(SHARE).then_some(Reason::Drawn)
    }
}

/// The number that a commit draws for a name.
pub(crate) fn draw(commit: &str, name: &str) -> u8 {
    Sha256::new().chain_update(commit).chain_update(name).finalize()[0]
}

/// The current hash for an entry of this mutant.
pub(crate) fn hash(mutant: &Mutant, trees: &Trees<'_>) -> Result<String> {
    let definition = mutant.definition();
    trees.hash(&[&definition], &[folder_of(&mutant.file), mutant.suite.tests_of()])
}

/// The history of this checkout, as far as ages need it.
#[derive(Debug)]
pub(crate) struct History {
    /// The newest commit; empty without a history.
    pub(crate) head: String,
    ages: BTreeMap<String, usize>,
}

impl History {
    pub(crate) fn of(workspace: &Path) -> Self {
        let git = |args: &[&str]| {
            let out = Command::new("git").args(args).current_dir(workspace).output().ok();
            let out = out.filter(|out| out.status.success()).map(|out| out.stdout).unwrap_or_default();
            String::from_utf8_lossy(&out).trim().to_owned()
        };
        // Far more than an entry can be old.
        let log = git(&["rev-list", "--max-count=1000", "--abbrev-commit", "--abbrev=12", "HEAD"]);
        let ages = log.lines().enumerate().map(|(age, commit)| (commit.to_owned(), age)).collect();
        Self { head: log.lines().next().unwrap_or_default().to_owned(), ages }
    }

    /// The number of commits since `commit`.
    pub(crate) fn age(&self, commit: &str) -> Option<usize> {
        self.ages.get(commit).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn entry(name: &str, hash: &str, verified: &str) -> Entry {
        Entry {
            name: name.into(),
            hash: hash.into(),
            verified: verified.into(),
            caught_by: vec!["claim::a".into()],
        }
    }

    fn age(commit: &str) -> Option<usize> {
        commit.strip_prefix("ago").and_then(|age| age.parse().ok())
    }

    #[test]
    fn what_changed_or_is_old_or_of_another_history_is_due() {
        let lock = Lock {
            entries: vec![
                entry("a", "1", "ago19"),
                entry("old", "1", "ago20"),
                entry("lost", "1", "rebased"),
            ],
        };
        // This commit draws none of them.
        let due = Due { lock: &lock, age: &age, commit: "c0" };
        assert_eq!(due.reason("a", "1"), None);
        assert_eq!(due.reason("a", "2"), Some(Reason::Changed));
        assert_eq!(due.reason("new", "1"), Some(Reason::Changed));
        assert_eq!(due.reason("old", "1"), Some(Reason::Aged));
        assert_eq!(due.reason("lost", "1"), Some(Reason::Aged));
    }

    #[test]
    fn commits_draw_about_a_tenth_and_in_time_all() {
        let names: Vec<String> = (0..500).map(|n| format!("mutant-{n}")).collect();
        let lock = Lock { entries: names.iter().map(|name| entry(name, "1", "ago0")).collect() };
        let drawn = |commit: &str| -> Vec<&String> {
            let due = Due { lock: &lock, age: &age, commit };
            names.iter().filter(|name| due.reason(name, "1") == Some(Reason::Drawn)).collect()
        };
        let first = drawn("first");
        assert_eq!(first, drawn("first"));
        assert_ne!(first, drawn("second"));
        assert!((25..100).contains(&first.len()), "{}", first.len());
        let commits: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let all: std::collections::BTreeSet<&String> =
            commits.iter().flat_map(|commit| drawn(commit)).collect();
        assert_eq!(all.len(), names.len());
    }

    #[test]
    fn a_run_replaces_what_it_tried_and_keeps_the_rest() {
        let bank = super::super::tests::bank(&["a", "b", "c"]);
        let mut lock =
            Lock { entries: ["a", "b", "c", "gone"].map(|name| entry(name, "1", "ago1")).to_vec() };
        lock.replace(&bank, "a", Some(entry("a", "2", "ago0")));
        // The mutant was tried and missed.
        lock.replace(&bank, "b", None);
        assert_eq!(lock.entries, [entry("a", "2", "ago0"), entry("c", "1", "ago1")]);
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let folder = std::env::temp_dir().join(format!("xtask-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(Lock::read(&folder).unwrap().entries, []);
        let lock = Lock { entries: vec![entry("a", "1", "ago1")] };
        lock.write(&folder).unwrap();
        assert_eq!(Lock::read(&folder).unwrap().entries, lock.entries);
        fs::remove_dir_all(folder).unwrap();
    }
}
