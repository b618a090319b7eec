//! The effect of an election on a call in flight, by the server's own fail points: replies are lost, and writes are
//! done that no majority has confirmed. `cargo xtask torture --store mongodb --scenario failover` kills real primaries.

use std::sync::LazyLock;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongodb::options::ReadConcern;
use mongodb::{Client, Database};
use ratchet_api::store::{
    ClaimRequest, JobBulkStore, JobClaimStore, JobCrudStore, JobTerminalStore, NodeStore,
};
use ratchet_api::{
    End, Enlist as _, IdempotencyKey, Inserted, JobPayload, JsonText, NewJob, NodeInfo, Outcome, Owner,
    StoreErrorKind, Submission, Verdict,
};
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};
use tokio::sync::{Mutex, MutexGuard};

/// The code of a primary that shuts down, and of a majority that did not confirm in time.
const SHUTDOWN: i32 = 91;
const NO_MAJORITY: i32 = 64;

/// A database of its own, on the shared server, whose fail points apply only to this test.
struct TestDatabase {
    store: MongoStore,
    database: Database,
    admin: Database,
    /// A server has only one fail point of each kind.
    _turn: MutexGuard<'static, ()>,
}

impl TestDatabase {
    async fn open(name: &str, parameters: &str) -> Self {
        static TURN: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);
        let turn = TURN.lock().await;
        let url = ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"));
        let client = Client::with_uri_str(&url).await.expect("the address is one");
        let database = client.database(&format!("ratchet_failover_{name}_{}", std::process::id()));
        let options = MongoOptions::default().database(database.name());
        let mine = format!("{url}&appName={}{parameters}", database.name());
        let store = MongoStore::connect(&mine, options).await.expect("the store opens");
        Self { store, database, admin: client.database("admin"), _turn: turn }
    }

    /// Makes the next `times` of these commands fail.
    async fn fail(&self, command: &str, times: i32, how: Document) {
        let mut data = doc! { "failCommands": [command], "appName": self.database.name() };
        data.extend(how);
        let set = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        let known = self.admin.run_command(set).await;
        known.expect(
            "this needs a server with enableTestCommands=1: `cargo xtask servers up mongodb` starts one",
        );
    }

    async fn recover(&self) {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        self.admin.run_command(off).await.expect("the fail point goes");
    }

    async fn insert(&self, job: &NewJob) -> ratchet_api::StoreResult<Inserted> {
        Ok(self.store.insert(&[Submission::single(job.clone())]).await?.remove(0))
    }

    async fn close(self) {
        self.recover().await;
        self.database.drop().await.expect("the database goes");
    }
}

fn job() -> NewJob {
    let args = JsonText::parse("[]").expect("this is JSON");
    NewJob::new(JobPayload::new("test.Service", "run", &args).expect("these are names"))
}

/// A job whose insert is a transaction.
fn keyed_job() -> NewJob {
    let mut job = job();
    job.spec.idempotency_key = IdempotencyKey::new("key").ok();
    job
}

fn lost_connection() -> Document {
    doc! { "closeConnection": true }
}

/// A fail point for a command that is carried out, but not known to be on a majority.
fn unconfirmed(code: i32) -> Document {
    doc! { "writeConcernError": { "code": code, "errmsg": "by a fail point" } }
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_sent_again() {
    let place = TestDatabase::open("commit", "").await;
    for how in [lost_connection(), unconfirmed(NO_MAJORITY)] {
        let mut job = keyed_job();
        job.spec.idempotency_key = IdempotencyKey::new(how.to_string()).ok();
        place.fail("commitTransaction", 3, how).await;
        assert_eq!(place.insert(&job).await.expect("insert answers"), Inserted::New);
    }
    place.close().await;
}

#[tokio::test]
async fn a_unit_runs_again_when_its_connection_is_lost_before_its_commit() {
    let place = TestDatabase::open("unit", "").await;
    // The first asks for the time, the second is the first read of the transaction.
    for command in ["hello", "find", "insert"] {
        let mut job = keyed_job();
        job.spec.idempotency_key = IdempotencyKey::new(command).ok();
        place.fail(command, 1, lost_connection()).await;
        assert_eq!(place.insert(&job).await.expect("insert answers"), Inserted::New);
    }
    place.close().await;
}

#[tokio::test]
async fn a_commit_that_stays_unknown_is_recognised_when_the_call_is_sent_again() {
    let place = TestDatabase::open("unknown", "").await;
    let job = keyed_job();
    place.fail("commitTransaction", 100, unconfirmed(NO_MAJORITY)).await;
    let unknown = place.insert(&job).await.expect_err("it is not known");
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable);
    place.recover().await;
    let id = job.spec.id;
    assert_eq!(place.insert(&job).await.expect("insert answers"), Inserted::Existing(id));
    place.close().await;
}

