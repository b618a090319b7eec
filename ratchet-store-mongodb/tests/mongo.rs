//! What only this store can show: its plans, its round trips, the server's own clock, and history that overflows.

use std::slice::from_ref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::store::{
    ClaimRequest, ExecutionStore, JobBatchStatusStore, JobBulkStore, JobClaimStore, JobCrudStore,
    JobTerminalStore, Loaded, LockStore, NodeStore, StoreInfo,
};
use ratchet_api::{
    Beat, End, ErrorRecord, HandBackReason, IdempotencyKey, Inserted, JobClaim, JobFailure, JobPayload,
    JobPriority, JobStatus, JsonText, LockName, NewJob, NodeInfo, Outcome, Owner, Run, Sanitized, StoreClock,
    Submission, Verdict,
};
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};

const LEASE: Duration = Duration::from_secs(3600);

/// A database of its own, dropped at the end of a test that passed.
struct Place {
    database: Database,
    store: MongoStore,
    owner: Owner,
}

impl Place {
    async fn open(clock: StoreClock) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let url = ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"));
        let name = format!("ratchet_own_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let database = Client::with_uri_str(&url).await.expect("the address is one").database(&name);
        let options = MongoOptions { database: name, clock, ..MongoOptions::default() };
        let store = MongoStore::connect(&url, options).await.expect("the store opens");
        let owner = Owner::incarnate("test");
        store.join(&NodeInfo::new(owner.clone()), LEASE).await.expect("a node joins");
        Self { database, store, owner }
    }

    async fn close(self) {
        self.database.drop().await.expect("the database goes");
    }

    async fn insert(&self, jobs: Vec<NewJob>) {
        let submissions: Vec<_> = jobs.into_iter().map(Submission::single).collect();
        for answers in submissions.chunks(1_000) {
            let answers = self.store.insert(answers).await.expect("insert answers");
            assert!(answers.iter().all(|answer| *answer == Inserted::New));
        }
    }

    async fn claim(&self, limit: usize) -> Vec<JobClaim> {
        self.store.claim(&ClaimRequest::new(self.owner.clone(), limit)).await.expect("claim answers")
    }

    async fn commit(&self, outcome: Outcome) -> Verdict {
        self.store.commit(&self.owner, &[outcome]).await.expect("commit answers").remove(0)
    }

    /// The commands that the server saw in this database while `work` ran.
    async fn watched<T>(&self, work: impl Future<Output = T>) -> (T, Vec<Document>) {
        use futures::TryStreamExt;
        self.database.run_command(doc! { "profile": 2 }).await.expect("the profiler starts");
        let done = work.await;
        self.database.run_command(doc! { "profile": 0 }).await.expect("the profiler stops");
        let ours = doc! { "appName": "ratchet", "op": { "$ne": "getmore" } };
        let profile = self.database.collection::<Document>("system.profile");
        let seen = profile.find(ours).await.expect("the profile is read").try_collect().await;
        profile.drop().await.expect("the profile goes");
        (done, seen.expect("the profile is read"))
    }
}

fn job() -> NewJob {
    let args = JsonText::parse("[]").expect("this is JSON");
    NewJob::new(JobPayload::new("test.Service", "run", &args).expect("these are names"))
}

fn error(message: &str) -> ErrorRecord {
    struct Verbatim;
    impl ErrorSanitizer for Verbatim {
        fn sanitize(&self, failure: &JobFailure) -> String {
            failure.message().to_owned()
        }
    }
    let text = |text: &str| Sanitized::new(&Verbatim, &JobFailure::new("", text));
    ErrorRecord::new("test.Service", text("TestError"), text(message))
}

fn examined(commands: &[Document], what: &str) -> i64 {
    commands.iter().map(|command| i64::from(command.get_i32(what).unwrap_or_default())).sum()
}

