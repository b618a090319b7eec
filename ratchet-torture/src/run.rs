//! One run: starts workers, submits jobs, injects faults and checks the result.

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
use crate::inflict::{first_claim, first_end, gaps, inflict};
use crate::ledger;
use crate::plan::{Scenario, duration, plan};
use crate::rerun::{Rerun, reruns};
use crate::submit::{self, PERMITS, RESOURCE, Submitted, submit};
use crate::witness::{self, Excess, Rest, StoreName, Witness};
use crate::work::CRASH_LIMIT;

/// The variable with the path of libfaketime.
const FAKETIME: &str = "RATCHET_FAKETIME";
/// The number of jobs read per call.
const PAGE: usize = 500;
/// If no job ends for this long after the last fault, the remaining ones are stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most milliseconds after the return of the database until work continues.
const MOST_IDLE: i64 = 10_000;

/// The options of a run.
#[derive(Debug, Args)]
pub(crate) struct Torture {
    /// The store
    #[arg(long)]
    pub(crate) store: StoreName,
    /// The kind of faults
    #[arg(long, default_value = "chaos")]
    pub(crate) scenario: Scenario,
    /// The seed of faults and jobs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The number of faults
    #[arg(long, default_value_t = 10)]
    pub(crate) faults: usize,
    /// The number of jobs
    #[arg(long, default_value_t = 1_000)]
    pub(crate) jobs: usize,
    /// The number of worker processes
    #[arg(long, default_value_t = 3)]
    pub(crate) workers: usize,
    /// The lease of a node, or the leases of the workers in turn: `2000,30000`
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "2000")]
    pub(crate) lease_ms: Vec<u64>,
    /// Keep ledgers, logs and the database, even if all is well
    #[arg(long)]
    pub(crate) keep: bool,
    /// Lose a job and record an outcome twice, to test that the check finds it
    #[arg(long, hide = true)]
    pub(crate) spoil: bool,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) submitted: Submitted,
    pub(crate) evidence: Evidence,
    pub(crate) violations: Vec<Violation>,
    /// The highest counts seen at any moment.
    pub(crate) excess: Excess,
    pub(crate) rest: Rest,
    /// The reruns of jobs that a killed worker was running.
    pub(crate) reruns: Vec<Rerun>,
    /// Milliseconds from the end of each outage, restart or failover until the next body ended.
    pub(crate) recoveries: Vec<i64>,
    /// Milliseconds from each failover until the next job was claimed; `None` if none ever was.
    pub(crate) resumed: Vec<Option<i64>>,
    /// The longest time around each failover without a write of a job, in milliseconds.
    pub(crate) unwritten: Vec<i64>,
    /// The longest time around each failover without an accepted submit, which a second server must store, in ms.
    pub(crate) unaccepted: Vec<i64>,
    pub(crate) faults: usize,
    /// The times at which workers were found to have exited by themselves.
    pub(crate) deaths: Vec<Instant>,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Whether no check failed.
    pub(crate) fn is_good(&self) -> bool {
        self.violations.is_empty()
            && self.submitted.strays.is_empty()
            && self.excess == Excess::default()
            && self.rest == Rest::default()
            && self.resumed.iter().all(|after| after.is_some_and(|after| after <= MOST_IDLE))
    }
}

impl Torture {
    /// The shortest lease, by which faults are timed.
    pub(crate) fn lease(&self) -> Duration {
        self.leases().into_iter().min().unwrap_or_default()
    }

    /// The leases of the workers in turn.
    fn leases(&self) -> Vec<Duration> {
        self.lease_ms.iter().copied().map(Duration::from_millis).collect()
    }

