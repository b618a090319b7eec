//! Time: the clock that decides, and the precision that is kept.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::Retention;
use ratchet_api::{
    Beat, DeadReason, Due, End, HandBackReason, JobStatus, LockName, LogLevel, ManualClock, NewLogLine,
    NodeInfo, Outcome, Owner, Run, StoreClock, Timestamp, Verdict,
};

use crate::case::cases;
use crate::fixture::{error, job, job_with, text};
use crate::{Fixture, Peer};

cases! { "time";
    every_stamp_comes_from_the_clock_of_the_store: ["info.time", "claim.owned", "commit.timing"] [85];
    each_connection_decides_by_its_own_clock: ["info.time", "claim.due", "recover.dead_only"] [];
    database_time_is_the_clock_and_never_goes_back: ["info.time"] [];
    instants_read_back_to_the_millisecond: ["insert.due", "insert.pending"] [];
    delays_are_rounded_up_to_whole_milliseconds: ["insert.due", "commit.retry", "commit.hand_back"] [96];
    time_beyond_the_calendar_is_kept_inside_it: ["insert.due", "commit.retry", "node.join", "lock.expires"] [];
    retention_below_a_second_counts:
        ["node.purge", "purge_dlq.old_failures", "log.purge", "archive.retention"] [];
    the_clock_of_the_server_never_goes_back: ["info.time"] [];
    on_the_clock_of_the_server_a_job_due_now_is_claimed_at_once: ["info.time", "insert.due", "claim.due"] [];
    on_the_clock_of_the_server_what_lies_ahead_waits: ["claim.due", "recover.dead_only", "lock.exclusive"] [];
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const MILLI: Duration = Duration::from_millis(1);

/// Starts a node on a connection with this clock.
async fn node_by(fx: &Fixture, clock: StoreClock, lease: Duration) -> Peer {
    let peer = Peer { store: fx.connect_by(clock).await, owner: Owner::incarnate("node") };
    peer.store.join(&NodeInfo::new(peer.owner.clone()), lease).await.expect("a node joins");
    peer
}

async fn database_time(peer: &Peer) -> Timestamp {
    peer.store.database_time().await.expect("database_time answers")
}

fn purge_lock() -> LockName {
    LockName::new("purge").expect("a valid lock name")
}

pub async fn every_stamp_comes_from_the_clock_of_the_store(fx: Fixture) {
    // 1999 and 2099: a timestamp of any other clock would stand out.
    for start in [915_148_800_123, 4_070_908_800_987] {
        let clock = ManualClock::starting_at(Timestamp::from_millis(start));
        let node = node_by(&fx, StoreClock::Manual(clock.clone()), HOUR).await;
        let joined = clock.now();
        let id = node.insert(job()).await;
        clock.advance(SECOND);
        let claim = node.claim_one().await;
        clock.advance(SECOND * 10);
        let mut outcome = Outcome::new(id, claim.fence, End::Succeeded { result: None });
        outcome.run = Some(Run { started_ago: SECOND * 9, ran_for: SECOND * 8 });
        assert!(matches!(node.commit(outcome).await, Verdict::Recorded(_)));

        let at = |seconds| joined + SECOND * seconds;
        let ended = node.job(id).await;
        let ending = ended.ending.expect("it has ended");
        assert_eq!((ended.created_at, ended.scheduled_time, claim.picked_at), (at(0), at(0), at(1)));
        assert_eq!((ending.started_at, ending.ended_at), (Some(at(2)), Some(at(10))));
        assert_eq!((ending.terminated_at, ending.queue_wait), (at(11), Some(SECOND)));
        let rows = node.store.executions(id).await.expect("executions answers");
        assert_eq!((rows[0].started_at, rows[0].recorded_at), (Some(at(2)), at(11)));
        let nodes = node.store.nodes().await.expect("nodes answers");
        let row = nodes.iter().find(|row| row.info.owner == node.owner).expect("it is listed");
        assert_eq!((row.started_at, row.heartbeat_at, row.lease_until), (joined, joined, joined + HOUR));
    }
}

pub async fn each_connection_decides_by_its_own_clock(fx: Fixture) {
    let behind = fx.node_with_lease("behind", HOUR).await;
    let ahead = node_by(&fx, StoreClock::Manual(ManualClock::starting_at(fx.now() + HOUR)), HOUR).await;
    let future = behind.insert(job_with(|new| new.due = Due::After(HOUR))).await;
    let held = behind.running(job()).await;
    assert_eq!(behind.claim(1).await, [], "its clock is an hour from there");
    assert_eq!(ahead.claim_one().await.id, future);

    let dead = [behind.owner.clone()];
    let peer = fx.node("peer").await;
    assert_eq!(peer.store.recover(&dead, &peer.owner, 1).await.expect("recover answers"), []);
    let moved = ahead.store.recover(&dead, &ahead.owner, 1).await.expect("recover answers");
    assert_eq!(moved.iter().map(|claim| claim.id).collect::<Vec<_>>(), [held.id]);
}

pub async fn database_time_is_the_clock_and_never_goes_back(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    for step in [Duration::ZERO, MILLI, MILLI * 999, HOUR, Duration::ZERO] {
        fx.advance(step);
        assert_eq!(database_time(&node).await, fx.now());
        assert_eq!(database_time(&other).await, fx.now());
    }
}

pub async fn instants_read_back_to_the_millisecond(fx: Fixture) {
    let (node, reader) = (fx.node("node").await, fx.node("reader").await);
    for millis in [
        0,                          // the epoch
        1,                          // the first instant after it
        951_782_399_999,            // the end of 28 February in a leap year of a full century
        1_711_846_800_000,          // the hour that daylight saving time skips in Europe
        1_729_990_800_500,          // the hour that it repeats
        2_147_483_647_999,          // the last second of 32 bits
        4_294_967_296_001,          // beyond 32 bits without a sign
        Timestamp::MAX.as_millis(), // the last instant of all
    ] {
        let instant = Timestamp::from_millis(millis);
        let id = node
            .insert(job_with(|new| {
                new.due = Due::At(instant);
                new.spec.expires_at = Some(instant);
            }))
            .await;
        let stored = reader.job(id).await;
        assert_eq!((stored.scheduled_time, stored.spec.expires_at), (instant, Some(instant)));
        assert_eq!(stored.created_at, fx.now());
    }
}

pub async fn delays_are_rounded_up_to_whole_milliseconds(fx: Fixture) {
    let node = fx.node("node").await;
    for (delay, millis) in [
        (Duration::ZERO, 0),
        (Duration::from_nanos(1), 1),
        (Duration::from_micros(999), 1),
        (Duration::from_micros(1_001), 2),
        (MILLI * 1_999, 1_999),
    ] {
        let due = fx.now() + MILLI * millis;
        let id = node.insert(job_with(|new| new.due = Due::After(delay))).await;
        assert_eq!(node.job(id).await.scheduled_time, due, "inserted with {delay:?}");
        for end in [
            End::Retry { delay, error: error("busy") },
            End::HandBack { delay, reason: HandBackReason::Snoozed },
        ] {
            let claim = node.running(job()).await;
            let verdict = node.commit(Outcome::new(claim.id, claim.fence, end.clone())).await;
            let Verdict::Recorded(recorded) = verdict else { panic!("recorded: {verdict:?}") };
            assert_eq!(recorded.next_due, Some(due), "{end:?}");
            assert_eq!(node.job(claim.id).await.scheduled_time, due, "{end:?}");
        }
    }
}

pub async fn time_beyond_the_calendar_is_kept_inside_it(fx: Fixture) {
    let node = fx.node_with_lease("node", Duration::MAX).await;
    for due in [Due::After(Duration::MAX), Due::At(Timestamp::MAX), Due::After(Fixture::LONG * 1_000)] {
        let id = node.insert(job_with(|new| new.due = due)).await;
        assert_eq!(node.job(id).await.scheduled_time, Timestamp::MAX, "{due:?}");
    }
    let retried = node.running(job()).await;
    node.end(&retried, End::Retry { delay: Duration::MAX, error: error("busy") }).await;
    assert_eq!(node.job(retried.id).await.scheduled_time, Timestamp::MAX);
    assert_eq!(node.claim(10).await, []);

    let reply = node.store.beat(&Beat::new(node.owner.clone(), Duration::MAX)).await.expect("beat answers");
    assert_eq!((reply.accepted, reply.next_due), (true, Some(Timestamp::MAX)));
    let other = fx.node("other").await;
    let lease = node.store.try_lock(&purge_lock(), Duration::MAX, &node.owner).await.expect("it answers");
    assert!(lease.is_some());
    fx.advance(Fixture::LONG - SECOND);
    let taken = other.store.try_lock(&purge_lock(), SECOND, &other.owner).await.expect("try_lock answers");
    assert_eq!(taken, None);
    node.running(job()).await;
}

pub async fn retention_below_a_second_counts(fx: Fixture) {
    const HALF: Duration = Duration::from_millis(500);
    let node = fx.node("node").await;
    fx.node_with_lease("dead", MILLI).await;
    fx.advance(MILLI);
    let done = node.running(job()).await;
    let line =
        NewLogLine { job: done.id, fence: done.fence, level: LogLevel::Info, message: text("half way") };
    node.store.append_logs(&[line]).await.expect("the line is stored");
    let failed = node.running(job()).await;
    node.end(&failed, End::DeadLetter { error: error("broken"), reason: DeadReason::Exhausted }).await;
    node.end(&done, End::Succeeded { result: None }).await;

    let store = &node.store;
    let retention = Retention { ended: HALF, failed: HOUR };
    let sweep = || async {
        [
            store.purge_nodes(HALF).await.expect("purge_nodes answers"),
            store.purge_dead_letters(HALF, 10).await.expect("purge_dead_letters answers"),
            store.purge_logs(HALF, 10).await.expect("purge_logs answers"),
            store.archive(&retention, 10).await.expect("archive answers"),
        ]
    };
    fx.advance(HALF);
    assert_eq!(sweep().await, [0; 4], "a millisecond too early");
    fx.advance(MILLI);
    assert_eq!(sweep().await, [1; 4]);
}

pub async fn the_clock_of_the_server_never_goes_back(fx: Fixture) {
    let nodes = [node_by(&fx, StoreClock::Server, HOUR).await, node_by(&fx, StoreClock::Server, HOUR).await];
    let mut last = Timestamp::MIN;
    for node in nodes.iter().cycle().take(60) {
        let now = database_time(node).await;
        assert!(now >= last, "{now} after {last}");
        let reply = node.store.beat(&Beat::new(node.owner.clone(), HOUR)).await.expect("beat answers");
        assert!(reply.db_now >= now, "{} after {now}: a beat reads the same clock", reply.db_now);
        last = reply.db_now;
    }
}

pub async fn on_the_clock_of_the_server_a_job_due_now_is_claimed_at_once(fx: Fixture) {
    let node = node_by(&fx, StoreClock::Server, HOUR).await;
    for round in 0..30 {
        let before = database_time(&node).await;
        let id = node.insert(job()).await;
        let claim = node.claim_one().await;
        let after = database_time(&node).await;
        assert_eq!(claim.id, id, "round {round}");
        let created = node.job(id).await.created_at;
        assert!(before <= created && created <= claim.picked_at && claim.picked_at <= after);
        assert!(before <= claim.scheduled_time && claim.scheduled_time <= claim.picked_at);
        node.end(&claim, End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }).await;
        let again = node.claim_one().await;
        assert_eq!(again.id, id, "round {round}: handed back without delay");
        node.end(&again, End::Succeeded { result: None }).await;
    }
}

pub async fn on_the_clock_of_the_server_what_lies_ahead_waits(fx: Fixture) {
    let node = node_by(&fx, StoreClock::Server, HOUR).await;
    let other = node_by(&fx, StoreClock::Server, HOUR).await;
    let future = node.insert(job_with(|new| new.due = Due::After(HOUR))).await;
    let held = node.running(job()).await;
    assert_eq!(other.claim(10).await, []);
    assert_eq!(other.status(future).await, JobStatus::Pending);

    let dead = [node.owner.clone()];
    assert_eq!(other.store.recover(&dead, &other.owner, 10).await.expect("recover answers"), []);
    let reply = other.store.beat(&Beat::new(other.owner.clone(), HOUR)).await.expect("beat answers");
    assert_eq!((reply.due_work, reply.dead), (false, vec![]));
    assert_eq!(reply.next_due, Some(node.job(future).await.scheduled_time));
    let lease = node.store.try_lock(&purge_lock(), HOUR, &node.owner).await.expect("try_lock answers");
    assert!(lease.is_some());
    let taken = other.store.try_lock(&purge_lock(), HOUR, &other.owner).await.expect("try_lock answers");
    assert_eq!(taken, None);
    node.end(&held, End::Succeeded { result: None }).await;
}
