//! Claims at growing backlogs: their duration, the rows they lock and read, and whether they take the right jobs.
//!
//! Every backlog is a database of its own, all are filled first, and each round goes once through all of them, so that
//! other load on the machine affects them equally. The clock stands still, and each claim is put back with the due
//! times that it found, so that every claim sees the same backlog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{
    End, HandBackReason, JobClaim, JobId, ManualClock, NodeInfo, Outcome, Owner, QueueLimit, QueueName,
    StoreClock, Timestamp, Verdict,
};
use serde::Serialize;

use crate::backlog::{BOOST, Backlog, QUEUES};
use crate::report::{About, Report, print_table, short};
use crate::stats::{median, quantile};
use crate::store::{Bench, Plan, Progress, TestDatabase};

/// The most that a claim may slow down from the smallest backlog to the largest.
const LIMIT: f64 = 2.0;
/// A plan may read this many rows of one priority beyond the limit; others may hold that many.
const SPARE: usize = 100;

struct Sizes {
    due: &'static [usize],
    held: usize,
    rounds: usize,
}

const FULL: Sizes = Sizes { due: &[1_000, 10_000, 100_000, 1_000_000], held: 100_000, rounds: 200 };
const QUICK: Sizes = Sizes { due: &[1_000, 10_000], held: 1_000, rounds: 30 };

/// The numbers of jobs and queues of a claim.
#[derive(Debug, Clone, Copy)]
struct Shape {
    limit: usize,
    queues: usize,
}

const SHAPES: [Shape; 4] = [
    Shape { limit: 1, queues: 1 },
    Shape { limit: 50, queues: 1 },
    Shape { limit: 500, queues: 1 },
    Shape { limit: 50, queues: QUEUES.len() },
];

impl Shape {
    fn label(self) -> String {
        if self.queues == 1 { self.limit.to_string() } else { format!("{} × {}", self.queues, self.limit) }
    }

    fn queues(self) -> impl Iterator<Item = &'static str> {
        QUEUES.iter().take(self.queues).map(|(queue, _)| *queue)
    }

    fn request(self, owner: &Owner) -> Result<ClaimRequest> {
        let part = |queue| Ok(QueueLimit { queue: QueueName::new(queue)?, limit: self.limit });
        let queues = self.queues().map(part).collect::<Result<Vec<_>>>()?;
        let mut request = ClaimRequest::of_queues(owner.clone(), queues);
        request.boost_interval = Some(BOOST);
        Ok(request)
    }

    /// The limit of rows per plan step; a step that reads more depends on the backlog.
    fn most_read(self) -> u64 {
        (self.queues * 5 * (self.limit + SPARE)) as u64
    }
}

/// The figures of one shape on one backlog.
#[derive(Debug, Serialize)]
struct Figure {
    due: usize,
    limit: usize,
    queues: usize,
    claimed: usize,
    p50_ms: f64,
    p99_ms: f64,
    /// The time over that of the smallest backlog.
    ratio: f64,
    rows_locked: Option<u64>,
    ids_equal: bool,
    plan: Option<Plan>,
}

/// The result of examining one shape on one backlog.
#[derive(Default)]
struct Finding {
    claimed: usize,
    rows_locked: Option<u64>,
    ids_equal: bool,
    plan: Option<Plan>,
}

/// A backlog, and a node that claims from it.
struct Field {
    place: Box<dyn TestDatabase>,
    backlog: Backlog,
    store: Arc<dyn JobStore>,
    /// The store with its clock at zero, so that a delay is an instant.
    putting_back: Arc<dyn JobStore>,
    owner: Owner,
    /// Milliseconds of each claim, by shape.
    took: [Vec<f64>; SHAPES.len()],
}

pub(crate) async fn run(bench: &dyn Bench, quick: bool) -> Result<Report> {
    let sizes = if quick { QUICK } else { FULL };
    let now = Timestamp::node_now();
    let mut fields = Vec::new();
    for due in sizes.due {
        let backlog = Backlog { now, due: *due, future: *due, held: sizes.held };
        fields.push(Field::make(bench, backlog).await?);
    }
    let mut findings = Vec::new();
    for field in &mut fields {
        findings.push(field.examine().await?);
    }
    for _ in 0..sizes.rounds {
        for at in 0..SHAPES.len() {
            for field in &mut fields {
                field.sample(at).await?;
            }
        }
    }
    let report = report(bench, &fields, findings)?;
    for field in fields {
        field.place.close().await?;
    }
    Ok(report)
}

