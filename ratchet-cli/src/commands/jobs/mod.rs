//! `ratchet jobs`

pub(crate) mod control;
pub(crate) mod filter;
mod list;
pub(crate) mod many;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::output::Output;
use crate::store::StoreArgs;
use control::Control;

/// `ratchet jobs`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet jobs list --status failed,paused --queue mail
  ratchet jobs show 0193297a-5c1e-7d4b-8f3a-0242ac120002
  ratchet jobs retry 0193297a-5c1e-7d4b-8f3a-0242ac120002")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List jobs, newest first
    List(list::Arguments),
    /// Show one job in full: fields, attempts, log, edges, alerts
    Show(show::Arguments),
    /// Cancel jobs: pending ones at once; running ones are told to stop
    Cancel(control::Cancel),
    /// Pause jobs that are pending or have failed
    #[command(after_help = "Example:\n  ratchet jobs pause 0193297a-5c1e-7d4b-8f3a-0242ac120002")]
    Pause(control::Jobs),
    /// Resume paused jobs
    #[command(after_help = "Example:\n  ratchet jobs resume 0193297a-5c1e-7d4b-8f3a-0242ac120002")]
    Resume(control::Jobs),
    /// Retry failed jobs from their first attempt
    #[command(after_help = "Examples:
  ratchet jobs retry 0193297a-5c1e-7d4b-8f3a-0242ac120002
  ratchet jobs retry --queue mail --ended-from 2026-11-16T08:30:00Z --yes")]
    Retry(control::Chosen),
}

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let client = place.open().await?;
    let done = match &arguments.command {
        Command::List(arguments) => list::run(arguments, &client, output).await,
        Command::Show(arguments) => show::run(arguments, &client, output).await,
        Command::Cancel(cancel) => {
            control::run_chosen(&cancel.jobs, &Control::Cancel(&cancel.reason), &client, output).await
        }
        Command::Pause(jobs) => control::run(&jobs.ids, &Control::Pause, &client, output).await,
        Command::Resume(jobs) => control::run(&jobs.ids, &Control::Resume, &client, output).await,
        Command::Retry(jobs) => control::run_chosen(jobs, &Control::Retry, &client, output).await,
    };
    client.close().await;
    done
}
