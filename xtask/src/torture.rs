//! `cargo xtask torture …`: starts what a torture needs, then builds and runs `ratchet-torture`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    cargo,
    servers::{self, Running},
    test::STORES,
};

/// The faults of one run if nothing else is said, and about how many fit into a minute.
const FAULTS: usize = 10;
const FAULTS_PER_MINUTE: usize = 25;

#[derive(Debug, Args)]
pub(crate) struct TortureCommand {
    /// The store: postgres or sqlite
    #[arg(long)]
    store: String,
    /// What goes wrong: kill, freeze, term, restart, outage, spin, clocks or chaos
    #[arg(long, default_value = "chaos")]
    scenario: String,
    /// The same seed gives the same faults and jobs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many faults
    #[arg(long, conflicts_with = "minutes")]
    faults: Option<usize>,
    /// About how long
    #[arg(long)]
    minutes: Option<usize>,
    /// How many jobs; 50 for each fault if nothing is said
    #[arg(long)]
    jobs: Option<usize>,
    /// How long a node counts as alive, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    lease_ms: u64,
}

/// Carries a `torture` command out.
pub(crate) fn run(command: &TortureCommand, workspace: &Path) -> Result<()> {
    let needed = match STORES.iter().find(|(store, _)| *store == command.store) {
        Some((store @ ("postgres" | "sqlite"), needed)) => {
            eprintln!("torture for {store}; Ctrl-C ends it and its workers");
            *needed
        }
        _ => bail!("store {} cannot be tortured yet; postgres and sqlite can", command.store),
    };
    // Durable: a restart must not lose what was promised.
    servers::during(workspace, needed, true, |running| torture(command, running, workspace))
}

fn torture(command: &TortureCommand, running: &[Running], workspace: &Path) -> Result<()> {
    let faults =
        command.faults.or(command.minutes.map(|minutes| minutes * FAULTS_PER_MINUTE)).unwrap_or(FAULTS);
    let faketime = match command.scenario.as_str() {
        "clocks" => Some(servers::faketime(workspace)?),
        _ => None,
    };
    let jobs = command.jobs.unwrap_or(faults * 50);
    let status = cargo::program(workspace, "ratchet-torture")?
        .arg("run")
        .args(["--store", &command.store, "--scenario", &command.scenario])
        .args(["--seed", &command.seed.to_string(), "--faults", &faults.to_string()])
        .args(["--jobs", &jobs.to_string(), "--lease-ms", &command.lease_ms.to_string()])
        .envs(running.iter().map(Running::variable))
        .envs(faketime.map(|library| ("RATCHET_FAKETIME", library)))
        .status()
        .context("cannot run ratchet-torture")?;
    match status.success() {
        true => Ok(()),
        false => bail!("{} did not survive {}", command.store, command.scenario),
    }
}
