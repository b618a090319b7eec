//! Kills, freezes and cuts off real processes that run jobs, and checks the result: `cargo xtask torture`.
//!
//! No single source is trusted. The submitter records accepted jobs, every worker writes a ledger outside of the
//! database, triggers or a change stream record every change of every job, and the store has the final states. The
//! module `check` compares them.

mod check;
mod cluster;
mod fleet;
mod inflict;
mod ledger;
mod plan;
mod proxy;
mod replica_set;
mod rerun;
mod run;
mod submit;
mod witness;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

use plan::Scenario;
use rerun::{Rerun, percentile};
use run::{Outcome, Torture};
use work::Worker;

/// Torture for Ratchet's nodes and stores
#[derive(Debug, Parser)]
#[command(name = "ratchet-torture")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start workers, submit jobs, inject faults, and check the result
    Run(Torture),
    /// Run as a worker, started by `run`
    #[command(hide = true)]
    Worker(Worker),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(torture) => torture_and_tell(&torture).await,
        Command::Worker(worker) => worker.run().await.map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs, prints the findings, and returns whether all is well. The files are kept if it is not.
async fn torture_and_tell(torture: &Torture) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let outcome = torture.run(folder.path()).await;
    let good = outcome.as_ref().is_ok_and(Outcome::is_good);
    // A worker may exit if it finds no database at its start; its log says so.
    let died = torture.scenario != Scenario::PoisonProcess
        && outcome.as_ref().is_ok_and(|outcome| !outcome.deaths.is_empty());
    if !good && !torture.spoil || died || torture.keep {
        println!("ledgers and logs of the workers: {}", folder.keep().display());
    }
    tell(torture, &outcome?);
    Ok(good)
}

fn tell(torture: &Torture, outcome: &Outcome) {
    let Outcome {
        submitted,
        evidence,
        violations,
        excess,
        rest,
        reruns,
        recoveries,
        resumed,
        unwritten,
        unaccepted,
        faults,
        deaths,
        took,
    } = outcome;
    println!(
        "{:?} {:?}, seed {}: {faults} faults, {} jobs, {} runs, {:.0} s",
        torture.store,
        torture.scenario,
        torture.seed,
        submitted.accepted.len(),
        evidence.runs.len(),
        took.as_secs_f64()
    );
    let failed = evidence.recorded.iter().filter(|recorded| recorded.result == "FAILED").count();
    let crashes: u32 = evidence.ends.values().map(|end| end.crashes).sum();
    println!(
        "  runs because of the faults {}, of which told to stop {}; crashes counted {crashes}",
        evidence.runs.len().saturating_sub(submitted.accepted.len() + failed),
        evidence.runs.iter().filter(|run| run.told.is_some()).count(),
    );
    println!("  submits made again {}, refused by a key {}", submitted.again, submitted.refused);
    let of = |invariant: &str| violations.iter().filter(|violation| violation.invariant == invariant).count();
    println!(
        "  lost or stuck {}, never ran {}, stale or second outcomes {}, taken from the living {}, illegal moves {}, \
         early {}, miscounted {}",
        of("I1"),
        of("I2"),
        of("I3"),
        of("I4"),
        of("I5"),
        of("early"),
        of("I11")
    );
    println!(
        "  keys in excess {}, permits in excess {}, orphaned permits {}, orphaned keys {}",
        excess.keys + excess.idempotency_keys + submitted.strays.len() as i64,
        excess.resources,
        rest.permits,
        rest.keys
    );
    if let (Some(first), Some(last)) = (deaths.first(), deaths.last()) {
        let innocent = evidence.ends.iter().filter(|(job, _)| !submitted.guilty.contains(job));
        let crashes: Vec<u32> = innocent.map(|(_, end)| end.crashes).filter(|crashes| *crashes > 0).collect();
        println!(
            "  guilty {}, blamed wrongly or not at all {}; workers died {} times, for {:.1} s; then all was normal",
            submitted.guilty.len(),
            of("blame"),
            deaths.len(),
            last.duration_since(*first).as_secs_f64(),
        );
        println!(
            "  innocent jobs that were held by a worker that died {}, most often {} times",
            crashes.len(),
            crashes.iter().max().copied().unwrap_or_default()
        );
    }
    tell_reruns(reruns, torture.lease());
    if !recoveries.is_empty() {
        println!("  from the return of the database to the end of a body: {recoveries:?} ms");
    }
    if !resumed.is_empty() {
        let resumed: Vec<i64> = resumed.iter().map(|after| after.unwrap_or(-1)).collect();
        println!("  from the promotion to the next claim: {resumed:?} ms (-1: never)");
    }
    for (what, gaps) in [("a write", unwritten), ("an accepted job", unaccepted)] {
        if let Some(longest) = gaps.iter().max() {
            println!("  without {what} around each failover: {gaps:?} ms, at the longest {longest} ms");
        }
    }
    for violation in violations.iter().take(20) {
        println!("  {violation}");
    }
}

/// Prints how long jobs of killed workers waited, and for what.
fn tell_reruns(reruns: &[Rerun], lease: Duration) {
    let line = |name: &str, of: fn(&Rerun) -> i64| {
        let at = |percent| percentile(reruns.iter().map(of).collect(), percent).unwrap_or_default();
        println!("    {name:<32} p50 {:>6} ms, p95 {:>6} ms, p99 {:>6} ms", at(50), at(95), at(99));
    };
    if reruns.is_empty() {
        return;
    }
    println!(
        "  from a kill to the next run of a job: {} times, {} of them hit by another kill on the way (lease {} ms)",
        reruns.len(),
        reruns.iter().filter(|rerun| rerun.hit_again).count(),
        lease.as_millis()
    );
    line("in all", |rerun| rerun.total);
    line("kill to the end of the lease", |rerun| rerun.lease);
    line("end of the lease to the takeover", |rerun| rerun.takeover);
    line("takeover to the requeue", |rerun| rerun.requeue);
    line("requeue to the claim", |rerun| rerun.claim);
    line("claim to the run", |rerun| rerun.start);
}
