//! Submitting as users do: one by one from several tasks, many at once, and inside a transaction of theirs; beside the
//! same inserts by hand.
//!
//! By hand, a single submission is a statement and a commit of its own, on as many connections as the store has. The
//! engine coalesces concurrent submissions; every caller still waits for the commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use clap::Args;
use futures::future::try_join_all;
use ratchet_api::StoreClock;
use ratchet_core::{Call, Client, Enqueue, Ratchet};
use serde::Serialize;

use crate::job::{Invoice, call};
use crate::lane::{Lanes, insert_all, together};
use crate::report::{Report, cell, print_table};
use crate::stats::{median, per_second};
use crate::store::{Bench, TestDatabase};
use crate::usage::Usage;

/// Jobs in one call of `enqueue_many`.
const BULK: usize = 500;

/// Options that select a part of the work.
#[derive(Debug, Args)]
pub(crate) struct Only {
    /// The number of rounds
    #[arg(long)]
    rounds: Option<usize>,
}

/// A way of submitting jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One by one, from this many tasks.
    Singly(usize),
    /// Many in one call.
    Bulk,
    /// One by one, each in a transaction of the user.
    InTransaction,
}

impl Way {
    fn label(self) -> String {
        match self {
            Self::Singly(1) => "1 task".to_owned(),
            Self::Singly(tasks) => format!("{tasks} tasks"),
            Self::Bulk => format!("bulk of {BULK}"),
            Self::InTransaction => "in a transaction".to_owned(),
        }
    }
}

struct Sizes {
    /// The ways, and the jobs of a round of each.
    ways: [(Way, usize); 5],
    rounds: usize,
}

const FULL: Sizes = Sizes {
    ways: [
        (Way::Singly(1), 500),
        (Way::Singly(10), 3_000),
        (Way::Singly(200), 20_000),
        (Way::Bulk, 20_000),
        (Way::InTransaction, 500),
    ],
    rounds: 5,
};
const QUICK: Sizes = Sizes {
    ways: [
        (Way::Singly(1), 50),
        (Way::Singly(10), 200),
        (Way::Singly(200), 1_000),
        (Way::Bulk, 1_000),
        (Way::InTransaction, 50),
    ],
    rounds: 1,
};

/// A user with a connection of their own, who stores a record and a job in one transaction.
#[async_trait]
pub(crate) trait Shop: Send {
    /// Through the engine.
    async fn order(&mut self, job: Enqueue<()>) -> Result<()>;

    /// By hand.
    async fn order_by_hand(&mut self) -> Result<()>;
}

/// The measurement of one round.
#[derive(Debug, Clone, Copy)]
struct Round {
    jobs: usize,
    took: Duration,
    used: Usage,
}

/// The medians of one side's rounds.
#[derive(Debug, Serialize)]
struct Speeds {
    jobs_per_second: f64,
    client_cpu_us: Option<f64>,
    server_cpu_us: Option<f64>,
    jobs_per_commit: Option<f64>,
    log_bytes: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Figure {
    way: String,
    engine: Speeds,
    probe: Option<Speeds>,
    /// Engine over probe.
    ratio: Option<f64>,
}

pub(crate) async fn run(bench: &dyn Bench, quick: bool, only: &Only) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let rounds = only.rounds.unwrap_or(sizes.rounds);
    let mut report = Report::new("enqueue", bench.name());
    let mut figures = Vec::new();
    for (way, jobs) in sizes.ways {
        eprint!("\r{} …          ", way.label());
        let place = bench.place().await?;
        if let Some((engine, probe)) = (Work { bench, way, jobs }).measure(place.as_ref(), rounds).await? {
            figures.push(Figure::of(way, &engine, &probe));
        }
        place.close().await?;
    }
    eprintln!();
    print(&figures);
    for figure in &figures {
        report.figure(figure)?;
    }
    Ok(report)
}

/// The work of every round.
struct Work<'a> {
    bench: &'a dyn Bench,
    way: Way,
    jobs: usize,
}

