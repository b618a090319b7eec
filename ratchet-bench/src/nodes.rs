//! Nodes that drain a backlog together, from their start to the end of their orderly stop.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use futures::future::{join_all, try_join_all};
use ratchet_api::store::JobStore;
use ratchet_api::{Inserted, NewJob, QueueName, StoreClock, Submission};
use ratchet_core::{Method, Ratchet, Scheduler};

use crate::bodies::Bodies;
use crate::rounds::Round;
use crate::store::{Bench, TestDatabase};
use crate::usage::{Usage, forget_peak, peak_mib};

/// The number of jobs stored per call.
const BATCH: usize = 500;

/// Options that select a part of the work.
#[derive(Debug, Args)]
pub(crate) struct Only {
    /// Measure only these numbers of nodes
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    nodes: Vec<usize>,
    /// The number of rounds
    #[arg(long)]
    rounds: Option<usize>,
}

impl Only {
    /// The numbers of nodes to measure.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = usize> {
        [1, 2].into_iter().filter(|nodes| self.nodes.is_empty() || self.nodes.contains(nodes))
    }

    pub(crate) fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual)
    }
}

/// A node to start.
pub(crate) struct Node {
    store: Arc<dyn JobStore>,
    method: Method,
    queue: QueueName,
    slots: u32,
}

impl Node {
    /// A node on the default queue that serves one target.
    pub(crate) fn new(
        store: &Arc<dyn JobStore>,
        target: &str,
        slots: u32,
        bodies: &Arc<Bodies>,
    ) -> Result<Self> {
        let method = bodies.method(target)?;
        Ok(Self { store: Arc::clone(store), method, queue: QueueName::default(), slots })
    }

    /// The same node on another queue.
    pub(crate) fn on(mut self, queue: &QueueName) -> Self {
        self.queue = queue.clone();
        self
    }

    /// Starts it with every default but its slots.
    pub(crate) async fn start(self) -> Result<Scheduler> {
        let Self { store, method, queue, slots } = self;
        let node =
            Ratchet::builder_shared(store).method(method).allow(["billing.", "shop."]).configure(|options| {
                options.execution.queues.clear();
                options.execution.queue(queue.as_str()).slots = slots;
            });
        Ok(node.start().await?)
    }
}

/// Stores for this many nodes, which communicate only through the database.
pub(crate) async fn stores(
    bench: &dyn Bench,
    place: &dyn TestDatabase,
    nodes: usize,
) -> Result<Vec<Arc<dyn JobStore>>> {
    try_join_all((0..nodes).map(|_| place.connect(StoreClock::Server, bench.usual_connections()))).await
}

/// Stores a backlog.
pub(crate) async fn store_all(store: &dyn JobStore, jobs: impl IntoIterator<Item = NewJob>) -> Result<()> {
    let jobs: Vec<Submission> = jobs.into_iter().map(Submission::single).collect();
    for batch in jobs.chunks(BATCH) {
        let inserted = store.insert(batch).await?;
        ensure!(inserted.iter().all(|verdict| *verdict == Inserted::New), "a job was not stored");
    }
    Ok(())
}

/// Drains a backlog and checks that every job has succeeded.
pub(crate) async fn drain_with(bench: &dyn Bench, nodes: Vec<Node>, bodies: &[Arc<Bodies>]) -> Result<Round> {
    forget_peak();
    let stores: Vec<_> = nodes.iter().map(|node| Arc::clone(&node.store)).collect();
    let before = Usage::so_far(bench).await?;
    let begun = Instant::now();
    let nodes = try_join_all(nodes.into_iter().map(Node::start)).await?;
    join_all(bodies.iter().map(|bodies| bodies.ended())).await;
    // All outcomes are recorded when these return.
    join_all(nodes.iter().map(|node| node.stop())).await;
    let took = begun.elapsed();
    let used = Usage::so_far(bench).await?.since(before);
    for bodies in bodies {
        ensure!(
            bodies.count() == bodies.wanted(),
            "{} bodies ran for {} jobs",
            bodies.count(),
            bodies.wanted()
        );
    }
    if let Some(store) = stores.first() {
        nothing_left(store.as_ref()).await?;
    }
    let jobs = bodies.iter().map(|bodies| bodies.wanted()).sum();
    let busy = bodies.iter().map(|bodies| bodies.busy()).sum();
    Ok(Round { jobs, took, busy, used, peak_mib: peak_mib() })
}

/// Checks that every job has succeeded.
async fn nothing_left(store: &dyn JobStore) -> Result<()> {
    for (queue, health) in store.queue_health().await? {
        let left = health.ready + health.parked + health.scheduled + health.running + health.failed;
        ensure!(left == 0, "{left} jobs of queue {queue} have not succeeded");
    }
    Ok(())
}
