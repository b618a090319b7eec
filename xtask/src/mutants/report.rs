//! What is known about the mutants: `target/mutants.json`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    bank::Mutant,
    scratch::{CRATES, TEXTS},
    worker::Fate,
};

/// The results of the last runs over one state of the sources.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// A digest of everything that the results depend on.
    pub(crate) inputs: String,
    /// How many mutants there are; fewer results mean that not all were tried.
    pub(crate) total: usize,
    pub(crate) mutants: Vec<Entry>,
}

/// One mutant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) rule: String,
    pub(crate) verdict: Verdict,
    /// The cases (`area::name`) and unit tests (`crate::path`) that failed.
    pub(crate) caught_by: Vec<String>,
}

/// In one word, how a mutant fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Caught,
    Hung,
    Crashed,
    Missed,
    Broken,
}

impl Entry {
    pub(crate) fn new(mutant: &Mutant, fate: &Fate) -> Self {
        let (verdict, caught_by) = match fate {
            Fate::Caught(by) => (Verdict::Caught, by.clone()),
            Fate::Hung(by) => (Verdict::Hung, by.clone()),
            Fate::Crashed => (Verdict::Crashed, Vec::new()),
            Fate::Missed => (Verdict::Missed, Vec::new()),
            Fate::Broken(_) => (Verdict::Broken, Vec::new()),
        };
        Self { name: mutant.name.clone(), rule: mutant.rule.clone(), verdict, caught_by }
    }

    pub(crate) const fn is_caught(&self) -> bool {
        matches!(self.verdict, Verdict::Caught | Verdict::Hung | Verdict::Crashed)
    }
}

impl Report {
    fn path(workspace: &Path) -> PathBuf {
        workspace.join("target/mutants.json")
    }

    /// The last results, if there are any.
    pub(crate) fn read(workspace: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::path(workspace)).ok()?).ok()
    }

    pub(crate) fn write(&self, workspace: &Path) -> Result<()> {
        fs::create_dir_all(workspace.join("target"))?;
        Ok(fs::write(Self::path(workspace), serde_json::to_vec_pretty(self)?)?)
    }

    /// Whether every mutant was tried.
    pub(crate) fn is_complete(&self) -> bool {
        self.mutants.len() == self.total
    }

    /// Takes new results in; those of other sources are dropped.
    pub(crate) fn merge(&mut self, inputs: String, total: usize, entries: Vec<Entry>) {
        if self.inputs != inputs {
            self.mutants.clear();
        }
        self.mutants.retain(|old| !entries.iter().any(|new| new.name == old.name));
        self.mutants.extend(entries);
        self.mutants.sort_by(|a, b| a.name.cmp(&b.name));
        (self.inputs, self.total) = (inputs, total);
    }
}

/// A digest of everything that the results depend on; the banks lie in these crates.
pub(crate) fn inputs(workspace: &Path) -> Result<String> {
    let mut files = vec![PathBuf::from("Cargo.lock"), PathBuf::from("Cargo.toml")];
    for folder in CRATES.into_iter().chain([TEXTS]) {
        collect(workspace, Path::new(folder), &mut files)?;
    }
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        digest.update(file.as_os_str().as_encoded_bytes());
        digest.update(Sha256::digest(fs::read(workspace.join(&file))?));
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn collect(workspace: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(workspace.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(workspace, &path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs" || e == "toml" || e == "sql") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, verdict: Verdict) -> Entry {
        Entry { name: name.into(), rule: "a rule".into(), verdict, caught_by: vec![] }
    }

    #[test]
    fn results_over_the_same_sources_add_up() {
        let mut report = Report::default();
        report.merge("one".into(), 2, vec![entry("b", Verdict::Missed), entry("a", Verdict::Caught)]);
        report.merge("one".into(), 2, vec![entry("b", Verdict::Caught)]);
        assert_eq!(report.mutants, [entry("a", Verdict::Caught), entry("b", Verdict::Caught)]);
    }

    #[test]
    fn results_over_other_sources_are_dropped() {
        let mut report = Report::default();
        report.merge("one".into(), 2, vec![entry("a", Verdict::Caught)]);
        report.merge("two".into(), 3, vec![entry("b", Verdict::Hung)]);
        assert_eq!(report.mutants, [entry("b", Verdict::Hung)]);
        assert_eq!((report.inputs.as_str(), report.total), ("two", 3));
    }

    #[test]
    fn hanging_and_crashing_count_as_caught() {
        let caught = |verdict| entry("a", verdict).is_caught();
        assert!(caught(Verdict::Caught) && caught(Verdict::Hung) && caught(Verdict::Crashed));
        assert!(!caught(Verdict::Missed) && !caught(Verdict::Broken));
    }
}
