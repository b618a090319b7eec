//! Workers that try mutants one after the other in a copy of the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{
    bank::{Mutant, Suite},
    scratch::{Scratch, write_if_changed},
};
use crate::{cargo::FEATURES, servers::Running, tck::output::Results};

/// A suite counts as hung after this many times its duration without a mutant …
const PATIENCE: u32 = 4;
/// … but not before this, for machines that build at the same time.
const LEAST_PATIENCE: Duration = Duration::from_secs(20);
/// The limit for the first run, whose duration is not known.
const FIRST_LIMIT: Duration = Duration::from_secs(300);

/// The environment of tests that should fail: no backtraces, which take longer than the tests; no shrinking; only a few
/// random cases; and a wait in vain soon fails with the name of its case.
const HASTE: [(&str, &str); 5] = [
    ("RUST_BACKTRACE", "0"),
    ("PROPTEST_CASES", "64"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    ("RATCHET_MODEL_SEQUENCES", "100"),
    ("RATCHET_CASE_SECONDS", "10"),
];

/// The memory limit, so that a mutant that allocates without end fails before the machine does.
const MOST_MEMORY_KIB: u32 = 8 << 20;

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// These tests failed.
    Caught(Vec<String>),
    /// The suite hung; these tests had failed by then.
    Hung(Vec<String>),
    /// The suite broke off without a verdict.
    Crashed,
    /// Every test passed.
    Missed,
    /// The mutant does not compile, so it shows nothing.
    Broken(String),
}

/// A worker with its copy of the sources.
#[derive(Debug)]
pub(crate) struct Worker {
    scratch: Scratch,
    cores: usize,
    /// The running servers.
    servers: Vec<Running>,
    /// The time limit of each suite or part of it, once known.
    limits: BTreeMap<(Suite, Option<String>), Duration>,
}

/// A finished run of a test program.
#[derive(Debug)]
struct Run {
    results: Results,
    /// Whether it succeeded; `None` if it had to be killed.
    success: Option<bool>,
    took: Duration,
}

enum Build {
    Program(PathBuf),
    Broken(String),
}

impl Worker {
    pub(crate) fn new(scratch: Scratch, cores: usize, servers: &[Running]) -> Self {
        Self { scratch, cores, servers: servers.to_vec(), limits: BTreeMap::new() }
    }

    /// Whether this copy has been built before.
    pub(crate) fn is_warm(&self) -> bool {
        self.scratch.target().exists()
    }

