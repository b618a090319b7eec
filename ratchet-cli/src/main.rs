//! The command line of Ratchet.

mod commands;
mod output;
mod store;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Output;
use store::StoreArgs;

/// Background jobs on the database you already run.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version, about, after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    place: StoreArgs,

    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  ratchet demo                            # see it work, on a SQLite file of its own
  export RATCHET_URL=postgres://me@db/app
  ratchet migrate                         # make the tables, or bring them up to date
  ratchet status                          # queues, nodes and dead letters on one screen
  ratchet jobs list --status failed       # what went wrong
  ratchet explain 0193297a-5c1e-7d4b-8f3a-0242ac120002    # why is this job not running?
  ratchet dlq retry --all                 # try it again";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a small shop on an embedded SQLite file to show retries, a dead letter, a canceled job, a permit and
    /// progress. Ends by itself.
    #[cfg(feature = "sqlite")]
    Demo(commands::demo::Arguments),
    /// Create the tables, or bring them up to date.
    Migrate(commands::migrate::Arguments),
    /// Show the store, its clock, queues, nodes and dead letters on one screen.
    Status(commands::status::Arguments),
    /// Show every node: whether it is alive, the jobs it runs, its queues, its methods and its clock skew.
    Nodes(commands::nodes::Arguments),
    /// List, show and control jobs.
    Jobs(Box<commands::jobs::Arguments>),
    /// Explain why a job is not running: what it waits for, which jobs hold what it needs, how many are ahead of it.
    Explain(commands::explain::Arguments),
    /// List dead letters in groups of the same error, and retry them.
    Dlq(commands::dlq::Arguments),
    /// Show the health of the queues; pause and resume them.
    Queues(commands::queues::Arguments),
    /// Show resource limits and the jobs that hold permits; set limits.
    Resources(commands::resources::Arguments),
    /// Archive and delete old data now instead of on schedule.
    Maintenance(commands::maintenance::Arguments),
    /// Run the jobs of the `ratchet demo` shop on your store until Ctrl-C. Start it in several terminals, and kill one
    /// to see the others take over its jobs.
    Worker(commands::worker::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { output, place, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::usage(&error),
    };
    let done = match &command {
        #[cfg(feature = "sqlite")]
        Command::Demo(arguments) => commands::demo::run(arguments).await.map(|()| ExitCode::SUCCESS),
        Command::Migrate(arguments) => commands::migrate::run(arguments, &place, output).await,
        Command::Status(arguments) => commands::status::run(arguments, &place, output).await,
        Command::Nodes(arguments) => commands::nodes::run(arguments, &place, output).await,
        Command::Jobs(arguments) => commands::jobs::run(arguments, &place, output).await,
        Command::Explain(arguments) => commands::explain::run(arguments, &place, output).await,
        Command::Dlq(arguments) => commands::dlq::run(arguments, &place, output).await,
        Command::Queues(arguments) => commands::queues::run(arguments, &place, output).await,
        Command::Resources(arguments) => commands::resources::run(arguments, &place, output).await,
        Command::Maintenance(arguments) => commands::maintenance::run(arguments, &place, output).await,
        Command::Worker(arguments) => commands::worker::run(arguments, &place).await,
    };
    done.unwrap_or_else(|error| output::failure(&error))
}
