//! Benchmarks of Ratchet's stores and engine, started by `cargo xtask bench`, which brings the servers that they need.
//!
//! - `claim`: does taking jobs stay as fast as it is, however long the backlog grows, and does it take the right ones?
//! - `spi`: how much of what the database can do is left when the work goes through the store?
//! - `drain`: and when it goes through the engine as well?
//! - `enqueue`: how fast do jobs get in?
//! - `latency`: how soon does an idle node run what another one submits, and what does being idle cost?
//! - `store`: one file for each store: how to open it, fill it quickly, look inside, and do the same work by hand.

mod backlog;
mod claim;
mod drain;
mod enqueue;
mod job;
mod lane;
mod latency;
mod notices;
mod report;
mod spi;
mod stats;
mod store;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};

use report::Report;
use store::StoreName;

#[derive(Debug, Parser)]
#[command(name = "ratchet-bench", about = "Benchmarks of Ratchet's stores; use `cargo xtask bench`")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Claims at growing backlogs
    Claim(Options),
    /// Insert, claim, load and commit without an engine, beside the same work by hand
    Spi {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: spi::Only,
    },
    /// A backlog drained by one node, beside the same work by hand
    Drain {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: drain::Only,
    },
    /// Submitting singly, in bulk and in a transaction, beside the same inserts by hand
    Enqueue {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: enqueue::Only,
    },
    /// From the submit on one idle node to the run on another, and statements of idle nodes
    Latency(Options),
}

#[derive(Debug, Args)]
struct Options {
    /// The store
    #[arg(long, value_enum)]
    store: StoreName,
    /// Small sizes; only wrong answers fail
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every check held.
async fn run(command: Command) -> Result<bool> {
    let (Command::Claim(options)
    | Command::Spi { options, .. }
    | Command::Drain { options, .. }
    | Command::Latency(options)
    | Command::Enqueue { options, .. }) = &command;
    let bench = store::open(options.store).await?;
    for remark in bench.remarks().await? {
        println!("{remark}");
    }
    let report = match &command {
        Command::Claim(options) => claim::run(bench.as_ref(), options.quick).await?,
        Command::Spi { options, only } => spi::run(&bench, options.quick, only).await?,
        Command::Enqueue { options, only } => enqueue::run(bench.as_ref(), options.quick, only).await?,
        Command::Drain { options, only } => drain::run(bench.as_ref(), options.quick, only).await?,
        Command::Latency(options) => latency::run(bench.as_ref(), options.quick).await?,
    };
    finish(&report, options)
}

fn finish(report: &Report, options: &Options) -> Result<bool> {
    report.print_checks();
    if let Some(file) = &options.json {
        let text = serde_json::to_vec_pretty(report)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(report.passed(options.quick))
}
