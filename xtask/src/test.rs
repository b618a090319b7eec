//! `cargo xtask test`: every test of the workspace, against real servers, with a count for each store.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::servers::{self, Name, Running, RunningSince};

/// The stores of the design, with the servers that their tests need.
pub(crate) const STORES: [(&str, &[Name]); 5] = [
    ("memory", &[]),
    ("postgres", &[Name::Postgres]),
    ("mongodb", &[Name::Mongodb]),
    ("mysql", &[Name::Mysql, Name::Mariadb]),
    ("sqlite", &[]),
];
/// What the SQL stores share, with the servers that its own tests need.
pub(crate) const SHARED_SQL: (&str, &[Name]) = ("core", &[Name::Postgres, Name::Mysql, Name::Mariadb]);
/// What only the tests outside of the suite need.
const POOLER: (&str, &[Name]) = ("postgres", &[Name::Pgbouncer]);
/// The integration test that runs the conformance suite of a store.
const SUITE: &str = "tck";

/// Tells tests that they may take longer.
const LONG: &str = "RATCHET_LONG";
/// The command line is tested with every driver: the stores are built anyway.
const DRIVERS: [&str; 2] = ["--features", "ratchet-cli/postgres,ratchet-cli/mongodb"];

/// Starts the servers that the stores need, runs all tests, and stops what it started.
pub(crate) fn test(workspace: &Path, long: bool) -> Result<()> {
    let packages = members(workspace)?;
    let needed = servers_for(&packages);
    let tally =
        servers::during(workspace, &needed, false, |running| run(workspace, &packages, running, long))?;
    print!("\n{}{}", tally.output, tally.summary(&packages));
    match tally.failures(&packages) {
        failures if failures.is_empty() => Ok(()),
        failures => bail!("{}", failures.join("; ")),
    }
}

/// The names of the workspace's crates.
fn members(workspace: &Path) -> Result<Vec<String>> {
    let out = crate::cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata failed")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    Ok(packages.iter().filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

fn servers_for(packages: &[String]) -> Vec<Name> {
    let users =
        STORES.iter().chain([&SHARED_SQL, &POOLER]).filter(|(store, _)| packages.contains(&crate_of(store)));
    let mut needed = Vec::new();
    for server in users.flat_map(|(_, servers)| *servers) {
        if !needed.contains(server) {
            needed.push(*server);
        }
    }
    needed
}

pub(crate) fn crate_of(store: &str) -> String {
    format!("ratchet-store-{store}")
}

fn run(workspace: &Path, packages: &[String], running: &[Running], long: bool) -> Result<Tally> {
    let begun = Instant::now();
    let binaries = build(workspace)?;
    let (reader, writer) = std::io::pipe()?;
    let mut command = crate::cargo();
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(DRIVERS)
        .current_dir(workspace)
        .env("CARGO_TERM_COLOR", "never")
        // Hundreds of tests panic on purpose: their traces cost minutes and hide what failed.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        // One pipe for both: cargo's headings and the tests' results must stay in order.
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .envs(running.iter().map(Running::variable))
        .envs(long.then_some((LONG, "1")));
    let mut child = command.spawn().context("cannot run cargo test")?;
    // Holds the writing ends of the pipe: reading would never end.
    drop(command);
    let mut tally = Tally::new(binaries);
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        tally.read(&line);
    }
    tally.finish(child.wait()?.success());
    let given = running.iter().filter(|server| server.origin == RunningSince::Given).count();
    println!(
        "\n{} crates, {} servers ({given} given), {:.0} s",
        packages.len(),
        running.len(),
        begun.elapsed().as_secs_f64()
    );
    Ok(tally)
}

