//! Jobs that need a permit of a limited resource, on one node and on two.
//!
//! - **scarce**: 40 jobs of 20 ms with two permits, submitted to idle nodes, beside the 0.4 s that their bodies take.
//! - **enough**: a limit that is never reached, beside the same drain without a resource.
//! - **ten**: a limit of ten with slots for more, beside the same drain without a resource in ten slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::{join_all, try_join_all};
use ratchet_api::store::JobStore;
use ratchet_api::{NewJob, ResourceLimit, ResourceName};
use serde::Serialize;

use crate::bodies::Bodies;
use crate::job::{Invoice, TARGET, call, payload};
use crate::nodes::{Node, Only, drain_with, store_all, stores};
use crate::report::{About, Report, cell, print_table};
use crate::rounds::{Comparison, Round, print_comparisons};
use crate::stats::{median, quantile};
use crate::store::Bench;

const RESOURCE: &str = "printer";

/// The scarce resource: jobs, the time of each, permits, and the most time over the ideal.
const SCARCE_JOBS: usize = 40;
const SCARCE_BODY: Duration = Duration::from_millis(20);
const SCARCE_LIMIT: u32 = 2;
const MAX_RATIO: f64 = 1.5;

/// A drain with permits beside one without.
struct Case {
    name: &'static str,
    limit: u32,
    body: Duration,
    jobs: usize,
    /// The slots of all nodes together, with permits and without.
    slots: [u32; 2],
    /// The least share of the speed without permits that passes.
    least: f64,
}

struct Sizes {
    scarce_rounds: usize,
    rounds: usize,
    cases: [Case; 2],
}

const fn sizes(scarce_rounds: usize, rounds: usize, enough: usize, ten: usize) -> Sizes {
    let body = Duration::from_millis(10);
    Sizes {
        scarce_rounds,
        rounds,
        cases: [
            Case {
                name: "enough",
                limit: 1_000_000,
                body: Duration::ZERO,
                jobs: enough,
                slots: [100, 100],
                least: 0.6,
            },
            Case { name: "ten", limit: 10, body, jobs: ten, slots: [100, 10], least: 0.5 },
        ],
    }
}

const FULL: Sizes = sizes(15, 5, 30_000, 2_000);
const QUICK: Sizes = sizes(1, 1, 1_000, 200);

/// The time of the jobs of the scarce resource.
#[derive(Debug, Serialize)]
struct Scarce {
    nodes: usize,
    ideal_ms: f64,
    p50_ms: f64,
    lowest_ms: f64,
    highest_ms: f64,
    /// The median over the ideal.
    ratio: f64,
}

pub(crate) async fn run(bench: &dyn Bench, quick: bool, only: &Only) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let mut report = Report::new("permits", bench.name());
    let (mut scarce, mut comparisons) = (Vec::new(), Vec::new());
    for nodes in only.nodes() {
        let place = bench.place().await?;
        let work = Work { bench, stores: stores(bench, place.as_ref(), nodes).await? };
        eprint!("\rscarce, nodes: {nodes} …   ");
        let took = work.scarce(only.rounds(sizes.scarce_rounds)).await?;
        let text =
            format!("nodes: {nodes}, scarce: {:.2} of the ideal time (at most {MAX_RATIO})", took.ratio);
        report.check(About::Speed, took.ratio <= MAX_RATIO, text);
        report.figure(&took)?;
        scarce.push(took);
        for case in &sizes.cases {
            eprint!("\r{}, nodes: {nodes} …   ", case.name);
            let rounds = work.measure(case, only.rounds(sizes.rounds)).await?;
            let comparison = Comparison::of(case.name, nodes, &rounds, case.slots[1]);
            let (ratio, least) = (comparison.ratio, case.least);
            let text = format!(
                "nodes: {nodes}, {}: {ratio:.2} of the speed without permits (at least {least})",
                case.name
            );
            report.check(About::Speed, ratio >= least, text);
            report.figure(&comparison)?;
            comparisons.push(comparison);
        }
        drop(work);
        place.close().await?;
    }
    eprintln!();
    print_scarce(&scarce);
    print_comparisons(&comparisons, "without");
    Ok(report)
}

