//! The test programs of the workspace, and their runs.

use std::{
    io::{BufRead, BufReader, PipeReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::durations::{durations, listed, unfinished};
use crate::{
    cargo::{self, Built, EVERYTHING, cargo},
    servers::Running,
    tck::output,
};

/// The variable that allows tests to take longer.
const LONG: &str = "RATCHET_LONG";
/// The time limit of a program, unless tests may take longer. The longest takes three minutes.
const LONGEST_RUN: Duration = Duration::from_secs(20 * 60);
/// The name under which all examples of the documentation are counted.
const DOCUMENTATION: &str = "documentation";

/// Programs whose tests mostly wait for leases, timers or other processes, with the number of tests that each runs at
/// once per core. They run beside those that keep the cores busy.
const WAITING: [(&str, &str, usize); 11] = [
    ("ratchet-suite", "memory", 8),
    ("ratchet-suite", "mongodb", 4),
    ("ratchet-suite", "postgres", 8),
    ("ratchet-suite", "sqlite", 8),
    ("ratchet-suite", "outage", 1),
    ("ratchet-cli", "cli", 1),
    ("ratchet-cli", "cluster", 1),
    ("ratchet-store-mongodb", "wakeups", 4),
    ("ratchet-store-sqlite", "processes", 1),
    ("ratchet-store-sqlite", "wakeups", 1),
    ("ratchet-torture", "quick", 1),
];

/// The longest of the programs that keep the cores busy: they start first, so that no core is idle at the end.
const LONGEST: [(&str, &str); 6] = [
    ("ratchet-suite", "damage"),
    ("workspace", DOCUMENTATION),
    ("ratchet-macros", "ui"),
    ("ratchet-store-mongodb", "tck"),
    ("ratchet-store-postgres", "tck"),
    ("ratchet-store-postgres", "pgbouncer"),
];

/// A test program, or all examples of the documentation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    pub(super) package: String,
    pub(super) target: String,
    /// `None` for the documentation, which cargo runs.
    executable: Option<PathBuf>,
    folder: PathBuf,
}

/// The settings of all runs.
pub(super) struct Setting<'a> {
    servers: &'a [Running],
    long: bool,
    /// The time limit of a program.
    limit: Duration,
    /// The folder of the libraries with which tests of procedural macros are linked.
    libraries: String,
}

impl<'a> Setting<'a> {
    pub(super) fn new(servers: &'a [Running], long: bool) -> Result<Self> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let out = Command::new(rustc).args(["--print", "target-libdir"]).output();
        let libraries = String::from_utf8_lossy(&out.context("cannot run rustc")?.stdout).trim().to_owned();
        let limit = if long { Duration::MAX } else { LONGEST_RUN };
        Ok(Self { servers, long, limit, libraries })
    }
}

/// The result of a program.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) program: Program,
    pub(super) took: Duration,
    /// The failure in the system's words; `None` if it succeeded.
    pub(super) failure: Option<String>,
    /// Tests that had started and did not end.
    pub(super) unfinished: Vec<String>,
    /// The complete output.
    pub(super) output: String,
    pub(super) durations: Vec<(String, Duration)>,
}

/// Builds every test.
pub(super) fn build(workspace: &Path) -> Result<Vec<Program>> {
    let mut command = cargo();
    command.args(["test", "--no-run"]).args(EVERYTHING).current_dir(workspace);
    let built = cargo::build(&mut command)?.into_iter().filter(|built| built.is_test);
    let mut programs = built.map(Program::new).collect::<Result<Vec<_>>>()?;
    programs.push(Program::documentation(workspace));
    Ok(programs)
}

impl Program {
    fn new(built: Built) -> Result<Self> {
        let Built { executable, target, folder, .. } = built;
        // The folder of a crate has the crate's name.
        let package = folder.file_name().and_then(|name| name.to_str()).context("a crate without a name")?;
        Ok(Self { package: package.to_owned(), target, executable: Some(executable), folder })
    }

    fn documentation(workspace: &Path) -> Self {
        let (package, target) = ("workspace".to_owned(), DOCUMENTATION.to_owned());
        Self { package, target, executable: None, folder: workspace.to_owned() }
    }

    /// The number of tests that it runs at once per core, if it mostly waits.
    pub(super) fn waits(&self) -> Option<usize> {
        let is_this =
            |(package, target, _): &&(&str, &str, usize)| self.package == *package && self.target == *target;
        WAITING.iter().find(is_this).map(|(_, _, threads)| *threads)
    }

    /// Its position among those that keep the cores busy: the lower, the sooner.
    pub(super) fn turn(&self) -> usize {
        let is_this = |(package, target): &(&str, &str)| self.package == *package && self.target == *target;
        LONGEST.iter().position(is_this).unwrap_or(LONGEST.len())
    }

    /// Runs all its tests.
    pub(super) fn run(&self, setting: &Setting<'_>) -> Result<Ended> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = self.waits().unwrap_or(1) * cores;
        let mut command = self.command(setting);
        if self.executable.is_some() {
            command.args(["--test-threads", &threads.to_string()]);
        }
        self.watch(command, &self.order(setting)?, threads, setting)
    }

    /// Whether its tests can be run one by one.
    pub(super) fn is_divisible(&self) -> bool {
        self.executable.is_some()
    }

    /// Runs one of its tests.
    pub(super) fn run_only(&self, test: &str, setting: &Setting<'_>) -> Result<Ended> {
        let mut command = self.command(setting);
        command.args(["--exact", test, "--test-threads", "1"]);
        self.watch(command, &[test.to_owned()], 1, setting)
    }

