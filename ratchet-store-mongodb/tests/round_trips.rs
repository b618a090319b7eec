//! The number of commands per operation: the table of `docs/stores/mongodb.md`, measured by the driver's own events.

mod common;

use std::slice::from_ref;
use std::time::Duration;

use common::{LEASE, TestDatabase, error, job, job_with, succeeded};
use mongodb::bson::Document;
use ratchet_api::store::{
    JobBatchStatusStore as _, JobBulkStore as _, JobClaimStore as _, JobCrudStore as _, JobPauseStore as _,
    JobRetryStore as _, JobTerminalStore as _, LockStore as _, NodeStore as _, PermitRequest, ProgressReport,
    ResourcePermitStore as _,
};
use ratchet_api::{
    BatchId, Beat, BusinessKey, Condition, DeadReason, Edge, Effect, End, HandBackReason, IdempotencyKey,
    Inserted, JobClaim, JobType, LockName, NewBatch, Outcome, Owner, ParkedOn, ResourceLimit, ResourceName,
    StoreClock, Submission, Verdict,
};

/// The rows of the table: the operation, and the commands that it sent.
#[derive(Default)]
struct Table(Vec<(&'static str, String)>);

impl Table {
    /// Runs `work` and records the commands that it sent, in order.
    async fn row<T>(&mut self, place: &TestDatabase, what: &'static str, work: impl Future<Output = T>) -> T {
        let (done, sent) = place.sent_by(work).await;
        let names: Vec<&str> = sent.iter().filter_map(name).collect();
        self.0.push((what, names.join(" ")));
        done
    }

    #[track_caller]
    fn is(&self, expected: &[(&'static str, &str)]) {
        let found: Vec<(&str, &str)> = self.0.iter().map(|(what, sent)| (*what, sent.as_str())).collect();
        assert_eq!(found, expected);
    }
}

/// The name of a command in the table.
fn name(command: &Document) -> Option<&str> {
    command.keys().next().map(|name| match name.as_str() {
        "commitTransaction" => "commit",
        name => name,
    })
}

fn keyed(key: &str) -> Submission {
    Submission::single(job_with(|job| job.spec.idempotency_key = IdempotencyKey::new(key).ok()))
}

/// A job that waits for this one.
fn child_of(parent: &JobClaim) -> Submission {
    let child = job();
    let edge = Edge::new(parent.id, child.spec.id, Condition::Success);
    let mut submission = Submission::single(child);
    submission.edges.push(edge);
    submission
}

fn batch_of(children: usize) -> Submission {
    let mut submission = Submission::single(job_with(|job| job.spec.job_type = JobType::BatchParent));
    let batch = BatchId::of(submission.jobs[0].spec.id);
    let child = || job_with(|job| (job.spec.job_type, job.spec.batch) = (JobType::BatchChild, Some(batch)));
    submission.jobs.extend(std::iter::repeat_with(child).take(children));
    submission.batch = Some(NewBatch { closed: true });
    submission
}

async fn recorded(place: &TestDatabase, outcome: Outcome) {
    let verdict = place.commit(outcome).await;
    assert!(matches!(verdict, Verdict::Recorded(_)), "{verdict:?}");
}

async fn submitted(place: &TestDatabase, submission: &Submission) {
    assert_eq!(place.store.insert(from_ref(submission)).await.expect("insert answers"), [Inserted::New]);
}

#[tokio::test]
async fn submissions() {
    let (place, mut table) =
        (TestDatabase::open(StoreClock::Manual(Default::default())).await, Table::default());
    let plain: Vec<Submission> = (0..1_000).map(|_| Submission::single(job())).collect();
    table.row(&place, "1,000 single jobs", place.store.insert(&plain)).await.expect("insert answers");
    let with_key = job_with(|job| job.spec.business_key = BusinessKey::new("order 1").ok());
    let with_key = Submission::single(with_key);
    table.row(&place, "a business key", submitted(&place, &with_key)).await;
    let many: Vec<Submission> = (0..100).map(|n| keyed(&format!("key {n}"))).collect();
    table.row(&place, "100 idempotency keys", place.store.insert(&many)).await.expect("insert answers");
    let parent = place.claim(1).await.remove(0);
    table.row(&place, "a child of a stored job", submitted(&place, &child_of(&parent))).await;
    table.row(&place, "a batch of 10", submitted(&place, &batch_of(10))).await;
    let mut instead = Submission::single(job());
    instead.supersedes = plain[999].id();
    table.row(&place, "a replacement", submitted(&place, &instead)).await;
    table.is(&[
        ("1,000 single jobs", "insert"),
        ("a business key", "insert"),
        ("100 idempotency keys", "find find insert insert commit"),
        ("a child of a stored job", "find update insert insert commit"),
        ("a batch of 10", "find find insert insert commit"),
        ("a replacement", "find update insert commit"),
    ]);
    place.close().await;
}

#[tokio::test]
async fn the_life_of_a_job() {
    let (place, mut table) =
        (TestDatabase::open(StoreClock::Manual(Default::default())).await, Table::default());
    place.insert(std::iter::repeat_with(job).take(600).collect()).await;
    let claims = table.row(&place, "a claim of 500", place.claim(500)).await;
    assert_eq!(claims.len(), 500);
    table.row(&place, "a load of 500", place.store.load(&place.owner, &claims)).await.expect("load answers");
    table.row(&place, "what an owner holds", place.store.owned(&place.owner)).await.expect("owned answers");
    let outcomes: Vec<Outcome> = claims.iter().skip(10).map(succeeded).collect();
    let recording = place.store.commit(&place.owner, &outcomes);
    table.row(&place, "490 successes", recording).await.expect("commit answers");
    let retry = End::Retry { delay: Duration::ZERO, error: error("boom") };
    table.row(&place, "a retry", recorded(&place, Outcome::new(claims[0].id, claims[0].fence, retry))).await;
    let dead = End::DeadLetter { error: error("boom"), reason: DeadReason::DoNotRetry };
    table
        .row(&place, "a dead letter", recorded(&place, Outcome::new(claims[1].id, claims[1].fence, dead)))
        .await;
    let back = End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
    table
        .row(&place, "a hand-back", recorded(&place, Outcome::new(claims[2].id, claims[2].fence, back)))
        .await;
    let progress =
        ProgressReport { id: claims[3].id, fence: claims[3].fence, done: 1, total: None, message: None };
    let reporting = place.store.report_progress(from_ref(&progress));
    table.row(&place, "progress", reporting).await.expect("it answers");
    let picking = [claims[2].id];
    let picked = place.store.pick_up(&place.owner, &picking);
    table.row(&place, "a pick-up", picked).await.expect("pick_up answers");
    table.is(&[
        ("a claim of 500", "aggregate update aggregate"),
        ("a load of 500", "find"),
        ("what an owner holds", "aggregate"),
        ("490 successes", "update"),
        ("a retry", "update"),
        ("a dead letter", "update"),
        ("a hand-back", "update find"),
        ("progress", "update"),
        ("a pick-up", "aggregate update aggregate"),
    ]);
    place.close().await;
}

/// Outcomes outside the plain path: one transaction per call, whatever it carries.
#[tokio::test]
async fn outcomes_with_consequences() {
    let (place, mut table) =
        (TestDatabase::open(StoreClock::Manual(Default::default())).await, Table::default());
    place.insert(std::iter::repeat_with(job).take(3).collect()).await;
    let [parent, called, replayed] = place.claim(3).await.try_into().expect("three jobs");
    let children = child_of(&parent);
    submitted(&place, &children).await;
    let mut outcome = succeeded(&parent);
    outcome.effects.push(Effect::Satisfy(children.jobs[0].spec.id));
    outcome.edges_seen = 1;
    table.row(&place, "an edge", recorded(&place, outcome)).await;
    let mut outcome = succeeded(&called);
    outcome.effects.push(Effect::Submit(Box::new(Submission::single(job()))));
    table.row(&place, "a callback", recorded(&place, outcome)).await;
    recorded(&place, succeeded(&replayed)).await;
    let again = table.row(&place, "the same again", place.commit(succeeded(&replayed))).await;
    assert_eq!(again, Verdict::AlreadyRecorded);
    drain(&place).await;

    submitted(&place, &batch_of(20)).await;
    let claims = place.claim(20).await;
    table.row(&place, "a child of a batch", recorded(&place, succeeded(&claims[0]))).await;
    let rest: Vec<Outcome> = claims.iter().skip(1).map(succeeded).collect();
    let recording = place.store.commit(&place.owner, &rest);
    table.row(&place, "19 children of a batch", recording).await.expect("commit answers");
    drain(&place).await;

    let printer = ResourceName::new("printer").expect("a name");
    let limit = ResourceLimit::new(printer.clone(), 1);
    place.store.configure_resource(&limit).await.expect("it answers");
    place.insert(vec![job()]).await;
    let claim = place.claim(1).await.remove(0);
    let request = PermitRequest { id: claim.id, fence: claim.fence, resource: printer };
    table.row(&place, "a permit", place.store.acquire(&place.owner, &[request])).await.expect("it answers");
    table.row(&place, "a job with a permit", recorded(&place, succeeded(&claim))).await;
    table.is(&[
        ("an edge", "find find find update update commit"),
        ("a callback", "find find update insert commit"),
        ("the same again", "update find find commit"),
        ("a child of a batch", "update find find find find update update commit"),
        ("19 children of a batch", "update find find find find update update commit"),
        ("a permit", "find find update update update commit"),
        ("a job with a permit", "update find find find delete update update commit"),
    ]);
    place.close().await;
}

async fn drain(place: &TestDatabase) {
    let outcomes: Vec<Outcome> = place.claim(100).await.iter().map(succeeded).collect();
    place.store.commit(&place.owner, &outcomes).await.expect("commit answers");
}

#[tokio::test]
async fn control_and_the_cluster() {
    let (place, mut table) =
        (TestDatabase::open(StoreClock::Manual(Default::default())).await, Table::default());
    let ids = place.insert(std::iter::repeat_with(job).take(4).collect()).await;
    let why = error("no need").class;
    table.row(&place, "a cancel", place.store.cancel(&[ids[0].into()], &why)).await.expect("cancel answers");
    let failed = place.store.pick_up(&place.owner, &[ids[3]]).await.expect("pick_up answers").remove(0);
    let dead = End::DeadLetter { error: error("boom"), reason: DeadReason::DoNotRetry };
    recorded(&place, Outcome::new(failed.id, failed.fence, dead)).await;
    table
        .row(&place, "a retry by hand", place.store.retry(&[failed.id.into()]))
        .await
        .expect("retry answers");
    table.row(&place, "a pause", place.store.pause(&[ids[1].into()])).await.expect("pause answers");
    table.row(&place, "a resume", place.store.resume(&[ids[1].into()])).await.expect("resume answers");
    let beat = Beat::new(place.owner.clone(), LEASE);
    table.row(&place, "a beat", place.store.beat(&beat)).await.expect("beat answers");
    let name = LockName::new("lock").expect("a name");
    table.row(&place, "a lock", place.store.try_lock(&name, LEASE, &place.owner)).await.expect("it answers");

    let dead = Owner::incarnate("dead");
    let joining = ratchet_api::NodeInfo::new(dead.clone());
    table.row(&place, "a join", place.store.join(&joining, LEASE)).await.expect("join answers");
    let claim = ratchet_api::store::ClaimRequest::new(dead.clone(), 2);
    assert_eq!(place.store.claim(&claim).await.expect("claim answers").len(), 2);
    place.store.beat(&Beat::new(dead.clone(), Duration::ZERO)).await.expect("beat answers");
    table.row(&place, "a beat that sees a death", place.store.beat(&beat)).await.expect("beat answers");
    let recovering = place.store.recover(from_ref(&dead), &place.owner, 10);
    assert_eq!(table.row(&place, "a recovery", recovering).await.expect("recover answers").len(), 2);

    let held = place.store.owned(&place.owner).await.expect("owned answers").remove(0);
    let on = ParkedOn::Method("other.Service.run".to_owned());
    recorded(&place, Outcome::new(held.id, held.fence, End::Park { on })).await;
    table.row(&place, "a claim where jobs are parked", place.claim(10)).await;
    table.row(&place, "a beat where jobs are parked", place.store.beat(&beat)).await.expect("beat answers");
    table.is(&[
        ("a cancel", "find update commit"),
        ("a retry by hand", "find update commit"),
        ("a pause", "find update commit"),
        ("a resume", "find update commit"),
        ("a beat", "findAndModify aggregate"),
        ("a lock", "findAndModify"),
        ("a join", "update"),
        ("a beat that sees a death", "findAndModify aggregate find find"),
        ("a recovery", "aggregate find find update update commit aggregate"),
        ("a claim where jobs are parked", "aggregate find find distinct aggregate update aggregate"),
        (
            "a beat where jobs are parked",
            "findAndModify aggregate distinct distinct find find distinct aggregate find",
        ),
    ]);
    place.close().await;
}

/// By the server's clock: decisions made here first ask for the time, and the due time of a retry is read back.
#[tokio::test]
async fn what_the_clock_of_the_server_adds() {
    let (place, mut table) = (TestDatabase::open(StoreClock::Server).await, Table::default());
    table.row(&place, "a single job", submitted(&place, &Submission::single(job()))).await;
    table.row(&place, "an idempotency key", submitted(&place, &keyed("key"))).await;
    let [first, second] = table.row(&place, "a claim", place.claim(2)).await.try_into().expect("two jobs");
    table.row(&place, "a success", recorded(&place, succeeded(&first))).await;
    let retry = End::Retry { delay: Duration::ZERO, error: error("boom") };
    table.row(&place, "a retry", recorded(&place, Outcome::new(second.id, second.fence, retry))).await;
    let beat = Beat::new(place.owner.clone(), LEASE);
    table.row(&place, "a beat", place.store.beat(&beat)).await.expect("beat answers");
    table.is(&[
        ("a single job", "hello insert"),
        ("an idempotency key", "hello find find insert insert commit"),
        ("a claim", "aggregate update aggregate"),
        ("a success", "update"),
        ("a retry", "update find"),
        ("a beat", "findAndModify aggregate"),
    ]);
    place.close().await;
}
