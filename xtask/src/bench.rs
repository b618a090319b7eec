//! `cargo xtask bench …`: starts the servers that a benchmark needs, then builds and runs `ratchet-bench`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::{
    servers::{self, Running},
    test::STORES,
};

/// The subcommands of `cargo xtask bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure claims at 1 k, 10 k, 100 k and 1 M due jobs: speed, order, locks and plan
    ///
    /// Fails if a claim slows down to more than twice from the smallest backlog to the largest, takes other jobs
    /// than the literal order, locks what it does not take, or reads more than the heads of the queues.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench claim --store postgres\n  \
        cargo xtask bench claim --store memory --quick")]
    Claim(Options),
    /// Count write conflicts of eight nodes that claim from one queue, and of four that end children of one batch
    ///
    /// Fails above 0.05 conflicts a claim, or if a transaction is run more than four times on average.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench conflicts --store mongodb")]
    Conflicts(Options),
    /// Measure insert, claim, load and commit through a store without an engine, beside the same work by hand
    ///
    /// In batches of 1, 50 and 500 on 1, 2 and 4 connections. Fails if the store does not reach its share of the
    /// hand-written probe at batches of 500.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench spi --store postgres\n  \
        cargo xtask bench spi --store postgres --json spi.json")]
    Spi(Options),
    /// Measure a backlog drained by one node with 100 slots, beside the same work by hand
    ///
    /// With bodies that do nothing, and that wait for 1 and 10 ms. Fails if the engine does not reach its share of
    /// the hand-written probe.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench drain --store postgres\n  \
        cargo xtask bench drain --store sqlite --json drain.json")]
    Drain(Options),
    /// Measure submitting from 1, 10 and 200 tasks, in bulk, and in a user's transaction, beside inserts by hand
    #[command(after_help = "Examples:\n  \
        cargo xtask bench enqueue --store postgres\n  \
        cargo xtask bench enqueue --store sqlite --quick")]
    Enqueue(Options),
    /// Measure the time from submit on one idle node to run on another, and count statements of idle nodes
    ///
    /// With wakeups, without, and by hand. With --other-process jobs come at a rate from a second process: from the
    /// commit there to the start here, beside the same by hand, and from a cancel there to the body here.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench latency --store postgres\n  \
        cargo xtask bench latency --rate 50 --other-process")]
    Latency {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        load: Load,
    },
    /// Measure two services with different targets, 5,000 jobs each, on one queue, beside the same on two queues
    ///
    /// With one node and with two for each service. Fails if a job does not run, or if one queue does not reach its
    /// share of the speed of two.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench services --store postgres\n  \
        cargo xtask bench services --store sqlite --quick")]
    Services(Options),
    /// Measure jobs that need permits: of a scarce resource, of one with enough for all, and of one with ten
    ///
    /// With one node and with two. Fails if 40 jobs of 20 ms with two permits take longer than one and a half of the
    /// ideal 0.4 s, or if permits cost more than their share of the same drain without.
    #[command(after_help = "Examples:\n  \
        cargo xtask bench permits --store postgres\n  \
        cargo xtask bench permits --store sqlite --json permits.json")]
    Permits(Options),
}

/// The source and rate of jobs.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Submit and cancel from a second process instead of from an idle node
    #[arg(long)]
    other_process: bool,
    /// Submissions per second from the other process
    #[arg(long, requires = "other_process", value_name = "PER SECOND")]
    rate: Option<f64>,
}

impl Load {
    fn arguments(&self) -> Vec<String> {
        let rate = self.rate.map(|rate| format!("--rate={rate}"));
        self.other_process.then(|| "--other-process".to_owned()).into_iter().chain(rate).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The store: memory, postgres, sqlite or mongodb
    #[arg(long, default_value = "postgres")]
    store: String,
    /// Use small sizes, for a first look; only wrong answers fail, not slow ones
    #[arg(long)]
    quick: bool,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs a `bench` command.
pub(crate) fn run(command: &BenchCommand, workspace: &Path) -> Result<()> {
    let (name, options, more) = match command {
        BenchCommand::Claim(options) => ("claim", options, Vec::new()),
        BenchCommand::Conflicts(options) => ("conflicts", options, Vec::new()),
        BenchCommand::Spi(options) => ("spi", options, Vec::new()),
        BenchCommand::Drain(options) => ("drain", options, Vec::new()),
        BenchCommand::Enqueue(options) => ("enqueue", options, Vec::new()),
        BenchCommand::Latency { options, load } => ("latency", options, load.arguments()),
        BenchCommand::Services(options) => ("services", options, Vec::new()),
        BenchCommand::Permits(options) => ("permits", options, Vec::new()),
    };
    let Some((_, needed)) = STORES.iter().find(|(store, _)| *store == options.store) else {
        bail!("there is no store {}; see `cargo xtask bench {name} --help`", options.store);
    };
    // Durable: a figure without the cost of durability says little.
    servers::during(workspace, needed, true, |running| measure(name, options, &more, running, workspace))
}

fn measure(
    name: &str,
    options: &Options,
    more: &[String],
    running: &[Running],
    workspace: &Path,
) -> Result<()> {
    let mut command = crate::cargo();
    command
        .args(["run", "--release", "--quiet", "--package", "ratchet-bench", "--", name])
        .args(["--store", &options.store])
        .args(more)
        .envs(running.iter().map(Running::variable))
        .current_dir(workspace);
    if options.quick {
        command.arg("--quick");
    }
    if let Some(file) = &options.json {
        command.arg("--json").arg(std::path::absolute(file)?);
    }
    match command.status().context("cannot run cargo")?.success() {
        true => Ok(()),
        false => bail!("bench {name} failed for the {} store", options.store),
    }
}
