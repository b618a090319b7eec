//! Project commands: `cargo xtask --help`.

mod bench;
mod cargo;
mod contracts;
mod mutants;
mod queue;
mod requirements;
mod servers;
mod tck;
mod test;
mod torture;
mod verify;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use self::cargo::cargo;

/// Project commands of Ratchet
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Real database servers for tests and benchmarks
    #[command(subcommand)]
    Servers(servers::ServersCommand),
    /// Run every test against real servers, which it starts and stops by itself
    ///
    /// Servers that are up already are used and left up. The last line is the sum of all tests.
    #[command(after_help = "Examples:\n  \
        cargo xtask test\n  \
        cargo xtask test --long     many more sequences of the life-cycle model, each time others\n  \
        RATCHET_TEST_POSTGRES_URL=postgres://me@db/test cargo xtask test     use your own server")]
    Test {
        /// Run what is random for longer than a change should have to wait
        #[arg(long)]
        long: bool,
    },
    /// The conformance suite of stores: run it, list it, check it against the contract and with mutants
    Tck(tck::TckCommand),
    /// Benchmarks of stores and of the engine on durable servers, which it starts and stops by itself
    ///
    /// Builds for release, which takes a while the first time. Servers that are up but not durable are started anew.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Kills, freezes and cuts off real worker processes, and checks that nothing is lost
    #[command(after_help = "Examples:\n  \
        cargo xtask torture --store sqlite\n  \
        cargo xtask torture --store postgres --scenario kill --faults 100 --seed 7\n  \
        cargo xtask torture --store mongodb --scenario failover --faults 15 --jobs 20000\n  \
        cargo xtask torture --store postgres --minutes 10")]
    Torture(torture::TortureCommand),
    /// Which tests show which requirement
    Requirements(requirements::RequirementsCommand),
    /// Check formatting, lints, documentation, dependencies and texts; changes nothing
    #[command(after_help = "Example:\n  cargo xtask verify")]
    Verify,
    /// Format, let clippy mend what it can, and bring copies of texts up to date
    #[command(after_help = "Example:\n  cargo xtask fix && cargo xtask verify")]
    Fix,
}

fn main() -> ExitCode {
    let workspace = workspace();
    let outcome = match &Cli::parse().command {
        Command::Servers(command) => servers::run(command, &workspace),
        Command::Test { long } => test::test(&workspace, *long),
        Command::Tck(command) => tck::run(command, &workspace),
        Command::Bench(command) => bench::run(command, &workspace),
        Command::Torture(command) => torture::run(command, &workspace),
        Command::Requirements(command) => requirements::run(command, &workspace),
        Command::Verify => verify::verify(&workspace),
        Command::Fix => verify::fix(&workspace),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the checkout that the command was given in, not of the one that it was built in:
/// checkouts may share a target folder.
fn workspace() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    package.parent().map_or_else(|| package.clone(), Path::to_owned)
}
