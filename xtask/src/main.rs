//! Project commands: `cargo xtask --help`.

mod servers;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
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
}

fn main() -> ExitCode {
    let workspace = workspace();
    let outcome = match &Cli::parse().command {
        Command::Servers(command) => servers::run(command, &workspace),
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
