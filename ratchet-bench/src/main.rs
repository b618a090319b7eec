//! Benchmarks of Ratchet's stores and engine, run by `cargo xtask bench`, which starts the servers that they need.
//!
//! - `claim`: does the speed of claims stay the same at any backlog, and do they take the right jobs?
//! - `conflicts`: how much do nodes slow each other down that claim or change the same documents?
//! - `spi`: how much of the database's speed is left through the store?
//! - `drain`: and through the engine as well?
//! - `enqueue`: how fast are jobs submitted?
//! - `latency`: how soon does an idle node run a job submitted by another one, and what does idling cost?
//! - `services`: what does it cost if services with different targets share a queue?
//! - `permits`: and if jobs need a permit of a limited resource?
//! - `store`: one file for each store: opening it, filling it fast, inspecting it, and the same work by hand.

mod backlog;
mod bodies;
mod claim;
mod conflicts;
mod drain;
mod enqueue;
mod job;
mod lane;
mod latency;
mod nodes;
mod notices;
mod permits;
mod report;
mod rounds;
mod services;
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
    /// Measure claims at growing backlogs
    Claim(Options),
    /// Count write conflicts between nodes that change the same documents
    Conflicts(Options),
    /// Measure insert, claim, load and commit without an engine, beside the same work by hand
    Spi {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: spi::Only,
    },
    /// Measure a backlog drained by one node, beside the same work by hand
    Drain {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: drain::Only,
    },
    /// Measure submitting singly, in bulk and in a transaction, beside the same inserts by hand
    Enqueue {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: enqueue::Only,
    },
    /// Measure the time from submit on one idle node to run on another, and count statements of idle nodes
    Latency {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        load: latency::Load,
    },
    /// Run the second process of `latency --other-process`
    #[command(hide = true)]
    LatencyPeer {
        /// The store
        #[arg(long, value_enum)]
        store: StoreName,
        /// The address of the first process's tables
        #[arg(long)]
        place: String,
    },
    /// Measure two services with different targets on one queue, beside the same on two queues
    Services {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: nodes::Only,
    },
    /// Measure jobs that need permits of a limited resource, beside the same without
    Permits {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: nodes::Only,
    },
}

#[derive(Debug, Args)]
struct Options {
    /// The store
    #[arg(long, value_enum)]
    store: StoreName,
    /// Use small sizes; only wrong answers fail
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

/// Runs a benchmark. Returns whether every check passed.
async fn run(command: Command) -> Result<bool> {
    let options = match &command {
        Command::Claim(options)
        | Command::Conflicts(options)
        | Command::Spi { options, .. }
        | Command::Drain { options, .. }
        | Command::Latency { options, .. }
        | Command::Services { options, .. }
        | Command::Permits { options, .. }
        | Command::Enqueue { options, .. } => options,
        Command::LatencyPeer { store, place } => {
            latency::peer::run(store::open(*store).await?.as_ref(), place).await?;
            return Ok(true);
        }
    };
    let bench = store::open(options.store).await?;
    for remark in bench.remarks().await? {
        println!("{remark}");
    }
    let report = match &command {
        Command::Claim(options) => claim::run(bench.as_ref(), options.quick).await?,
        Command::Conflicts(options) => conflicts::run(bench.as_ref(), options.quick).await?,
        Command::Spi { options, only } => spi::run(&bench, options.quick, only).await?,
        Command::Enqueue { options, only } => enqueue::run(bench.as_ref(), options.quick, only).await?,
        Command::Drain { options, only } => drain::run(bench.as_ref(), options.quick, only).await?,
        Command::Latency { options, load } => latency::run(bench.as_ref(), options.quick, load).await?,
        Command::LatencyPeer { .. } => return Ok(true),
        Command::Services { options, only } => services::run(bench.as_ref(), options.quick, only).await?,
        Command::Permits { options, only } => permits::run(bench.as_ref(), options.quick, only).await?,
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
