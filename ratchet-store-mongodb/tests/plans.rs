//! How MongoDB finds documents: the commands that the store really sends, explained by the server, on a collection that
//! is full of jobs that they must not read.

mod common;
#[path = "common/plan.rs"]
mod plan;

use std::slice::from_ref;
use std::time::Duration;

use common::{LEASE, TestDatabase, error, job, job_with, succeeded, uuid};
use mongodb::bson::{DateTime, Document, doc};
use plan::{Plan, explain};
use ratchet_api::store::{
    JobBatchStatusStore as _, JobBulkStore as _, JobClaimStore as _, JobCrudStore as _,
    JobTerminalStore as _, NodeStore as _, RecurringStore as _, StoreInfo as _,
};
use ratchet_api::{
    Beat, BusinessKey, Due, End, HandBackReason, IdempotencyKey, JobClaim, JobId, JobPriority, NodeInfo,
    Outcome, Owner, ParkedOn, StoreClock, Submission,
};

/// The number of jobs of each kind that must not be read.
const MANY: usize = 600;
const LIMIT: usize = 10;
/// More than a head of each priority, a node, and the ends of ranges; far less than any kind of job.
const FEW: u64 = 8 * LIMIT as u64;

const CLOCKS: [fn() -> StoreClock; 2] = [|| StoreClock::Server, || StoreClock::Manual(Default::default())];

/// A place with many jobs of every kind, and its due ones, of all priorities.
async fn crowded(clock: StoreClock) -> TestDatabase {
    let place = TestDatabase::open(clock).await;
    let other = Owner::incarnate("other");
    place.store.join(&NodeInfo::new(other.clone()), LEASE).await.expect("a node joins");
    let now = DateTime::now();
    let ended = doc! { "$set": { "status": "SUCCEEDED", "ending": { "terminated_at": now } }, "$unset": { "queue": "" } };
    let failed = doc! { "$set": { "status": "FAILED", "ending": { "terminated_at": now } }, "$unset": { "queue": "" } };
    let paused = doc! { "$set": { "status": "PAUSED", "paused_from": "PENDING" } };
    // Older than all others, so that they would stand before the heads.
    let blocked =
        doc! { "$set": { "blocked_by": 1, "open_parents": 1, "scheduled_time": DateTime::from_millis(0) } };
    let running =
        doc! { "$set": { "status": "RUNNING", "queue.picked_by": other.as_str(), "picked_at": now } };
    for kind in [ended, failed, paused, blocked, running] {
        let ids = place.insert(std::iter::repeat_with(job).take(MANY).collect()).await;
        turn_into(&place, &ids, kind).await;
    }
    let later = |_| job_with(|job| job.due = Due::After(Duration::from_secs(3600)));
    place.insert((0..MANY).map(later).collect()).await;
    let present = place.store.database_time().await.expect("the store tells the time");
    for priority in JobPriority::ALL {
        // No two at one instant, and those of all priorities mixed.
        let age =
            |n: usize| Duration::from_millis((5 * n + usize::from(priority.ordinal().unsigned_abs())) as u64);
        let due = |n| job_with(|job| (job.spec.priority, job.due) = (priority, Due::At(present - age(n))));
        place.insert((0..MANY).map(due).collect()).await;
    }
    place
}

async fn turn_into(place: &TestDatabase, ids: &[JobId], change: Document) {
    let ids: Vec<_> = ids.iter().copied().map(uuid).collect();
    place.jobs().update_many(doc! { "_id": { "$in": ids } }, change).await.expect("they change");
}

/// The plans of all commands that `work` sends.
async fn plans<T>(place: &TestDatabase, work: impl Future<Output = T>) -> (T, Vec<Plan>) {
    let (done, sent) = place.sent_by(work).await;
    (done, explain(&place.database, &sent).await)
}

/// Asserts that no plan reads more than `most`, and jobs only by these indexes.
#[track_caller]
fn expect(plans: &[Plan], most: u64, indexes: &[&str]) {
    assert!(!plans.is_empty(), "something was sent");
    for plan in plans {
        assert!(plan.read() <= most, "at most {most}: {plan}");
        for scan in plan.scans("scheduler_job") {
            assert!(indexes.contains(&scan.index.as_str()), "{scan} is none of {indexes:?}: {plan}");
        }
        assert_eq!(plan.sorted_most(), 0, "nothing is sorted in memory: {plan}");
    }
}

