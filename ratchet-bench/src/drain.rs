//! A backlog that is drained by one node, as a user would run it, beside the same work by hand.
//!
//! Engine and probe take turns round by round, each in tables and on connections of its own. Bodies do nothing, or wait
//! for a while as if for another service; no more than the slots run at once on either side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use futures::future::join_all;
use ratchet_api::StoreClock;
use ratchet_api::store::JobStore;
use ratchet_core::defaults::PackagePrefixClassPolicy;
use ratchet_core::{InvalidName, JobFailure, Method, Ratchet, Scheduler};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore};

use crate::job::{Invoice, METHOD, TARGET};
use crate::lane::{Lane, Lanes, StoreLane, fill, together};
use crate::report::{About, Report, cell, print_table};
use crate::stats::{median, per_second};
use crate::store::{Bench, Place};
use crate::usage::{Usage, forget_peak, peak_mib};

/// The least share of the probe's speed that is good enough.
const LEAST: f64 = 0.6;
/// How the probe takes jobs: larger batches and more connections give it no more.
const BATCH: usize = 500;
const LANES: usize = 2;

/// A part of the work.
#[derive(Debug, Args)]
pub(crate) struct Only {
    /// Only bodies of so many milliseconds
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    bodies: Vec<u64>,
    /// How many jobs may run at once
    #[arg(long, default_value_t = 100)]
    slots: u32,
    /// How many rounds
    #[arg(long)]
    rounds: Option<usize>,
}

struct Sizes {
    /// Milliseconds of a body, and how many jobs make a round.
    bodies: [(u64, usize); 3],
    rounds: usize,
}

const FULL: Sizes = Sizes { bodies: [(0, 120_000), (1, 60_000), (10, 15_000)], rounds: 5 };
const QUICK: Sizes = Sizes { bodies: [(0, 2_000), (1, 2_000), (10, 1_000)], rounds: 1 };

/// What one round took.
#[derive(Debug, Clone, Copy)]
struct Round {
    jobs: usize,
    took: Duration,
    /// The time of all bodies together.
    busy: Duration,
    used: Usage,
    peak_mib: Option<f64>,
}

/// Medians of the rounds of one side.
#[derive(Debug, Serialize)]
struct Speeds {
    jobs_per_second: f64,
    /// Share of the slots' time that bodies took.
    busy: f64,
    worker_cpu_us: Option<f64>,
    server_cpu_us: Option<f64>,
    jobs_per_commit: Option<f64>,
    log_bytes: Option<f64>,
    peak_mib: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Figure {
    body_ms: u64,
    slots: u32,
    engine: Speeds,
    probe: Option<Speeds>,
    /// Engine over probe.
    ratio: Option<f64>,
}

pub(crate) async fn run(bench: &dyn Bench, quick: bool, only: &Only) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let rounds = only.rounds.unwrap_or(sizes.rounds);
    let mut figures = Vec::new();
    let wanted = |body| only.bodies.is_empty() || only.bodies.contains(&body);
    for (body_ms, jobs) in sizes.bodies.into_iter().filter(|(body, _)| wanted(*body)) {
        eprint!("\rbodies of {body_ms} ms …   ");
        let place = bench.place().await?;
        let work = Work { bench, body: Duration::from_millis(body_ms), jobs, slots: only.slots };
        let (engine, probe) = work.measure(place.as_ref(), rounds).await?;
        figures.push(Figure::of(body_ms, only.slots, &engine, &probe));
        place.close().await?;
    }
    eprintln!();
    print(&figures);
    let mut report = Report::new("drain", bench.name());
    for figure in &figures {
        report.figure(figure)?;
        if let Some(ratio) = figure.ratio {
            let text = format!("bodies of {} ms: {ratio:.2} of the probe (at least {LEAST})", figure.body_ms);
            report.check(About::Speed, ratio >= LEAST, text);
        }
    }
    Ok(report)
}

/// What is done in every round.
struct Work<'a> {
    bench: &'a dyn Bench,
    body: Duration,
    jobs: usize,
    slots: u32,
}

