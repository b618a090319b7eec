//! Steering all jobs that a filter finds.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Result, bail};
use ratchet_core::{Client, Steered};

use super::control::Control;
use super::filter::Filter;
use crate::output::many::Many;
use crate::output::{Output, progress};

/// Up to here jobs are counted before anyone is asked.
const COUNTED: usize = 1_000;
/// From here on it is told how far it is.
const LONG: usize = 501;

/// How many, and whether to ask.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Extent {
    /// The most jobs, newest first
    #[arg(long, value_name = "N")]
    limit: Option<usize>,

    /// Do not ask whether it is meant
    #[arg(long, short)]
    yes: bool,
}

/// Steers what a filter finds, tells how many that were, and fails if nothing was changed.
pub(crate) async fn run(
    filter: Filter,
    extent: &Extent,
    control: &Control<'_>,
    client: &Client,
    output: Output,
) -> Result<ExitCode> {
    let bulk = control.bulk(client, filter.into())?.limit(extent.limit.unwrap_or(usize::MAX));
    let found = bulk.count(COUNTED).await?;
    if found > 0 && !extent.yes && !is_meant(found, control)? {
        bail!("nothing was changed");
    }
    let mut done = Steered::default();
    let tell = |so_far: &Steered| {
        if found >= LONG {
            progress(&format!("{} {} so far", so_far.done, control.participle()));
        }
        done.clone_from(so_far);
    };
    let outcome = bulk.on_progress(tell).run().await;
    // What was done is told even if the store failed later.
    output.show(&Many::of(&done, control.participle()))?;
    outcome?;
    Ok(if done.done > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks, where there is someone to ask.
fn is_meant(found: usize, control: &Control<'_>) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("{}: say --yes if that is meant", question(found, control));
    }
    let mut screen = io::stderr();
    write!(screen, "{}. Go on? [y/N] ", question(found, control))?;
    screen.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn question(found: usize, control: &Control<'_>) -> String {
    let jobs = match found {
        1 => "1 job".to_owned(),
        COUNTED => format!("{COUNTED} jobs or more"),
        found => format!("{found} jobs"),
    };
    format!("{jobs} will be {}", control.participle())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_how_many() {
        assert_eq!(question(1, &Control::Retry), "1 job will be retried");
        assert_eq!(question(17, &Control::Cancel("rain")), "17 jobs will be cancelled");
        assert_eq!(question(COUNTED, &Control::Retry), "1000 jobs or more will be retried");
    }
}
