//! Jobs inside a transaction of the user, on a real MongoDB.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use mongodb::bson::{Document, doc};
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongodb::{Client, ClientSession};
use ratchet_api::store::{JobBulkStore as _, JobCrudStore as _};
use ratchet_api::{
    BusinessKey, Condition, Edge, Enlist as _, IdempotencyKey, Inserted, JobId, JobPayload, JsonText, NewJob,
    StoreErrorKind, Submission, SubmitError,
};
use ratchet_servers::Server;
use ratchet_store_memory::MemoryStore;
use ratchet_store_mongodb::{MongoOptions, MongoStore, driver_error};

/// A database of its own, dropped at the end of a test that passed.
struct TestDatabase(MongoStore, String);

impl TestDatabase {
    async fn open() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ratchet_enlist_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let options = MongoOptions::default().database(&name);
        Self(MongoStore::connect(&url(), options).await.expect("the store opens"), name)
    }

    async fn session(&self) -> ClientSession {
        self.0.client().start_session().await.expect("a session starts")
    }

    async fn transaction(&self) -> ClientSession {
        let mut session = self.session().await;
        session.start_transaction().await.expect("it begins");
        session
    }

    async fn has(&self, id: JobId) -> bool {
        self.0.find(&[id]).await.expect("find answers").iter().any(Option::is_some)
    }

    async fn close(self) {
        self.0.client().database(&self.1).drop().await.expect("the database goes");
    }
}

fn url() -> String {
    ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"))
}

fn job() -> NewJob {
    let args = JsonText::parse("[]").expect("this is JSON");
    NewJob::new(JobPayload::new("mail.Sender", "send", &args).expect("these are names"))
}

fn single() -> (Submission, JobId) {
    let job = job();
    let id = job.spec.id;
    (Submission::single(job), id)
}

fn keyed(key: &str) -> (Submission, JobId) {
    let mut job = job();
    job.spec.idempotency_key = Some(IdempotencyKey::new(key).expect("a key"));
    let id = job.spec.id;
    (Submission::single(job), id)
}

fn for_business(key: &str) -> (Submission, JobId) {
    let mut job = job();
    job.spec.business_key = Some(BusinessKey::new(key).expect("a key"));
    let id = job.spec.id;
    (Submission::single(job), id)
}

#[tokio::test]
async fn a_job_exists_once_the_users_transaction_is_committed_and_never_if_it_is_aborted() {
    let place = TestDatabase::open().await;
    for commits in [false, true] {
        let (submission, id) = single();
        let mut session = place.transaction().await;
        assert_eq!(session.insert_in(&place.0, &[submission]).await.expect("stored"), [Inserted::New]);
        assert!(!place.has(id).await, "nobody else sees it yet");
        match commits {
            true => session.commit_transaction().await.expect("committed"),
            false => session.abort_transaction().await.expect("aborted"),
        }
        assert_eq!(place.has(id).await, commits);
    }
    place.close().await;
}

#[tokio::test]
async fn a_key_that_is_taken_is_an_answer_and_the_users_transaction_goes_on() {
    let place = TestDatabase::open().await;
    let (first, holder) = keyed("once");
    assert_eq!(place.0.insert(&[first]).await.expect("stored"), [Inserted::New]);
    let (live, busy) = for_business("order 7");
    assert_eq!(place.0.insert(&[live]).await.expect("stored"), [Inserted::New]);

    let orders = place.0.client().database(&place.1).collection::<Document>("orders");
    let mut session = place.transaction().await;
    let (other, id) = keyed("other");
    let submissions = [keyed("once").0, for_business("order 7").0, other];
    assert_eq!(
        session.insert_in(&place.0, &submissions).await.expect("answered"),
        [Inserted::Existing(holder), Inserted::KeyTaken { holder: busy }, Inserted::New]
    );
    orders
        .insert_one(doc! { "cake": 1 })
        .session(&mut session)
        .await
        .expect("the transaction is not aborted");
    session.commit_transaction().await.expect("committed");
    assert!(place.has(id).await);
    assert_eq!(orders.count_documents(doc! {}).await.expect("counted"), 1);
    place.close().await;
}

#[tokio::test]
async fn many_jobs_are_stored_in_one_transaction_and_know_each_others_keys() {
    let place = TestDatabase::open().await;
    let (first, holder) = keyed("once");
    // More than fit in one message, with the second use of a key far behind the first.
    let mut submissions: Vec<_> = std::iter::repeat_with(|| single().0).take(450).collect();
    submissions.insert(0, first);
    submissions.push(keyed("once").0);
    let mut session = place.transaction().await;
    let mut answers = session.insert_in(&place.0, &submissions).await.expect("stored");
    assert_eq!(answers.pop(), Some(Inserted::Existing(holder)));
    assert!(answers.iter().all(|answer| *answer == Inserted::New));
    session.commit_transaction().await.expect("committed");
    let ids: Vec<_> = submissions.iter().filter_map(Submission::id).collect();
    assert_eq!(place.0.find(&ids).await.expect("find answers").iter().flatten().count(), 451);
    place.close().await;
}