impl Work<'_> {
    async fn measure(&self, place: &dyn Place, rounds: usize) -> Result<(Vec<Round>, Vec<Round>)> {
        let store = place.connect(StoreClock::Server, self.bench.usual_connections()).await?;
        let mut filling: Box<dyn Lane> = Box::new(StoreLane::join(Arc::clone(&store)).await?);
        let mut by_hand = place.probe(LANES).await?;
        let (mut engine, mut probe) = (Vec::new(), Vec::new());
        // The first round warms up: plans, caches, pages.
        for at in 0..=rounds {
            fill(filling.as_mut(), self.jobs, BATCH).await?;
            let through = self.through_the_engine(&store).await?;
            let hand = match &mut by_hand {
                Some(lanes) => Some(self.by_hand(lanes).await?),
                None => None,
            };
            if at > 0 {
                engine.push(through);
                probe.extend(hand);
            }
        }
        Ok((engine, probe))
    }

    /// From the start of a node to its end, with a backlog in between.
    async fn through_the_engine(&self, store: &Arc<dyn JobStore>) -> Result<Round> {
        forget_peak();
        let bodies = Arc::new(Bodies::new(self.body, self.jobs));
        let before = Usage::so_far(self.bench).await?;
        let begun = Instant::now();
        let node = start(Arc::clone(store), self.slots, Arc::clone(&bodies)).await?;
        bodies.ended().await;
        // Every outcome is recorded when this returns.
        node.stop().await;
        let took = begun.elapsed();
        let used = Usage::so_far(self.bench).await?.since(before);
        ensure!(bodies.count() == self.jobs, "{} bodies ran for {} jobs", bodies.count(), self.jobs);
        for (queue, health) in store.queue_health().await? {
            let left = health.ready + health.scheduled + health.running + health.failed;
            ensure!(left == 0, "{left} jobs of queue {queue} have not succeeded");
        }
        Ok(Round { jobs: self.jobs, took, busy: bodies.busy(), used, peak_mib: peak_mib() })
    }

    async fn by_hand(&self, lanes: &mut Lanes) -> Result<Round> {
        let share = self.jobs / lanes.len();
        for lane in lanes.iter_mut() {
            fill(lane.as_mut(), share, BATCH).await?;
        }
        forget_peak();
        let jobs = share * lanes.len();
        let bodies = Arc::new(Bodies::new(self.body, jobs));
        let (slots, left) = (Arc::new(Semaphore::new(self.slots as usize)), Arc::new(AtomicUsize::new(jobs)));
        let before = Usage::so_far(self.bench).await?;
        let begun = Instant::now();
        together(lanes, |lane| drain(lane, Arc::clone(&bodies), Arc::clone(&slots), Arc::clone(&left)))
            .await?;
        let took = begun.elapsed();
        let used = Usage::so_far(self.bench).await?.since(before);
        ensure!(bodies.count() == jobs, "{} bodies ran for {jobs} jobs", bodies.count());
        Ok(Round { jobs, took, busy: bodies.busy(), used, peak_mib: peak_mib() })
    }
}

/// What the jobs do.
struct Bodies {
    lasts: Duration,
    wanted: usize,
    count: AtomicUsize,
    busy_micros: AtomicU64,
    all: Notify,
}

impl Bodies {
    fn new(lasts: Duration, wanted: usize) -> Self {
        let (count, busy_micros) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { lasts, wanted, count, busy_micros, all: Notify::new() }
    }

