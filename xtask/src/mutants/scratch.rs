//! A copy of the few crates that a mutant touches, with a target folder of its own.
//!
//! Copies are kept between runs and only changed files are written, so that cargo builds no more than what
//! a mutant changes.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use toml::{Table, Value};

/// The crates that the suites need.
pub(crate) const CRATES: [&str; 8] = [
    "ratchet-api",
    "ratchet-core",
    "ratchet-macros",
    "ratchet-store-core",
    "ratchet-store-memory",
    "ratchet-store-sqlite",
    "ratchet-suite",
    "ratchet-tck",
];
/// Crates that only have to be there, because a manifest names them.
const NAMED: [&str; 2] = ["ratchet-servers", "ratchet-store-postgres"];
/// What tests read beside the crates.
pub(crate) const TEXTS: &str = "ddl";
const VERBATIM: [&str; 2] = ["Cargo.lock", "rust-toolchain.toml"];

/// One copy.
#[derive(Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
}

impl Scratch {
    /// The copy with this number.
    pub(crate) fn new(workspace: &Path, number: usize) -> Self {
        Self { root: workspace.join("target/mutants").join(number.to_string()) }
    }

    /// The root of the copied workspace.
    pub(crate) fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// Where cargo builds it.
    pub(crate) fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// Brings the copy up to date.
    pub(crate) fn refresh(&self, workspace: &Path) -> Result<()> {
        let sources = self.sources();
        for name in CRATES.into_iter().chain(NAMED).chain([TEXTS]) {
            mirror(&workspace.join(name), &sources.join(name))?;
        }
        let root = fs::read_to_string(workspace.join("Cargo.toml"))?;
        write_if_changed(&sources.join("Cargo.toml"), manifest(&root)?.as_bytes())?;
        for name in VERBATIM {
            write_if_changed(&sources.join(name), &fs::read(workspace.join(name))?)?;
        }
        Ok(())
    }

    /// Takes over what another copy has built, so that dependencies are built once.
    pub(crate) fn take_over_build(&self, other: &Self) -> Result<()> {
        if self.target().exists() {
            return Ok(());
        }
        let status = std::process::Command::new("cp")
            .args(["-a", "--"])
            .args([other.target(), self.target()])
            .status()
            .context("cannot run cp")?;
        anyhow::ensure!(status.success(), "cannot copy {}", other.target().display());
        Ok(())
    }
}

/// The root manifest, reduced to the crates that are copied and tuned for short builds.
fn manifest(root: &str) -> Result<String> {
    let mut root: Table = root.parse().context("the root Cargo.toml")?;
    let workspace = root.get_mut("workspace").and_then(Value::as_table_mut).context("no [workspace]")?;
    workspace.insert("members".into(), CRATES.map(Value::from).to_vec().into());
    let profile: Table = "[dev]\ndebug = 0\nincremental = true".parse()?;
    root.insert("profile".into(), profile.into());
    Ok(toml::to_string(&root)?)
}

/// Makes `to` hold what `from` holds.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut kept = BTreeSet::new();
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        kept.insert(entry.file_name());
        if entry.file_type()?.is_dir() {
            mirror(&entry.path(), &target)?;
        } else {
            write_if_changed(&target, &fs::read(entry.path())?)?;
        }
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !kept.contains(&entry.file_name()) {
            let gone = entry.path();
            if entry.file_type()?.is_dir() { fs::remove_dir_all(gone)? } else { fs::remove_file(gone)? }
        }
    }
    Ok(())
}

/// Leaves a file alone that is as it should be: cargo goes by the time of change.
pub(crate) fn write_if_changed(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_only_what_is_copied_and_keeps_the_versions() {
        let root = "[workspace]\nresolver = \"3\"\nmembers = [\"ratchet-api\", \"xtask\"]\n\
                    [workspace.dependencies]\nserde = \"1\"\n[profile.dev]\ndebug = 1\n";
        let reduced: Table = manifest(root).unwrap().parse().unwrap();
        let members = reduced["workspace"]["members"].as_array().unwrap();
        assert_eq!(members.iter().filter_map(Value::as_str).collect::<Vec<_>>(), CRATES);
        assert_eq!(reduced["workspace"]["dependencies"]["serde"].as_str(), Some("1"));
        assert_eq!(reduced["profile"]["dev"]["debug"].as_integer(), Some(0));
    }

    #[test]
    fn a_mirror_writes_what_changed_and_removes_what_is_gone() {
        let folder = std::env::temp_dir().join(format!("xtask-mirror-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("src")).unwrap();
        fs::write(from.join("src/a.rs"), "a").unwrap();
        fs::write(from.join("src/b.rs"), "b").unwrap();
        mirror(&from, &to).unwrap();
        let touched = |name: &str| fs::metadata(to.join(name)).unwrap().modified().unwrap();
        let before = touched("src/a.rs");
        fs::write(from.join("src/a.rs"), "a").unwrap();
        fs::remove_file(from.join("src/b.rs")).unwrap();
        fs::write(to.join("src/c.rs"), "left over").unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(touched("src/a.rs"), before);
        assert!(!to.join("src/b.rs").exists() && !to.join("src/c.rs").exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
