//! Jobs inside a transaction of the user.

mod common;

use common::job;
use ratchet_api::store::{JobBulkStore as _, JobCrudStore as _};
use ratchet_api::{
    Condition, Edge, Enlist as _, IdempotencyKey, Inserted, JobId, StoreErrorKind, Submission,
};
use ratchet_store_memory::MemoryStore;
use ratchet_store_sqlite::SqliteStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tempfile::TempDir;

const BEGIN: &str = "BEGIN IMMEDIATE";

async fn place() -> (TempDir, SqliteStore, SqliteConnection) {
    let dir = TempDir::new().expect("there is room for files");
    let file = dir.path().join("app.db");
    let store = SqliteStore::open(&file).await.expect("it opens");
    let user = SqliteConnectOptions::new().filename(file).connect().await.expect("it opens");
    (dir, store, user)
}

fn keyed(key: &str) -> Submission {
    let mut job = job();
    job.spec.idempotency_key = Some(IdempotencyKey::new(key).expect("a key"));
    Submission::single(job)
}

async fn found(store: &SqliteStore, id: JobId) -> usize {
    store.find(&[id]).await.expect("an answer").iter().flatten().count()
}

#[tokio::test]
async fn a_job_exists_once_the_users_transaction_is_committed_and_never_if_it_is_rolled_back() {
    let (_dir, store, mut user) = place().await;
    for (commits, expected) in [(false, 0), (true, 1)] {
        let submission = Submission::single(job());
        let id = submission.id().expect("it has a job");
        let mut tx = user.begin_with(BEGIN).await.expect("it begins");
        assert_eq!(tx.insert_in(&store, &[submission]).await.expect("it is stored"), [Inserted::New]);
        assert_eq!(found(&store, id).await, 0, "nobody else sees it yet");
        if commits { tx.commit().await } else { tx.rollback().await }.expect("it ends");
        assert_eq!(found(&store, id).await, expected);
    }
}

#[tokio::test]
async fn a_key_that_is_taken_is_an_answer_and_the_users_transaction_goes_on() {
    let (_dir, store, mut user) = place().await;
    let first = keyed("once");
    let holder = first.id().expect("it has a job");
    assert_eq!(store.insert(&[first]).await.expect("it is stored"), [Inserted::New]);

    let mut tx = user.begin_with(BEGIN).await.expect("it begins");
    let others = [keyed("once"), keyed("other")];
    let answers = tx.insert_in(&store, &others).await.expect("answers");
    assert_eq!(answers, [Inserted::Existing(holder), Inserted::New]);
    tx.commit().await.expect("it is committed");
    assert_eq!(found(&store, others[1].id().expect("it has a job")).await, 1);
}

#[tokio::test]
async fn a_workflow_is_stored_as_a_whole_inside_the_users_transaction() {
    let (_dir, store, mut user) = place().await;
    let mut workflow = Submission::single(job());
    workflow.jobs.push(job());
    let (parent, child) = (workflow.jobs[0].spec.id, workflow.jobs[1].spec.id);
    workflow.edges.push(Edge::new(parent, child, Condition::Success));

    let mut tx = user.begin_with(BEGIN).await.expect("it begins");
    assert_eq!(tx.insert_in(&store, &[workflow]).await.expect("it is stored"), [Inserted::New]);
    tx.commit().await.expect("it is committed");
    let child = store.find(&[child]).await.expect("an answer").remove(0).expect("it is there");
    assert_eq!((child.blocked_by, child.depends_on), (1, Some(parent)));
}

#[tokio::test]
async fn a_transaction_does_not_take_jobs_of_another_store() {
    let (_dir, _store, mut user) = place().await;
    let refused = user.insert_in(&MemoryStore::new(), &[Submission::single(job())]).await;
    assert_eq!(refused.expect_err("it is refused").kind(), StoreErrorKind::Unsupported);
}

#[tokio::test]
async fn a_transaction_on_another_file_is_told_to_be_one() {
    let (dir, store, _user) = place().await;
    let elsewhere = SqliteConnectOptions::new().filename(dir.path().join("other.db")).create_if_missing(true);
    let mut user = elsewhere.connect().await.expect("it opens");
    let mut tx = user.begin_with(BEGIN).await.expect("it begins");
    let error = tx.insert_in(&store, &[Submission::single(job())]).await.expect_err("there are no tables");
    assert_eq!(error.kind(), StoreErrorKind::NotMigrated);
    assert!(error.to_string().contains("begin it on the database of the store"), "{error}");
}