impl Field {
    async fn make(bench: &dyn Bench, backlog: Backlog) -> Result<Self> {
        let place = bench.place().await?;
        let mut progress = Progress::new(format!("filling for {} due", short(backlog.due)), backlog.len());
        place.fill(backlog, &mut progress).await?;
        progress.finish();
        let store = place.connect(still_at(backlog.now), 1).await?;
        let putting_back = place.connect(still_at(Timestamp::MIN), 1).await?;
        let owner = Owner::incarnate("bench");
        store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(24 * 3600)).await?;
        Ok(Self { place, backlog, store, putting_back, owner, took: Default::default() })
    }

    /// Examines everything but speed.
    async fn examine(&mut self) -> Result<Vec<Finding>> {
        // Without statistics a plan is a guess, but must be good all the same.
        let mut findings = Vec::new();
        for shape in SHAPES {
            findings.push(Finding { plan: self.plan(shape).await?, ..Finding::default() });
        }
        self.place.tidy().await?;
        for (shape, finding) in SHAPES.into_iter().zip(&mut findings) {
            if let (Some(plan), Some(known)) = (&mut finding.plan, self.plan(shape).await?) {
                plan.objections.extend(known.objections);
                plan.most_read = plan.most_read.max(known.most_read);
            }
            finding.ids_equal = self.takes_the_best(shape).await?;
            let claims = self.store.claim(&shape.request(&self.owner)?).await?;
            finding.claimed = claims.len();
            if let Some(claim) = claims.first() {
                finding.rows_locked = self.place.locked_with(claim.id).await?;
            }
            self.put_back(&claims).await?;
        }
        Ok(findings)
    }

    /// Compares three claims in a row with the literal order.
    async fn takes_the_best(&self, shape: Shape) -> Result<bool> {
        const IN_A_ROW: usize = 3;
        let mut best = Vec::new();
        for queue in shape.queues() {
            best.push((queue, self.place.literal(self.backlog, queue, IN_A_ROW * shape.limit).await?));
        }
        let mut claims: Vec<JobClaim> = Vec::new();
        for _ in 0..IN_A_ROW {
            claims.extend(self.store.claim(&shape.request(&self.owner)?).await?);
        }
        let taken = |queue: &str| -> Vec<JobId> {
            claims.iter().filter(|claim| claim.queue.as_str() == queue).map(|claim| claim.id).collect()
        };
        let equal = best.iter().all(|(queue, best)| !best.is_empty() && taken(queue) == *best);
        self.put_back(&claims).await?;
        Ok(equal)
    }

    async fn plan(&self, shape: Shape) -> Result<Option<Plan>> {
        let request = shape.request(&self.owner)?;
        self.place.plan(still_at(self.backlog.now), &request, shape.most_read()).await
    }

    async fn sample(&mut self, at: usize) -> Result<()> {
        let request = SHAPES[at].request(&self.owner)?;
        let begun = Instant::now();
        let claims = self.store.claim(&request).await?;
        self.took[at].push(begun.elapsed().as_secs_f64() * 1_000.0);
        self.put_back(&claims).await
    }

    async fn put_back(&self, claims: &[JobClaim]) -> Result<()> {
        put_back(self.putting_back.as_ref(), &self.owner, claims).await
    }
}

/// A clock that stands still.
pub(crate) fn still_at(now: Timestamp) -> StoreClock {
    StoreClock::Manual(ManualClock::starting_at(now))
}

/// Restores the backlog: the same jobs, due at the same instants. The store's clock must be at zero, so that a
/// delay is an instant.
pub(crate) async fn put_back(store: &dyn JobStore, owner: &Owner, claims: &[JobClaim]) -> Result<()> {
    let back = |claim: &JobClaim| {
        let delay = claim.scheduled_time.since(Timestamp::MIN);
        Outcome::new(claim.id, claim.fence, End::HandBack { delay, reason: HandBackReason::Released })
    };
    let outcomes: Vec<Outcome> = claims.iter().map(back).collect();
    let verdicts = store.commit(owner, &outcomes).await?;
    ensure!(verdicts.iter().all(Verdict::is_settled), "a claim could not be put back");
    Ok(())
}

