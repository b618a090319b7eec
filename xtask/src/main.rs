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
    /// Start and stop real database servers for tests and benchmarks
    #[command(subcommand)]
    Servers(servers::ServersCommand),
    /// Run every test against real servers, which are started and stopped as needed
    ///
    /// Servers that already run are used and left running. The last line is the sum of all tests.
    #[command(after_help = "Examples:\n  \
        cargo xtask test\n  \
        cargo xtask test --long     many more sequences of the life-cycle model, each time others\n  \
        RATCHET_TEST_POSTGRES_URL=postgres://me@db/test cargo xtask test     use your own server")]
    Test {
        /// Run randomized tests for longer than a change should have to wait
        #[arg(long)]
        long: bool,
    },
    /// Run the conformance suite of stores, list it, or check it against the contract and with mutants
    Tck(tck::TckCommand),
    /// Run benchmarks of stores and engine on durable servers, which are started and stopped as needed
    ///
    /// Builds for release, which takes a while the first time. Running servers that are not durable are restarted.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Kill, freeze and cut off real worker processes, and check that nothing is lost
    #[command(after_help = "Examples:\n  \
        cargo xtask torture --store sqlite\n  \
        cargo xtask torture --store postgres --scenario kill --faults 100 --seed 7\n  \
        cargo xtask torture --store mongodb --scenario failover --faults 15 --jobs 20000\n  \
        cargo xtask torture --store postgres --minutes 10")]
    Torture(torture::TortureCommand),
    /// Show which tests prove which requirement
    Requirements(requirements::RequirementsCommand),
    /// Check formatting, lints, documentation, dependencies and texts; change nothing
    #[command(after_help = "Example:\n  cargo xtask verify")]
    Verify,
    /// Format, apply clippy's fixes, and update copies of texts
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

/// The root of the checkout in which the command was given, not of the one in which it was built: checkouts may share a
/// target folder.
fn workspace() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    package.parent().map_or_else(|| package.clone(), Path::to_owned)
}
