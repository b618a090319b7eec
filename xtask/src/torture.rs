//! `cargo xtask torture …`: starts the servers that a run needs, then builds and runs `ratchet-torture`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    cargo,
    servers::{self, Running},
    test::STORES,
};

/// The variable with the name of the file from which libfaketime reads the clock.
const CLOCK: &str = "FAKETIME_TIMESTAMP_FILE";

/// The default number of faults, and about how many fit into a minute.
const FAULTS: usize = 10;
const FAULTS_PER_MINUTE: usize = 25;

#[derive(Debug, Args)]
pub(crate) struct TortureCommand {
    /// The store: postgres, mongodb or sqlite
    #[arg(long)]
    store: String,
    /// The faults: kill, freeze, term, restart, outage, disk-full, failover, spin, clocks, steps, crashloop,
    /// poison-process or chaos
    #[arg(long, default_value = "chaos")]
    scenario: String,
    /// The seed of faults and jobs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of faults; with poison-process, of guilty jobs
    #[arg(long, conflicts_with = "minutes")]
    faults: Option<usize>,
    /// The approximate duration
    #[arg(long)]
    minutes: Option<usize>,
    /// The number of jobs (default: 50 per fault, 1,000 with poison-process)
    #[arg(long)]
    jobs: Option<usize>,
    /// The lease in milliseconds; several, separated by commas, are assigned to the workers in turn
    #[arg(long, default_value = "2000")]
    lease_ms: String,
}

/// Runs a `torture` command.
pub(crate) fn run(command: &TortureCommand, workspace: &Path) -> Result<()> {
    if command.store == "mongodb" && ["disk-full", "steps"].contains(&command.scenario.as_str()) {
        bail!("{} is not for mongodb", command.scenario);
    }
    if command.scenario == "steps" && std::env::var_os(CLOCK).is_none() {
        return under_faketime(command, workspace);
    }
    let needed = match STORES.iter().find(|(store, _)| *store == command.store) {
        Some((store @ ("postgres" | "mongodb" | "sqlite"), needed)) => {
            eprintln!("torture for {store}; Ctrl-C ends it and its workers");
            *needed
        }
        _ => bail!("store {} cannot be tortured yet; postgres, mongodb and sqlite can", command.store),
    };
    // Durable: a restart must not lose accepted jobs.
    servers::during(workspace, needed, true, |running| torture(command, running, workspace))
}

/// Runs this very command with a clock that can be set, which servers and workers inherit.
fn under_faketime(command: &TortureCommand, workspace: &Path) -> Result<()> {
    if command.store == "postgres" && servers::live_servers(workspace)?.contains(&servers::Server::Postgres) {
        bail!("the server runs by another clock already; stop it with `cargo xtask servers down postgres`");
    }
    // Built before, so that the compiler runs with the real clock.
    cargo::program(workspace, "ratchet-torture")?;
    let folder = tempfile::tempdir()?;
    // A server may run as another user, who cannot read the cache.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    let (clock, library) = (folder.path().join("clock"), folder.path().join("libfaketime.so.1"));
    std::fs::write(&clock, "+0\n")?;
    std::fs::copy(servers::faketime(workspace)?, &library)?;
    let status = std::process::Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        // A server that was started otherwise has another clock.
        .env_remove(servers::Server::Postgres.variable())
        .env("LD_PRELOAD", &library)
        .env(CLOCK, &clock)
        .envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1"), ("NO_FAKE_STAT", "1")])
        .status()
        .context("cannot run this program again")?;
    match status.success() {
        true => Ok(()),
        false => bail!("it did not survive steps of the clock"),
    }
}

fn torture(command: &TortureCommand, running: &[Running], workspace: &Path) -> Result<()> {
    let faults =
        command.faults.or(command.minutes.map(|minutes| minutes * FAULTS_PER_MINUTE)).unwrap_or(FAULTS);
    let faketime = match command.scenario.as_str() {
        "clocks" => Some(servers::faketime(workspace)?),
        _ => None,
    };
    let jobs = command.jobs.unwrap_or(match command.scenario.as_str() {
        "poison-process" => 1_000,
        _ => faults * 50,
    });
    let status = cargo::program(workspace, "ratchet-torture")?
        .arg("run")
        .args(["--store", &command.store, "--scenario", &command.scenario])
        .args(["--seed", &command.seed.to_string(), "--faults", &faults.to_string()])
        .args(["--jobs", &jobs.to_string(), "--lease-ms", &command.lease_ms])
        .envs(running.iter().map(Running::variable))
        .envs(faketime.map(|library| ("RATCHET_FAKETIME", library)))
        .status()
        .context("cannot run ratchet-torture")?;
    match status.success() {
        true => Ok(()),
        false => bail!("{} did not survive {}", command.store, command.scenario),
    }
}
