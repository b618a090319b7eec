//! One run: workers, jobs and faults, and then the truth.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use ratchet_api::{JobId, ResourceLimit, ResourceName};
use ratchet_core::{Client, Ratchet};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::check::{End, Evidence, Violation, check, nobody_died};
use crate::fleet::Fleet;
use crate::ledger::{self, Run as Ran};
use crate::plan::{Fault, Scenario, Step, duration, plan};
use crate::submit::{self, PERMITS, RESOURCE, Submitted, submit};
use crate::witness::{self, Change, Excess, Hold, Rest, StoreName, Witness};
use crate::work::CRASH_LIMIT;

/// Where libfaketime is.
const FAKETIME: &str = "RATCHET_FAKETIME";
/// The file in which libfaketime finds what the clock shows.
const CLOCK: &str = "FAKETIME_TIMESTAMP_FILE";
/// How many jobs are looked at by one call.
const PAGE: usize = 500;
/// Jobs that have not ended so long after the last fault are stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// So many milliseconds after the database is back, work goes on.
const MOST_IDLE: i64 = 10_000;

/// What to torture, and how.
#[derive(Debug, Args)]
pub(crate) struct Torture {
    /// The store
    #[arg(long)]
    pub(crate) store: StoreName,
    /// What goes wrong
    #[arg(long, default_value = "chaos")]
    pub(crate) scenario: Scenario,
    /// The same seed gives the same faults and jobs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many faults
    #[arg(long, default_value_t = 10)]
    pub(crate) faults: usize,
    /// How many jobs
    #[arg(long, default_value_t = 1_000)]
    pub(crate) jobs: usize,
    /// How many worker processes
    #[arg(long, default_value_t = 3)]
    pub(crate) workers: usize,
    /// The lease of a node
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    pub(crate) lease_ms: u64,
    /// Loses a job and records an outcome twice, to see that it is noticed
    #[arg(long, hide = true)]
    pub(crate) spoil: bool,
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) submitted: Submitted,
    pub(crate) evidence: Evidence,
    pub(crate) violations: Vec<Violation>,
    /// The worst that was seen at any moment.
    pub(crate) excess: Excess,
    pub(crate) rest: Rest,
    /// Milliseconds from a kill until a job that ran then ran again, in order.
    pub(crate) reruns: Vec<i64>,
    /// Milliseconds from the end of each outage, restart or failover until the next body ended.
    pub(crate) recoveries: Vec<i64>,
    /// Milliseconds from each failover until the next job was claimed; nothing if none ever was.
    pub(crate) resumed: Vec<Option<i64>>,
    pub(crate) faults: usize,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Whether nothing is wrong.
    pub(crate) fn is_good(&self) -> bool {
        self.violations.is_empty()
            && self.submitted.strays.is_empty()
            && self.excess == Excess::default()
            && self.rest == Rest::default()
            && self.resumed.iter().all(|after| after.is_some_and(|after| after <= MOST_IDLE))
    }
}

impl Torture {
    pub(crate) const fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Does it, and looks at what is left. Files go to `folder`.
    pub(crate) async fn run(&self, folder: &Path) -> Result<Outcome> {
        let begun = Instant::now();
        let witness: Arc<dyn Witness> = witness::make(self.store, self.scenario, folder).await?.into();
        let client = self.client(&*witness).await?;
        let steps = plan(self.scenario, self.seed, self.faults, self.workers, self.lease());
        let fleet =
            Fleet::start(self.workers, folder, witness.address(), self.lease(), self.faketime()?).await?;
        if self.scenario == Scenario::Failover {
            fleet.all_ready().await?;
        }
        let jobs = submit::Plan {
            jobs: self.jobs,
            seed: self.seed,
            within: duration(&steps),
            spin: self.scenario == Scenario::Spin,
        };

        let (stop, stopped) = watch::channel(());
        let watching = tokio::spawn(watch_excess(Arc::clone(&witness), stopped));
        let submitting = tokio::spawn({
            let client = client.clone();
            async move { submit(&client, &jobs).await }
        });
        let (fleet, mended) = inflict(fleet, &*witness, &steps).await?;
        let submitted = submitting.await??;
        wait_for_ends(&client, &submitted.accepted).await?;
        let kills = fleet.stop().await?;
        drop(stop);
        let excess = watching.await??;

        if self.spoil {
            witness.spoil().await?;
        }
        let runs = ledger::read_all(folder)?;
        let evidence = Evidence {
            ends: ends(&client, &submitted.accepted).await?,
            accepted: submitted.accepted.clone(),
            changes: witness.changes().await?,
            recorded: witness.recorded().await?,
            runs,
        };
        let mut violations = check(&evidence, CRASH_LIMIT);
        if self.scenario == Scenario::Steps {
            violations.extend(nobody_died(&evidence));
        }
        let outcome = Outcome {
            violations,
            reruns: reruns(&kills, &evidence.runs),
            recoveries: mended.iter().filter_map(|at| first_end(*at, &evidence.runs)).collect(),
            resumed: match self.scenario {
                Scenario::Failover => mended.iter().map(|at| first_claim(*at, &evidence.changes)).collect(),
                // There may be nothing left to claim.
                _ => Vec::new(),
            },
            rest: witness.rest().await?,
            faults: steps.len(),
            took: begun.elapsed(),
            submitted,
            evidence,
            excess,
        };
        witness.remove().await?;
        Ok(outcome)
    }

    /// The library for the scenario that needs it.
    fn faketime(&self) -> Result<Option<PathBuf>> {
        if self.scenario != Scenario::Clocks {
            return Ok(None);
        }
        let library = std::env::var_os(FAKETIME);
        let library = library.with_context(|| format!("{FAKETIME} is not set; use `cargo xtask torture`"))?;
        Ok(Some(library.into()))
    }

