//! `ratchet nodes`

use std::process::ExitCode;

use anyhow::Result;

use crate::output::node::{NodeList, Nodes};
use crate::output::{Instant, Output};
use crate::store::StoreArgs;

/// `ratchet nodes`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet nodes
  ratchet nodes --json | jq -r '.[] | select(.state != \"alive\") | .label'
  watch -n 1 ratchet nodes --url jobs.db")]
pub(crate) struct Arguments {}

pub(crate) async fn run(_: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let client = place.open().await?;
    let store = client.store();
    let now = Instant(store.database_time().await?);
    output.show(&NodeList(Nodes::of(store.nodes().await?, now)))?;
    Ok(ExitCode::SUCCESS)
}
