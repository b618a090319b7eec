//! The time until an idle node runs a job submitted by another one, and the cost of idling.
//!
//! Two nodes in one process, each with a store of its own, so that they communicate only through the database: one
//! submits, the other has the slots. Measured from the call of `submit` to the first line of the body, one job at a
//! time, with and without wakeups, beside the same by hand: insert, `NOTIFY`, receive, claim. Then the statements of an
//! idle node are counted on their way to the server.
//!
//! With `--other-process`, jobs come from a second process at a rate:
//!
//! - `peer`: that process;
//! - `rate`: the side of this process.

pub(crate) mod peer;
mod rate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use clap::Args;
use ratchet_api::store::JobStore;
use ratchet_api::{JobId, StoreClock};
use ratchet_core::defaults::NoOpClusterCoordinator;
use ratchet_core::{InvalidName, JobFailure, Method, Ratchet, Scheduler};
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::job::{Invoice, METHOD, TARGET, call};
use crate::report::{About, Report, cell, print_table};
use crate::stats::quantile;
use crate::store::{Bench, TestDatabase};

/// The most milliseconds of a wakeup at low load.
const LONGEST_MS: f64 = 50.0;
/// The most milliseconds until a cancel reaches a body on another node.
const LONGEST_CANCEL_MS: f64 = 100.0;
/// The most statements per second of an idle node, if a beat is one statement: with wakeups, and without.
const MOST_STATEMENTS: [(bool, f64); 2] = [(true, 0.3), (false, 0.2)];
/// The queue of the node that only submits.
const ELSEWHERE: &str = "elsewhere";
/// The pause between two jobs, in which both nodes become idle.
const PAUSE: Duration = Duration::from_millis(150);

/// The submitting side of a wakeup by hand.
#[async_trait]
pub(crate) trait WakeSender: Send {
    /// Stores a job.
    async fn insert(&mut self) -> Result<JobId>;

    /// Notifies the other side.
    async fn notify(&mut self) -> Result<()>;
}

/// The running side of a wakeup by hand.
#[async_trait]
pub(crate) trait WakeReceiver: Send {
    /// Waits for a notice and claims.
    async fn claimed(&mut self) -> Result<Vec<JobId>>;
}

/// The source and rate of jobs.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Submit and cancel from a second process instead of from an idle node
    #[arg(long)]
    other_process: bool,
    /// Submissions per second from the other process
    #[arg(long, requires = "other_process", default_value_t = 50.0, value_name = "PER SECOND")]
    rate: f64,
}

struct Sizes {
    woken: usize,
    polled: usize,
    rate: rate::Sizes,
    /// The time that an idle node is left alone before, and while, its statements are counted.
    settle: Duration,
    idle: Duration,
}

const FULL: Sizes = Sizes {
    woken: 300,
    polled: 20,
    rate: rate::Sizes { rounds: 6, jobs: 250, cancels: 200 },
    settle: Duration::from_secs(90),
    idle: Duration::from_secs(120),
};
const QUICK: Sizes = Sizes {
    woken: 30,
    polled: 2,
    rate: rate::Sizes { rounds: 2, jobs: 50, cancels: 20 },
    settle: Duration::from_secs(3),
    idle: Duration::from_secs(12),
};

#[derive(Debug, Serialize)]
struct Figure {
    way: &'static str,
    jobs: usize,
    p50_ms: f64,
    p99_ms: f64,
    worst_ms: f64,
}

impl Figure {
    fn of(way: &'static str, took: &[Duration]) -> Self {
        let millis: Vec<f64> = took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        let at = |share| quantile(&millis, share);
        Self { way, jobs: took.len(), p50_ms: at(0.5), p99_ms: at(0.99), worst_ms: at(1.0) }
    }
}

#[derive(Debug, Serialize)]
struct Idle {
    wakeups: bool,
    statements_per_second: f64,
}

pub(crate) async fn run(bench: &dyn Bench, quick: bool, load: &Load) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let place = bench.place().await?;
    let mut report = Report::new("latency", bench.name());
    let figures = match load.other_process {
        true => from_another_process(bench, place.as_ref(), load.rate, &sizes, &mut report).await?,
        false => from_another_node(place.as_ref(), &sizes, &mut report).await?,
    };
    eprint!("\rbeing idle …     ");
    let idle = being_idle(place.as_ref(), &sizes).await?;
    eprintln!();
    for figure in &figures {
        report.figure(figure)?;
    }
    for (idle, (_, most)) in idle.iter().zip(MOST_STATEMENTS) {
        report.figure(idle)?;
        let most = most * bench.statements_of_a_beat();
        let with = if idle.wakeups { "with" } else { "without" };
        let rate = idle.statements_per_second;
        let text = format!("idle node {with} wakeups: {rate:.2} statements per second (at most {most})");
        report.check(About::Speed, rate <= most, text);
    }
    print(&figures);
    place.close().await?;
    Ok(report)
}

