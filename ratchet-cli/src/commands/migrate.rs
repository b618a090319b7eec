//! `ratchet migrate`

use std::process::ExitCode;

use anyhow::Result;

use crate::output::Output;
use crate::store::StoreArgs;

/// `ratchet migrate`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet migrate --url jobs.db                                 # a file, made if it is not there
  ratchet migrate --url postgres://me@db/app --schema billing   # the tables are in a schema of their own
  ratchet migrate --status                                      # look only; exit code 1 if something is pending")]
pub(crate) struct Arguments {
    /// Show which versions are applied and which are pending, and change nothing
    #[arg(long)]
    status: bool,
}

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    if !arguments.status {
        output.show(&place.migrate().await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let versions = place.versions().await?;
    output.show(&versions)?;
    Ok(if versions.current { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
