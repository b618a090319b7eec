//! Two services with different targets on one database: all jobs in one queue, beside a queue for each service.
//!
//! In one queue, each service claims jobs of the other and parks them, until it has seen those at the head once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ratchet_api::store::JobStore;
use ratchet_api::{NewJob, QueueName};

use crate::bodies::Bodies;
use crate::job::payload_for;
use crate::nodes::{Node, Only, drain_with, store_all, stores};
use crate::report::{About, Report};
use crate::rounds::{Comparison, Round, print_comparisons};
use crate::store::{Bench, TestDatabase};

/// The least share of the speed of two queues that passes.
const LEAST: f64 = 0.6;
/// The targets of the services, and their queues if they have one each.
const SERVICES: [(&str, &str); 2] = [("billing.Invoices", "billing"), ("shop.Orders", "shop")];
const SLOTS: u32 = 100;

struct Sizes {
    /// The jobs of each service.
    jobs: usize,
    rounds: usize,
}

const FULL: Sizes = Sizes { jobs: 5_000, rounds: 7 };
const QUICK: Sizes = Sizes { jobs: 500, rounds: 1 };

pub(crate) async fn run(bench: &dyn Bench, quick: bool, only: &Only) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let mut report = Report::new("services", bench.name());
    let mut comparisons = Vec::new();
    for nodes in only.nodes() {
        eprint!("\r{nodes} for each service …   ");
        let place = bench.place().await?;
        let work = Work { bench, jobs: sizes.jobs, nodes };
        let rounds = work.measure(place.as_ref(), only.rounds(sizes.rounds)).await?;
        place.close().await?;
        let at_once = SLOTS * (nodes * SERVICES.len()) as u32;
        let one_queue = Comparison::of("one queue", nodes, &rounds, at_once);
        let text = format!(
            "{nodes} for each service: one queue has {:.2} of the speed of two (at least {LEAST})",
            one_queue.ratio
        );
        report.check(About::Speed, one_queue.ratio >= LEAST, text);
        report.figure(&one_queue)?;
        comparisons.push(one_queue);
    }
    eprintln!();
    print_comparisons(&comparisons, "two queues");
    Ok(report)
}

/// The work of every round.
struct Work<'a> {
    bench: &'a dyn Bench,
    jobs: usize,
    /// The nodes of each service.
    nodes: usize,
}

impl Work<'_> {
    /// Measures rounds with one queue and with two.
    async fn measure(&self, place: &dyn TestDatabase, rounds: usize) -> Result<Vec<(Round, Round)>> {
        let stores = stores(self.bench, place, self.nodes * SERVICES.len()).await?;
        let mut measured = Vec::new();
        // The first round warms up: plans, caches, pages. The two sides take turns in going first.
        for at in 0..=rounds {
            let first = self.drain(&stores, at % 2 == 0).await?;
            let second = self.drain(&stores, at % 2 != 0).await?;
            if at > 0 {
                measured.push(if at % 2 == 0 { (first, second) } else { (second, first) });
            }
        }
        Ok(measured)
    }

    async fn drain(&self, stores: &[Arc<dyn JobStore>], in_one_queue: bool) -> Result<Round> {
        let mut services = Vec::new();
        for (target, queue) in SERVICES {
            let queue = if in_one_queue { QueueName::default() } else { QueueName::new(queue)? };
            services.push((target, queue, payload_for(target)?));
        }
        let jobs = (0..self.jobs).flat_map(|_| &services).map(|(_, queue, payload)| {
            let mut job = NewJob::new(payload.clone());
            job.spec.queue = queue.clone();
            job
        });
        if let Some(store) = stores.first() {
            store_all(store.as_ref(), jobs).await?;
        }
        let (mut nodes, mut bodies) = (Vec::new(), Vec::new());
        for ((target, queue, _), stores) in services.iter().zip(stores.chunks(self.nodes)) {
            let service = Arc::new(Bodies::new(Duration::ZERO, self.jobs));
            for store in stores {
                nodes.push(Node::new(store, target, SLOTS, &service)?.on(queue));
            }
            bodies.push(service);
        }
        drain_with(self.bench, nodes, &bodies).await
    }
}
