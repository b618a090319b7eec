//! How soon an idle node runs what another one submits, and what being idle costs.
//!
//! Two nodes in one process, each with a store of its own, so that they know of each other only what the database tells: one
//! submits, the other has the slots. From the call of `submit` to the first line of the body, one job at a time, with wakeups
//! and without; and beside it the same by hand: insert, `NOTIFY`, hear, claim. Then the statements that an idle node sends
//! are counted on their way to the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use ratchet_api::StoreClock;
use ratchet_api::store::JobStore;
use ratchet_core::defaults::{NoOpClusterCoordinator, PackagePrefixClassPolicy};
use ratchet_core::{InvalidName, JobFailure, Method, Ratchet, Scheduler};
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::job::{Invoice, METHOD, TARGET, call};
use crate::report::{About, Report, cell, print_table};
use crate::stats::quantile;
use crate::store::{Bench, Place};

/// The longest that a wakeup may take at low load.
const LONGEST_MS: f64 = 50.0;
/// The most statements of an idle node in a second: with wakeups, and without.
const MOST_STATEMENTS: [(bool, f64); 2] = [(true, 0.3), (false, 0.2)];
/// The queue of the node that only submits.
const ELSEWHERE: &str = "elsewhere";
/// Between two jobs: both nodes have come to rest.
const PAUSE: Duration = Duration::from_millis(150);

/// A wakeup by hand.
#[async_trait]
pub(crate) trait WakeProbe: Send {
    /// From an insert on one connection to a claim on another.
    async fn wake(&mut self) -> Result<Duration>;
}

struct Sizes {
    woken: usize,
    polled: usize,
    /// How long an idle node is left alone before, and while, its statements are counted.
    settle: Duration,
    idle: Duration,
}

const FULL: Sizes =
    Sizes { woken: 300, polled: 20, settle: Duration::from_secs(90), idle: Duration::from_secs(120) };
const QUICK: Sizes =
    Sizes { woken: 30, polled: 2, settle: Duration::from_secs(3), idle: Duration::from_secs(12) };

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

pub(crate) async fn run(bench: &dyn Bench, quick: bool) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let place = bench.place().await?;
    let mut report = Report::new("latency", bench.name());
    let mut figures = Vec::new();
    eprint!("\rwith wakeups …   ");
    let woken = Figure::of("wakeups", &between_nodes(place.as_ref(), true, sizes.woken).await?);
    let text = format!("p99 with wakeups {:.1} ms (at most {LONGEST_MS})", woken.p99_ms);
    report.check(About::Speed, woken.p99_ms <= LONGEST_MS, text);
    figures.push(woken);
    if let Some(mut probe) = place.wake_probe().await? {
        eprint!("\rby hand …        ");
        figures.push(Figure::of("probe", &by_hand(probe.as_mut(), sizes.woken).await?));
    }
    eprint!("\rby polling …     ");
    figures.push(Figure::of("polling", &between_nodes(place.as_ref(), false, sizes.polled).await?));
    eprint!("\rbeing idle …     ");
    let idle = being_idle(place.as_ref(), &sizes).await?;
    eprintln!();
    for figure in &figures {
        report.figure(figure)?;
    }
    for (idle, (_, most)) in idle.iter().zip(MOST_STATEMENTS) {
        report.figure(idle)?;
        let with = if idle.wakeups { "with" } else { "without" };
        let rate = idle.statements_per_second;
        let text = format!("idle node {with} wakeups: {rate:.2} statements per second (at most {most})");
        report.check(About::Speed, rate <= most, text);
    }
    print(&figures);
    place.close().await?;
    Ok(report)
}

/// Times of single jobs from one node to the other.
async fn between_nodes(place: &dyn Place, wakeups: bool, jobs: usize) -> Result<Vec<Duration>> {
    let (begun, mut starts) = unbounded_channel();
    let submits = start(place.connect(StoreClock::Server, 2).await?, ELSEWHERE, wakeups, &begun).await?;
    let runs = start(place.connect(StoreClock::Server, 2).await?, "default", wakeups, &begun).await?;
    let mut took = Vec::with_capacity(jobs);
    // The first job warms up: plans, caches, connections.
    for _ in 0..=jobs {
        // Never in step with a poll.
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

async fn by_hand(probe: &mut dyn WakeProbe, jobs: usize) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(jobs);
    for _ in 0..=jobs {
        tokio::time::sleep(PAUSE).await;
        took.push(probe.wake().await?);
    }
    Ok(took.split_off(1))
}

/// What nodes send that have nothing to do, with wakeups and without, at the same time.
async fn being_idle(place: &dyn Place, sizes: &Sizes) -> Result<Vec<Idle>> {
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

/// A node with every default, that goes to rest sooner than after five minutes.
async fn start(
    store: Arc<dyn JobStore>,
    queue: &str,
    wakeups: bool,
    begun: &UnboundedSender<Instant>,
) -> Result<Scheduler> {
    let mut node = Ratchet::builder_shared(store)
        .method(method(begun.clone())?)
        .class_policy(PackagePrefixClassPolicy::allow(["billing."]))
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
        // Whoever measures may be gone.
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