/// Builds every test and tells which program belongs to which crate: cargo's headings do not say.
fn build(workspace: &Path) -> Result<BTreeMap<String, Binary>> {
    let mut child = crate::cargo()
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .args(DRIVERS)
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo test")?;
    let mut binaries = BTreeMap::new();
    let output = child.stdout.take().context("no output of cargo test")?;
    for line in BufReader::new(output).lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        binaries.extend(Binary::from_message(&message));
    }
    if !child.wait()?.success() {
        bail!("the tests do not compile");
    }
    Ok(binaries)
}

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Binary {
    package: String,
    target: String,
}

impl Binary {
    /// The program's file name and what it is, if this message of cargo tells of one.
    fn from_message(message: &Value) -> Option<(String, Self)> {
        let executable = message["executable"].as_str()?;
        let file = Path::new(executable).file_name()?.to_str()?.to_owned();
        let manifest = Path::new(message["manifest_path"].as_str()?);
        // The folder of a crate has the crate's name.
        let package = manifest.parent()?.file_name()?.to_str()?.to_owned();
        let target = message["target"]["name"].as_str()?.to_owned();
        message["profile"]["test"].as_bool()?.then_some((file, Self { package, target }))
    }
}

impl std::fmt::Display for Binary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.package, self.target)
    }
}

/// What a test program says of its failures, which is the last part of what it prints; all of it if it crashed.
fn failures_of(output: &str) -> &str {
    output.find("\nfailures:\n").map_or(output, |from| &output[from + 1..])
}

