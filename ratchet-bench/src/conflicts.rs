//! The cost of contention between nodes for the same documents: write conflicts, as the database counts them.
//!
//! - **claims**: eight nodes claim from one queue and record successes, each a fixed number of times.
//! - **batch**: four nodes end children of one batch, one outcome per call, so that all change the same counters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{
    BatchId, End, JobClaim, JobType, NewBatch, NewJob, NodeInfo, Outcome, Owner, StoreClock, Submission,
    Timestamp, Verdict,
};
use serde::Serialize;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::backlog::Backlog;
use crate::job::payload;
use crate::report::{About, Report, print_table};
use crate::stats::quantile;
use crate::store::{Bench, Progress, TestDatabase};

const LEASE: Duration = Duration::from_secs(24 * 3600);
const CLAIMERS: usize = 8;
const COMMITTERS: usize = 4;
/// The most write conflicts per claim.
const MOST_CONFLICTS: f64 = 0.05;
/// The most runs of a transaction on average until it commits.
const MOST_RUNS: f64 = 4.0;

struct Sizes {
    /// The numbers of jobs that a claim asks for.
    limits: &'static [usize],
    /// The number of claims of each node: for warming up, and measured.
    claims: [usize; 2],
    children: usize,
}

const FULL: Sizes = Sizes { limits: &[1, 10, 50], claims: [20, 100], children: 1_000 };
const QUICK: Sizes = Sizes { limits: &[10], claims: [5, 20], children: 100 };

/// The counters of the database so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Contention {
    /// Writes that lost against another one.
    pub(crate) conflicts: u64,
    /// Transactions begun.
    pub(crate) begun: u64,
    /// Transactions committed.
    pub(crate) committed: u64,
}

impl Contention {
    async fn so_far(bench: &dyn Bench) -> Result<Self> {
        match bench.contention().await? {
            Some(counted) => Ok(counted),
            None => bail!("this store's database does not count conflicts"),
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            conflicts: self.conflicts - earlier.conflicts,
            begun: self.begun - earlier.begun,
            committed: self.committed - earlier.committed,
        }
    }
}

#[derive(Debug, Serialize)]
struct Claims {
    limit: usize,
    claims: usize,
    jobs: usize,
    full: f64,
    conflicts_per_claim: f64,
    p50_ms: f64,
    p99_ms: f64,
}

#[derive(Debug, Serialize)]
struct Units {
    units: u64,
    runs_per_unit: f64,
    conflicts_per_unit: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(crate) async fn run(bench: &dyn Bench, quick: bool) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let mut report = Report::new("conflicts", bench.name());
    let mut rows = Vec::new();
    for limit in sizes.limits {
        let claims = claims(bench, *limit, sizes.claims).await?;
        rows.push(claims.row());
        report.figure(&claims)?;
        let text = format!(
            "{CLAIMERS} claimers of {limit}: {:.3} write conflicts a claim (at most {MOST_CONFLICTS})",
            claims.conflicts_per_claim
        );
        report.check(About::Speed, claims.conflicts_per_claim <= MOST_CONFLICTS, text);
    }
    print_table(&["claim of", "claims", "jobs", "full", "conflicts", "p50 ms", "p99 ms"], &rows);
    let units = batch(bench, sizes.children).await?;
    print_table(&["units", "runs", "conflicts", "p50 ms", "p99 ms"], &[units.row()]);
    report.figure(&units)?;
    let text = format!(
        "{COMMITTERS} committers on one batch: {:.2} runs a unit (at most {MOST_RUNS})",
        units.runs_per_unit
    );
    report.check(About::Speed, units.runs_per_unit <= MOST_RUNS, text);
    Ok(report)
}

/// A node that claims and commits by itself.
struct Node {
    store: Arc<dyn JobStore>,
    owner: Owner,
    took: Vec<f64>,
}

impl Node {
    async fn join(place: &dyn TestDatabase, count: usize) -> Result<Vec<Self>> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            let (store, owner) = (place.connect(StoreClock::Server, 1).await?, Owner::incarnate("bench"));
            store.join(&NodeInfo::new(owner.clone()), LEASE).await?;
            nodes.push(Self { store, owner, took: Vec::new() });
        }
        Ok(nodes)
    }

    async fn claim(&mut self, limit: usize) -> Result<Vec<JobClaim>> {
        let begun = Instant::now();
        let claims = self.store.claim(&ClaimRequest::new(self.owner.clone(), limit)).await?;
        self.took.push(begun.elapsed().as_secs_f64() * 1_000.0);
        Ok(claims)
    }

    async fn succeed(&self, claims: &[JobClaim]) -> Result<()> {
        let success = |claim: &JobClaim| Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
        let outcomes: Vec<Outcome> = claims.iter().map(success).collect();
        let verdicts = self.store.commit(&self.owner, &outcomes).await?;
        ensure!(
            verdicts.iter().all(|verdict| matches!(verdict, Verdict::Recorded(_))),
            "an outcome was refused"
        );
        Ok(())
    }
}

