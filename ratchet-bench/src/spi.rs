//! The life of jobs through the store without an engine, beside the same work by hand.
//!
//! Store and probe take turns in many short rounds, alternating which goes first, each in tables and on connections of
//! its own, so that other load on the machine affects both equally. A ratio is the median of the rounds' ratios.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use ratchet_api::StoreClock;
use serde::Serialize;

use crate::lane::{Lane, Lanes, StoreLane, together};
use crate::report::{About, Report, print_table};
use crate::stats::{median, per_second};
use crate::store::{Bench, TestDatabase};
use crate::usage::Usage;

/// The batch size and connections at which the store must reach its share of the probe's speed.
const CHECKED: (usize, [usize; 2]) = (500, [1, 2]);

/// The highest believable ratio. Above it the probe had bad luck: its statements do nothing against bad plans, and
/// PostgreSQL makes one at times.
const BELIEVABLE: f64 = 1.25;

/// Options that select a part of the work, or more detail.
#[derive(Debug, Args)]
pub(crate) struct Only {
    /// Measure only batches of these sizes
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    batches: Vec<usize>,
    /// Measure only these numbers of connections
    #[arg(long, value_name = "COUNT", value_delimiter = ',')]
    connections: Vec<usize>,
    /// The number of rounds
    #[arg(long)]
    rounds: Option<usize>,
    /// Also show the server's processor time for each kind of call; best on one connection, because it cannot tell the
    /// calls of several apart
    #[arg(long)]
    profile: bool,
}

impl Only {
    fn takes(&self, batch: usize, lanes: usize) -> bool {
        let among = |wanted: &[usize], number| wanted.is_empty() || wanted.contains(&number);
        among(&self.batches, batch) && among(&self.connections, lanes)
    }
}

struct Sizes {
    /// The batch sizes, and the jobs of a round of each.
    batches: &'static [(usize, usize)],
    lanes: &'static [usize],
    rounds: usize,
}

const FULL: Sizes = Sizes { batches: &[(1, 100), (50, 2_000), (500, 5_000)], lanes: &[1, 2, 4], rounds: 21 };
const QUICK: Sizes = Sizes { batches: &[(1, 50), (50, 500), (500, 2_000)], lanes: &[1, 2], rounds: 1 };

/// How outcomes and claims are sent to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Separate,
    /// `commit_and_claim`.
    Fused,
}

/// The measurement of one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    jobs: usize,
    insert: Duration,
    drain: Duration,
    /// The average over the lanes.
    calls: Calls<Spent>,
    used: Usage,
}

/// A value for each kind of call.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Calls<T> {
    insert: T,
    claim: T,
    load: T,
    commit: T,
}

/// The time spent in calls.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    time: Duration,
    server_cpu: Duration,
}