    /// Builds with every core, for the other workers to take over.
    pub(crate) fn warm_up(&self, suites: &BTreeSet<Suite>) -> Result<()> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        suites.iter().try_for_each(|suite| self.build(*suite, cores).map(drop))
    }

    /// Takes over the build of another target folder.
    pub(crate) fn take_over(&self, target: &Path) -> Result<()> {
        self.scratch.take_over_build(target)
    }

    /// The target folder.
    pub(crate) fn target(&self) -> PathBuf {
        self.scratch.target()
    }

    /// Tries one mutant and restores the copy.
    ///
    /// With `known`, a test that is known to catch it, that test alone runs first; if it fails, it stands for all.
    pub(crate) fn try_mutant(&mut self, mutant: &Mutant, known: Option<&str>) -> Result<Fate> {
        let limit = self.limit(mutant.suite, mutant.only.as_deref())?;
        let path = self.scratch.sources().join(&mutant.file);
        let original = fs::read_to_string(&path)?;
        write_if_changed(&path, mutant.apply(&original)?.as_bytes())?;
        let fate = self.fate(mutant, known, limit);
        write_if_changed(&path, original.as_bytes())?;
        fate
    }

    fn fate(&self, mutant: &Mutant, known: Option<&str>, limit: Duration) -> Result<Fate> {
        let suite = mutant.suite;
        let program = match self.build(suite, self.cores)? {
            Build::Program(program) => program,
            Build::Broken(errors) => return Ok(Fate::Broken(errors)),
        };
        if let Some(name) = known.and_then(|id| suite.test_name(id)) {
            let run = self.run(suite, &program, &["--exact", name], limit)?;
            if run.success == Some(false) && run.results.failed == [name] {
                return Ok(Fate::Caught(vec![suite.test_id(name)]));
            }
        }
        let run = self.run(suite, &program, mutant.only.as_deref().as_slice(), limit)?;
        let mut failed: Vec<String> = run.results.failed.iter().map(|name| suite.test_id(name)).collect();
        failed.sort();
        failed.dedup();
        Ok(match run.success {
            None => Fate::Hung(failed),
            Some(true) => Fate::Missed,
            Some(false) if failed.is_empty() => Fate::Crashed,
            Some(false) => Fate::Caught(failed),
        })
    }

    /// The time limit of a suite, or of the tests with `only` in their names. The first time, they run without a mutant
    /// and must pass.
    fn limit(&mut self, suite: Suite, only: Option<&str>) -> Result<Duration> {
        let part = (suite, only.map(str::to_owned));
        if let Some(limit) = self.limits.get(&part) {
            return Ok(*limit);
        }
        let program = match self.build(suite, self.cores)? {
            Build::Program(program) => program,
            Build::Broken(errors) => bail!("the sources do not compile:\n{errors}"),
        };
        let mut run = self.run(suite, &program, only.as_slice(), FIRST_LIMIT)?;
        if run.success == Some(false) {
            // The whole suite has passed before: a test that fails now and then has to be reported and fixed, but is no
            // reason to throw away verified results.
            println!("FLAKY   {} without any mutant:\n{}", run.results.failed.join(", "), self.end_of_log()?);
            run = self.run(suite, &program, only.as_slice(), FIRST_LIMIT)?;
        }
        match run.success {
            Some(true) => {}
            None => bail!("the suite hangs without any mutant"),
            Some(false) => bail!("tests fail without any mutant: {}", run.results.failed.join(", ")),
        }
        let limit = (run.took * PATIENCE).max(LEAST_PATIENCE);
        self.limits.insert(part, limit);
        Ok(limit)
    }

    /// The end of the output of the last run.
    fn end_of_log(&self) -> Result<String> {
        const LINES: usize = 60;
        let log = String::from_utf8_lossy(&fs::read(self.log())?).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        Ok(lines[lines.len().saturating_sub(LINES)..].join("\n"))
    }

    fn log(&self) -> PathBuf {
        self.scratch.target().join("suite.log")
    }

    /// Builds a suite without running it.
    fn build(&self, suite: Suite, cores: usize) -> Result<Build> {
        let output = crate::cargo()
            .args(["test", "--no-run", "--quiet", "--message-format=json"])
            .args(["--package", suite.package()])
            .args(FEATURES)
            .args(suite.selection())
            .args(["--jobs", &cores.to_string()])
            .current_dir(self.scratch.sources())
            .env("CARGO_TARGET_DIR", self.scratch.target())
            // A change of the caller's flags would rebuild everything.
            .env_remove("RUSTFLAGS")
            .stdin(Stdio::null())
            .output()
            .context("cannot run cargo")?;
        let messages = String::from_utf8_lossy(&output.stdout);
        let messages: Vec<Value> =
            messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if output.status.success() {
            let program = messages.iter().find_map(|m| m["executable"].as_str());
            return Ok(Build::Program(program.context("cargo built no test program")?.into()));
        }
        let errors: Vec<&str> = messages
            .iter()
            .filter(|m| m["message"]["level"] == "error")
            .filter_map(|m| m["message"]["rendered"].as_str())
            .collect();
        if errors.is_empty() {
            bail!("cargo failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(Build::Broken(errors.concat()))
    }

    /// Runs the tests selected by arguments of the test program; all of them if there are none.
    fn run(&self, suite: Suite, program: &Path, selection: &[&str], limit: Duration) -> Result<Run> {
        let log = self.log();
        let child = Command::new("sh")
            .args(["-c", &format!("ulimit -v {MOST_MEMORY_KIB}; exec \"$0\" \"$@\"")])
            .arg(program)
            .args(selection)
            .current_dir(self.scratch.sources())
            .envs(HASTE)
            .envs(self.servers.iter().map(Running::variable))
            // Set as by cargo.
            .env("CARGO_PKG_NAME", suite.package())
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let begun = Instant::now();
        let success = wait(child, limit)?;
        let output = fs::read(&log)?;
        let results = Results::of(&String::from_utf8_lossy(&output));
        Ok(Run { results, success, took: begun.elapsed() })
    }
}

/// Waits for the end. Returns whether the process succeeded; `None` if it had to be killed.
fn wait(mut child: Child, limit: Duration) -> Result<Option<bool>> {
    const STEP: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if begun.elapsed() > limit {
            // The process has a group of its own, so all that it started is killed too.
            let group = format!("-{}", child.id());
            Command::new("sh").args(["-c", "kill -s KILL -- \"$1\"", "sh", &group]).status()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(STEP);
    }
}

impl Suite {
    const fn package(self) -> &'static str {
        match self {
            Self::Memory => "ratchet-store-memory",
            Self::Api => "ratchet-api",
            Self::Core => "ratchet-core",
            Self::Engine => "ratchet-suite",
            Self::Plans => "ratchet-store-sqlite",
            Self::Mongodb | Self::Explain => "ratchet-store-mongodb",
            Self::Sql | Self::Migrate | Self::Ddl => "ratchet-store-core",
        }
    }

    /// The arguments that select the suite's tests in cargo.
    const fn selection(self) -> &'static [&'static str] {
        match self {
            Self::Memory | Self::Mongodb => &["--test", "tck"],
            Self::Api | Self::Core | Self::Sql => &["--lib"],
            Self::Engine => &["--no-default-features", "--test", "memory"],
            Self::Plans | Self::Explain => &["--test", "plans"],
            Self::Migrate => &["--test", "migrate"],
            Self::Ddl => &["--test", "ddl"],
        }
    }

    /// An id that is unique over all suites; cases keep their names.
    fn test_id(self, name: &str) -> String {
        match self {
            Self::Memory | Self::Mongodb => name.to_owned(),
            Self::Api | Self::Core | Self::Sql => format!("{}::{name}", self.package()),
            Self::Engine => format!("{}::cases::{name}", self.package()),
            Self::Plans | Self::Explain => format!("{}::plans::{name}", self.package()),
            Self::Migrate => format!("{}::migrate::{}", self.package(), on_any_server(name)),
            Self::Ddl => format!("{}::ddl::{}", self.package(), on_any_server(name)),
        }
    }
}