#[tokio::test]
async fn a_claim_looks_at_the_heads_and_at_nothing_else() {
    for clock in [StoreClock::Server, StoreClock::Manual(Default::default())] {
        let place = Place::open(clock).await;
        for priority in JobPriority::ALL {
            let jobs = (0..600).map(|_| {
                let mut job = job();
                job.spec.priority = priority;
                job
            });
            place.insert(jobs.collect()).await;
        }

        let (claims, commands) = place.watched(place.claim(10)).await;

        assert_eq!(claims.len(), 10);
        assert_eq!(commands.len(), 3, "heads, take, read back: {commands:#?}");
        // Five heads of ten, ten to take, ten to read back, and a few for the node and the ends of ranges.
        assert!(examined(&commands, "docsExamined") <= 80, "{commands:#?}");
        assert!(examined(&commands, "keysExamined") <= 90, "{commands:#?}");
        place.close().await;
    }
}

#[tokio::test]
async fn plain_work_needs_few_round_trips_and_no_transaction() {
    let place = Place::open(StoreClock::Manual(Default::default())).await;
    let jobs: Vec<_> = (0..50).map(|_| Submission::single(job())).collect();
    let (_, insert) = place.watched(place.store.insert(&jobs)).await;
    let claims = place.claim(50).await;
    let (_, load) = place.watched(place.store.load(&place.owner, &claims)).await;
    let succeeded = |claim: &JobClaim| Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
    let outcomes: Vec<_> = claims.iter().map(succeeded).collect();
    let (_, commit) = place.watched(place.store.commit(&place.owner, &outcomes)).await;
    let (_, beat) = place.watched(place.store.beat(&Beat::new(place.owner.clone(), LEASE))).await;

    // The profiler sees each update of a command; all fifty came in one.
    let counts = [insert.len(), load.len(), commit.len(), beat.len()];
    assert_eq!(counts, [1, 1, 50, 2]);
    let in_transaction = |command: &&Document| {
        command
            .get_document("command")
            .is_ok_and(|c| c.contains_key("txnNumber") && c.contains_key("autocommit"))
    };
    assert_eq!([insert, load, commit, beat].iter().flatten().filter(in_transaction).count(), 0);
    place.close().await;
}

#[tokio::test]
async fn everything_works_by_the_servers_clock() {
    let place = Place::open(StoreClock::Server).await;
    let before = place.store.database_time().await.expect("the server tells the time");
    place.insert(vec![job()]).await;
    let claim = place.claim(1).await.remove(0);
    assert!(claim.picked_at >= before && claim.picked_at >= claim.scheduled_time);

    let run = Some(Run { started_ago: Duration::from_secs(3), ran_for: Duration::from_secs(2) });
    let retry = End::Retry { delay: Duration::from_millis(1), error: error("$boom") };
    let mut outcome = Outcome::new(claim.id, claim.fence, retry);
    outcome.run = run;
    let Verdict::Recorded(led_to) = place.commit(outcome.clone()).await else { panic!("recorded") };
    let due = led_to.next_due.expect("it is due again");
    assert!(due > claim.picked_at, "{due} after {}", claim.picked_at);
    assert_eq!(place.commit(outcome).await, Verdict::AlreadyRecorded);

    let claim = loop {
        if let Some(claim) = place.claim(1).await.pop() {
            break claim;
        }
    };
    assert_eq!((claim.attempts, claim.scheduled_time), (1, due));
    let loaded = place.store.load(&place.owner, from_ref(&claim)).await.expect("load answers").remove(0);
    let Loaded::Job(job, _) = loaded else { panic!("{loaded:?}") };
    assert_eq!(
        job.last_error.as_deref(),
        Some("$boom"),
        "text is text, never a field of the server's language"
    );

    let mut outcome =
        Outcome::new(claim.id, claim.fence, End::Succeeded { result: JsonText::parse("\"$$NOW\"").ok() });
    outcome.run = run;
    assert_eq!(place.commit(outcome).await, Verdict::Recorded(Default::default()));
    let job = place.store.find(&[claim.id]).await.expect("find answers").remove(0).expect("it exists");
    let ending = job.ending.expect("it has ended");
    assert_eq!(job.status, JobStatus::Succeeded);
    assert_eq!(ending.duration(), Some(Duration::from_secs(2)));
    assert_eq!(ending.result.map(|result| result.to_string()).as_deref(), Some("\"$$NOW\""));
    let attempts = place.store.executions(claim.id).await.expect("executions answers");
    assert_eq!(
        attempts.iter().map(|attempt| attempt.duration).collect::<Vec<_>>(),
        [Some(Duration::from_secs(2)); 2]
    );
    place.close().await;
}

