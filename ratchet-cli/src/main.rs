//! The command line of Ratchet.

mod commands;
mod output;
mod store;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::Output;
use store::Place;

/// Background jobs on the database you already run.
#[derive(Debug, Parser)]
#[command(name = "ratchet", version, about, after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    place: Place,

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
    /// Runs a small shop on an embedded SQLite file and shows what happens: retries, a dead letter, a canceled job,
    /// a permit, progress. Ends by itself.
    #[cfg(feature = "sqlite")]
    Demo(commands::demo::Arguments),
    /// Makes the tables, or brings them up to date.
    Migrate(commands::migrate::Arguments),
    /// Shows the store, its clock, queues, nodes and dead letters on one screen.
    Status(commands::status::Arguments),
    /// Shows every node: whether it lives, what it runs, which queues it serves, which methods it knows, how its clock is.
    Nodes(commands::nodes::Arguments),
    /// Lists jobs, shows one, and steers them.
    Jobs(Box<commands::jobs::Arguments>),
    /// Tells why a job is not running: what it waits for, who holds what it needs, what stands before it.
    Explain(commands::explain::Arguments),
    /// Shows dead letters by what went wrong, and tries them again.
    Dlq(commands::dlq::Arguments),
    /// Shows how the queues are doing; pauses and resumes them.
    Queues(commands::queues::Arguments),
    /// Shows how many jobs may use what at once, and who does; sets limits.
    Resources(commands::resources::Arguments),
    /// Archives and deletes what is old, now instead of at its time.
    Maintenance(commands::maintenance::Arguments),
    /// Runs the jobs of the small shop of `ratchet demo` on your store, until Ctrl-C. Start it in several terminals, and
    /// see what the others do when you kill one.
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