    async fn client(&self, witness: &dyn Witness) -> Result<Client> {
        let store = witness.store().await?;
        let mut limit = ResourceLimit::new(ResourceName::new(RESOURCE)?, PERMITS);
        limit.retry_delay = Duration::from_millis(200);
        store.configure_resource(&limit).await?;
        Ok(Ratchet::client_shared(store))
    }
}

/// Lets everything happen. Answers also when the database was back after each time it was away.
async fn inflict(mut fleet: Fleet, witness: &dyn Witness, steps: &[Step]) -> Result<(Fleet, Vec<i64>)> {
    let mut mended = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        eprint!("\rfault {} of {}: {:?}                    ", at + 1, steps.len(), step.fault);
        sleep(step.after).await;
        match step.fault {
            Fault::Kill(worker) => fleet.kill(worker).await?,
            Fault::Term(worker) => fleet.ask_to_end(worker).await?,
            Fault::Freeze(worker, time) => {
                fleet.freeze(worker).await?;
                sleep(time).await;
                fleet.thaw(worker).await?;
            }
            Fault::Outage(time) => {
                witness.cut().await?;
                sleep(time).await;
                witness.mend().await?;
                mended.push(ledger::now());
            }
            Fault::Restart => {
                anyhow::ensure!(witness.crash().await?, "this store has no server to restart");
                mended.push(ledger::now());
            }
            Fault::SetClock(shows) => set_clock(shows)?,
            Fault::Failover(reading) => mended.push(witness.fail_over(reading).await?),
            Fault::None => {}
        }
    }
    eprintln!();
    Ok((fleet, mended))
}

/// Sets the clock of this process, its workers and its database, all of which run under libfaketime.
fn set_clock(shows: &str) -> Result<()> {
    let file =
        std::env::var_os(CLOCK).with_context(|| format!("{CLOCK} is not set; use `cargo xtask torture`"))?;
    // At once and as a whole: others read it all the time.
    let new = PathBuf::from(&file).with_extension("new");
    std::fs::write(&new, format!("{shows}\n"))?;
    Ok(std::fs::rename(new, file)?)
}

/// Looks again and again for what must never be, until told to stop; answers the worst.
async fn watch_excess(witness: Arc<dyn Witness>, mut stopped: watch::Receiver<()>) -> Result<Excess> {
    let mut worst = Excess::default();
    loop {
        tokio::select! {
            _ = stopped.changed() => return Ok(worst),
            () = sleep(Duration::from_millis(250)) => {}
        }
        // The server may be away.
        if let Ok(seen) = witness.excess().await {
            worst = worst.max(seen);
        }
    }
}

async fn wait_for_ends(client: &Client, jobs: &[JobId]) -> Result<()> {
    let begun = Instant::now();
    let mut left = jobs.to_vec();
    while !left.is_empty() && begun.elapsed() < PATIENCE {
        // Whatever is wrong with the store passes: the faults are over.
        if let Ok(ends) = ends(client, &left).await {
            left.retain(|job| ends.get(job).is_some_and(|end| !end.status.is_terminal()));
            eprint!("\r{} jobs have not ended yet          ", left.len());
        }
        sleep(Duration::from_millis(200)).await;
    }
    eprintln!();
    Ok(())
}

async fn ends(client: &Client, jobs: &[JobId]) -> Result<HashMap<JobId, End>> {
    let mut ends = HashMap::new();
    for page in jobs.chunks(PAGE) {
        let found = client.store().find(page).await.context("the jobs cannot be read")?;
        for job in found.into_iter().flatten() {
            let end = End { status: job.status, attempts: job.attempts, crashes: job.crash_count };
            ends.insert(job.spec.id, end);
        }
    }
    Ok(ends)
}

/// How long it took from each kill until what ran then ran again.
fn reruns(kills: &[(String, i64)], runs: &[Ran]) -> Vec<i64> {
    let mut times = Vec::new();
    for (process, at) in kills {
        let cut_short = runs.iter().filter(|run| run.process == *process && run.ended.is_none());
        for run in cut_short.filter(|run| run.told.is_none()) {
            let next = runs.iter().filter(|next| next.job == run.job && next.fence > run.fence);
            times.extend(next.map(|next| next.started - at).min());
        }
    }
    times.sort_unstable();
    times
}

/// How long it took from then until a body ended.
fn first_end(at: i64, runs: &[Ran]) -> Option<i64> {
    runs.iter().filter_map(|run| run.ended).filter(|ended| *ended >= at).min().map(|ended| ended - at)
}

/// How long it took from then until a job was claimed, by the clock of the database, which is this machine's.
fn first_claim(at: i64, changes: &[Change]) -> Option<i64> {
    let claimed = |change: &&Change| {
        let owner = |hold: &Option<Hold>| hold.as_ref().is_some_and(|hold| hold.owner.is_some());
        change.at >= at && !owner(&change.old) && owner(&change.new)
    };
    changes.iter().filter(claimed).map(|change| change.at - at).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rerun_is_counted_from_the_kill_that_cut_it_short() {
        let (job, other) = (JobId::generate(), JobId::generate());
        let run = |job, fence, process: &str, started, ended| Ran {
            job,
            fence,
            process: process.to_owned(),
            started,
            told: None,
            ended,
        };
        let runs = [
            run(job, 2, "a", 90, None),
            run(job, 5, "b", 250, Some(260)),
            run(job, 8, "c", 900, Some(910)),
            run(other, 2, "a", 80, Some(95)),
        ];
        assert_eq!(reruns(&[("a".to_owned(), 100)], &runs), [150]);
        assert_eq!(first_end(100, &runs), Some(160));
        assert_eq!(first_end(1_000, &runs), None);
    }
}
