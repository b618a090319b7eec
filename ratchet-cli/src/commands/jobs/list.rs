//! `ratchet jobs list`

use std::process::ExitCode;

use anyhow::Result;
use ratchet_api::JobId;
use ratchet_api::store::PageRequest;
use ratchet_core::Client;

use super::filter::Filter;
use crate::output::job::Page;
use crate::output::{Instant, Output};

/// `ratchet jobs list`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet jobs list                                     # the newest 20
  ratchet jobs list --status failed,canceled --limit 100
  ratchet jobs list --target billing.Payments --tag eu --tag urgent
  ratchet jobs list --status failed --ended-from 2026-11-16T08:30:00Z
  ratchet jobs list --json | jq -r '.jobs[].id'")]
pub(super) struct Arguments {
    #[command(flatten)]
    filter: Filter,

    /// List at most N jobs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,

    /// Continue after this job, the last of the previous page
    #[arg(long, value_name = "ID")]
    after: Option<JobId>,
}

pub(super) async fn run(arguments: &Arguments, client: &Client, output: Output) -> Result<ExitCode> {
    let store = client.store();
    let page = PageRequest { after: arguments.after, limit: arguments.limit.into() };
    let jobs = store.query_jobs(&arguments.filter.clone().into(), &page).await?;
    output.show(&Page::of(jobs, Instant(store.database_time().await?)))?;
    Ok(ExitCode::SUCCESS)
}