    async fn run(&self) {
        if !self.lasts.is_zero() {
            let begun = Instant::now();
            tokio::time::sleep(self.lasts).await;
            self.busy_micros.fetch_add(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.all.notify_one();
        }
    }

    async fn ended(&self) {
        self.all.notified().await;
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn busy(&self) -> Duration {
        Duration::from_micros(self.busy_micros.load(Ordering::Relaxed))
    }
}

/// A node with every default but its slots.
async fn start(store: Arc<dyn JobStore>, slots: u32, bodies: Arc<Bodies>) -> Result<Scheduler> {
    let node = Ratchet::builder_shared(store)
        .method(method(bodies)?)
        .class_policy(PackagePrefixClassPolicy::allow(["billing."]))
        .configure(|options| options.execution.queue("default").slots = slots);
    Ok(node.start().await?)
}

fn method(bodies: Arc<Bodies>) -> Result<Method, InvalidName> {
    Method::function(TARGET, METHOD, move |_, (_,): (Invoice,)| {
        let bodies = Arc::clone(&bodies);
        async move {
            bodies.run().await;
            Ok::<(), JobFailure>(())
        }
    })
}

/// Gets jobs done by hand until none is left for any lane.
async fn drain(
    mut lane: Box<dyn Lane>,
    bodies: Arc<Bodies>,
    slots: Arc<Semaphore>,
    left: Arc<AtomicUsize>,
) -> Result<(Box<dyn Lane>, ())> {
    while left.load(Ordering::Relaxed) > 0 {
        let held = lane.claim(BATCH).await?;
        if held == 0 {
            // The rest is the other lane's.
            tokio::task::yield_now().await;
            continue;
        }
        left.fetch_sub(held, Ordering::Relaxed);
        lane.load().await?;
        let body = || async {
            let _slot = slots.acquire().await?;
            bodies.run().await;
            anyhow::Ok(())
        };
        join_all(std::iter::repeat_with(body).take(held)).await.into_iter().collect::<Result<()>>()?;
        lane.commit().await?;
    }
    Ok((lane, ()))
}

impl Speeds {
    fn of(rounds: &[Round], slots: u32) -> Self {
        let each = |part: &dyn Fn(&Round) -> f64| median(rounds.iter().map(part));
        let some = |part: &dyn Fn(&Round) -> Option<f64>| {
            rounds.iter().map(part).collect::<Option<Vec<f64>>>().map(median)
        };
        let micros =
            |round: &Round, time: Option<Duration>| Some(time?.as_secs_f64() * 1e6 / round.jobs as f64);
        Self {
            jobs_per_second: each(&Round::speed),
            busy: each(&|round| round.busy.div_duration_f64(round.took * slots)),
            worker_cpu_us: some(&|round| micros(round, round.used.client_cpu)),
            server_cpu_us: some(&|round| micros(round, round.used.server_cpu)),
            jobs_per_commit: some(&|round| Some(round.jobs as f64 / round.used.commits? as f64)),
            log_bytes: some(&|round| Some(round.used.log_bytes? as f64 / round.jobs as f64)),
            peak_mib: some(&|round| round.peak_mib),
        }
    }

    fn cells(&self) -> [String; 7] {
        let whole = |number: Option<f64>| cell(number, 0);
        [
            format!("{:.0}", self.jobs_per_second),
            format!("{:.0} %", 100.0 * self.busy),
            cell(self.worker_cpu_us, 1),
            cell(self.server_cpu_us, 1),
            whole(self.jobs_per_commit),
            whole(self.log_bytes),
            whole(self.peak_mib),
        ]
    }
}

impl Round {
    fn speed(&self) -> f64 {
        per_second(self.jobs, self.took)
    }
}

impl Figure {
    fn of(body_ms: u64, slots: u32, engine: &[Round], probe: &[Round]) -> Self {
        let ratios = engine.iter().zip(probe).map(|(engine, probe)| engine.speed() / probe.speed());
        Self {
            body_ms,
            slots,
            engine: Speeds::of(engine, slots),
            probe: (!probe.is_empty()).then(|| Speeds::of(probe, slots)),
            ratio: (!probe.is_empty()).then(|| median(ratios)),
        }
    }
}

fn print(figures: &[Figure]) {
    const HEADING: [&str; 10] = [
        "body",
        "side",
        "jobs/s",
        "ratio",
        "busy",
        "worker µs",
        "server µs",
        "jobs/commit",
        "log B",
        "peak MiB",
    ];
    let line = |figure: &Figure, side: &str, speeds: &Speeds, ratio: Option<f64>| {
        let [speed, rest @ ..] = speeds.cells();
        let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let mut row = vec![format!("{} ms", figure.body_ms), side.to_owned(), speed, ratio];
        row.extend(rest);
        row
    };
    let mut rows = Vec::new();
    for figure in figures {
        rows.push(line(figure, "engine", &figure.engine, figure.ratio));
        rows.extend(figure.probe.as_ref().map(|probe| line(figure, "probe", probe, None)));
    }
    print_table(&HEADING, &rows);
}
