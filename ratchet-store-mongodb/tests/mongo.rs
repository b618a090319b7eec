//! Behaviours of this store alone: the server's own clock, history that overflows, and the ways to open it.

mod common;

use std::slice::from_ref;
use std::time::Duration;

use common::{LEASE, TestDatabase, error, job, url};
use mongodb::Client;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ClientOptions;
use ratchet_api::store::{
    ClaimRequest, ExecutionStore as _, JobBatchStatusStore as _, JobClaimStore as _, JobCrudStore as _,
    JobTerminalStore as _, Loaded, LockStore as _, NodeStore as _, StoreInfo as _,
};
use ratchet_api::{
    Beat, End, HandBackReason, JobClaim, JobStatus, JsonText, LockName, NodeInfo, Outcome, Owner, Run,
    StoreClock, StoreErrorKind, Verdict,
};
use ratchet_store_mongodb::{MongoOptions, MongoStore};

#[tokio::test]
async fn an_outcome_that_the_server_refuses_is_told_as_such_and_hinders_no_other() {
    let place = TestDatabase::open(StoreClock::Server).await;
    place.insert(vec![job(), job()]).await;
    let claims = place.claim(2).await;
    let strict = doc! { "collMod": "scheduler_job", "validator": { "ending.result": { "$ne": "1" } } };
    place.database.run_command(strict).await.expect("it is changed");
    let succeeded = |claim: &JobClaim, result: &str| {
        Outcome::new(claim.id, claim.fence, End::Succeeded { result: JsonText::parse(result).ok() })
    };
    let outcomes = [succeeded(&claims[0], "1"), succeeded(&claims[1], "2")];
    let refused = place.store.commit(&place.owner, &outcomes).await.expect_err("one is refused");
    assert_eq!((refused.kind(), refused.code()), (StoreErrorKind::RefusedContent, Some("121")));
    // Alone, or with the other outcome before it.
    let other = place.commit(outcomes[1].clone()).await;
    assert!(matches!(other, Verdict::Recorded(_) | Verdict::AlreadyRecorded), "{other:?}");
    place.close().await;
}

// shows: S194
#[tokio::test]
async fn ids_are_kept_as_uuids_of_the_standard_subtype_and_come_back_as_they_were() {
    let place = TestDatabase::open(StoreClock::Server).await;
    let id = place.insert(vec![job()]).await[0];
    let document = place.jobs().find_one(doc! {}).await.expect("read").expect("it is there");
    let Some(Bson::Binary(kept)) = document.get("_id") else { panic!("{document}") };
    assert_eq!((kept.subtype, kept.bytes.as_slice()), (BinarySubtype::Uuid, &id.as_uuid().into_bytes()[..]));
    assert_eq!(place.claim(1).await[0].id, id);
    place.close().await;
}

#[tokio::test]
async fn everything_works_by_the_servers_clock() {
    let place = TestDatabase::open(StoreClock::Server).await;
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
    let place = TestDatabase::open(StoreClock::Server).await;
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
    let place = TestDatabase::open(StoreClock::Manual(Default::default())).await;
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
async fn a_store_opens_from_a_client_and_from_options_of_the_driver() {
    let place = TestDatabase::open(StoreClock::Server).await;
    let new = job();
    let id = new.spec.id;
    place.insert(vec![new]).await;
    let name = place.database.name();
    let options = || MongoOptions::default().database(name).migrate(false);
    let client = Client::with_uri_str(url()).await.expect("the address is one");
    let shared = MongoStore::from_client(client, options()).await.expect("it opens");
    let described = ClientOptions::parse(url()).await.expect("the address is one");
    let own = MongoStore::from_options(described, options()).await.expect("it opens");
    for store in [&shared, &own] {
        assert!(store.find(&[id]).await.expect("find answers")[0].is_some(), "it is the same data");
        let dedicated = store.dedicated().await.expect("it opens");
        dedicated.join(&NodeInfo::new(Owner::incarnate("more")), LEASE).await.expect("a node joins");
    }
    place.close().await;
}

#[tokio::test]
async fn a_url_of_another_database_is_refused_without_repeating_it() {
    for url in ["postgres://app:s3cret@localhost/jobs", "localhost", ""] {
        let error = MongoStore::connect(url, MongoOptions::default()).await.err().expect("it is refused");
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{url}");
        assert!(
            error.to_string().contains("`mongodb://`") && !error.to_string().contains("s3cret"),
            "{error}"
        );
    }
}
