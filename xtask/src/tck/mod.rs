//! The conformance suite on the command line: `cargo xtask tck …`.

pub(crate) mod output;
mod suite;

use std::{path::Path, time::Duration};

use anyhow::{Result, bail};
use clap::Args;

use crate::{contracts, mutants};

/// The arguments of `cargo xtask tck`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask tck memory                        every case; what is not yet built is listed\n  \
    cargo xtask tck postgres claim                the cases of one area, built or not\n  \
    cargo xtask tck mongodb claim::due_job_is_claimed_once\n  \
    cargo xtask tck --list                        every case and what it shows\n  \
    cargo xtask tck --contracts                   the contract and the cases fit\n  \
    cargo xtask tck --mutants                     broken stores and engines are caught, those that changed\n  \
    cargo xtask tck --mutants --all               every one\n  \
    cargo xtask tck --mutants claim --jobs 1      those of one area, or called so\n  \
    cargo xtask tck --generated ratchet-api       what cargo-mutants makes of one crate")]
pub(crate) struct TckCommand {
    /// A store (memory, postgres, mysql, sqlite, mongodb) and filters; only filters with --mutants
    #[arg(value_name = "STORE|FILTER")]
    words: Vec<String>,
    /// List every case with the contracts and requirements that it shows
    #[arg(long, group = "mode")]
    list: bool,
    /// Check that every contract has a case and every case a contract
    #[arg(long, group = "mode")]
    contracts: bool,
    /// Check that tests catch broken stores, engines, schemas and slow statements (the folders `mutants`): those
    /// changed since `mutants.lock` was written, and a tenth of the others
    #[arg(long, group = "mode")]
    mutants: bool,
    /// Check the mutants that cargo-mutants generates, in files whose paths contain a filter; writes
    /// `mutants.generated.toml`
    #[arg(long, group = "mode")]
    generated: bool,
    /// Try all mutants, with --mutants or --generated
    #[arg(long, conflicts_with_all = ["list", "contracts"])]
    all: bool,
    /// The number of mutants tried at once
    #[arg(long, value_name = "N", default_value_t = mutants::WORKERS, value_parser = at_least_one)]
    jobs: usize,
    /// Start no mutant after this many minutes, with --mutants; those left stay due and are counted
    #[arg(long, value_name = "N", requires = "mutants")]
    minutes: Option<u64>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "at least 1".to_owned())
}

/// Runs a `tck` command.
pub(crate) fn run(command: &TckCommand, workspace: &Path) -> Result<()> {
    let TckCommand { words, all, jobs, .. } = command;
    if command.mutants {
        let limit = command.minutes.map(|minutes| Duration::from_secs(60 * minutes));
        return mutants::run(workspace, words, *all, *jobs, limit);
    }
    if command.generated {
        return mutants::run_generated(workspace, words, *all, *jobs);
    }
    match (command.words.as_slice(), command.list, command.contracts) {
        ([], true, _) => {
            list();
            Ok(())
        }
        ([], _, true) => contracts::run(workspace),
        ([store, filters @ ..], false, false) if !*all => suite::run(workspace, store, filters),
        (_, false, false) if *all => bail!("--all goes with --mutants or --generated"),
        ([], false, false) => {
            bail!("name a store: `cargo xtask tck memory`, or see `cargo xtask tck --help`")
        }
        _ => bail!("--list and --contracts take no store"),
    }
}

fn list() {
    let mut count = 0;
    for case in ratchet_tck::cases::all() {
        let numbers: Vec<String> = case.shows.iter().map(|number| format!("S{number}")).collect();
        println!("{}  [{}]  {}", case.id(), case.proves.join(", "), numbers.join(" "));
        count += 1;
    }
    println!("{count} cases");
}