#[tokio::test]
async fn a_workflow_is_stored_as_a_whole_inside_the_users_transaction() {
    let place = TestDatabase::open().await;
    let mut workflow = Submission::single(job());
    workflow.jobs.push(job());
    let (parent, child) = (workflow.jobs[0].spec.id, workflow.jobs[1].spec.id);
    workflow.edges.push(Edge::new(parent, child, Condition::Success));

    let mut session = place.transaction().await;
    assert_eq!(session.insert_in(&place.0, &[workflow]).await.expect("stored"), [Inserted::New]);
    session.commit_transaction().await.expect("committed");
    let child = place.0.find(&[child]).await.expect("find answers").remove(0).expect("it is there");
    assert_eq!((child.blocked_by, child.depends_on), (1, Some(parent)));
    place.close().await;
}

#[tokio::test]
async fn who_loses_a_race_for_a_key_is_told_by_the_drivers_label() {
    type MakeSubmission = fn(&str) -> (Submission, JobId);
    for make in [keyed as MakeSubmission, for_business] {
        for committed_first in [false, true] {
            let place = TestDatabase::open().await;
            let (mut winner, mut loser) = (place.transaction().await, place.transaction().await);
            let seen = place.0.client().database(&place.1).collection::<Document>("orders");
            // From now on the loser does not see later commits.
            seen.find_one(doc! {}).session(&mut loser).await.expect("read");
            let won = winner.insert_in(&place.0, &[make("once").0]).await.expect("stored");
            assert_eq!(won, [Inserted::New]);
            if committed_first {
                winner.commit_transaction().await.expect("committed");
            }
            let lost = loser.insert_in(&place.0, &[make("once").0]).await.expect_err("it lost");
            assert_eq!(lost.kind(), StoreErrorKind::Transient, "{lost}");
            assert!(lost.source().is_some(), "{lost:?}");
            // The label survives any number of wrapping errors.
            assert!(driver_error(SubmitError::from(lost)).contains_label(TRANSIENT_TRANSACTION_ERROR));
            if !committed_first {
                winner.abort_transaction().await.expect("aborted");
            }
            place.close().await;
        }
    }
}

#[tokio::test]
async fn the_users_own_loop_runs_a_lost_race_again() {
    let place = TestDatabase::open().await;
    let (first, holder) = keyed("once");
    let mut rival = place.transaction().await;
    rival.insert_in(&place.0, &[first]).await.expect("stored");
    let rival = tokio::sync::Mutex::new(rival);
    let mut session = place.session().await;
    let mut runs = 0;
    let place_order = async |session: &mut ClientSession| {
        runs += 1;
        let answers = session.insert_in(&place.0, &[keyed("once").0]).await.map_err(driver_error);
        if answers.is_err() {
            let _ = rival.lock().await.commit_transaction().await;
        }
        answers
    };
    let answers = session.start_transaction().and_run2(place_order).await.expect("it ends well");
    assert_eq!(answers, [Inserted::Existing(holder)]);
    assert!(runs >= 2, "the first run loses");
    place.close().await;
}

#[tokio::test]
async fn a_session_without_a_transaction_is_refused() {
    let place = TestDatabase::open().await;
    let mut session = place.session().await;
    let (submission, id) = single();
    for _ in 0..2 {
        let refused = session.insert_in(&place.0, std::slice::from_ref(&submission)).await;
        let refused = refused.expect_err("it would be stored whatever the user does");
        assert_eq!(refused.kind(), StoreErrorKind::Invalid);
        assert!(refused.to_string().contains("start_transaction"), "{refused}");
    }
    assert!(!place.has(id).await);
    session.start_transaction().await.expect("it begins");
    session.insert_in(&place.0, &[submission]).await.expect("stored");
    session.commit_transaction().await.expect("committed");
    let after = session.insert_in(&place.0, &[single().0]).await.expect_err("its transaction is over");
    assert_eq!(after.kind(), StoreErrorKind::Invalid);
    place.close().await;
}

#[tokio::test]
async fn a_session_of_another_client_is_refused() {
    let place = TestDatabase::open().await;
    let stranger = Client::with_uri_str(url()).await.expect("the address is one");
    let mut session = stranger.start_session().await.expect("a session starts");
    session.start_transaction().await.expect("it begins");
    let (submission, id) = single();
    let refused = session.insert_in(&place.0, &[submission]).await.expect_err("it is refused");
    assert_eq!(refused.kind(), StoreErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("same client"), "{refused}");
    assert!(!place.has(id).await);
    place.close().await;
}

#[tokio::test]
async fn a_session_does_not_take_jobs_of_another_store() {
    let place = TestDatabase::open().await;
    let mut session = place.transaction().await;
    let refused = session.insert_in(&MemoryStore::new(), &[single().0]).await.expect_err("it is refused");
    assert_eq!(refused.kind(), StoreErrorKind::Unsupported);
    assert!(refused.to_string().contains("memory"), "{refused}");
    place.close().await;
}
