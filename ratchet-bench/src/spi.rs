//! The life of jobs through the store without an engine, beside the same work by hand.
//!
//! Store and probe take turns round by round, each in tables and on connections of its own, so that whatever else the
//! machine does meets both alike. A ratio is the median of the rounds' ratios.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use ratchet_api::StoreClock;
use serde::Serialize;

use crate::lane::{Lane, StoreLane};
use crate::report::{About, Report, print_table};
use crate::stats::{median, per_second};
use crate::store::{Bench, Place};
use crate::usage::Usage;

/// The batches and connections at which the store must reach its share of the probe.
const CHECKED: (usize, [usize; 2]) = (500, [1, 2]);

struct Sizes {
    /// Batches, and how many jobs make a round of them.
    batches: &'static [(usize, usize)],
    lanes: &'static [usize],
    rounds: usize,
}

const FULL: Sizes = Sizes { batches: &[(1, 400), (50, 5_000), (500, 20_000)], lanes: &[1, 2, 4], rounds: 5 };
const QUICK: Sizes = Sizes { batches: &[(1, 50), (50, 500), (500, 2_000)], lanes: &[1, 2], rounds: 1 };

/// How outcomes and claims go to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Separate,
    /// `commit_and_claim`.
    Fused,
}

/// What one round took.
#[derive(Debug, Clone, Copy)]
struct Round {
    jobs: usize,
    insert: Duration,
    drain: Duration,
    /// Time inside of the calls, for each lane on average.
    claim: Duration,
    load: Duration,
    commit: Duration,
    used: Usage,
}

/// Medians of the rounds of one side.
#[derive(Debug, Serialize)]
struct Speeds {
    cycle: f64,
    insert: f64,
    drain: f64,
    claim: f64,
    load: f64,
    commit: f64,
    client_cpu_us: Option<f64>,
    server_cpu_us: Option<f64>,
    log_bytes: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Figure {
    batch: usize,
    connections: usize,
    mode: Mode,
    store: Speeds,
    probe: Option<Speeds>,
    /// Store over probe.
    ratios: Option<Ratios>,
}

#[derive(Debug, Serialize)]
struct Ratios {
    cycle: f64,
    insert: f64,
    drain: f64,
}

type Lanes = Vec<Box<dyn Lane>>;

pub(crate) async fn run(bench: &dyn Bench, quick: bool) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let mut report = Report::new("spi", bench.name());
    let mut figures = Vec::new();
    for (batch, jobs) in sizes.batches {
        for lanes in sizes.lanes {
            eprint!("\rbatches of {batch} on {lanes} connections …   ");
            let place = bench.place().await?;
            figures.extend(measure(bench, place.as_ref(), *batch, *lanes, *jobs, sizes.rounds).await?);
            place.close().await?;
        }
    }
    eprintln!();
    print(&figures);
    for figure in &figures {
        report.figure(figure)?;
    }
    check(&mut report, &figures, bench.least_of_probe());
    Ok(report)
}

async fn measure(
    bench: &dyn Bench,
    place: &dyn Place,
    batch: usize,
    lanes: usize,
    jobs: usize,
    rounds: usize,
) -> Result<Vec<Figure>> {
    let store = place.connect(StoreClock::Server, lanes).await?;
    let mut through: Lanes = Vec::new();
    for _ in 0..lanes {
        through.push(Box::new(StoreLane::join(Arc::clone(&store)).await?));
    }
    let mut by_hand = place.probe(lanes).await?;
    let mut figures = Vec::new();
    for mode in [Mode::Separate, Mode::Fused] {
        let (mut stores, mut probes) = (Vec::new(), Vec::new());
        // The first round warms up: plans, caches, pages.
        for at in 0..=rounds {
            let store = round(bench, &mut through, batch, jobs, mode).await?;
            let probe = match &mut by_hand {
                Some(lanes) => Some(round(bench, lanes, batch, jobs, mode).await?),
                None => None,
            };
            if at > 0 {
                stores.push(store);
                probes.extend(probe);
            }
        }
        figures.push(Figure {
            batch,
            connections: lanes,
            mode,
            store: Speeds::of(&stores),
            ratios: (!probes.is_empty()).then(|| Ratios::of(&stores, &probes)),
            probe: (!probes.is_empty()).then(|| Speeds::of(&probes)),
        });
    }
    Ok(figures)
}

