//! `ratchet jobs show`

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use ratchet_api::JobId;
use ratchet_api::store::{JobStore, JobStory};
use ratchet_core::Client;

use crate::output::story::Story;
use crate::output::{Instant, Output};

/// The most log lines that are read at once.
const PAGE: usize = 1_000;

/// `ratchet jobs show`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet jobs show 0193297a-5c1e-7d4b-8f3a-0242ac120002
  ratchet jobs show 0193297a-5c1e-7d4b-8f3a-0242ac120002 --json | jq .job.ending.result")]
pub(super) struct Arguments {
    /// The id of the job
    id: JobId,

    /// Show at most N lines of its log
    #[arg(long, value_name = "N", default_value_t = 100)]
    log_lines: usize,
}

pub(super) async fn run(arguments: &Arguments, client: &Client, output: Output) -> Result<ExitCode> {
    let store = client.store();
    let id = arguments.id;
    let story = store.job_story(id).await?;
    let mut story = story.with_context(|| format!("there is no job {id}; it may be archived or deleted"))?;
    read_log(store, &mut story, arguments.log_lines).await?;
    output.show(&Story::of(story, arguments.log_lines, Instant(store.database_time().await?)))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads more of the log, of which the story has only the beginning, until it has one line more than wanted.
async fn read_log(store: &dyn JobStore, story: &mut JobStory, wanted: usize) -> Result<()> {
    while story.logs.len() <= wanted {
        let last = story.logs.last().map(|line| line.seq);
        let more = store.logs(story.job.spec.id, last, PAGE).await?;
        if more.is_empty() {
            break;
        }
        story.logs.extend(more);
    }
    Ok(())
}