/// The medians of one side's rounds.
#[derive(Debug, Serialize)]
struct Speeds {
    cycle: f64,
    drain: f64,
    calls: Calls<f64>,
    client_cpu_us: Option<f64>,
    server_cpu_us: Option<f64>,
    log_bytes: Option<f64>,
    /// The server's microseconds per job, if asked for.
    profile: Option<Calls<f64>>,
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

pub(crate) async fn run(bench: &Arc<dyn Bench>, quick: bool, only: &Only) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let rounds = only.rounds.unwrap_or(sizes.rounds);
    let mut report = Report::new("spi", bench.name());
    let mut figures = Vec::new();
    for (batch, jobs) in sizes.batches {
        for lanes in sizes.lanes.iter().filter(|lanes| only.takes(*batch, **lanes)) {
            eprint!("\rbatches of {batch} on {lanes} connections …   ");
            let place = bench.place().await?;
            let work = Work { bench, batch: *batch, jobs: *jobs, profile: only.profile };
            figures.extend(work.measure(place.as_ref(), *lanes, rounds).await?);
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

/// The work of every round.
struct Work<'a> {
    bench: &'a Arc<dyn Bench>,
    batch: usize,
    jobs: usize,
    profile: bool,
}

impl Work<'_> {
    async fn measure(&self, place: &dyn TestDatabase, lanes: usize, rounds: usize) -> Result<Vec<Figure>> {
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
                let store_first = at % 2 == 0;
                for is_store in [store_first, !store_first] {
                    if is_store {
                        stores.push(self.round(&mut through, mode).await?);
                    } else if let Some(by_hand) = &mut by_hand {
                        probes.push(self.round(by_hand, mode).await?);
                    }
                }
                if at == 0 {
                    (stores, probes) = Default::default();
                }
            }
            let has_probe = !probes.is_empty();
            figures.push(Figure {
                batch: self.batch,
                connections: lanes,
                mode,
                store: Speeds::of(&stores, self.profile),
                ratios: has_probe.then(|| Ratios::of(&stores, &probes)),
                probe: has_probe.then(|| Speeds::of(&probes, self.profile)),
            });
        }
        Ok(figures)
    }

    /// Inserts jobs on all lanes at once, and then takes them to their end.
    async fn round(&self, lanes: &mut Lanes, mode: Mode) -> Result<Round> {
        let share = self.jobs / lanes.len();
        let jobs = share * lanes.len();
        for lane in lanes.iter_mut() {
            lane.prepare(share, self.batch)?;
        }
        let meter = Meter(self.profile.then(|| Arc::clone(self.bench)));
        let before = Usage::so_far(self.bench.as_ref()).await?;
        let begun = Instant::now();
        let inserted = together(lanes, |lane| insert(lane, meter.clone())).await?;
        let insert = begun.elapsed();
        ensure!(inserted.iter().map(|(count, _)| count).sum::<usize>() == jobs, "not every job was inserted");

        let left = Arc::new(AtomicUsize::new(jobs));
        let begun = Instant::now();
        let drained =
            together(lanes, |lane| drain(lane, self.batch, mode, meter.clone(), Arc::clone(&left))).await?;
        let drain = begun.elapsed();
        let used = Usage::so_far(self.bench.as_ref()).await?.since(before);
        let count = lanes.len() as u32;
        let average = |spent: &mut dyn Iterator<Item = Spent>| {
            spent.fold(Spent::default(), |sum, spent| Spent {
                time: sum.time + spent.time / count,
                server_cpu: sum.server_cpu + spent.server_cpu / count,
            })
        };
        let calls = Calls {
            insert: average(&mut inserted.iter().map(|(_, spent)| *spent)),
            claim: average(&mut drained.iter().map(|calls| calls.claim)),
            load: average(&mut drained.iter().map(|calls| calls.load)),
            commit: average(&mut drained.iter().map(|calls| calls.commit)),
        };
        Ok(Round { jobs, insert, drain, calls, used })
    }
}

/// Measures calls; with a server, also its processor time.
#[derive(Clone)]
struct Meter(Option<Arc<dyn Bench>>);

impl Meter {
    fn server_cpu(&self) -> Duration {
        self.0.as_ref().and_then(|bench| bench.server_cpu()).unwrap_or_default()
    }

    async fn add<T>(&self, sum: &mut Spent, call: impl Future<Output = T>) -> T {
        let (used, begun) = (self.server_cpu(), Instant::now());
        let answer = call.await;
        sum.time += begun.elapsed();
        sum.server_cpu += self.server_cpu().saturating_sub(used);
        answer
    }
}

async fn insert(mut lane: Box<dyn Lane>, meter: Meter) -> Result<(Box<dyn Lane>, (usize, Spent))> {
    let (mut inserted, mut spent) = (0, Spent::default());
    loop {
        match meter.add(&mut spent, lane.insert()).await? {
            0 => return Ok((lane, (inserted, spent))),
            more => inserted += more,
        }
    }
}

