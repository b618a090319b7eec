//! `ratchet maintenance`

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Subcommand;
use ratchet_api::store::JobFilter;
use ratchet_core::Client;
use ratchet_core::maintenance::{Ran, Task};

use super::confirm::{COUNTED, Confirm, how_many};
use crate::output::maintenance::{Runs, TaskRun};
use crate::output::{Output, progress, span};
use crate::store::StoreArgs;

/// `ratchet maintenance`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet maintenance run archive --older-than 90d
  ratchet maintenance run node-purge --older-than 1h")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run tasks now, under the same locks that nodes use on schedule
    #[command(after_help = "Tasks:
  archive        moves ended jobs into the archive
  archive-purge  deletes archived jobs
  dlq-purge      deletes dead letters
  log-purge      deletes lines of job logs
  node-purge     deletes rows of nodes that died and hold no job

Examples:
  ratchet maintenance run archive --older-than 90d                       # asks if dead letters go with them
  ratchet maintenance run dlq-purge --older-than 90d                     # says how many, and asks
  ratchet maintenance run log-purge node-purge --older-than 12h --yes")]
    Run(Run),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// The tasks to run, in this order
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<Task>,

    /// Minimum age: 90d, 12h, 30min, 10s. The retention options of your application are not known here
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Duration,

    #[command(flatten)]
    confirm: Confirm,
}

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let Command::Run(Run { tasks, older_than, confirm }) = &arguments.command;
    let client = place.open().await?;
    let losses = losses(tasks, *older_than, &client).await?;
    if !losses.is_empty() {
        confirm.ask(&losses.join(", and "))?;
    }
    let maintenance = client.maintenance().older_than(*older_than);
    let (mut runs, stop) = (Runs::default(), stop_on_signal());
    for task in tasks {
        let tell = |rows| {
            if rows > 0 {
                progress(&format!("{task}: {rows} {} so far", task.verb()));
            }
            !stop.load(Ordering::Relaxed)
        };
        let ran = maintenance.run(*task, tell).await.with_context(|| format!("{task} did not end"))?;
        runs.tasks.push(TaskRun::of(*task, ran));
    }
    let done = runs.tasks.iter().all(|run| matches!(run.ran, Ran::Done { .. }));
    output.show(&runs)?;
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Descriptions of the affected data that someone may still want.
async fn losses(tasks: &[Task], older_than: Duration, client: &Client) -> Result<Vec<String>> {
    let age = format!("older than {}", span(older_than));
    let (mut deleted, mut archived) = (Vec::new(), None);
    for task in tasks {
        match task {
            Task::DlqPurge => match dead_letters(older_than, client).await? {
                0 => {}
                found => deleted.push(format!("{} {age}", how_many(found, "dead letter"))),
            },
            Task::Archive => match dead_letters(older_than, client).await? {
                0 => {}
                found => archived = Some(format!("{} {age}", how_many(found, "dead letter"))),
            },
            Task::ArchivePurge => deleted.push(format!("archived jobs {age}")),
            Task::LogPurge => deleted.push(format!("log lines {age}")),
            _ => {}
        }
    }
    let archived = archived.map(|what| format!("{what} will be archived and can no longer be retried"));
    let deleted = Some(deleted).filter(|deleted| !deleted.is_empty());
    let deleted = deleted.map(|what| format!("{} will be deleted for good", what.join(" and ")));
    Ok(archived.into_iter().chain(deleted).collect())
}

/// The number of dead letters older than this, counted up to [`COUNTED`].
async fn dead_letters(older_than: Duration, client: &Client) -> Result<usize> {
    let mut filter = JobFilter::default();
    filter.ended_until = Some(client.store().database_time().await? - older_than);
    Ok(client.retry_all(filter).count(COUNTED).await?)
}

/// A flag that becomes true at Ctrl-C or SIGTERM. A process killed otherwise holds its lock until that expires.
fn stop_on_signal() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    tokio::spawn(async move {
        if ratchet_core::shutdown_signal().await.is_ok() {
            told.store(true, Ordering::Relaxed);
        }
    });
    stop
}

/// Reads `90d`, `12h`, `30min` or `10s`.
fn age(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let seconds = match &text[digits.len()..] {
        "d" => 86_400,
        "h" => 3_600,
        "min" => 60,
        "s" => 1,
        _ => 0,
    };
    let number: Option<u64> = digits.parse().ok().filter(|_| seconds > 0);
    let age = number.and_then(|number| number.checked_mul(seconds));
    let age = age.context("write an age as a whole number and d, h, min or s, such as 90d")?;
    ensure!(age <= 36_500 * 86_400, "nothing is older than 36500d");
    Ok(Duration::from_secs(age))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        for (text, seconds) in [("90d", 7_776_000), ("12h", 43_200), ("30min", 1_800), ("0s", 0)] {
            assert_eq!(age(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        for text in
            ["", "90", "d", "1.5h", "-1d", "1w", "1 d", "99999999999999999999d", "18446744073709551615d"]
        {
            assert!(age(text).is_err(), "{text}");
        }
        assert_eq!(age("36501d").unwrap_err().to_string(), "nothing is older than 36500d");
    }
}
