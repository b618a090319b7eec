//! Runs every program of the guide and compares its output with the file that its page quotes.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Runs a program to its end in an empty folder, and compares its output.
fn prints_what_its_page_says(name: &str, program: &str) {
    let folder = TempDir::new().unwrap();
    for run in ["first", "second"] {
        let out = Command::new(program).current_dir(&folder).stdin(Stdio::null()).output().unwrap();
        let (printed, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "the {run} run of {name} failed: {errors}{printed}");
        if run == "first" {
            let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected").join(format!("{name}.txt"));
            assert_eq!(printed, std::fs::read_to_string(expected).unwrap(), "{errors}");
        }
    }
}

/// Defines a test for each program that needs no server.
macro_rules! programs {
    ($($name:ident),* $(,)?) => {
        /// The programs that need no server.
        const HERE: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            prints_what_its_page_says(stringify!($name), env!(concat!("CARGO_BIN_EXE_", stringify!($name))));
        })*
    };
}

programs! {
    first_job, retries, queues, keys, resources, breakers, callbacks, cancel, logs_and_traces, coming_from,
}

/// The programs that `postgres.rs` runs.
const ON_POSTGRES: &[&str] = &["postgres", "submit_in", "worker_pod"];
/// The programs that `mongodb.rs` runs.
const ON_MONGODB: &[&str] = &["mongodb", "submit_in_mongodb"];

#[test]
fn every_program_is_run() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin").read_dir().unwrap();
    let names = sources.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    let run = HERE.iter().chain(ON_POSTGRES).chain(ON_MONGODB).map(|name| (*name).to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), run.collect());
}
