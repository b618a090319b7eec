//! Running the real program.

#![allow(dead_code, reason = "each file of tests needs its part")]

use std::process::{Command, Output};

use ratchet_api::JobId;
use serde_json::Value;

/// A command on a store, without what the environment says about stores.
pub(crate) fn ratchet(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    command.args(arguments).env_remove("RATCHET_SCHEMA").env_remove("RATCHET_PREFIX").env("RATCHET_URL", url);
    command
}

pub(crate) fn run(url: &str, arguments: &[&str]) -> Output {
    ratchet(url, arguments).output().unwrap()
}

/// What a command that succeeds says.
pub(crate) fn said(url: &str, arguments: &[&str]) -> String {
    let output = run(url, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What it says to programs.
pub(crate) fn json(url: &str, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    serde_json::from_str(&said(url, &arguments)).unwrap()
}

/// Why a command fails, with exit code 1 and nothing on the standard output.
pub(crate) fn refused(url: &str, arguments: &[&str]) -> String {
    let output = run(url, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The values of one field of a list.
pub(crate) fn each(list: &Value, field: &str) -> Vec<String> {
    let word = |item: &Value| item[field].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(word).collect()
}

pub(crate) fn ids(jobs: &[JobId]) -> Vec<String> {
    jobs.iter().map(ToString::to_string).collect()
}
