//! Kills, freezes and cuts off real processes that run jobs, and checks what is left: `cargo xtask torture`.
//!
//! Nobody is believed alone. The submitter keeps book of what was accepted, every worker writes a ledger outside of
//! the database, triggers note every change of every job, and the store says what became of them. `check` compares.

mod check;
mod cluster;
mod fleet;
mod ledger;
mod plan;
mod proxy;
mod run;
mod submit;
mod witness;
mod work;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

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
    /// Starts workers, submits jobs, lets things go wrong, and checks what is left
    Run(Torture),
    /// What `run` starts
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

/// Answers whether all is well. The files stay if it is not.
async fn torture_and_tell(torture: &Torture) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let outcome = torture.run(folder.path()).await;
    let good = outcome.as_ref().is_ok_and(Outcome::is_good);
    if !good && !torture.spoil {
        println!("ledgers and logs of the workers: {}", folder.keep().display());
    }
    tell(torture, &outcome?);
    Ok(good)
}

fn tell(torture: &Torture, outcome: &Outcome) {
    let Outcome { submitted, evidence, violations, excess, rest, reruns, recoveries, resumed, faults, took } =
        outcome;
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
    if let (Some(median), Some(most)) = (percentile(reruns, 50), percentile(reruns, 99)) {
        println!(
            "  from a kill to the next run of a job: {} times, p50 {median} ms, p99 {most} ms (lease {} ms)",
            reruns.len(),
            torture.lease().as_millis()
        );
    }
    if !recoveries.is_empty() {
        println!("  from the return of the database to the end of a body: {recoveries:?} ms");
    }
    if !resumed.is_empty() {
        let resumed: Vec<i64> = resumed.iter().map(|after| after.unwrap_or(-1)).collect();
        println!("  from the promotion to the next claim: {resumed:?} ms (-1: never)");
    }
    for violation in violations.iter().take(20) {
        println!("  {violation}");
    }
}

/// Of numbers in order.
fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}