/// Claims, loads and commits until no job is left for any lane.
async fn drain(
    mut lane: Box<dyn Lane>,
    batch: usize,
    mode: Mode,
    meter: Meter,
    left: Arc<AtomicUsize>,
) -> Result<(Box<dyn Lane>, Calls<Spent>)> {
    let mut spent = Calls::default();
    let mut held = 0;
    while left.load(Ordering::Relaxed) > 0 || held > 0 {
        if held == 0 {
            held = meter.add(&mut spent.claim, lane.claim(batch)).await?;
            left.fetch_sub(held, Ordering::Relaxed);
            continue;
        }
        meter.add(&mut spent.load, lane.load()).await?;
        held = match mode {
            Mode::Separate => meter.add(&mut spent.commit, lane.commit()).await.map(|()| 0)?,
            Mode::Fused => meter.add(&mut spent.commit, lane.commit_and_claim(batch)).await?,
        };
        left.fetch_sub(held, Ordering::Relaxed);
    }
    Ok((lane, spent))
}

impl Round {
    fn cycle(&self) -> f64 {
        per_second(self.jobs, self.insert + self.drain)
    }
}

impl Speeds {
    fn of(rounds: &[Round], profile: bool) -> Self {
        let speed = |part: fn(&Round) -> Duration| {
            median(rounds.iter().map(|round| per_second(round.jobs, part(round))))
        };
        let micros = |round: &Round, time: Duration| time.as_secs_f64() * 1e6 / round.jobs as f64;
        let cost = |part: fn(&Round) -> Option<Duration>| {
            let costs: Option<Vec<f64>> =
                rounds.iter().map(|round| Some(micros(round, part(round)?))).collect();
            costs.map(median)
        };
        let server =
            |part: fn(&Round) -> Duration| median(rounds.iter().map(|round| micros(round, part(round))));
        let bytes = |round: &Round| Some(round.used.log_bytes? as f64 / round.jobs as f64);
        Self {
            cycle: median(rounds.iter().map(Round::cycle)),
            drain: speed(|round| round.drain),
            calls: Calls {
                insert: speed(|round| round.insert),
                claim: speed(|round| round.calls.claim.time),
                load: speed(|round| round.calls.load.time),
                commit: speed(|round| round.calls.commit.time),
            },
            client_cpu_us: cost(|round| round.used.client_cpu),
            server_cpu_us: cost(|round| round.used.server_cpu),
            log_bytes: rounds.iter().map(bytes).collect::<Option<Vec<f64>>>().map(median),
            profile: profile.then(|| Calls {
                insert: server(|round| round.calls.insert.server_cpu),
                claim: server(|round| round.calls.claim.server_cpu),
                load: server(|round| round.calls.load.server_cpu),
                commit: server(|round| round.calls.commit.server_cpu),
            }),
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
    print_profile(figures);
}

fn print_profile(figures: &[Figure]) {
    let mut rows = Vec::new();
    for figure in figures {
        let sides = [("store", Some(&figure.store)), ("probe", figure.probe.as_ref())];
        for (side, speeds) in sides {
            let Some(profile) = speeds.and_then(|speeds| speeds.profile.as_ref()) else { continue };
            let mut row = start(figure, side);
            let parts = [profile.insert, profile.claim, profile.load, profile.commit];
            row.extend(parts.map(|micros| format!("{micros:.1}")));
            rows.push(row);
        }
    }
    if !rows.is_empty() {
        println!("\nthe server's processor time, µs for each job");
        print_table(&["batch", "conns", "calls", "side", "insert", "claim", "load", "commit"], &rows);
    }
}

/// The first four cells of a row.
fn start(figure: &Figure, side: &str) -> Vec<String> {
    let mode = match figure.mode {
        Mode::Separate => "separate",
        Mode::Fused => "fused",
    };
    vec![figure.batch.to_string(), figure.connections.to_string(), mode.to_owned(), side.to_owned()]
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
    let mut row = start(figure, side);
    let calls = &speeds.calls;
    let parts = [speeds.cycle, calls.insert, speeds.drain, calls.claim, calls.load, calls.commit];
    // A fused drain makes only one separate claim; its speed says nothing.
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
            if ratio > BELIEVABLE {
                let text = format!("batches of {batch} on {lanes}: the probe had a bad day, measure again");
                report.check(About::Speed, false, text);
            }
        }
    }
}