#[tokio::test]
async fn leases_and_locks_run_by_the_servers_clock() {
    let place = Place::open(StoreClock::Server).await;
    place.insert(vec![job()]).await;
    let dead = Owner::incarnate("dead");
    place.store.join(&NodeInfo::new(dead.clone()), LEASE).await.expect("a node joins");
    let lost = place.store.claim(&ClaimRequest::new(dead.clone(), 1)).await.expect("claim answers").remove(0);
    assert!(place.store.recover(from_ref(&dead), &place.owner, 9).await.expect("recover answers").is_empty());

    let expired = place.store.beat(&Beat::new(dead.clone(), Duration::ZERO)).await.expect("beat answers");
    assert!(expired.accepted);
    let reply = place.store.beat(&Beat::new(place.owner.clone(), LEASE)).await.expect("beat answers");
    assert_eq!(reply.dead, from_ref(&dead));
    let moved = place.store.recover(from_ref(&dead), &place.owner, 9).await.expect("recover answers");
    assert_eq!((moved.len(), moved[0].id, moved[0].fence), (1, lost.id, lost.fence.next()));
    assert!(!place.store.beat(&Beat::new(dead, LEASE)).await.expect("beat answers").accepted);

    let name = LockName::new("lock").expect("this is a name");
    let lease = place
        .store
        .try_lock(&name, LEASE, &place.owner)
        .await
        .expect("try_lock answers")
        .expect("it is free");
    assert_eq!(
        place.store.try_lock(&name, LEASE, &Owner::incarnate("other")).await.expect("try_lock answers"),
        None
    );
    assert!(place.store.renew_lock(&lease, Duration::MAX).await.expect("renew answers"));
    assert!(place.store.unlock(&lease).await.expect("unlock answers"));
    place.close().await;
}

#[tokio::test]
async fn history_that_overflows_its_document_is_still_complete() {
    let place = Place::open(StoreClock::Manual(Default::default())).await;
    let job = job();
    let id = job.spec.id;
    place.insert(vec![job]).await;
    let mut fences = Vec::new();
    let mut first = None;
    for _ in 0..40 {
        let claim = place.store.pick_up(&place.owner, &[id]).await.expect("pick_up answers").remove(0);
        fences.push(claim.fence);
        let crashed = End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Crashed };
        let outcome = Outcome::new(id, claim.fence, crashed);
        assert!(matches!(place.commit(outcome.clone()).await, Verdict::Recorded(_)));
        first.get_or_insert(outcome);
    }

    let history = place.store.executions(id).await.expect("executions answers");
    assert_eq!(history.iter().map(|row| row.fence).collect::<Vec<_>>(), fences);
    assert_eq!(place.commit(first.expect("there was a first")).await, Verdict::AlreadyRecorded);
    let stored =
        place.database.collection::<Document>("scheduler_job").find_one(doc! {}).await.expect("it is read");
    let kept = stored.expect("it exists").get_array("history").expect("it has a history").len();
    assert!(kept <= 16, "{kept} attempts in the document");
    place.close().await;
}

#[tokio::test]
async fn keyed_submissions_of_one_call_share_a_transaction() {
    let place = Place::open(StoreClock::Manual(Default::default())).await;
    let keyed = |n: usize| {
        let mut job = job();
        job.spec.idempotency_key = IdempotencyKey::new(format!("key {n}")).ok();
        Submission::single(job)
    };
    let submissions: Vec<_> = (0..100).map(keyed).collect();
    let (answers, commands) = place.watched(place.store.insert(&submissions)).await;
    assert_eq!(answers.expect("insert answers"), vec![Inserted::New; 100]);
    assert_eq!(commands.len(), 4, "jobs and keys read, jobs and keys written: {commands:#?}");
    place.close().await;
}
