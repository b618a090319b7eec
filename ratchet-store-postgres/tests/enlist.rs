//! Jobs inside a transaction of the user, on a real PostgreSQL.

mod common;

use common::TestDatabase;
use ratchet_api::store::{JobBulkStore as _, JobCrudStore as _};
use ratchet_api::{
    Condition, Edge, Enlist as _, IdempotencyKey, Inserted, JobId, JobPayload, JsonText, NewJob,
    StoreErrorKind, Submission,
};
use ratchet_store_memory::MemoryStore;
use sqlx::{Connection as _, PgConnection};

fn job() -> NewJob {
    let args = JsonText::parse("[]").expect("the test goes on");
    NewJob::new(JobPayload::new("mail.Sender", "send", &args).expect("the test goes on"))
}

fn keyed(key: &str) -> Submission {
    let mut job = job();
    job.spec.idempotency_key = Some(IdempotencyKey::new(key).expect("the test goes on"));
    Submission::single(job)
}

#[tokio::test]
async fn a_job_exists_once_the_users_transaction_is_committed_and_never_if_it_is_rolled_back() {
    let place = TestDatabase::new("enlist").await;
    let store = place.store().await;
    let mut user = place.connection().await;

    for (commits, expected) in [(false, 0), (true, 1)] {
        let submission = Submission::single(job());
        let id = submission.id().expect("the test goes on");
        let mut tx = user.begin().await.expect("the test goes on");
        assert_eq!(tx.insert_in(&store, &[submission]).await.expect("the test goes on"), [Inserted::New]);
        assert_eq!(found(&store, id).await, 0, "nobody else sees it yet");
        if commits {
            tx.commit().await.expect("the test goes on");
        } else {
            tx.rollback().await.expect("the test goes on");
        }
        assert_eq!(found(&store, id).await, expected);
    }
    place.drop().await;
}

#[tokio::test]
async fn a_key_that_is_taken_is_an_answer_and_the_users_transaction_goes_on() {
    let place = TestDatabase::new("enlist").await;
    let store = place.store().await;
    let first = keyed("once");
    let holder = first.id().expect("the test goes on");
    assert_eq!(store.insert(&[first]).await.expect("the test goes on"), [Inserted::New]);

    let mut user = place.connection().await;
    let mut tx = user.begin().await.expect("the test goes on");
    let others = [keyed("once"), keyed("other")];
    assert_eq!(
        tx.insert_in(&store, &others).await.expect("the test goes on"),
        [Inserted::Existing(holder), Inserted::New]
    );
    let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&mut *tx).await.expect("the test goes on");
    assert_eq!(one, 1, "the transaction is not aborted");
    tx.commit().await.expect("the test goes on");
    assert_eq!(found(&store, others[1].id().expect("the test goes on")).await, 1);
    place.drop().await;
}

#[tokio::test]
async fn a_workflow_is_stored_as_a_whole_inside_the_users_transaction() {
    let place = TestDatabase::new("enlist").await;
    let store = place.store().await;
    let mut workflow = Submission::single(job());
    workflow.jobs.push(job());
    let (parent, child) = (workflow.jobs[0].spec.id, workflow.jobs[1].spec.id);
    workflow.edges.push(Edge::new(parent, child, Condition::Success));

    let mut user = place.connection().await;
    let mut tx = user.begin().await.expect("the test goes on");
    assert_eq!(tx.insert_in(&store, &[workflow]).await.expect("the test goes on"), [Inserted::New]);
    tx.commit().await.expect("the test goes on");
    let child = store.find(&[child]).await.expect("the test goes on").remove(0).expect("the test goes on");
    assert_eq!((child.blocked_by, child.depends_on), (1, Some(parent)));
    place.drop().await;
}

#[tokio::test]
async fn a_transaction_does_not_take_jobs_of_another_store() {
    let place = TestDatabase::new("enlist").await;
    let mut user: PgConnection = place.connection().await;
    let refused = user.insert_in(&MemoryStore::new(), &[Submission::single(job())]).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Unsupported);
    assert!(refused.to_string().contains("memory"), "{refused}");
    place.drop().await;
}

async fn found(store: &ratchet_store_postgres::PostgresStore, id: JobId) -> usize {
    store.find(&[id]).await.expect("the test goes on").iter().flatten().count()
}