async fn from_another_process(
    bench: &dyn Bench,
    place: &dyn TestDatabase,
    rate: f64,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<Vec<Figure>> {
    eprint!("\rat {rate} a second …");
    let rate::Figures { engine, probe, cancel } = rate::run(bench, place, rate, &sizes.rate).await?;
    let (share, most) = (engine.p50_ms / probe.p50_ms, bench.most_of_wake_probe());
    let text = format!("p50 {:.2} ms, {share:.2} of the probe (at most {most})", engine.p50_ms);
    report.check(About::Speed, share <= most, text);
    let text = format!("p99 of a remote cancel {:.1} ms (at most {LONGEST_CANCEL_MS})", cancel.p99_ms);
    report.check(About::Speed, cancel.p99_ms <= LONGEST_CANCEL_MS, text);
    Ok(vec![engine, probe, cancel])
}

async fn from_another_node(
    place: &dyn TestDatabase,
    sizes: &Sizes,
    report: &mut Report,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    eprint!("\rwith wakeups …   ");
    let woken = Figure::of("wakeups", &between_nodes(place, true, sizes.woken).await?);
    let text = format!("p99 with wakeups {:.1} ms (at most {LONGEST_MS})", woken.p99_ms);
    report.check(About::Speed, woken.p99_ms <= LONGEST_MS, text);
    figures.push(woken);
    if let Some(mut receiver) = place.wake_receiver().await?
        && let Some(mut sender) = place.wake_sender().await?
    {
        eprint!("\rby hand …        ");
        figures.push(Figure::of("probe", &by_hand(sender.as_mut(), receiver.as_mut(), sizes.woken).await?));
    }
    eprint!("\rby polling …     ");
    figures.push(Figure::of("polling", &between_nodes(place, false, sizes.polled).await?));
    Ok(figures)
}

/// Measures single jobs from one node to the other.
async fn between_nodes(place: &dyn TestDatabase, wakeups: bool, jobs: usize) -> Result<Vec<Duration>> {
    let (begun, mut starts) = unbounded_channel();
    let submits = start(place.connect(StoreClock::Server, 2).await?, ELSEWHERE, wakeups, &begun).await?;
    let runs = start(place.connect(StoreClock::Server, 2).await?, "default", wakeups, &begun).await?;
    let mut took = Vec::with_capacity(jobs);
    // The first job warms up: plans, caches, connections.
    for _ in 0..=jobs {
        // A random pause, so that jobs are never in step with polls.
        tokio::time::sleep(PAUSE + PAUSE.mul_f64(rand::random())).await;
        let submitted = Instant::now();
        submits.enqueue(call(&Invoice::sample())).submit().await?;
        let started = starts.recv().await.context("nobody runs jobs any more")?;
        took.push(started.duration_since(submitted));
    }
    submits.stop().await;
    runs.stop().await;
    Ok(took.split_off(1))
}

async fn by_hand(
    sender: &mut dyn WakeSender,
    receiver: &mut dyn WakeReceiver,
    jobs: usize,
) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(jobs);
    for _ in 0..=jobs {
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        sender.insert().await?;
        sender.notify().await?;
        let claimed = receiver.claimed().await?;
        ensure!(claimed.len() == 1, "{} jobs were claimed", claimed.len());
        took.push(begun.elapsed());
    }
    Ok(took.split_off(1))
}

/// Counts the statements of idle nodes, with and without wakeups at the same time.
async fn being_idle(place: &dyn TestDatabase, sizes: &Sizes) -> Result<Vec<Idle>> {
    let (begun, _starts) = unbounded_channel();
    let mut nodes = Vec::new();
    for (wakeups, _) in MOST_STATEMENTS {
        let Some((store, statements)) = place.connect_counted().await? else { return Ok(Vec::new()) };
        nodes.push((wakeups, start(store, "default", wakeups, &begun).await?, statements));
    }
    tokio::time::sleep(sizes.settle).await;
    let before: Vec<u64> = nodes.iter().map(|(_, _, statements)| statements()).collect();
    tokio::time::sleep(sizes.idle).await;
    let mut idle = Vec::new();
    for ((wakeups, node, statements), before) in nodes.into_iter().zip(before) {
        let statements_per_second = (statements() - before) as f64 / sizes.idle.as_secs_f64();
        idle.push(Idle { wakeups, statements_per_second });
        node.stop().await;
    }
    Ok(idle)
}

/// Starts a node with defaults, except that it becomes idle sooner than after five minutes.
async fn start(
    store: Arc<dyn JobStore>,
    queue: &str,
    wakeups: bool,
    begun: &UnboundedSender<Instant>,
) -> Result<Scheduler> {
    let mut node = Ratchet::builder_shared(store)
        .method(method(begun.clone())?)
        .allow(["billing."])
        .configure(|options| {
            options.polling.deep_idle_after = Duration::from_secs(20);
            options.execution.queues.clear();
            options.execution.queue(queue);
        });
    if !wakeups {
        node = node.cluster(NoOpClusterCoordinator::new());
    }
    Ok(node.start().await?)
}

fn method(begun: UnboundedSender<Instant>) -> Result<Method, InvalidName> {
    Method::function(TARGET, METHOD, move |_, (_,): (Invoice,)| {
        // The measurement may be over.
        let _ = begun.send(Instant::now());
        async { Ok::<(), JobFailure>(()) }
    })
}

fn print(figures: &[Figure]) {
    let row = |figure: &Figure| {
        let millis = |time| cell(Some(time), 2);
        let times = [millis(figure.p50_ms), millis(figure.p99_ms), millis(figure.worst_ms)];
        [figure.way.to_owned(), figure.jobs.to_string()].into_iter().chain(times).collect()
    };
    let rows: Vec<Vec<String>> = figures.iter().map(row).collect();
    print_table(&["way", "jobs", "p50 ms", "p99 ms", "worst ms"], &rows);
}
