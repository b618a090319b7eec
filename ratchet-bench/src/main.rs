//! Benchmarks of Ratchet's stores and engine, started by `cargo xtask bench`, which brings the servers that they need.
//!
//! - `claim`: does taking jobs stay as fast as it is, however long the backlog grows, and does it take the right ones?
//! - `conflicts`: what do nodes cost each other that want the same documents at once?
//! - `spi`: how much of what the database can do is left when the work goes through the store?
//! - `drain`: and when it goes through the engine as well?
//! - `enqueue`: how fast do jobs get in?
//! - `latency`: how soon does an idle node run what another one submits, and what does being idle cost?
//! - `services`: what does it cost if services with different targets share a queue?
//! - `permits`: and if jobs need a permit of a limited resource?
//! - `store`: one file for each store: how to open it, fill it quickly, look inside, and do the same work by hand.

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
    /// Claims at growing backlogs
    Claim(Options),
    /// Nodes that want the same documents at once, and what that costs them
    Conflicts(Options),
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
    Latency {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        load: latency::Load,
    },
    /// The second process of `latency --other-process`
    #[command(hide = true)]
    LatencyPeer {
        /// The store
        #[arg(long, value_enum)]
        store: StoreName,
        /// Where the first one has its tables
        #[arg(long)]
        place: String,
    },
    /// Two services with different targets on one queue, beside the same on two queues
    Services {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        only: nodes::Only,
    },
    /// Jobs that need permits of a limited resource, beside the same without
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
