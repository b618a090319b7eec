//! `ratchet resources`

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use ratchet_api::ResourceName;

use crate::output::Output;
use crate::output::resource::{Limited, Resources};
use crate::store::Place;

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
    /// Shows every resource that has a limit, and the jobs that hold a permit of it; so does no command
    #[command(after_help = "Example:\n  ratchet resources list --json")]
    List,
    /// Says how many jobs may use a resource at once, in the whole cluster. A node that is started with another number
    /// sets that
    #[command(after_help = "Example:\n  ratchet resources set printer 2")]
    Set(Limit),
}

#[derive(Debug, clap::Args)]
struct Limit {
    /// The resource's name, as jobs give it
    #[arg(value_parser = |text: &str| ResourceName::new(text))]
    name: ResourceName,
    /// The most jobs at once
    limit: u32,
}

pub(crate) async fn run(arguments: &Arguments, place: &Place, output: Output) -> Result<ExitCode> {
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