    /// Runs the scenario and checks the result. Files go to `folder`.
    pub(crate) async fn run(&self, folder: &Path) -> Result<Outcome> {
        let begun = Instant::now();
        let witness: Arc<dyn Witness> = witness::make(self.store, self.scenario, folder).await?.into();
        let client = self.client(&*witness).await?;
        let steps = plan(self.scenario, self.store, self.seed, self.faults, self.workers, self.lease());
        let mut address = witness.address();
        if self.scenario == Scenario::PoisonProcess {
            address.extend(["--crash-limit", "3", "--slots", "50"].map(str::to_owned));
        }
        let fleet = Fleet::start(self.workers, folder, address, self.leases(), self.faketime()?).await?;
        if self.scenario == Scenario::Failover {
            fleet.all_ready().await?;
        }
        let jobs = submit::Plan {
            jobs: self.jobs,
            seed: self.seed,
            within: duration(&steps),
            spin: self.scenario == Scenario::Spin,
            guilty: if self.scenario == Scenario::PoisonProcess { self.faults } else { 0 },
        };

        let (stop, stopped) = watch::channel(());
        let watching = tokio::spawn(watch_excess(Arc::clone(&witness), stopped));
        let submitting = tokio::spawn({
            let client = client.clone();
            async move { submit(&client, &jobs).await }
        });
        let (mut fleet, absences) = inflict(fleet, &*witness, &steps).await?;
        let submitted = submitting.await??;
        let deaths = wait_for_ends(&client, &submitted.accepted, &mut fleet).await?;
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
            guilty: submitted.guilty.clone(),
        };
        let mut violations = match self.scenario {
            // Suspects are tried until the guilty one is known, so crash counts may pass the limit: only the crash of a
            // node that held no other job makes a dead letter.
            Scenario::PoisonProcess => check(&evidence, u32::MAX - 1),
            _ => check(&evidence, CRASH_LIMIT),
        };
        if matches!(self.scenario, Scenario::Steps | Scenario::Outage | Scenario::DiskFull) {
            violations.extend(nobody_died(&evidence));
        }
        let failovers = match self.scenario {
            Scenario::Failover => &absences[..],
            // There may be nothing left to claim or to write.
            _ => &[],
        };
        let outcome = Outcome {
            violations,
            reruns: reruns(&kills, &evidence.runs, &evidence.changes),
            recoveries: absences.iter().filter_map(|away| first_end(away.until, &evidence.runs)).collect(),
            resumed: failovers.iter().map(|away| first_claim(away.until, &evidence.changes)).collect(),
            unwritten: gaps(failovers, evidence.changes.iter().map(|change| change.at).collect()),
            unaccepted: gaps(failovers, submitted.accepted_at.clone()),
            rest: witness.rest().await?,
            faults: steps.len(),
            deaths,
            took: begun.elapsed(),
            submitted,
            evidence,
            excess,
        };
        if !self.keep {
            witness.remove().await?;
        }
        Ok(outcome)
    }

    /// The path of libfaketime, if the scenario needs it.
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

/// Polls for states that must never exist until told to stop; returns the highest counts.
async fn watch_excess(witness: Arc<dyn Witness>, mut stopped: watch::Receiver<()>) -> Result<Excess> {
    let mut worst = Excess::default();
    loop {
        tokio::select! {
            _ = stopped.changed() => return Ok(worst),
            () = sleep(Duration::from_millis(250)) => {}
        }
        // The server may be down.
        if let Ok(seen) = witness.excess().await {
            worst = worst.max(seen);
        }
    }
}

/// Waits until all jobs have ended and restarts workers that exit. Returns the times of these exits.
async fn wait_for_ends(client: &Client, jobs: &[JobId], fleet: &mut Fleet) -> Result<Vec<Instant>> {
    let (mut left, mut deaths, mut progress) = (jobs.to_vec(), Vec::new(), Instant::now());
    while !left.is_empty() && progress.elapsed() < PATIENCE {
        let died = Instant::now();
        deaths.extend(std::iter::repeat_n(died, fleet.revive()?));
        // A store error is temporary: the faults are over.
        if let Ok(ends) = ends(client, &left).await {
            let before = left.len();
            left.retain(|job| ends.get(job).is_some_and(|end| !end.status.is_terminal()));
            progress = if left.len() < before { Instant::now() } else { progress };
            eprint!("\r{} jobs have not ended yet          ", left.len());
        }
        sleep(Duration::from_millis(200)).await;
    }
    eprintln!();
    Ok(deaths)
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