/// Puts jobs in, all lanes at once, and then gets them done.
async fn round(bench: &dyn Bench, lanes: &mut Lanes, batch: usize, jobs: usize, mode: Mode) -> Result<Round> {
    let share = jobs / lanes.len();
    let jobs = share * lanes.len();
    for lane in lanes.iter_mut() {
        lane.prepare(share, batch)?;
    }
    let before = bench.usage().await?;
    let begun = Instant::now();
    let inserted = together(lanes, insert).await?;
    let insert = begun.elapsed();
    ensure!(inserted.iter().sum::<usize>() == jobs, "not every job was inserted");

    let left = Arc::new(AtomicUsize::new(jobs));
    let begun = Instant::now();
    let spent = together(lanes, |lane| drain(lane, batch, mode, Arc::clone(&left))).await?;
    let drain = begun.elapsed();
    let used = bench.usage().await?.since(before);
    let average =
        |part: fn(&Spent) -> Duration| spent.iter().map(part).sum::<Duration>() / lanes.len() as u32;
    let (claim, load, commit) =
        (average(|spent| spent.claim), average(|spent| spent.load), average(|spent| spent.commit));
    Ok(Round { jobs, insert, drain, claim, load, commit, used })
}

/// Runs `work` on every lane, each a task of its own.
async fn together<T, F>(lanes: &mut Lanes, work: impl Fn(Box<dyn Lane>) -> F) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<(Box<dyn Lane>, T)>> + Send + 'static,
{
    let tasks: Vec<_> = lanes.drain(..).map(|lane| tokio::spawn(work(lane))).collect();
    let mut answers = Vec::new();
    for done in try_join_all(tasks).await? {
        let (lane, answer) = done?;
        lanes.push(lane);
        answers.push(answer);
    }
    Ok(answers)
}

async fn insert(mut lane: Box<dyn Lane>) -> Result<(Box<dyn Lane>, usize)> {
    let mut inserted = 0;
    loop {
        match lane.insert().await? {
            0 => return Ok((lane, inserted)),
            more => inserted += more,
        }
    }
}

/// Time inside of calls.
#[derive(Debug, Default)]
struct Spent {
    claim: Duration,
    load: Duration,
    commit: Duration,
}

/// Gets jobs done until none is left for any lane.
async fn drain(
    mut lane: Box<dyn Lane>,
    batch: usize,
    mode: Mode,
    left: Arc<AtomicUsize>,
) -> Result<(Box<dyn Lane>, Spent)> {
    let mut spent = Spent::default();
    let mut held = 0;
    while left.load(Ordering::Relaxed) > 0 || held > 0 {
        if held == 0 {
            held = timed(&mut spent.claim, lane.claim(batch)).await?;
            left.fetch_sub(held, Ordering::Relaxed);
            continue;
        }
        timed(&mut spent.load, lane.load()).await?;
        held = match mode {
            Mode::Separate => timed(&mut spent.commit, lane.commit()).await.map(|()| 0)?,
            Mode::Fused => timed(&mut spent.commit, lane.commit_and_claim(batch)).await?,
        };
        left.fetch_sub(held, Ordering::Relaxed);
    }
    Ok((lane, spent))
}

async fn timed<T>(sum: &mut Duration, call: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let answer = call.await;
    *sum += begun.elapsed();
    answer
}

impl Round {
    fn cycle(&self) -> f64 {
        per_second(self.jobs, self.insert + self.drain)
    }
}