/// The stores of the nodes.
struct Work<'a> {
    bench: &'a dyn Bench,
    stores: Vec<Arc<dyn JobStore>>,
}

impl Work<'_> {
    /// Measures from the first submit to the end of the last job.
    async fn scarce(&self, rounds: usize) -> Result<Scarce> {
        self.limit(SCARCE_LIMIT).await?;
        let mut took = Vec::new();
        // The first round warms up.
        for at in 0..=rounds {
            let bodies = Arc::new(Bodies::new(SCARCE_BODY, SCARCE_JOBS));
            let nodes = self.stores.iter().map(|store| Node::new(store, TARGET, 50, &bodies));
            let nodes = try_join_all(nodes.collect::<Result<Vec<_>>>()?.into_iter().map(Node::start)).await?;
            let begun = Instant::now();
            if let Some(node) = nodes.first() {
                let job = || node.enqueue(call(&Invoice::sample())).resource(RESOURCE);
                node.client().enqueue_many(std::iter::repeat_with(job).take(SCARCE_JOBS)).await?;
            }
            bodies.ended().await;
            if at > 0 {
                took.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            join_all(nodes.iter().map(|node| node.stop())).await;
        }
        let ideal = SCARCE_BODY * SCARCE_JOBS as u32 / SCARCE_LIMIT;
        let (ideal_ms, at) = (ideal.as_secs_f64() * 1e3, |share| quantile(&took, share));
        let p50_ms = median(took.iter().copied());
        let (lowest_ms, highest_ms, nodes) = (at(0.0), at(1.0), self.stores.len());
        Ok(Scarce { nodes, ideal_ms, p50_ms, lowest_ms, highest_ms, ratio: p50_ms / ideal_ms })
    }

    /// Measures rounds with permits and without.
    async fn measure(&self, case: &Case, rounds: usize) -> Result<Vec<(Round, Round)>> {
        self.limit(case.limit).await?;
        let mut measured = Vec::new();
        // The first round warms up. The two sides take turns in going first.
        for at in 0..=rounds {
            let first = self.drain(case, at % 2 == 0).await?;
            let second = self.drain(case, at % 2 != 0).await?;
            if at > 0 {
                measured.push(if at % 2 == 0 { (first, second) } else { (second, first) });
            }
        }
        Ok(measured)
    }

    async fn drain(&self, case: &Case, permits: bool) -> Result<Round> {
        let resource = if permits { Some(ResourceName::new(RESOURCE)?) } else { None };
        let payload = payload()?;
        let jobs = std::iter::repeat_with(|| {
            let mut job = NewJob::new(payload.clone());
            job.spec.resource = resource.clone();
            job
        });
        if let Some(store) = self.stores.first() {
            store_all(store.as_ref(), jobs.take(case.jobs)).await?;
        }
        let bodies = Arc::new(Bodies::new(case.body, case.jobs));
        let slots = case.slots[usize::from(!permits)] / self.stores.len() as u32;
        let nodes = self.stores.iter().map(|store| Node::new(store, TARGET, slots, &bodies));
        drain_with(self.bench, nodes.collect::<Result<_>>()?, &[Arc::clone(&bodies)]).await
    }

    async fn limit(&self, limit: u32) -> Result<()> {
        if let Some(store) = self.stores.first() {
            store.configure_resource(&ResourceLimit::new(ResourceName::new(RESOURCE)?, limit)).await?;
        }
        Ok(())
    }
}

fn print_scarce(scarce: &[Scarce]) {
    let row = |took: &Scarce| {
        let millis = |time| cell(Some(time), 0);
        let spread = format!("{:.0} - {:.0}", took.lowest_ms, took.highest_ms);
        let case = "scarce".to_owned();
        vec![
            case,
            took.nodes.to_string(),
            millis(took.ideal_ms),
            millis(took.p50_ms),
            spread,
            cell(Some(took.ratio), 2),
        ]
    };
    let rows: Vec<Vec<String>> = scarce.iter().map(row).collect();
    print_table(&["case", "nodes", "ideal ms", "p50 ms", "lowest - highest", "ratio"], &rows);
}