impl Work<'_> {
    /// Measures both sides; `None` if the store does not support transactions of users.
    async fn measure(
        &self,
        place: &dyn TestDatabase,
        rounds: usize,
    ) -> Result<Option<(Vec<Round>, Vec<Round>)>> {
        let connections = self.bench.usual_connections();
        let store = place.connect(StoreClock::Server, connections).await?;
        let client = Ratchet::client_shared(Arc::clone(&store));
        let lanes = match self.way {
            Way::Singly(tasks) => tasks.min(connections),
            Way::Bulk | Way::InTransaction => 1,
        };
        let mut by_hand = place.probe(lanes).await?;
        let mut shop = place.shop().await?;
        if shop.is_none() && self.way == Way::InTransaction {
            return Ok(None);
        }
        let (mut engine, mut probe) = (Vec::new(), Vec::new());
        // The first round warms up: plans, caches, pages.
        for at in 0..=rounds {
            let through = self.through_the_engine(&client, shop.as_deref_mut()).await?;
            let hand = match &mut by_hand {
                Some(lanes) => Some(self.by_hand(lanes, shop.as_deref_mut()).await?),
                None => None,
            };
            if at > 0 {
                engine.push(through);
                probe.extend(hand);
            }
        }
        let stored: u64 = store.queue_health().await?.iter().map(|(_, health)| health.ready).sum();
        ensure!(stored == (self.jobs * (rounds + 1)) as u64, "{stored} jobs are stored");
        Ok(Some((engine, probe)))
    }

    async fn through_the_engine(&self, client: &Client, shop: Option<&mut (dyn Shop + '_)>) -> Result<Round> {
        self.round(async {
            match (self.way, shop) {
                (Way::Singly(tasks), _) => singly(client, tasks, self.jobs).await,
                (Way::Bulk, _) => bulk(client, self.jobs).await,
                (Way::InTransaction, Some(shop)) => {
                    for _ in 0..self.jobs {
                        shop.order(client.enqueue(call(&Invoice::sample()))).await?;
                    }
                    Ok(())
                }
                (Way::InTransaction, None) => Ok(()),
            }
        })
        .await
    }

    async fn by_hand(&self, lanes: &mut Lanes, shop: Option<&mut (dyn Shop + '_)>) -> Result<Round> {
        let batch = if self.way == Way::Bulk { BULK } else { 1 };
        let share = self.jobs / lanes.len();
        for lane in lanes.iter_mut() {
            lane.prepare(share, batch)?;
        }
        self.round(async {
            match (self.way, shop) {
                (Way::InTransaction, Some(shop)) => {
                    for _ in 0..self.jobs {
                        shop.order_by_hand().await?;
                    }
                }
                _ => {
                    let inserted = together(lanes, |mut lane| async move {
                        let inserted = insert_all(lane.as_mut()).await?;
                        Ok((lane, inserted))
                    });
                    let inserted: usize = inserted.await?.into_iter().sum();
                    ensure!(inserted == self.jobs, "{inserted} jobs were inserted by hand");
                }
            }
            Ok(())
        })
        .await
    }

    async fn round(&self, work: impl Future<Output = Result<()>>) -> Result<Round> {
        let before = Usage::so_far(self.bench).await?;
        let begun = Instant::now();
        work.await?;
        let took = begun.elapsed();
        let used = Usage::so_far(self.bench).await?.since(before);
        Ok(Round { jobs: self.jobs, took, used })
    }
}

/// Submits from several tasks, each its next job when the last one is stored.
async fn singly(client: &Client, tasks: usize, jobs: usize) -> Result<()> {
    let left = Arc::new(AtomicUsize::new(jobs));
    let task = || {
        let (client, left) = (client.clone(), Arc::clone(&left));
        tokio::spawn(async move {
            let take = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                client.enqueue(call(&Invoice::sample())).submit().await?;
            }
            anyhow::Ok(())
        })
    };
    let tasks: Vec<_> = std::iter::repeat_with(task).take(tasks).collect();
    try_join_all(tasks).await?.into_iter().collect()
}

async fn bulk(client: &Client, jobs: usize) -> Result<()> {
    for _ in 0..jobs / BULK {
        let calls: Vec<Call<()>> = std::iter::repeat_with(|| call(&Invoice::sample())).take(BULK).collect();
        for submitted in client.enqueue_many(calls).await? {
            submitted?;
        }
    }
    Ok(())
}

impl Speeds {
    fn of(rounds: &[Round]) -> Self {
        let some = |part: &dyn Fn(&Round) -> Option<f64>| {
            rounds.iter().map(part).collect::<Option<Vec<f64>>>().map(median)
        };
        let micros =
            |round: &Round, time: Option<Duration>| Some(time?.as_secs_f64() * 1e6 / round.jobs as f64);
        Self {
            jobs_per_second: median(rounds.iter().map(Round::speed)),
            client_cpu_us: some(&|round| micros(round, round.used.client_cpu)),
            server_cpu_us: some(&|round| micros(round, round.used.server_cpu)),
            jobs_per_commit: some(&|round| Some(round.jobs as f64 / round.used.commits? as f64)),
            log_bytes: some(&|round| Some(round.used.log_bytes? as f64 / round.jobs as f64)),
        }
    }
}

impl Round {
    fn speed(&self) -> f64 {
        per_second(self.jobs, self.took)
    }
}

impl Figure {
    fn of(way: Way, engine: &[Round], probe: &[Round]) -> Self {
        let ratios = engine.iter().zip(probe).map(|(engine, probe)| engine.speed() / probe.speed());
        Self {
            way: way.label(),
            engine: Speeds::of(engine),
            probe: (!probe.is_empty()).then(|| Speeds::of(probe)),
            ratio: (!probe.is_empty()).then(|| median(ratios)),
        }
    }
}

fn print(figures: &[Figure]) {
    const HEADING: [&str; 8] =
        ["submitted", "side", "jobs/s", "ratio", "client µs", "server µs", "jobs/commit", "log B"];
    let line = |figure: &Figure, side: &str, speeds: &Speeds, ratio: Option<f64>| {
        vec![
            figure.way.clone(),
            side.to_owned(),
            format!("{:.0}", speeds.jobs_per_second),
            ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            cell(speeds.client_cpu_us, 1),
            cell(speeds.server_cpu_us, 1),
            cell(speeds.jobs_per_commit, 1),
            cell(speeds.log_bytes, 0),
        ]
    };
    let mut rows = Vec::new();
    for figure in figures {
        rows.push(line(figure, "engine", &figure.engine, figure.ratio));
        rows.extend(figure.probe.as_ref().map(|probe| line(figure, "probe", probe, None)));
    }
    print_table(&HEADING, &rows);
}
