//! `ratchet jobs cancel`, `pause`, `resume` and `retry`

use std::process::ExitCode;

use anyhow::{Error, Result, bail};
use ratchet_api::store::JobFilter;
use ratchet_api::{ControlError, Job, JobId, JobStatus};
use ratchet_core::{Bulk, Client};

use super::filter::Filter;
use super::many::{self, Extent};
use crate::output::Output;
use crate::output::job::{Answer, Answers};

/// The jobs to control.
#[derive(Debug, clap::Args)]
pub(crate) struct Jobs {
    /// The ids of the jobs
    #[arg(required = true, value_name = "ID")]
    pub(super) ids: Vec<JobId>,
}

/// The jobs to control: by id, or all that match a filter.
#[derive(Debug, clap::Args)]
pub(crate) struct Chosen {
    /// The ids of the jobs, unless a filter or --all selects them
    #[arg(value_name = "ID", required_unless_present_any = ["Filter", "all"], conflicts_with_all = ["Filter", "Extent", "Confirm"])]
    ids: Vec<JobId>,

    /// All jobs in a state that allows it
    #[arg(long, conflicts_with_all = ["ids", "Filter"])]
    all: bool,

    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    extent: Extent,
}

/// `ratchet jobs cancel`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet jobs cancel 0193297a-5c1e-7d4b-8f3a-0242ac120002 --reason 'the customer changed their mind'
  ratchet jobs cancel --queue mail --status pending --yes
  ratchet jobs cancel --target billing.Payments --tag eu --limit 1000")]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(super) jobs: Chosen,

    /// The reason, shown with the job
    #[arg(long, value_name = "TEXT", default_value = "canceled from the command line")]
    pub(super) reason: String,
}

/// An operation on a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control<'a> {
    /// With this reason.
    Cancel(&'a str),
    Pause,
    Resume,
    Retry,
}

/// Controls the selected jobs.
pub(super) async fn run_chosen(
    chosen: &Chosen,
    control: &Control<'_>,
    client: &Client,
    output: Output,
) -> Result<ExitCode> {
    match chosen.ids.is_empty() {
        false => run(&chosen.ids, control, client, output).await,
        true => many::run(chosen.filter.clone(), &chosen.extent, control, client, output).await,
    }
}

/// Controls each job, prints the results, and fails if no job was changed.
pub(super) async fn run(
    ids: &[JobId],
    control: &Control<'_>,
    client: &Client,
    output: Output,
) -> Result<ExitCode> {
    let mut answers = Answers { jobs: Vec::new() };
    let mut trouble: Option<Error> = None;
    for id in ids {
        match control.steer(client, *id).await {
            Ok(answer) => answers.jobs.push(answer),
            Err(error) => {
                trouble = Some(Error::from(error).context(format!("job {id}")));
                break;
            }
        }
    }
    // The results so far are printed even if the store failed later.
    output.show(&answers)?;
    match trouble {
        Some(error) => Err(error),
        None if answers.jobs.iter().any(|answer| answer.done) => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::FAILURE),
    }
}

impl Control<'_> {
    /// Controls one job.
    pub(crate) async fn steer(&self, client: &Client, id: JobId) -> Result<Answer, ControlError> {
        let done = match self {
            Self::Cancel(reason) => client.cancel(id, reason).await?,
            Self::Pause => client.pause(id).await?,
            Self::Resume => client.resume(id).await?,
            Self::Retry => client.retry(id).await?,
        };
        let job = client.store().find(&[id]).await?.pop().flatten();
        let answer = match &job {
            None => "there is no such job".to_owned(),
            Some(job) if done => self.success(job),
            Some(job) => format!("unchanged: {}", self.obstacle(client, job).await?),
        };
        Ok(Answer { id, done, status: job.map(|job| job.status), answer })
    }

    /// Prepares the operation on all jobs that match the filter, if there is a bulk form of it.
    pub(crate) fn bulk<'a>(&self, client: &Client, filter: JobFilter) -> Result<Bulk<'a>> {
        match self {
            Self::Cancel(reason) => Ok(client.cancel_all(filter, reason)),
            Self::Retry => Ok(client.retry_all(filter)),
            Self::Pause | Self::Resume => bail!("jobs are {} one by one", self.participle()),
        }
    }

    pub(crate) const fn participle(&self) -> &'static str {
        match self {
            Self::Cancel(_) => "canceled",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Retry => "retried",
        }
    }

    fn success(&self, job: &Job) -> String {
        match self {
            Self::Cancel(_) if job.ending.is_none() => "is told to stop; it runs".to_owned(),
            Self::Resume | Self::Retry => format!("is {}: {} again", self.participle(), job.status),
            _ => format!("is {}", self.participle()),
        }
    }

    async fn obstacle(&self, client: &Client, job: &Job) -> Result<String, ControlError> {
        let status = job.status;
        // A dead letter released its key when it failed; another job may hold it now.
        let needs_key = matches!(self, Self::Pause | Self::Retry) && status == JobStatus::Failed;
        if let Some(key) = job.spec.business_key.as_ref().filter(|_| needs_key)
            && let Some(holder) = client.store().find_active_by_business_key(key).await?
        {
            return Ok(format!("job {holder} has its business key {key}"));
        }
        Ok(format!("it is {status}"))
    }
}
