//! Several nodes on one store: liveness, and the recovery of jobs of dead nodes.

mod blocking;
mod fencing;
mod nodes;
mod reconcile;
mod recovery;
mod suspects;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::{Job, Owner};
use ratchet_core::{JobContext, JobFailure, JobHandle, Readiness, jobs};
use tokio::sync::{Notify, watch};

use crate::cable::{self, Line};
use crate::{Case, Fixture, Node};

pub(crate) const CASES: &[&[Case]] =
    &[blocking::CASES, fencing::CASES, nodes::CASES, reconcile::CASES, recovery::CASES, suspects::CASES];

/// Long enough for a busy machine, short enough to be waited for.
const LEASE: Duration = Duration::from_secs(2);
const BEAT: Duration = Duration::from_millis(200);

/// A service whose bodies run until the gate opens or they are told to stop.
#[derive(Clone)]
struct Worker {
    runs: Arc<AtomicU32>,
    entered: Arc<Notify>,
    told: Arc<Notify>,
    gate: Arc<watch::Sender<bool>>,
}

#[jobs(target = "test.Worker")]
impl Worker {
    /// Returns the owner that ran it. A body that is told to stop returns as well, but too late.
    #[job]
    async fn work(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.entered.notify_one();
        let mut gate = self.gate.subscribe();
        tokio::select! {
            opened = gate.wait_for(|open| *open) => assert!(opened.is_ok(), "the gate is there"),
            () = ctx.canceled() => self.told.notify_one(),
        }
        Ok(ctx.node().to_string())
    }

    /// Runs on, whatever it is told.
    #[job]
    async fn persist(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.entered.notify_one();
        let _ = self.gate.subscribe().wait_for(|open| *open).await;
        Ok(ctx.node().to_string())
    }

    /// Blocks its thread while it waits.
    #[job]
    async fn block(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        while !*self.gate.borrow() {
            std::thread::sleep(BEAT / 10);
        }
        Ok(ctx.node().to_string())
    }

    #[job]
    async fn mourn(&self, ctx: &JobContext) -> Result<Option<String>, JobFailure> {
        Ok(ctx.cause().and_then(|cause| cause.error.clone()))
    }
}

impl Worker {
    /// Creates a worker whose bodies wait at the gate.
    fn waiting() -> Self {
        let (gate, _) = watch::channel(false);
        Self { runs: Arc::default(), entered: Arc::default(), told: Arc::default(), gate: Arc::new(gate) }
    }

    /// Creates a worker whose bodies end at once.
    fn quick() -> Self {
        let worker = Self::waiting();
        worker.open();
        worker
    }

    fn open(&self) {
        self.gate.send_replace(true);
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

fn short_lease(options: &mut RatchetOptions) {
    options.node.lease = LEASE;
    options.node.beat = BEAT;
    options.node.recovery_interval = BEAT;
    options.retry.drain_interval = Duration::from_millis(50);
    options.polling.error_delay = Duration::from_millis(50);
}

/// Starts a node with a short lease at the end of a cable.
async fn node(fx: &Fixture, label: &str, worker: &Worker, line: &Arc<Line>) -> Node {
    node_with(fx, label, worker, line, |_| {}).await
}

async fn node_with(
    fx: &Fixture,
    label: &str,
    worker: &Worker,
    line: &Arc<Line>,
    change: impl FnOnce(&mut RatchetOptions),
) -> Node {
    let store = cable::lay(fx.store().await, line);
    let set_up = |options: &mut RatchetOptions| {
        short_lease(options);
        options.node.label = Some(label.to_owned());
        change(options);
    };
    fx.node_on(store, |builder| builder.register(worker.clone()).configure(set_up)).await
}

/// Waits until the node reports this readiness.
pub(super) async fn until_readiness(node: &Node, wanted: Readiness) {
    while node.readiness() != wanted {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn now<R>(job: &JobHandle<R>) -> Job {
    job.job().await.expect("read").expect("there")
}

/// Returns the label in an owner's name.
fn label(owner: &str) -> String {
    Owner::try_from(owner.to_owned()).expect("an owner").label().to_owned()
}
