//! `ratchet dlq`

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use ratchet_api::store::{DeadLetterGroup, JobFilter, PageRequest};
use ratchet_api::{ExecutionResult, Fingerprint, Job, JobStatus, StoreResult};
use ratchet_core::Client;

use super::jobs::control::Control;
use crate::output::dead_letter::{Groups, Revived};
use crate::output::{Instant, Output, progress};
use crate::store::Place;

/// How many dead letters are read at once, and between two signs of progress.
const PAGE: usize = 200;

/// More groups than anyone has.
const MOST_GROUPS: usize = 1_000_000;

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
    /// Shows dead letters in groups that failed alike, the biggest first
    #[command(after_help = "Examples:
  ratchet dlq list --limit 5
  ratchet dlq list --json | jq -r '.groups[] | \"\\(.count) \\(.error)\"'")]
    List {
        /// The most groups
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u16,
    },
    /// Runs all dead letters of a group again, as if they had never been tried
    #[command(after_help = "Examples:
  ratchet dlq retry 6d3f0c1b9a7e4f5d8c2b1a0f9e8d7c6b    # the group with this fingerprint
  ratchet dlq retry --all                               # every dead letter")]
    Retry(Retry),
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Retry {
    /// The group's fingerprint, as `ratchet dlq list` shows it
    #[arg(value_name = "FINGERPRINT")]
    fingerprint: Option<String>,

    /// Every dead letter
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(arguments: &Arguments, place: &Place, output: Output) -> Result<ExitCode> {
    let client = place.open().await?;
    let store = client.store();
    match &arguments.command {
        Command::List { limit } => {
            let groups = store.dead_letters((*limit).into()).await?;
            output.show(&Groups::of(groups, Instant(store.database_time().await?)))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Retry(which) => {
            let group = match &which.fingerprint {
                Some(wanted) => Some(find(&client, wanted).await?),
                None => None,
            };
            let revived = retry(&client, group.as_ref()).await?;
            output.show(&revived)?;
            Ok(if revived.retried > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

async fn find(client: &Client, wanted: &str) -> Result<DeadLetterGroup> {
    let groups = client.store().dead_letters(MOST_GROUPS).await?;
    let found = groups.into_iter().find(|group| group.fingerprint.as_str() == wanted);
    found.with_context(|| {
        format!("no dead letter has the fingerprint {wanted}; `ratchet dlq list` shows those that there are")
    })
}

/// Retries the dead letters of a group, or all. A page is below the one before, so what fails again at once is not met
/// twice.
async fn retry(client: &Client, group: Option<&DeadLetterGroup>) -> Result<Revived> {
    let mut filter = JobFilter::default();
    filter.statuses = vec![JobStatus::Failed];
    filter.target = group.map(|group| group.target.clone());
    let mut page = PageRequest::first(PAGE);
    let mut revived = Revived::default();
    loop {
        let found = client.store().query_jobs(&filter, &page).await?;
        for job in &found.jobs {
            if !is_member(client, job, group).await? {
                continue;
            }
            let answer = Control::Retry.steer(client, job.spec.id).await?;
            if answer.done {
                revived.retried += 1;
            } else {
                revived.left.push(answer);
            }
        }
        if found.next.is_none() {
            return Ok(revived);
        }
        page.after = found.next;
        progress(&format!("{} retried so far", revived.retried));
    }
}

/// Whether a dead letter belongs to a group; all belong to none in particular.
async fn is_member(client: &Client, job: &Job, group: Option<&DeadLetterGroup>) -> StoreResult<bool> {
    let Some(group) = group else { return Ok(true) };
    // A job does not tell its fingerprint, but its last failure has all that the fingerprint is made of.
    let mut executions = client.store().executions(job.spec.id).await?;
    let failed = |result| matches!(result, ExecutionResult::Failed | ExecutionResult::Crashed);
    executions.retain(|execution| failed(execution.result));
    let Some(last) = executions.pop() else { return Ok(false) };
    let (class, message) = (last.error_class.unwrap_or_default(), last.error.unwrap_or_default());
    Ok(Fingerprint::of(job.spec.payload.target().as_str(), &class, &message) == group.fingerprint)
}