#[tokio::test]
async fn an_outcome_that_no_majority_confirmed_is_recognised_when_it_is_sent_again() {
    let place = TestDatabase::open("outcome", "").await;
    let owner = Owner::incarnate("test");
    place.store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(60)).await.expect("a node joins");
    assert_eq!(place.insert(&job()).await.expect("insert answers"), Inserted::New);
    let claim =
        place.store.claim(&ClaimRequest::new(owner.clone(), 1)).await.expect("claim answers").remove(0);
    let outcome = [Outcome::new(claim.id, claim.fence, End::Succeeded { result: None })];

    place.fail("update", 1, unconfirmed(SHUTDOWN)).await;
    let unconfirmed = place.store.commit(&owner, &outcome).await.expect_err("an election may take it back");
    assert_eq!(unconfirmed.kind(), StoreErrorKind::Transient);
    let again = place.store.commit(&owner, &outcome).await.expect("commit answers");
    assert_eq!(again, [Verdict::AlreadyRecorded]);
    place.close().await;
}

#[tokio::test]
async fn an_insert_that_no_majority_confirmed_is_not_called_stored() {
    let place = TestDatabase::open("insert", "").await;
    let job = job();
    place.fail("insert", 1, unconfirmed(NO_MAJORITY)).await;
    let unconfirmed = place.insert(&job).await.expect_err("an election may take it back");
    assert_eq!(unconfirmed.kind(), StoreErrorKind::Transient);
    let id = job.spec.id;
    assert_eq!(place.insert(&job).await.expect("insert answers"), Inserted::Existing(id));
    place.close().await;
}

#[tokio::test]
async fn a_transaction_of_a_dead_process_is_in_nobodys_way_for_long() {
    let place = TestDatabase::open("abandoned", "").await;
    let (dead, living) = (keyed_job(), keyed_job());
    // Like a unit that is killed before its commit: it has taken the key.
    let mut abandoned = place.store.client().start_session().await.expect("a session begins");
    abandoned.start_transaction().read_concern(ReadConcern::snapshot()).await.expect("a transaction begins");
    let submission = [Submission::single(dead)];
    assert_eq!(
        abandoned.insert_in(&place.store, &submission).await.expect("insert answers"),
        [Inserted::New]
    );

    let insert = async {
        loop {
            match place.insert(&living).await {
                // The call gives up before the transaction in its way is aborted.
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Transient, "{error}"),
                Ok(answer) => return answer,
            }
        }
    };
    // The server by itself would take twice as long.
    let inserted = tokio::time::timeout(Duration::from_secs(30), insert).await;
    assert_eq!(inserted.expect("it is in the way no more"), Inserted::New);
    let late = abandoned.commit_transaction().await.expect_err("it was aborted");
    assert!(late.contains_label(TRANSIENT_TRANSACTION_ERROR), "whoever has it runs it again: {late}");
    place.close().await;
}

#[tokio::test]
async fn reads_go_to_the_primary_whatever_the_url_says() {
    let place = TestDatabase::open("read", "&readPreference=secondary").await;
    let job = keyed_job();
    assert_eq!(place.insert(&job).await.expect("insert answers"), Inserted::New);
    let found = place.store.find(&[job.spec.id]).await.expect("find answers");
    assert!(found[0].is_some(), "this set has no secondary");
    place.close().await;
}

#[tokio::test]
async fn reads_go_to_the_primary_whatever_a_given_client_is_set_to() {
    let place = TestDatabase::open("client", "").await;
    let url = ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"));
    let client = Client::with_uri_str(format!("{url}&readPreference=secondary")).await.expect("it is a URL");
    let options = MongoOptions::default().database(place.database.name());
    let store = MongoStore::from_client(client, options).await.expect("the store opens");
    let job = keyed_job();
    let answer = store.insert(&[Submission::single(job.clone())]).await.expect("insert answers");
    assert_eq!(answer, [Inserted::New]);
    assert!(store.find(&[job.spec.id]).await.expect("find answers")[0].is_some());
    place.close().await;
}
