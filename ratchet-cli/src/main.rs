//! The command line of Ratchet.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Background jobs on the database you already run.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version, about, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  ratchet demo                            # see it work, on a SQLite file of its own";

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a small shop on an embedded SQLite file and shows what happens: retries, a dead letter, a cancelled job,
    /// a permit, progress. Ends by itself.
    #[cfg(feature = "sqlite")]
    Demo(commands::demo::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        #[cfg(feature = "sqlite")]
        Command::Demo(arguments) => commands::demo::run(&arguments).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
