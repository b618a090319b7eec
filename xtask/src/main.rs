//! Project commands: `cargo xtask --help`.

mod servers;
mod verify;

use std::{
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

use clap::{Parser, Subcommand};

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
    /// Check formatting, lints, documentation, dependencies and texts; changes nothing
    #[command(after_help = "Example:\n  cargo xtask verify")]
    Verify,
    /// Format, and let clippy mend what it can
    #[command(after_help = "Example:\n  cargo xtask fix && cargo xtask verify")]
    Fix,
}

fn main() -> ExitCode {
    let workspace = workspace();
    let outcome = match &Cli::parse().command {
        Command::Servers(command) => servers::run(command, &workspace),
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

/// The cargo that runs us.
fn cargo() -> process::Command {
    process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The root of the checkout that the command was given in, not of the one that it was built in:
/// checkouts may share a target folder.
fn workspace() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    package.parent().map_or_else(|| package.clone(), Path::to_owned)
}
