//! `ratchet dlq`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use super::jobs::control::Control;
use super::jobs::filter::Filter;
use super::jobs::many::{self, Extent};
use crate::output::dead_letter::Groups;
use crate::output::{Instant, Output};
use crate::store::StoreArgs;

/// `ratchet dlq`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet dlq list
  ratchet dlq retry 6d3f0c1b9a7e4f5d8c2b1a0f9e8d7c6b
  ratchet dlq retry --all")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead letters in groups of the same error, largest group first
    #[command(after_help = "Examples:
  ratchet dlq list --limit 5
  ratchet dlq list --json | jq -r '.groups[] | \"\\(.count) \\(.error)\"'")]
    List {
        /// Show at most N groups
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u16,
    },
    /// Retry dead letters from their first attempt: one group, all that match a filter, or all
    #[command(after_help = "Examples:
  ratchet dlq retry 6d3f0c1b9a7e4f5d8c2b1a0f9e8d7c6b    # the group with this fingerprint
  ratchet dlq retry --queue mail --ended-from 2026-11-16T08:30:00Z
  ratchet dlq retry --all --yes                         # every dead letter, without a question")]
    Retry(Box<Retry>),
}

#[derive(Debug, clap::Args)]
struct Retry {
    /// Retry the group with this fingerprint, as shown by `ratchet dlq list`
    #[arg(
        value_name = "FINGERPRINT",
        required_unless_present_any = ["Filter", "all"],
        conflicts_with_all = ["Filter", "all"]
    )]
    group: Option<String>,

    /// Retry every dead letter
    #[arg(long, conflicts_with = "Filter")]
    all: bool,

    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    extent: Extent,
}

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let client = place.open().await?;
    let store = client.store();
    match &arguments.command {
        Command::List { limit } => {
            let groups = store.dead_letters((*limit).into()).await?;
            output.show(&Groups::of(groups, Instant(store.database_time().await?)))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Retry(which) => {
            let filter = which.group.clone().map_or_else(|| which.filter.clone(), Filter::alike);
            let done = many::run(filter, &which.extent, &Control::Retry, &client, output).await;
            client.close().await;
            done
        }
    }
}
