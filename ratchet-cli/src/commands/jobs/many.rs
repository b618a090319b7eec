//! Control of all jobs that match a filter.

use std::process::ExitCode;

use anyhow::Result;
use ratchet_core::{Client, Steered};

use super::control::Control;
use super::filter::Filter;
use crate::commands::confirm::{COUNTED, Confirm, how_many};
use crate::output::many::Many;
use crate::output::{Output, progress};

/// The number of jobs from which progress is shown.
const LONG: usize = 501;

/// The limit on the number of jobs, and the confirmation.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Extent {
    /// Change at most N jobs, newest first
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    #[command(flatten)]
    confirm: Confirm,
}

/// Controls all matching jobs, prints how many, and fails if nothing was changed.
pub(crate) async fn run(
    filter: Filter,
    extent: &Extent,
    control: &Control<'_>,
    client: &Client,
    output: Output,
) -> Result<ExitCode> {
    let bulk = control.bulk(client, filter.into())?.limit(extent.limit.unwrap_or(usize::MAX));
    let found = bulk.count(COUNTED).await?;
    if found > 0 {
        extent.confirm.ask(&format!("{} will be {}", how_many(found, "job"), control.participle()))?;
    }
    let mut done = Steered::default();
    let tell = |so_far: &Steered| {
        if found >= LONG {
            progress(&format!("{} {} so far", so_far.done, control.participle()));
        }
        done.clone_from(so_far);
    };
    let outcome = bulk.on_progress(tell).run().await;
    // The results so far are printed even if the store failed later.
    output.show(&Many::of(&done, control.participle()))?;
    outcome?;
    Ok(if done.done > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