    /// Runs a command to its end, within the time limit.
    fn watch(
        &self,
        mut command: Command,
        order: &[String],
        threads: usize,
        setting: &Setting<'_>,
    ) -> Result<Ended> {
        let (reader, writer) = std::io::pipe()?;
        command
            // Hundreds of tests panic on purpose: their backtraces cost minutes and hide the failures.
            .env("RUST_BACKTRACE", "0")
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            // One pipe for both, so that a panic stays next to its test.
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .envs(setting.servers.iter().map(Running::variable))
            .envs(setting.long.then_some((LONG, "1")));
        let begun = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot run {self}"))?;
        // It holds the writing ends of the pipe, so reading would never end.
        drop(command);
        let mut output = String::new();
        let mut ends = Vec::new();
        let lines = lines(reader);
        let mut late = None;
        loop {
            match lines.recv_timeout(setting.limit.saturating_sub(begun.elapsed())) {
                Ok(line) => {
                    let line = line?;
                    ends.extend(output::result(&line).map(|(name, _)| (name.to_owned(), begun.elapsed())));
                    output += &line;
                    output.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    child.kill()?;
                    late = Some(format!("killed: it had not ended after {} s", setting.limit.as_secs()));
                    break;
                }
            }
        }
        let status = child.wait()?;
        let failure = late.or_else(|| (!status.success()).then(|| status.to_string()));
        let durations = durations(order, &ends, threads);
        let unfinished = unfinished(order, &ends, threads);
        let (program, took) = (self.clone(), begun.elapsed());
        Ok(Ended { program, took, failure, unfinished, output, durations })
    }

    /// Its tests in the order in which they start.
    fn order(&self, setting: &Setting<'_>) -> Result<Vec<String>> {
        if self.executable.is_none() {
            return Ok(Vec::new());
        }
        let out = self.command(setting).arg("--list").stdin(Stdio::null()).output();
        let out = out.with_context(|| format!("cannot run {self}"))?;
        Ok(listed(&String::from_utf8_lossy(&out.stdout)))
    }

    /// The command, as cargo would run it.
    fn command(&self, setting: &Setting<'_>) -> Command {
        let Some(executable) = &self.executable else {
            let mut command = cargo();
            command.args(["test", "--doc", "--no-fail-fast"]).args(EVERYTHING);
            command.current_dir(&self.folder);
            return command;
        };
        let mut command = Command::new(executable);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env("LD_LIBRARY_PATH", &setting.libraries);
        command
    }
}

/// The lines of the pipe, read by a thread of its own: a process started by a killed program may hold it open for ever.
fn lines(reader: PipeReader) -> Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.map(|line| String::from_utf8_lossy(&line).into_owned());
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.package, self.target)
    }
}

/// A program of this name that cannot run.
#[cfg(test)]
pub(super) fn named(package: &str, target: &str) -> Program {
    let (package, target) = (package.into(), target.into());
    Program { package, target, ..Program::documentation(Path::new("/")) }
}

/// A program of this name that counts as divisible, but does not exist.
#[cfg(test)]
pub(super) fn divisible(package: &str, target: &str) -> Program {
    Program { executable: Some("/".into()), ..named(package, target) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_belongs_to_the_crate_of_its_folder() {
        let built = Built {
            executable: "/t/debug/deps/tck-1".into(),
            target: "tck".into(),
            folder: "/w/ratchet-store-memory".into(),
            is_test: true,
        };
        assert_eq!(Program::new(built).unwrap().to_string(), "ratchet-store-memory tck");
    }

    #[test]
    fn programs_that_wait_are_known_by_crate_and_target() {
        assert_eq!(named("ratchet-suite", "memory").waits(), Some(8));
        assert_eq!(named("ratchet-cli", "cli").waits(), Some(1));
        assert_eq!(named("ratchet-store-memory", "tck").waits(), None);
    }

    #[test]
    fn the_longest_programs_start_first() {
        let mut programs = [named("ratchet-api", "ratchet_api"), named("ratchet-macros", "ui")];
        programs.sort_by_key(Program::turn);
        assert_eq!(programs[0].package, "ratchet-macros");
    }

    /// A program that runs this script, unless it is asked for the list of its tests.
    fn script(name: &str, text: &str) -> Program {
        let script = std::env::temp_dir().join(format!("xtask-program-{name}-{}", std::process::id()));
        let text = format!("#!/bin/sh\n[ \"$1\" = --list ] && echo 'a: test' && exit\n{text}\n");
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        Program { executable: Some(script), ..named("a", name) }
    }

    fn run(program: &Program, limit: Duration) -> Ended {
        let ended = program.run(&Setting { limit, ..Setting::new(&[], false).unwrap() }).unwrap();
        std::fs::remove_file(program.executable.as_ref().unwrap()).unwrap();
        ended
    }

    #[test]
    fn what_a_program_prints_and_how_it_ends_is_kept() {
        let ended = run(&script("b", "echo \"test a ... ok\"; echo oops >&2; exit 1"), LONGEST_RUN);
        assert_eq!(ended.failure.as_deref(), Some("exit status: 1"));
        assert_eq!(ended.output, "test a ... ok\noops\n");
        assert_eq!(ended.durations.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_its_test_named() {
        let ended = run(&script("c", "echo begun; exec sleep 600"), Duration::from_secs(1));
        assert_eq!(ended.failure.as_deref(), Some("killed: it had not ended after 1 s"));
        assert_eq!(ended.unfinished, ["a"]);
        assert_eq!(ended.output, "begun\n");
    }
}