impl Suite {
    /// The name of the test with this id in the test program; `None` if several are possible.
    fn test_name(self, id: &str) -> Option<&str> {
        let behind = |folder: &str| id.strip_prefix(self.package())?.strip_prefix(folder);
        match self {
            Self::Memory | Self::Mongodb => Some(id),
            Self::Api | Self::Core | Self::Sql => behind("::"),
            Self::Engine => behind("::cases::"),
            Self::Plans | Self::Explain => behind("::plans::"),
            Self::Migrate | Self::Ddl => None,
        }
    }
}

/// The name of a case without its server: `install::postgres::fits` becomes `install::fits`.
fn on_any_server(name: &str) -> String {
    let parts: Vec<&str> = name.split("::").collect();
    match parts.as_slice() {
        [area, _, case] => format!("{area}::{case}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_what_it_started() {
        assert_eq!(wait(shell("sleep 600 & wait"), Duration::from_millis(50)).unwrap(), None);
    }

    #[test]
    fn a_case_is_the_same_on_every_server() {
        let id = "ratchet-store-core::ddl::install::fits";
        assert_eq!(Suite::Ddl.test_id("install::postgres::fits"), id);
        assert_eq!(Suite::Ddl.test_id("install::sqlite::fits"), id);
    }

    #[test]
    fn a_test_is_found_by_its_id() {
        for (suite, name) in
            [(Suite::Memory, "claim::a"), (Suite::Api, "id::tests::a"), (Suite::Engine, "retry::a")]
        {
            assert_eq!(suite.test_name(&suite.test_id(name)), Some(name));
        }
        assert_eq!(Suite::Ddl.test_name("ratchet-store-core::ddl::install::fits"), None);
    }

    #[test]
    fn a_program_that_ends_tells_how() {
        assert_eq!(wait(shell("exit 0"), FIRST_LIMIT).unwrap(), Some(true));
        assert_eq!(wait(shell("exit 101"), FIRST_LIMIT).unwrap(), Some(false));
    }
}