#[tokio::test]
async fn a_claim_reads_five_heads_of_its_index_and_sorts_nothing() {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let (claims, found) = plans(&place, place.claim(LIMIT)).await;
        assert_eq!((claims.len(), found.len()), (LIMIT, 3), "heads, take, read back");
        expect(&found[..1], FEW, &["claim_executable", "parked"]);
        expect(&found[1..], FEW, &["_id_"]);
        let heads = found[0].scans("scheduler_job").filter(|scan| scan.index == "claim_executable");
        assert_eq!(heads.count(), JobPriority::ALL.len(), "{}", found[0]);
        place.close().await;
    }
}

#[tokio::test]
async fn while_nobody_waits_a_claim_reads_all_priorities_together() {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let all = JobPriority::ALL.len() * MANY;
        assert_eq!(place.claim(all + 1).await.len(), all, "so the backlog is over");
        let few = |count: usize| {
            let of =
                |n: usize| job_with(|job| job.spec.priority = JobPriority::ALL[n % JobPriority::ALL.len()]);
            (0..count).map(of).collect::<Vec<_>>()
        };
        place.insert(few(LIMIT)).await;
        let (claims, found) = plans(&place, place.claim(LIMIT)).await;
        assert_eq!((claims.len(), found.len()), (LIMIT, 3), "heads, take, read back");
        expect(&found[..1], FEW, &["claim_executable", "parked"]);
        assert!(claims.is_sorted_by(|a, b| a.priority >= b.priority), "{claims:?}");

        place.insert(few(3 * LIMIT)).await;
        let (claims, found) = plans(&place, place.claim(LIMIT)).await;
        assert_eq!(
            (claims.len(), found.len()),
            (LIMIT, 4),
            "there were more: it looked once more, by priority"
        );
        let highest = JobPriority::ALL.into_iter().max().expect("there are priorities");
        assert_eq!(claims.iter().filter(|claim| claim.priority == highest).count(), 6, "{claims:?}");
        place.close().await;
    }
}

/// Checks one kind of work and the commands that it sends, by each clock.
async fn of_a_claim<T>(most: u64, indexes: &[&str], work: impl AsyncFn(&TestDatabase, Vec<JobClaim>) -> T) {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let claims = place.claim(LIMIT).await;
        let ((), found) = plans(&place, async { drop(work(&place, claims).await) }).await;
        expect(&found, most, indexes);
        place.close().await;
    }
}

#[tokio::test]
async fn a_load_goes_by_ids() {
    let load = async |place: &TestDatabase, claims: Vec<JobClaim>| {
        place.store.load(&place.owner, &claims).await.is_ok()
    };
    of_a_claim(FEW, &["_id_"], load).await;
}

#[tokio::test]
async fn outcomes_go_by_ids() {
    let commit = async |place: &TestDatabase, claims: Vec<JobClaim>| {
        let mut outcomes: Vec<Outcome> = claims.iter().map(succeeded).collect();
        outcomes[0].end = End::Retry { delay: Duration::ZERO, error: error("boom") };
        outcomes[1].end = End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
        outcomes[2].end = End::Park { on: ParkedOn::Method("other.Service.run".to_owned()) };
        place.store.commit(&place.owner, &outcomes).await.expect("commit answers");
        // Already recorded, so that a unit has to find out.
        place.store.commit(&place.owner, &outcomes).await.expect("commit answers");
    };
    of_a_claim(FEW, &["_id_"], commit).await;
}

// shows: S138 S160
#[tokio::test]
async fn what_an_owner_holds_is_found_by_the_index_of_running_jobs() {
    let owned = async |place: &TestDatabase, _| place.store.owned(&place.owner).await.expect("owned answers");
    of_a_claim(FEW, &["orphan"], owned).await;
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        place.claim(LIMIT).await;
        let heir = Owner::incarnate("heir");
        place.store.join(&NodeInfo::new(heir.clone()), LEASE).await.expect("a node joins");
        place.store.beat(&Beat::new(place.owner.clone(), Duration::ZERO)).await.expect("beat answers");
        let dead = from_ref(&place.owner);
        let (moved, found) = plans(&place, place.store.recover(dead, &heir, 2 * LIMIT)).await;
        assert_eq!(moved.expect("recover answers").len(), LIMIT);
        expect(&found, FEW, &["orphan", "_id_"]);
        place.close().await;
    }
}

/// It asks which owners hold jobs, so it reads each running job once, and a few others.
#[tokio::test]
async fn a_beat_reads_no_jobs_but_running_ones() {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let beat = Beat::new(place.owner.clone(), LEASE);
        let (_, found) = plans(&place, place.store.beat(&beat)).await;
        // The due time is asked for twice, and each time a first batch is read.
        const BATCH: u64 = 101;
        expect(&found, MANY as u64 + 2 * BATCH + FEW, &["orphan", "next_due", "parked", "next_fire"]);
        place.close().await;
    }
}

