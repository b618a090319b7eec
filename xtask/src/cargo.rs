//! Calls of cargo, all with the same features.
//!
//! Cargo recompiles a dependency for every other set of features, and then all that depends on it. So each call that
//! builds names either every crate, or [`FEATURES`] beside the crate to build.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// All crates. The command line gets every driver: the stores are built anyway.
pub(crate) const EVERYTHING: [&str; 3] =
    ["--workspace", "--features", "ratchet-cli/postgres,ratchet-cli/mongodb"];

/// The package `xtask`, whose manifest enables the features that the whole workspace has.
pub(crate) const FEATURES: [&str; 2] = ["--package", "xtask"];

/// A command for the cargo that runs us, without the variables that cargo set for our own package.
///
/// To a build script that reads these variables, as ring's does, a build from here would differ from one from a shell:
/// the two would take turns in rebuilding ring and all drivers.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_a_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

fn is_about_a_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// Builds with the output of `command` on screen; returns the programs that cargo's messages name.
pub(crate) fn build(command: &mut Command) -> Result<Vec<Built>> {
    let mut child = command
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let mut built = Vec::new();
    let output = child.stdout.take().context("no output of cargo")?;
    for line in BufReader::new(output).lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        built.extend(Built::from_message(&message));
    }
    match child.wait()?.success() {
        true => Ok(built),
        false => bail!("the sources do not compile"),
    }
}

/// Builds the program with the name of its crate, and returns it as a command.
pub(crate) fn program(workspace: &Path, package: &str) -> Result<Command> {
    let mut command = cargo();
    command.args(["build", "--package", package, "--bin", package]).args(FEATURES).current_dir(workspace);
    let built = build(&mut command)?.pop().with_context(|| format!("cargo built no {package}"))?;
    let mut command = Command::new(built.executable);
    command.current_dir(workspace);
    Ok(command)
}

/// A program that cargo built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) executable: PathBuf,
    pub(crate) target: String,
    /// The folder of its crate.
    pub(crate) folder: PathBuf,
    pub(crate) is_test: bool,
}

impl Built {
    fn from_message(message: &Value) -> Option<Self> {
        Some(Self {
            executable: message["executable"].as_str()?.into(),
            target: message["target"]["name"].as_str()?.to_owned(),
            folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
            is_test: message["profile"]["test"].as_bool()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_build_from_within_is_like_one_from_a_shell() {
        // Cargo sets these variables for tests, too.
        let kept = |name: &str| cargo().get_envs().all(|(removed, _)| removed != name);
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some() && !kept("CARGO_PKG_NAME"));
        assert!(!kept("CARGO_MANIFEST_DIR"));
        assert!(kept("PATH"));
    }

    #[test]
    fn a_message_tells_of_a_program_and_its_crate() {
        let message = json!({
            "executable": "/t/debug/deps/tck-1", "manifest_path": "/w/ratchet-store-memory/Cargo.toml",
            "target": {"name": "tck"}, "profile": {"test": true},
        });
        let expected = Built {
            executable: "/t/debug/deps/tck-1".into(),
            target: "tck".into(),
            folder: "/w/ratchet-store-memory".into(),
            is_test: true,
        };
        assert_eq!(Built::from_message(&message), Some(expected));
        assert_eq!(Built::from_message(&json!({"reason": "build-finished"})), None);
    }
}
