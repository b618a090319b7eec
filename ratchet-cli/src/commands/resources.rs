//! `ratchet resources`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ratchet_api::ResourceName;

use crate::output::Output;
use crate::output::resource::{Limited, Resources};
use crate::store::StoreArgs;

/// `ratchet resources`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet resources                   # limits, and who holds a permit
  ratchet resources set printer 2     # at most two jobs use the printer at once, in the whole cluster
  ratchet resources set printer 0     # none does; those that run go on")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List every resource with a limit and the jobs that hold its permits; the same as no subcommand
    #[command(after_help = "Example:\n  ratchet resources list --json")]
    List,
    /// Set how many jobs may use a resource at once in the whole cluster. A node that starts with another limit for it
    /// overwrites this one
    #[command(after_help = "Example:\n  ratchet resources set printer 2")]
    Set(Limit),
}

#[derive(Debug, clap::Args)]
struct Limit {
    /// The name of the resource, as given by jobs
    #[arg(value_parser = |text: &str| ResourceName::new(text))]
    name: ResourceName,
    /// The most jobs at once
    limit: u32,
}

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let client = place.open().await?;
    match &arguments.command {
        None | Some(Command::List) => output.show(&Resources::of(client.store().resources().await?))?,
        Some(Command::Set(Limit { name, limit })) => {
            let was = client.set_resource(name, *limit).await?;
            output.show(&Limited { resource: name.clone(), limit: *limit, was })?;
        }
    }
    client.close().await;
    Ok(ExitCode::SUCCESS)
}