impl Speeds {
    fn of(rounds: &[Round]) -> Self {
        let speed = |part: fn(&Round) -> Duration| {
            median(rounds.iter().map(|round| per_second(round.jobs, part(round))))
        };
        let used = |part: fn(&Usage) -> Option<f64>| {
            let parts: Option<Vec<f64>> =
                rounds.iter().map(|round| Some(part(&round.used)? / round.jobs as f64)).collect();
            parts.map(median)
        };
        Self {
            cycle: median(rounds.iter().map(Round::cycle)),
            insert: speed(|round| round.insert),
            drain: speed(|round| round.drain),
            claim: speed(|round| round.claim),
            load: speed(|round| round.load),
            commit: speed(|round| round.commit),
            client_cpu_us: used(|usage| usage.client_cpu.map(|time| time.as_secs_f64() * 1e6)),
            server_cpu_us: used(|usage| usage.server_cpu.map(|time| time.as_secs_f64() * 1e6)),
            log_bytes: used(|usage| usage.log_bytes.map(|bytes| bytes as f64)),
        }
    }
}

impl Ratios {
    fn of(stores: &[Round], probes: &[Round]) -> Self {
        let ratio = |speed: fn(&Round) -> f64| {
            median(stores.iter().zip(probes).map(|(store, probe)| speed(store) / speed(probe)))
        };
        Self {
            cycle: ratio(Round::cycle),
            insert: ratio(|round| per_second(round.jobs, round.insert)),
            drain: ratio(|round| per_second(round.jobs, round.drain)),
        }
    }
}

fn print(figures: &[Figure]) {
    let mut rows = Vec::new();
    for figure in figures {
        rows.push(line(figure, "store", &figure.store));
        if let Some(probe) = &figure.probe {
            rows.push(line(figure, "probe", probe));
        }
        if let Some(ratios) = &figure.ratios {
            let mut row = vec![String::new(), String::new(), String::new(), "ratio".to_owned()];
            row.extend([ratios.cycle, ratios.insert, ratios.drain].map(|ratio| format!("{ratio:.2}")));
            row.resize(HEADING.len(), String::new());
            rows.push(row);
        }
    }
    print_table(&HEADING, &rows);
}

const HEADING: [&str; 13] = [
    "batch",
    "conns",
    "calls",
    "side",
    "cycle/s",
    "insert/s",
    "drain/s",
    "claim/s",
    "load/s",
    "commit/s",
    "client µs",
    "server µs",
    "log B",
];

fn line(figure: &Figure, side: &str, speeds: &Speeds) -> Vec<String> {
    let mode = match figure.mode {
        Mode::Separate => "separate",
        Mode::Fused => "fused",
    };
    let mut row =
        vec![figure.batch.to_string(), figure.connections.to_string(), mode.to_owned(), side.to_owned()];
    let parts = [speeds.cycle, speeds.insert, speeds.drain, speeds.claim, speeds.load, speeds.commit];
    // A fused drain claims once by itself; its speed says nothing.
    let telling = |(at, speed): (usize, f64)| match figure.mode {
        Mode::Fused if at == 3 => "-".to_owned(),
        _ => format!("{speed:.0}"),
    };
    row.extend(parts.into_iter().enumerate().map(telling));
    let used = |used: Option<f64>| used.map_or("-".to_owned(), |used| format!("{used:.0}"));
    row.extend([speeds.client_cpu_us, speeds.server_cpu_us, speeds.log_bytes].map(used));
    row
}

fn check(report: &mut Report, figures: &[Figure], least: Option<f64>) {
    let Some(least) = least else { return };
    let checked = |figure: &&Figure| {
        figure.batch == CHECKED.0 && CHECKED.1.contains(&figure.connections) && figure.mode == Mode::Separate
    };
    for figure in figures.iter().filter(checked) {
        if let Some(ratios) = &figure.ratios {
            let (batch, lanes, ratio) = (figure.batch, figure.connections, ratios.cycle);
            let text = format!("batches of {batch} on {lanes}: {ratio:.2} of the probe (at least {least})");
            report.check(About::Speed, ratio >= least, text);
        }
    }
}
