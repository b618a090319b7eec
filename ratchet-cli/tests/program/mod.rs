//! Running the real program.

#![allow(dead_code, reason = "each file of tests needs its part")]

use std::process::{Command, Output};

use ratchet_api::JobId;
use serde_json::Value;

/// The store that a command works on: its URL, and its schema or database if it is on a server.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) url: &'a str,
    pub(crate) schema: Option<&'a str>,
}

impl<'a> From<&'a str> for Target<'a> {
    fn from(url: &'a str) -> Self {
        Self { url, schema: None }
    }
}

impl<'a> From<&'a String> for Target<'a> {
    fn from(url: &'a String) -> Self {
        url.as_str().into()
    }
}

/// A command on a store, without the store variables of the environment.
pub(crate) fn ratchet<'a>(store: impl Into<Target<'a>>, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    let Target { url, schema } = store.into();
    command.args(arguments).env_remove("RATCHET_SCHEMA").env_remove("RATCHET_PREFIX").env("RATCHET_URL", url);
    command.envs(schema.map(|schema| ("RATCHET_SCHEMA", schema)));
    command
}

pub(crate) fn run<'a>(store: impl Into<Target<'a>>, arguments: &[&str]) -> Output {
    ratchet(store, arguments).output().unwrap()
}

/// The standard output of a command that succeeds.
pub(crate) fn said<'a>(store: impl Into<Target<'a>>, arguments: &[&str]) -> String {
    let output = run(store, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The JSON output of a command.
pub(crate) fn json<'a>(store: impl Into<Target<'a>>, arguments: &[&str]) -> Value {
    let arguments = [arguments, &["--json"]].concat();
    serde_json::from_str(&said(store, &arguments)).unwrap()
}

/// The error of a command that fails with exit code 1 and nothing on standard output.
pub(crate) fn refused<'a>(store: impl Into<Target<'a>>, arguments: &[&str]) -> String {
    let output = run(store, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The values of one field of every item of a list.
pub(crate) fn each(list: &Value, field: &str) -> Vec<String> {
    let word = |item: &Value| item[field].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(word).collect()
}

pub(crate) fn ids(jobs: &[JobId]) -> Vec<String> {
    jobs.iter().map(ToString::to_string).collect()
}