/// Results of one test program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    /// Reads `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
    fn parse(line: &str) -> Option<Self> {
        let (_, counts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
        let number = |what: &str| -> Option<usize> {
            counts.split(';').find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
        };
        Some(Self { passed: number("passed")?, failed: number("failed")?, skipped: number("ignored")? })
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    fn total(self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The test program that runs now.
#[derive(Debug)]
struct Program {
    binary: Binary,
    begun: Instant,
    /// Everything that it printed.
    output: String,
    /// Whether it has told its result.
    told: bool,
    failed: usize,
}

/// Adds up what cargo prints, line by line; tells of each program when it has ended.
#[derive(Debug, Default)]
struct Tally {
    binaries: BTreeMap<String, Binary>,
    counts: BTreeMap<Binary, Count>,
    current: Option<Program>,
    failed_tests: Vec<String>,
    /// What programs printed in which a test failed, from the first failure's words on.
    output: String,
    cargo_failed: bool,
}

impl Tally {
    fn new(binaries: BTreeMap<String, Binary>) -> Self {
        Self { binaries, ..Self::default() }
    }

    fn read(&mut self, line: &str) {
        if let Some(binary) = self.heading(line) {
            self.close();
            self.counts.entry(binary.clone()).or_default();
            self.current = Some(Program {
                binary,
                begun: Instant::now(),
                output: String::new(),
                told: false,
                failed: 0,
            });
            return;
        }
        // What cargo says between programs.
        let Some(program) = &mut self.current else { return println!("{line}") };
        program.output += line;
        program.output.push('\n');
        if let Some(count) = Count::parse(line) {
            program.told = true;
            program.failed += count.failed;
            self.counts.entry(program.binary.clone()).or_default().add(count);
        } else if let Some(test) = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED")) {
            self.failed_tests.push(format!("{}: {}", program.binary, test.trim_end()));
        }
    }

    /// The program that cargo announces with this line.
    fn heading(&self, line: &str) -> Option<Binary> {
        let line = line.trim_start();
        if let Some(package) = line.strip_prefix("Doc-tests ") {
            let package = package.trim().replace('_', "-");
            return Some(Binary { package, target: "documentation".to_owned() });
        }
        let (_, path) = line.strip_prefix("Running ")?.rsplit_once('(')?;
        let file = Path::new(path.strip_suffix(')')?).file_name()?.to_str()?;
        let unknown = Binary { package: file.to_owned(), target: String::new() };
        Some(self.binaries.get(file).cloned().unwrap_or(unknown))
    }

    /// A program that ended without a result has crashed: that is a failure, not silence.
    fn close(&mut self) {
        let Some(program) = self.current.take() else { return };
        let count = self.counts.entry(program.binary.clone()).or_default();
        if !program.told {
            self.failed_tests.push(format!("{}: ended without a result", program.binary));
            count.failed += 1;
        }
        println!(
            "{:<45} {count}, {:.1} s",
            program.binary.to_string(),
            program.begun.elapsed().as_secs_f64()
        );
        if !program.told || program.failed > 0 {
            self.output += &format!("---- {}\n{}\n", program.binary, failures_of(&program.output));
        }
    }

    fn finish(&mut self, cargo_succeeded: bool) {
        self.close();
        self.cargo_failed = !cargo_succeeded;
    }

    fn all(&self) -> Count {
        let mut all = Count::default();
        self.counts.values().for_each(|count| all.add(*count));
        all
    }

    fn suite(&self, store: &str) -> Option<Count> {
        let suite = Binary { package: crate_of(store), target: SUITE.to_owned() };
        self.counts.get(&suite).copied()
    }

    /// A line for each store, the rest, what failed, and the sum alone on the last line.
    fn summary(&self, packages: &[String]) -> String {
        let mut text = String::new();
        let mut rest = self.all();
        for (store, _) in STORES {
            let line = match self.suite(store) {
                Some(count) => {
                    rest.passed -= count.passed;
                    rest.failed -= count.failed;
                    rest.skipped -= count.skipped;
                    count.to_string()
                }
                None if packages.contains(&crate_of(store)) => "has no suite".to_owned(),
                None => "not yet built".to_owned(),
            };
            text += &format!("store {store:<9} {line}\n");
        }
        text += &format!("all the rest    {rest}\n");
        for test in &self.failed_tests {
            text += &format!("FAILED {test}\n");
        }
        text + &format!("\n{}\n", self.all())
    }

    fn failures(&self, packages: &[String]) -> Vec<String> {
        let mut failures = Vec::new();
        let count = self.all();
        if count.failed > 0 {
            failures.push(format!("{} tests failed", count.failed));
        } else if self.cargo_failed {
            failures.push("cargo test failed".to_owned());
        }
        for (store, _) in STORES.iter().filter(|(store, _)| packages.contains(&crate_of(store))) {
            if self.suite(store).is_none_or(|count| count.total() == 0) {
                failures.push(format!("the suite of the {store} store ran no test"));
            }
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn packages(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn tally(text: &str) -> Tally {
        let binary = |package: &str, target: &str| Binary { package: package.into(), target: target.into() };
        let mut tally = Tally::new(BTreeMap::from([
            ("tck-1".to_owned(), binary("ratchet-store-memory", "tck")),
            ("tck-2".to_owned(), binary("ratchet-store-postgres", "tck")),
            ("ratchet_api-3".to_owned(), binary("ratchet-api", "ratchet_api")),
        ]));
        text.lines().for_each(|line| tally.read(line));
        tally.finish(true);
        tally
    }

    const GOOD: &str = "\
   Compiling ratchet-api v0.1.0
     Running unittests src/lib.rs (target/debug/deps/ratchet_api-3)
test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/tck.rs (target/debug/deps/tck-1)
test claim::a ... ok
test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
     Running tests/tck.rs (target/debug/deps/tck-2)
test result: ok. 41 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.00s
   Doc-tests ratchet_api
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn two_suites_of_one_name_are_told_apart() {
        let tally = tally(GOOD);
        let packages = packages(&["ratchet-store-memory", "ratchet-store-postgres"]);
        assert_eq!(
            tally.summary(&packages),
            "store memory    40 passed, 0 failed, 0 skipped\n\
             store postgres  41 passed, 0 failed, 2 skipped\n\
             store mongodb   not yet built\n\
             store mysql     not yet built\n\
             store sqlite    not yet built\n\
             all the rest    11 passed, 0 failed, 1 skipped\n\
             \n\
             92 passed, 0 failed, 3 skipped\n"
        );
        assert!(tally.failures(&packages).is_empty());
    }

    #[test]
    fn a_failed_test_is_named_and_fails_the_run() {
        let text = "     Running tests/tck.rs (target/debug/deps/tck-1)\n\
            test claim::a ... FAILED\n\
            test result: FAILED. 39 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let tally = tally(text);
        let packages = packages(&["ratchet-store-memory"]);
        assert!(tally.summary(&packages).contains("FAILED ratchet-store-memory tck: claim::a\n"));
        assert_eq!(tally.failures(&packages), ["1 tests failed"]);
    }

    #[test]
    fn the_words_of_a_failure_are_kept_and_those_of_successes_are_not() {
        let tally = tally(
            "     Running tests/tck.rs (target/debug/deps/tck-1)\n\
            on purpose\n\
            test claim::a   ... FAILED\n\
            \n\
            failures:\n\
            ---- claim::a ----\n\
            1 is not 2\n\
            test result: FAILED. 39 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\
            Running tests/tck.rs (target/debug/deps/tck-2)\n\
            test claim::a ... ok\n\
            test result: ok. 41 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(tally.failed_tests, ["ratchet-store-memory tck: claim::a"]);
        assert!(
            tally
                .output
                .starts_with("---- ratchet-store-memory tck\nfailures:\n---- claim::a ----\n1 is not 2\n")
        );
        assert!(!tally.output.contains("on purpose") && !tally.output.contains("postgres"));
    }

    #[test]
    fn a_test_program_that_crashes_counts_as_a_failure() {
        let text = GOOD.replace(
            "test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s\n",
            "error: process abort signal\n",
        );
        let tally = tally(&text);
        assert_eq!(tally.suite("memory"), Some(Count { failed: 1, ..Count::default() }));
        assert_eq!(tally.failures(&packages(&["ratchet-store-memory"])), ["1 tests failed"]);
    }

    #[test]
    fn a_store_whose_suite_runs_nothing_fails_the_run() {
        let tally = tally(GOOD);
        let failures = tally.failures(&packages(&["ratchet-store-mongodb"]));
        assert_eq!(failures, ["the suite of the mongodb store ran no test"]);
    }

    #[test]
    fn a_failure_of_cargo_itself_is_not_lost() {
        let mut tally = tally(GOOD);
        tally.finish(false);
        assert_eq!(tally.failures(&[]), ["cargo test failed"]);
    }

    #[test]
    fn only_the_servers_of_stores_that_exist_are_needed() {
        assert_eq!(servers_for(&packages(&["ratchet-api", "ratchet-store-memory"])), []);
        assert_eq!(servers_for(&packages(&["ratchet-store-mongodb"])), [Name::Mongodb]);
        assert_eq!(servers_for(&packages(&["ratchet-store-mysql"])), [Name::Mysql, Name::Mariadb]);
        assert_eq!(servers_for(&packages(&["ratchet-store-postgres"])), [Name::Postgres, Name::Pgbouncer]);
    }

    #[test]
    fn what_the_sql_stores_share_needs_every_sql_server_and_none_twice() {
        let every = [Name::Postgres, Name::Mysql, Name::Mariadb];
        assert_eq!(servers_for(&packages(&["ratchet-store-core"])), every);
        let both = servers_for(&packages(&["ratchet-store-core", "ratchet-store-postgres"]));
        assert_eq!(both, [Name::Postgres, Name::Mysql, Name::Mariadb, Name::Pgbouncer]);
    }

    #[test]
    fn cargos_message_tells_which_crate_a_program_belongs_to() {
        let message = json!({
            "executable": "/t/debug/deps/tck-1", "manifest_path": "/w/ratchet-store-memory/Cargo.toml",
            "target": {"name": "tck"}, "profile": {"test": true},
        });
        let (file, binary) = Binary::from_message(&message).unwrap();
        assert_eq!(file, "tck-1");
        assert_eq!(binary, Binary { package: "ratchet-store-memory".into(), target: "tck".into() });
        assert_eq!(Binary::from_message(&json!({"reason": "build-finished"})), None);
    }
}
