//! Jobs inside a transaction of the application, through the engine's API.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ratchet_api::store::{JobFilter, JobStore, PageRequest};
use ratchet_api::{Enlist, JobStatus, SubmitError};
use ratchet_core::{JobHandle, Ratchet, Scheduler, jobs};
use ratchet_store_mongodb::MongoStore;
use ratchet_store_sqlite::SqliteStore;
use ratchet_suite::test_store::{self, TestStore as _};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

#[derive(Clone, Default)]
struct Counter(Arc<AtomicU32>);

#[jobs(target = "test.Counter")]
impl Counter {
    #[job]
    async fn add(&self, number: u32) {
        self.0.fetch_add(number, Ordering::SeqCst);
    }
}

async fn node(store: Arc<dyn JobStore>, counter: &Counter) -> Scheduler {
    let builder = Ratchet::builder_shared(store).register(counter.clone());
    let builder = builder.allow(["test."]);
    builder.start().await.expect("the node starts")
}

async fn stored(node: &Scheduler) -> usize {
    let page = node.client().store().query_jobs(&JobFilter::default(), &PageRequest::first(1_000)).await;
    page.expect("read").jobs.len()
}

/// Submits fifty jobs inside a transaction, one of them twice, and one that the policy denies.
async fn submit_all<M>(node: &Scheduler, tx: &mut impl Enlist<M>) -> JobHandle<()> {
    let calls = (0..50)
        .map(|number| node.enqueue(Counter::job().add(1)).idempotency_key(format!("number {}", number % 49)));
    let denied = node.enqueue(ratchet_core::Call::new("other.Counter", "add"));
    let mut answers = node.client().enqueue_many_in(tx, calls.chain([denied])).await.expect("stored");
    assert!(matches!(answers.pop(), Some(Err(SubmitError::Denied { .. }))));
    let duplicates: Vec<bool> =
        answers.iter().map(|job| job.as_ref().expect("stored").is_duplicate()).collect();
    assert_eq!(duplicates, [vec![false; 49], vec![true]].concat());
    let alone = node.enqueue(Counter::job().add(1)).submit_in(tx).await.expect("stored");
    assert_eq!(alone.job().await.expect("read"), None, "nobody sees it yet");
    alone
}

/// Checks that nothing is stored after a rollback.
async fn nothing_is_there(node: &Scheduler, counter: &Counter) {
    assert_eq!(stored(node).await, 0);
    assert_eq!(counter.0.load(Ordering::SeqCst), 0);
}

/// Checks that all jobs are there after a commit, and run once one of them is marked `committed`.
async fn all_run(node: &Scheduler, counter: &Counter, job: &JobHandle<()>) {
    job.committed();
    let page = node.client().store().query_jobs(&JobFilter::default(), &PageRequest::first(1_000)).await;
    let jobs = page.expect("read").jobs;
    assert_eq!(jobs.len(), 50, "forty-nine, and the one that was submitted by itself");
    for job in jobs {
        let ended = node.client().job::<()>(job.spec.id).ended().await.expect("it ends");
        assert_eq!(ended.status, JobStatus::Succeeded);
    }
    assert_eq!(counter.0.load(Ordering::SeqCst), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_follow_a_transaction_of_postgresql() {
    let place = test_store::postgres().await;
    let counter = Counter::default();
    let node = node(place.connect().await, &counter).await;
    let mut db = PgConnection::connect(&test_store::postgres_url()).await.expect("the server answers");

    let mut tx = db.begin().await.expect("it begins");
    submit_all(&node, &mut tx).await;
    tx.rollback().await.expect("it is rolled back");
    nothing_is_there(&node, &counter).await;

    let mut tx = db.begin().await.expect("it begins");
    let job = submit_all(&node, &mut tx).await;
    tx.commit().await.expect("it is committed");
    all_run(&node, &counter, &job).await;
    node.stop().await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_follow_a_transaction_of_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("app.db");
    let counter = Counter::default();
    let store = SqliteStore::open(&file).await.expect("it opens");
    let node = node(Arc::new(store), &counter).await;
    let mut db = SqliteConnectOptions::new().filename(file).connect().await.expect("it opens");

    let mut tx = db.begin_with("BEGIN IMMEDIATE").await.expect("it begins");
    submit_all(&node, &mut tx).await;
    tx.rollback().await.expect("it is rolled back");
    nothing_is_there(&node, &counter).await;

    let mut tx = db.begin_with("BEGIN IMMEDIATE").await.expect("it begins");
    let job = submit_all(&node, &mut tx).await;
    tx.commit().await.expect("it is committed");
    all_run(&node, &counter, &job).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_follow_a_transaction_of_mongodb() {
    let place = test_store::Collections::default();
    let counter = Counter::default();
    let store = MongoStore::connect(&test_store::mongodb_url(), place.options()).await.expect("it opens");
    let mut session = store.client().start_session().await.expect("the server answers");
    let node = node(Arc::new(store), &counter).await;

    session.start_transaction().await.expect("it begins");
    submit_all(&node, &mut session).await;
    session.abort_transaction().await.expect("it is aborted");
    nothing_is_there(&node, &counter).await;

    session.start_transaction().await.expect("it begins");
    let job = submit_all(&node, &mut session).await;
    session.commit_transaction().await.expect("it is committed");
    all_run(&node, &counter, &job).await;
    node.stop().await;
    place.remove().await;
}
