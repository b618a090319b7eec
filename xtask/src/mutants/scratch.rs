//! A copy of the few crates that the mutants of a suite need, with a target folder of its own.
//!
//! Copies are kept between runs and only changed files are written, so that cargo rebuilds only what a mutant changes.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use toml::{Table, Value};

/// The crates that the suites need.
const CRATES: [&str; 9] = [
    "ratchet-api",
    "ratchet-core",
    "ratchet-macros",
    "ratchet-store-core",
    "ratchet-store-memory",
    "ratchet-store-mongodb",
    "ratchet-store-sqlite",
    "ratchet-suite",
    "ratchet-tck",
];
/// Crates that must exist only because a manifest names them.
const NAMED: [&str; 2] = ["ratchet-servers", "ratchet-store-postgres"];
/// The crate that enables the features of the whole workspace: with it, cargo reuses the dependencies that have been
/// built already. Only its manifest is copied.
const FEATURES: &str = "xtask";
/// Files that tests read beside the crates.
const TEXTS: &str = "ddl";
/// The subfolder of a target folder with libraries, and the subfolders with cargo's records about them.
const LIBRARIES: &str = "deps";
const KNOWLEDGE: [&str; 2] = [".fingerprint", "build"];
const VERBATIM: [&str; 2] = ["Cargo.lock", "rust-toolchain.toml"];

/// One copy of the workspace.
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

    /// The target folder of the copy.
    pub(crate) fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// Brings the copy up to date.
    pub(crate) fn refresh(&self, workspace: &Path) -> Result<()> {
        let sources = self.sources();
        for name in CRATES.into_iter().chain(NAMED).chain([TEXTS]) {
            mirror(&workspace.join(name), &sources.join(name))?;
        }
        let features = Path::new(FEATURES).join("Cargo.toml");
        write_if_changed(&sources.join(&features), &fs::read(workspace.join(features))?)?;
        write_if_changed(&sources.join(FEATURES).join("src/main.rs"), b"fn main() {}\n")?;
        let root = fs::read_to_string(workspace.join("Cargo.toml"))?;
        write_if_changed(&sources.join("Cargo.toml"), manifest(&root)?.as_bytes())?;
        for name in VERBATIM {
            write_if_changed(&sources.join(name), &fs::read(workspace.join(name))?)?;
        }
        Ok(())
    }

    /// Takes over the build of another target folder, so that dependencies are not built again.
    ///
    /// Libraries are hard-linked, not copied: the compiler never writes into an existing one, it puts a new file in its
    /// place. Cargo's records are copied: cargo writes into these files, and a shared one would tell one folder that a
    /// library is up to date which the other has built.
    pub(crate) fn take_over_build(&self, other: &Path) -> Result<()> {
        const PROFILE: &str = "debug";
        let (from, to) = (other.join(PROFILE), self.target().join(PROFILE));
        if self.target().exists() || !from.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(to.join(LIBRARIES))?;
        for part in KNOWLEDGE.map(|part| from.join(part)).iter().filter(|part| part.is_dir()) {
            let status = Command::new("cp").args(["-a", "--"]).arg(part).arg(&to).status();
            anyhow::ensure!(status.context("cannot run cp")?.success(), "cannot copy {}", part.display());
        }
        for entry in fs::read_dir(from.join(LIBRARIES))? {
            let file = entry?.path();
            if file.extension().is_some_and(|e| e == "rlib" || e == "rmeta" || e == "so") {
                let name = file.file_name().unwrap_or_default();
                fs::hard_link(&file, to.join(LIBRARIES).join(name))
                    .with_context(|| format!("cannot link {}", file.display()))?;
            }
        }
        Ok(())
    }
}

/// The root manifest, reduced to the crates that are copied and tuned for short builds.
fn manifest(root: &str) -> Result<String> {
    let mut root: Table = root.parse().context("the root Cargo.toml")?;
    let workspace = root.get_mut("workspace").and_then(Value::as_table_mut).context("no [workspace]")?;
    let members: Vec<Value> = CRATES.into_iter().chain([FEATURES]).map(Value::from).collect();
    workspace.insert("members".into(), members.into());
    let dev = root.get_mut("profile").and_then(|profile| profile.get_mut("dev"));
    let dev = dev.and_then(Value::as_table_mut).context("no [profile.dev]")?;
    // Only for our own crates: dependencies have no debug information anyway, and stay as they are built already.
    dev.insert("debug".into(), 0.into());
    Ok(toml::to_string(&root)?)
}

/// Makes the contents of `to` equal to those of `from`.
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

/// Writes a file only if its content changes: cargo goes by the modification time.
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
        let copied: Vec<&str> = CRATES.into_iter().chain([FEATURES]).collect();
        assert_eq!(members.iter().filter_map(Value::as_str).collect::<Vec<_>>(), copied);
        assert_eq!(reduced["workspace"]["dependencies"]["serde"].as_str(), Some("1"));
        assert_eq!(reduced["profile"]["dev"]["debug"].as_integer(), Some(0));
    }

    #[test]
    fn a_build_is_taken_over_once_and_without_its_lock() {
        let folder = std::env::temp_dir().join(format!("xtask-build-{}", std::process::id()));
        let built = folder.join("target");
        fs::create_dir_all(built.join("debug/deps")).unwrap();
        fs::create_dir_all(built.join("debug/.fingerprint/a")).unwrap();
        fs::write(built.join("debug/deps/liba.rlib"), "a").unwrap();
        fs::write(built.join("debug/.fingerprint/a/lib-a"), "known").unwrap();
        fs::write(built.join("debug/.cargo-lock"), "").unwrap();
        let scratch = Scratch::new(&folder, 0);
        scratch.take_over_build(&folder.join("nowhere")).unwrap();
        assert!(!scratch.target().exists());
        scratch.take_over_build(&built).unwrap();
        assert!(scratch.target().join("debug/deps/liba.rlib").is_file());
        // A change of one build's records must not reach the other.
        fs::write(scratch.target().join("debug/.fingerprint/a/lib-a"), "changed").unwrap();
        assert_eq!(fs::read_to_string(built.join("debug/.fingerprint/a/lib-a")).unwrap(), "known");
        // With a shared lock, two builds would wait for each other.
        assert!(!scratch.target().join("debug/.cargo-lock").exists());
        fs::write(built.join("debug/deps/libb.rlib"), "b").unwrap();
        scratch.take_over_build(&built).unwrap();
        assert!(!scratch.target().join("debug/deps/libb.rlib").exists());
        fs::remove_dir_all(folder).unwrap();
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