#[tokio::test]
async fn keys_are_found_by_their_indexes() {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let key = BusinessKey::new("order 1").expect("a key");
        let both = Submission::single(job_with(|job| {
            job.spec.business_key = Some(key.clone());
            job.spec.idempotency_key = IdempotencyKey::new("request 1").ok();
        }));
        for _ in 0..2 {
            let (_, found) = plans(&place, place.store.insert(from_ref(&both))).await;
            expect(&found, FEW, &["_id_", "business_key"]);
        }
        let (holder, found) = plans(&place, place.store.find_active_by_business_key(&key)).await;
        assert_eq!(holder.expect("find answers"), both.id());
        expect(&found, 1, &["business_key"]);
        place.close().await;
    }
}

#[tokio::test]
async fn jobs_are_picked_up_by_their_ids() {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let ids = place.insert(std::iter::repeat_with(job).take(LIMIT).collect()).await;
        let (picked, found) = plans(&place, place.store.pick_up(&place.owner, &ids)).await;
        assert_eq!(picked.expect("pick_up answers").len(), LIMIT);
        expect(&found, FEW, &["_id_"]);
        place.close().await;
    }
}

#[tokio::test]
async fn parked_jobs_are_found_by_their_indexes() {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let present = place.store.database_time().await.expect("the store tells the time");
        // The older ones lack what no node has, and no two are due at one instant.
        for (age, lacks) in [(20_000, "method:other.Service.run"), (10_000, "method:test.Service.run")] {
            let due = |n| Due::At(present - Duration::from_millis(age + n as u64));
            let ids = place.insert((0..MANY).map(|n| job_with(|job| job.due = due(n))).collect()).await;
            turn_into(&place, &ids, doc! { "$set": { "queue.parked_on": lacks } }).await;
        }
        let methods = doc! { "$set": { "methods": ["test.Service.run"] } };
        let nodes = place.database.collection::<Document>("scheduler_node");
        nodes.update_one(doc! { "_id": place.owner.as_str() }, methods).await.expect("the node knows it");
        let (claims, found) = plans(&place, place.claim(LIMIT)).await;
        assert_eq!(claims.len(), LIMIT);
        expect(&found, 2 * FEW, &["claim_executable", "parked", "parked_expiry", "_id_"]);
        place.close().await;
    }
}

#[tokio::test]
async fn old_jobs_are_found_from_the_end_that_is_longest_ago() {
    for clock in CLOCKS {
        let place = crowded(clock()).await;
        let (gone, found) = plans(&place, place.store.purge_dead_letters(Duration::ZERO, LIMIT)).await;
        assert!(gone.expect("purge answers") <= LIMIT as u64);
        expect(&found, FEW, &["ended", "_id_"]);
        let (_, found) = plans(&place, place.store.due_recurring(LIMIT)).await;
        expect(&found, FEW, &["next_fire"]);
        place.close().await;
    }
}

/// Accepted jobs outlive any one server, and no answer is based on data that an election could roll back.
#[tokio::test]
async fn writes_and_what_decides_wait_for_a_majority() {
    let place = TestDatabase::open(StoreClock::Server).await;
    let keyed =
        Submission::single(job_with(|job| job.spec.idempotency_key = IdempotencyKey::new("key").ok()));
    let ((), sent) = place
        .sent_by(async {
            place.insert(vec![job()]).await;
            place.store.insert(from_ref(&keyed)).await.expect("insert answers");
            let claims = place.claim(2).await;
            place.store.load(&place.owner, &claims).await.expect("load answers");
            let outcomes: Vec<Outcome> = claims.iter().map(succeeded).collect();
            place.store.commit(&place.owner, &outcomes).await.expect("commit answers");
            place.store.beat(&Beat::new(place.owner.clone(), LEASE)).await.expect("beat answers");
        })
        .await;
    let mut glances = 0;
    for command in &sent {
        let name = command.keys().next().expect("a command has a name").as_str();
        let level =
            command.get_document("readConcern").ok().and_then(|concern| concern.get_str("level").ok());
        match name {
            _ if command.contains_key("startTransaction") => assert_eq!(level, Some("snapshot"), "{command}"),
            _ if command.contains_key("autocommit") && name != "commitTransaction" => {}
            "aggregate" if level == Some("local") => glances += 1,
            "find" | "aggregate" => assert_eq!(level, Some("majority"), "{command}"),
            "hello" => {}
            _ => {
                let concern = command.get_document("writeConcern").expect("a write has a concern");
                assert_eq!(
                    (concern.get_str("w").ok(), concern.get_bool("j").ok()),
                    (Some("majority"), Some(true))
                );
            }
        }
    }
    assert_eq!(glances, 1, "the first look of a claim decides nothing");
    place.close().await;
}
