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
use crate::inflict::{first_claim, first_end, gaps, inflict};
use crate::ledger;
use crate::plan::{Scenario, duration, plan};
use crate::rerun::{Rerun, reruns};
use crate::submit::{self, PERMITS, RESOURCE, Submitted, submit};
use crate::witness::{self, Excess, Rest, StoreName, Witness};
use crate::work::CRASH_LIMIT;

/// Where libfaketime is.
const FAKETIME: &str = "RATCHET_FAKETIME";
/// How many jobs are looked at by one call.
const PAGE: usize = 500;
/// When no job has ended for so long after the last fault, those that are left are stuck.
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
    /// The lease of a node, or the leases of the workers in turn: `2000,30000`
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "2000")]
    pub(crate) lease_ms: Vec<u64>,
    /// Leaves ledgers, logs and the database behind, also if all is well
    #[arg(long)]
    pub(crate) keep: bool,
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
    /// How jobs that ran on a killed worker came to run again.
    pub(crate) reruns: Vec<Rerun>,
    /// Milliseconds from the end of each outage, restart or failover until the next body ended.
    pub(crate) recoveries: Vec<i64>,
    /// Milliseconds from each failover until the next job was claimed; nothing if none ever was.
    pub(crate) resumed: Vec<Option<i64>>,
    /// Milliseconds in which the database wrote no job, around each failover.
    pub(crate) unwritten: Vec<i64>,
    /// Milliseconds in which no submit was answered, likewise: what was written must reach another server first.
    pub(crate) unaccepted: Vec<i64>,
    pub(crate) faults: usize,
    /// When workers had died by themselves.
    pub(crate) deaths: Vec<Instant>,
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
    /// The shortest lease, by which faults are timed.
    pub(crate) fn lease(&self) -> Duration {
        self.leases().into_iter().min().unwrap_or_default()
    }

    /// The leases of the workers in turn.
    fn leases(&self) -> Vec<Duration> {
        self.lease_ms.iter().copied().map(Duration::from_millis).collect()
    }

    /// Does it, and looks at what is left. Files go to `folder`.
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
            // Who is guilty is held until it is known.
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

/// Workers that end by themselves start again. Answers when they had ended.
async fn wait_for_ends(client: &Client, jobs: &[JobId], fleet: &mut Fleet) -> Result<Vec<Instant>> {
    let (mut left, mut deaths, mut progress) = (jobs.to_vec(), Vec::new(), Instant::now());
    while !left.is_empty() && progress.elapsed() < PATIENCE {
        let died = Instant::now();
        deaths.extend(std::iter::repeat_n(died, fleet.revive()?));
        // Whatever is wrong with the store passes: the faults are over.
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