fn report(bench: &dyn Bench, fields: &[Field], findings: Vec<Vec<Finding>>) -> Result<Report> {
    let mut report = Report::new("claim", bench.name());
    let figures: Vec<Vec<Figure>> =
        fields.iter().zip(findings).map(|(field, found)| figures(field, &fields[0], found)).collect();
    let figures: Vec<&Figure> =
        (0..SHAPES.len()).flat_map(|at| figures.iter().map(move |row| &row[at])).collect();
    print(&figures);
    for figure in &figures {
        report.figure(figure)?;
    }
    let sizes = (short(fields[fields.len() - 1].backlog.due), short(fields[0].backlog.due));
    for (at, shape) in SHAPES.iter().enumerate().filter(|_| bench.claims_stay_fast()) {
        let ratio = figures[(at + 1) * fields.len() - 1].ratio;
        let text =
            format!("claims of {}: p50 {}/{} = {ratio:.2} (limit {LIMIT})", shape.label(), sizes.0, sizes.1);
        report.check(About::Speed, ratio <= LIMIT, text);
    }
    let wrong = figures.iter().filter(|figure| !figure.ids_equal).count();
    report.check(
        About::Correctness,
        wrong == 0,
        format!("ids equal to the literal order ({wrong} of {} differ)", figures.len()),
    );
    check_locks(&mut report, &figures);
    check_plans(&mut report, &figures);
    Ok(report)
}

fn figures(field: &Field, smallest: &Field, findings: Vec<Finding>) -> Vec<Figure> {
    let figure = |(at, finding): (usize, Finding)| {
        let (took, shape) = (&field.took[at], SHAPES[at]);
        let p50 = median(took.iter().copied());
        Figure {
            due: field.backlog.due,
            limit: shape.limit,
            queues: shape.queues,
            claimed: finding.claimed,
            p50_ms: p50,
            p99_ms: quantile(took, 0.99),
            ratio: p50 / median(smallest.took[at].iter().copied()),
            rows_locked: finding.rows_locked,
            ids_equal: finding.ids_equal,
            plan: finding.plan,
        }
    };
    findings.into_iter().enumerate().map(figure).collect()
}

fn print(figures: &[&Figure]) {
    let known = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let row = |figure: &&Figure| {
        let shape = Shape { limit: figure.limit, queues: figure.queues };
        vec![
            shape.label(),
            short(figure.due),
            format!("{:.2}", figure.p50_ms),
            format!("{:.2}", figure.p99_ms),
            format!("{:.2}", figure.ratio),
            figure.claimed.to_string(),
            known(figure.rows_locked),
            known(figure.plan.as_ref().and_then(|plan| plan.most_read)),
            if figure.ids_equal { "equal" } else { "DIFFER" }.to_owned(),
        ]
    };
    let rows: Vec<_> = figures.iter().map(row).collect();
    print_table(&["claim of", "due", "p50 ms", "p99 ms", "ratio", "claimed", "locked", "read", "ids"], &rows);
}

fn check_locks(report: &mut Report, figures: &[&Figure]) {
    let known: Vec<_> =
        figures.iter().filter_map(|figure| Some((figure.claimed as u64, figure.rows_locked?))).collect();
    if !known.is_empty() {
        let more = known.iter().filter(|(claimed, locked)| locked > claimed).count();
        report.check(
            About::Correctness,
            more == 0,
            format!("no row locked that is not taken ({more} claims lock more)"),
        );
    }
}

fn check_plans(report: &mut Report, figures: &[&Figure]) {
    let plans: Vec<_> = figures.iter().filter_map(|figure| figure.plan.as_ref()).collect();
    if plans.is_empty() {
        println!("\nplan: this store or server does not tell");
        return;
    }
    let mut objections: Vec<_> = plans.iter().flat_map(|plan| &plan.objections).collect();
    objections.sort();
    objections.dedup();
    for objection in &objections {
        println!("plan: {objection}");
    }
    report.check(
        About::Correctness,
        objections.is_empty(),
        "plan reads heads only, with and without statistics",
    );
}
