//! A backlog drained by one node, as a user would run it, beside the same work by hand.
//!
//! Engine and probe take turns, each in tables and on connections of its own. Bodies do nothing, or sleep as if waiting
//! for another service; no more of them than there are slots run at once on either side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use futures::future::join_all;
use ratchet_api::StoreClock;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::bodies::Bodies;
use crate::job::TARGET;
use crate::lane::{Lane, Lanes, StoreLane, fill, together};
use crate::nodes::{Node, drain_with};
use crate::report::{About, Report, print_table};
use crate::rounds::{Round, Speeds};
use crate::stats::median;
use crate::store::{Bench, TestDatabase};
use crate::usage::{Usage, forget_peak, peak_mib};

/// The least share of the probe's speed that passes.
const LEAST: f64 = 0.6;
/// The probe's batch size: larger batches and more connections do not make it faster.
const BATCH: usize = 500;
const LANES: usize = 2;

/// Options that select a part of the work.
#[derive(Debug, Args)]
pub(crate) struct Only {
    /// Measure only bodies of these milliseconds
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    bodies: Vec<u64>,
    /// The most jobs that run at once
    #[arg(long, default_value_t = 100)]
    slots: u32,
    /// The number of rounds
    #[arg(long)]
    rounds: Option<usize>,
}

struct Sizes {
    /// The milliseconds of a body, and the jobs of a round.
    bodies: [(u64, usize); 3],
    rounds: usize,
}

const FULL: Sizes = Sizes { bodies: [(0, 120_000), (1, 60_000), (10, 15_000)], rounds: 5 };
const QUICK: Sizes = Sizes { bodies: [(0, 2_000), (1, 2_000), (10, 1_000)], rounds: 1 };

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

/// The work of every round.
struct Work<'a> {
    bench: &'a dyn Bench,
    body: Duration,
    jobs: usize,
    slots: u32,
}

impl Work<'_> {
    async fn measure(&self, place: &dyn TestDatabase, rounds: usize) -> Result<(Vec<Round>, Vec<Round>)> {
        let store = place.connect(StoreClock::Server, self.bench.usual_connections()).await?;
        let mut filling: Box<dyn Lane> = Box::new(StoreLane::join(Arc::clone(&store)).await?);
        let mut by_hand = place.probe(LANES).await?;
        let (mut engine, mut probe) = (Vec::new(), Vec::new());
        // The first round warms up: plans, caches, pages.
        for at in 0..=rounds {
            fill(filling.as_mut(), self.jobs, BATCH).await?;
            let bodies = Arc::new(Bodies::new(self.body, self.jobs));
            let node = Node::new(&store, TARGET, self.slots, &bodies)?;
            let through = drain_with(self.bench, vec![node], &[bodies]).await?;
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

/// Claims, runs and commits jobs by hand until none is left for any lane.
async fn drain(
    mut lane: Box<dyn Lane>,
    bodies: Arc<Bodies>,
    slots: Arc<Semaphore>,
    left: Arc<AtomicUsize>,
) -> Result<(Box<dyn Lane>, ())> {
    while left.load(Ordering::Relaxed) > 0 {
        let held = lane.claim(BATCH).await?;
        if held == 0 {
            // The other lane has the remaining jobs.
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
