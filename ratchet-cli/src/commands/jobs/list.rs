//! `ratchet jobs list`

use std::process::ExitCode;

use anyhow::Result;
use ratchet_api::store::{JobFilter, PageRequest};
use ratchet_api::{BusinessKey, JobId, JobStatus, QueueName, Tag, TargetName};
use ratchet_core::Client;

use crate::output::job::Page;
use crate::output::{Instant, Output};

/// `ratchet jobs list`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet jobs list                                     # the newest 20
  ratchet jobs list --status failed,canceled --limit 100
  ratchet jobs list --target billing.Payments --tag eu --tag urgent
  ratchet jobs list --json | jq -r '.jobs[].id'")]
pub(super) struct Arguments {
    /// Only in these states: pending, running, succeeded, failed, paused, canceled
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    status: Vec<JobStatus>,

    /// Only in this queue
    #[arg(long, value_name = "NAME", value_parser = |text: &str| QueueName::new(text))]
    queue: Option<QueueName>,

    /// Only of this target
    #[arg(long, value_name = "NAME", value_parser = |text: &str| TargetName::new(text))]
    target: Option<TargetName>,

    /// Only with this tag; several must all be there
    #[arg(long, value_name = "WORD", value_parser = |text: &str| Tag::new(text))]
    tag: Vec<Tag>,

    /// Only with this business key
    #[arg(long, value_name = "KEY", value_parser = |text: &str| BusinessKey::new(text))]
    key: Option<BusinessKey>,

    /// The most jobs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,

    /// Go on below this job: the last of the page before
    #[arg(long, value_name = "ID")]
    after: Option<JobId>,
}

/// Reads a status as people write it.
fn status(word: &str) -> Result<JobStatus, String> {
    let word = word.to_uppercase();
    let word = if word == "CANCELLED" { JobStatus::Canceled.as_str() } else { word.as_str() };
    word.parse().map_err(|_| "it is pending, running, succeeded, failed, paused or canceled".to_owned())
}

pub(super) async fn run(arguments: &Arguments, client: &Client, output: Output) -> Result<ExitCode> {
    let store = client.store();
    let mut filter = JobFilter::default();
    filter.statuses.clone_from(&arguments.status);
    filter.queue.clone_from(&arguments.queue);
    filter.target.clone_from(&arguments.target);
    filter.tags.clone_from(&arguments.tag);
    filter.business_key.clone_from(&arguments.key);
    let page = PageRequest { after: arguments.after, limit: arguments.limit.into() };
    let jobs = store.query_jobs(&filter, &page).await?;
    output.show(&Page::of(jobs, Instant(store.database_time().await?)))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_people_write_it() {
        assert_eq!(status("failed"), Ok(JobStatus::Failed));
        assert_eq!(status("Cancelled"), Ok(JobStatus::Canceled));
        assert!(status("done").unwrap_err().contains("succeeded"));
    }
}