async fn claims(bench: &dyn Bench, limit: usize, [before, measured]: [usize; 2]) -> Result<Claims> {
    let place = bench.place().await?;
    // The default queue has six of ten jobs; half of its jobs are left at the end.
    let due = CLAIMERS * (before + measured) * limit * 2 * 10 / 6;
    let backlog = Backlog { now: Timestamp::node_now(), due, future: 0, held: 0 };
    let mut progress = Progress::new(format!("filling for claims of {limit}"), backlog.len());
    place.fill(backlog, &mut progress).await?;
    progress.finish();
    place.tidy().await?;
    let mut nodes = Node::join(place.as_ref(), CLAIMERS).await?;
    work(&mut nodes, before, limit).await?;
    let counted = Contention::so_far(bench).await?;
    let taken = work(&mut nodes, measured, limit).await?;
    let counted = Contention::so_far(bench).await?.since(counted);
    place.close().await?;
    let took: Vec<f64> = nodes.into_iter().flat_map(|node| node.took.into_iter().skip(before)).collect();
    Ok(Claims {
        limit,
        claims: taken.len(),
        jobs: taken.iter().sum(),
        full: taken.iter().filter(|count| **count == limit).count() as f64 / taken.len() as f64,
        conflicts_per_claim: counted.conflicts as f64 / taken.len() as f64,
        p50_ms: quantile(&took, 0.5),
        p99_ms: quantile(&took, 0.99),
    })
}

/// Has each node claim this many times; returns how many jobs each claim got.
async fn work(nodes: &mut Vec<Node>, claims: usize, limit: usize) -> Result<Vec<usize>> {
    let (mut tasks, start) = (JoinSet::new(), Arc::new(Barrier::new(nodes.len())));
    for mut node in nodes.drain(..) {
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            start.wait().await;
            let mut taken = Vec::new();
            for _ in 0..claims {
                let claims = node.claim(limit).await?;
                node.succeed(&claims).await?;
                taken.push(claims.len());
            }
            anyhow::Ok((node, taken))
        });
    }
    let mut taken = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (node, its) = done??;
        nodes.push(node);
        taken.extend(its);
    }
    Ok(taken)
}

async fn batch(bench: &dyn Bench, children: usize) -> Result<Units> {
    let place = bench.place().await?;
    let mut nodes = Node::join(place.as_ref(), COMMITTERS).await?;
    let mut parent = Submission::single(NewJob::new(payload()?));
    parent.batch = Some(NewBatch { closed: true });
    parent.jobs[0].spec.job_type = JobType::BatchParent;
    let batch = BatchId::of(parent.jobs[0].spec.id);
    for _ in 0..children {
        let mut child = NewJob::new(payload()?);
        child.spec.job_type = JobType::BatchChild;
        child.spec.batch = Some(batch);
        parent.jobs.push(child);
    }
    nodes[0].store.insert(&[parent]).await?;
    let mut held = Vec::new();
    for node in &mut nodes {
        held.push(node.claim(children / COMMITTERS).await?);
    }
    let counted = Contention::so_far(bench).await?;
    let (mut tasks, start) = (JoinSet::new(), Arc::new(Barrier::new(COMMITTERS)));
    for (node, claims) in nodes.into_iter().zip(held) {
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            start.wait().await;
            let mut took = Vec::new();
            for claim in claims {
                let begun = Instant::now();
                node.succeed(&[claim]).await?;
                took.push(begun.elapsed().as_secs_f64() * 1_000.0);
            }
            anyhow::Ok(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done??);
    }
    let counted = Contention::so_far(bench).await?.since(counted);
    place.close().await?;
    let each = |count: u64| count as f64 / counted.committed as f64;
    Ok(Units {
        units: counted.committed,
        runs_per_unit: each(counted.begun),
        conflicts_per_unit: each(counted.conflicts),
        p50_ms: quantile(&took, 0.5),
        p99_ms: quantile(&took, 0.99),
    })
}

impl Claims {
    fn row(&self) -> Vec<String> {
        vec![
            self.limit.to_string(),
            self.claims.to_string(),
            self.jobs.to_string(),
            format!("{:.0} %", self.full * 100.0),
            format!("{:.3}", self.conflicts_per_claim),
            format!("{:.2}", self.p50_ms),
            format!("{:.2}", self.p99_ms),
        ]
    }
}

impl Units {
    fn row(&self) -> Vec<String> {
        vec![
            self.units.to_string(),
            format!("{:.2}", self.runs_per_unit),
            format!("{:.2}", self.conflicts_per_unit),
            format!("{:.2}", self.p50_ms),
            format!("{:.2}", self.p99_ms),
        ]
    }
}
