//! The conformance suite from the command line: `cargo xtask tck …`.

pub(crate) mod output;
mod suite;

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use crate::{contracts, mutants};

/// `cargo xtask tck …`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    cargo xtask tck memory                        every case; what is not yet built is listed\n  \
    cargo xtask tck postgres claim                the cases of one area, built or not\n  \
    cargo xtask tck mongodb claim::due_job_is_claimed_once\n  \
    cargo xtask tck --list                        every case and what it shows\n  \
    cargo xtask tck --contracts                   the contract and the cases fit\n  \
    cargo xtask tck --mutants                     broken stores and engines are caught\n  \
    cargo xtask tck --mutants claim --jobs 1")]
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
    /// Check that tests catch every broken store, engine and schema and every slow statement: the folders `mutants` of
    /// ratchet-tck, ratchet-suite, ratchet-store-core and ratchet-store-sqlite
    #[arg(long, group = "mode")]
    mutants: bool,
    /// How many mutants are tried at once
    #[arg(long, value_name = "N", default_value_t = mutants::WORKERS, requires = "mutants")]
    jobs: usize,
}

/// Carries a `tck` command out.
pub(crate) fn run(command: &TckCommand, workspace: &Path) -> Result<()> {
    if command.mutants {
        return mutants::run(workspace, &command.words, command.jobs);
    }
    match (command.words.as_slice(), command.list, command.contracts) {
        ([], true, _) => {
            list();
            Ok(())
        }
        ([], _, true) => contracts::run(workspace),
        ([store, filters @ ..], false, false) => suite::run(workspace, store, filters),
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
