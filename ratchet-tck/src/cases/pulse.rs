//! Beats without a gap, which prove that a silent node is dead.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratchet_api::store::NewRecurring;
use ratchet_api::{
    Beat, BeatReply, BusinessKey, Death, Due, End, JobId, JobSpec, NewJob, Node, Owner, Pulse, Recurrence,
    Timestamp, death,
};

use crate::case::cases;
use crate::fixture::{error, job, job_with, payload};
use crate::{Fixture, Peer};

cases! { "pulse";
    a_node_keeps_since_when_it_beats_without_a_gap: ["beat.span", "node.join"] [135];
    a_gap_is_counted_to_the_millisecond: ["beat.span"] [];
    after_beats_that_were_allowed_a_longer_gap_a_span_begins_anew: ["beat.span"] [];
    beats_by_an_earlier_clock_begin_anew: ["beat.span"] [];
    who_was_reaped_keeps_its_span: ["beat.span", "beat.refused"] [];
    the_beats_that_prove_a_death_are_told_with_the_dead: ["beat.pulses"] [135];
    beats_of_the_long_dead_are_not_told: ["beat.pulses"] [];
    what_was_due_stays_due_when_the_clock_goes_back: ["clock_back.due"] [];
    delays_from_before_the_clock_went_back_stay_as_long_as_they_were: ["clock_back.delay"] [];
    what_got_its_due_time_by_the_new_clock_keeps_it: ["clock_back.due", "clock_back.delay"] [];
    a_beat_that_lies_ahead_counts_as_made_now: ["clock_back.nodes"] [];
    lives_that_are_shorter_than_a_lease_prove_a_death_together: ["beat.span", "beat.pulses"] [135 182];
}

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Beats with a lease of two seconds and this allowed gap; the beat must be accepted.
async fn beat(peer: &Peer, gap: Duration) -> BeatReply {
    let mut beat = Beat::new(peer.owner.clone(), SECOND * 2);
    beat.gap = gap;
    let reply = peer.store.beat(&beat).await.expect("beat answers");
    assert!(reply.accepted, "{reply:?}");
    reply
}

async fn listed(reader: &Peer, owner: &Owner) -> Node {
    let nodes = reader.store.nodes().await.expect("nodes answers");
    nodes.into_iter().find(|node| node.info.owner == *owner).expect("it is listed")
}

/// Returns since when a node has been beating, and the longest pause that did not count as a gap.
async fn span(reader: &Peer, node: &Peer) -> (Timestamp, Duration) {
    let node = listed(reader, &node.owner).await;
    (node.beating_since, node.beat_gap)
}

fn owners(pulses: &[Pulse]) -> BTreeSet<&Owner> {
    pulses.iter().map(|pulse| &pulse.owner).collect()
}

pub async fn a_node_keeps_since_when_it_beats_without_a_gap(fx: Fixture) {
    let reader = fx.node("reader").await;
    let node = fx.node_with_lease("node", SECOND * 2).await;
    let joined = fx.now();
    assert_eq!(span(&reader, &node).await, (joined, Duration::ZERO));
    for _ in 0..5 {
        fx.advance(SECOND);
        beat(&node, SECOND).await;
        assert_eq!(span(&reader, &node).await, (joined, SECOND));
    }
    fx.advance(SECOND * 10);
    beat(&node, SECOND).await;
    assert_eq!(span(&reader, &node).await, (fx.now(), SECOND), "what was meanwhile is not known");
    let again = fx.now();
    fx.advance(SECOND);
    beat(&node, SECOND).await;
    assert_eq!(span(&reader, &node).await, (again, SECOND));
    assert_eq!(span(&reader, &reader).await, (joined, Duration::ZERO), "each node has its own");
}

pub async fn a_gap_is_counted_to_the_millisecond(fx: Fixture) {
    let node = fx.node_with_lease("node", SECOND * 2).await;
    let (joined, gap) = (fx.now(), MILLI * 250);
    for (wait, since) in [(gap, joined), (Duration::ZERO, joined), (gap + MILLI, joined + gap * 2 + MILLI)] {
        fx.advance(wait);
        beat(&node, gap).await;
        assert_eq!(span(&node, &node).await, (since, gap), "{wait:?}");
    }
}

pub async fn after_beats_that_were_allowed_a_longer_gap_a_span_begins_anew(fx: Fixture) {
    let node = fx.node_with_lease("node", SECOND * 2).await;
    let mut since = fx.now();
    for (gap, anew) in
        [(SECOND, false), (SECOND * 3, false), (SECOND * 3, false), (SECOND * 2, true), (SECOND * 2, false)]
    {
        fx.advance(SECOND);
        beat(&node, gap).await;
        since = if anew { fx.now() } else { since };
        assert_eq!(span(&node, &node).await, (since, gap), "{gap:?}");
    }
}

pub async fn beats_by_an_earlier_clock_begin_anew(fx: Fixture) {
    let node = fx.node_with_lease("node", SECOND * 2).await;
    fx.advance(SECOND);
    beat(&node, SECOND * 10).await;
    for back in [MILLI, SECOND * 3600] {
        fx.clock().step_back(back);
        let reply = beat(&node, SECOND * 10).await;
        assert!(
            reply.db_now.since(fx.now()) <= MILLI,
            "the reply tells the clock as it is: {}",
            reply.db_now
        );
        assert_eq!(span(&node, &node).await, (fx.now(), SECOND * 10), "{back:?} back");
    }
}

pub async fn who_was_reaped_keeps_its_span(fx: Fixture) {
    let heir = fx.node("heir").await;
    let node = fx.node_with_lease("node", SECOND * 2).await;
    let joined = fx.now();
    fx.advance(SECOND);
    beat(&node, SECOND).await;
    node.running(job()).await;
    fx.advance(SECOND * 2);
    let moved = heir.store.recover(std::slice::from_ref(&node.owner), &heir.owner, 10).await;
    assert_eq!(moved.expect("recover answers").len(), 1);
    let late = node.store.beat(&Beat::new(node.owner.clone(), SECOND * 2)).await.expect("beat answers");
    assert!(!late.accepted);
    let row = listed(&heir, &node.owner).await;
    assert_eq!((row.beating_since, row.heartbeat_at), (joined, joined + SECOND), "a refused beat is none");
}

pub async fn the_beats_that_prove_a_death_are_told_with_the_dead(fx: Fixture) {
    let silent = fx.node_with_lease("silent", SECOND * 2).await;
    let observer = fx.node_with_lease("observer", SECOND * 2).await;
    let alive = fx.node_with_lease("alive", SECOND * 60).await;
    let idle = fx.node_with_lease("idle", SECOND).await;
    let joined = fx.now();
    silent.running(job()).await;
    for _ in 0..3 {
        assert_eq!(beat(&observer, SECOND).await.pulses, [], "nobody is dead");
        fx.advance(MILLI * 500);
    }
    fx.advance(MILLI * 500);
    let reply = beat(&observer, SECOND).await;
    assert_eq!(reply.dead, std::slice::from_ref(&silent.owner));
    let told: BTreeMap<_, _> = reply.pulses.iter().map(|pulse| (&pulse.owner, pulse)).collect();
    let everybody = [&silent, &observer, &alive, &idle].map(|peer| &peer.owner);
    assert_eq!(owners(&reply.pulses), BTreeSet::from(everybody), "each once: {:?}", reply.pulses);
    assert_eq!(told.len(), reply.pulses.len());
    for owner in everybody {
        assert_eq!(*told[owner], listed(&observer, owner).await.pulse());
    }
    let own = told[&observer.owner];
    assert_eq!((own.since, own.last, own.gap), (joined, fx.now(), SECOND), "this beat counts");
    assert_eq!((told[&alive.owner].lease, told[&idle.owner].lease), (SECOND * 60, SECOND));
    assert_eq!(death(&silent.owner, &reply.pulses, reply.db_now), Death::Proven);
}

pub async fn beats_of_the_long_dead_are_not_told(fx: Fixture) {
    let (old, recent) =
        (fx.node_with_lease("old", SECOND).await, fx.node_with_lease("recent", SECOND + MILLI).await);
    fx.advance(SECOND);
    let silent = fx.node_with_lease("silent", SECOND * 2).await;
    silent.running(job()).await;
    fx.advance(SECOND * 2);
    let observer = fx.node("observer").await;
    let reply = beat(&observer, SECOND).await;
    let told = owners(&reply.pulses);
    assert_eq!(
        told,
        BTreeSet::from([&silent, &recent, &observer].map(|peer| &peer.owner)),
        "not {}",
        old.owner
    );
}

pub async fn lives_that_are_shorter_than_a_lease_prove_a_death_together(fx: Fixture) {
    let silent = fx.node_with_lease("silent", SECOND * 2).await;
    silent.running(job()).await;
    let mut verdicts = Vec::new();
    // Each lives for 1.6 s and beats every 400 ms; the next one joins 800 ms after its last beat.
    for life in 0..3 {
        let node = fx.node_with_lease(&format!("life-{life}"), SECOND * 2).await;
        for _ in 0..4 {
            fx.advance(MILLI * 400);
            let reply = beat(&node, MILLI * 800).await;
            let dead = reply.dead.iter().map(|owner| death(owner, &reply.pulses, reply.db_now));
            verdicts.extend(dead.map(|verdict| (reply.db_now, verdict)));
        }
        fx.advance(MILLI * 800);
    }
    assert!(!verdicts.is_empty(), "its lease ran out");
    for (at, verdict) in &verdicts {
        assert_eq!(*verdict, Death::Proven, "at {at}: {verdicts:?}");
    }
    // The database is unreachable for a while, so no beat proves anything about that time.
    fx.advance(SECOND * 5);
    let last = fx.node_with_lease("last", SECOND * 2).await;
    let reply = beat(&last, MILLI * 800).await;
    assert_eq!(reply.dead, [silent.owner]);
    let verdict = death(&reply.dead[0], &reply.pulses, reply.db_now);
    assert_eq!(verdict, Death::Unproven { gap: SECOND });
}

/// Reports to the store that the clock went back by an hour within the last ten seconds.
async fn mend(peer: &Peer) -> u64 {
    peer.store.clock_went_back(HOUR, SECOND * 10, 1_000).await.expect("clock_went_back answers")
}

async fn due(peer: &Peer, id: JobId) -> Timestamp {
    peer.job(id).await.scheduled_time
}

fn after(delay: Duration) -> NewJob {
    job_with(|new| new.due = Due::After(delay))
}

pub async fn what_was_due_stays_due_when_the_clock_goes_back(fx: Fixture) {
    let node = fx.node("node").await;
    let start = fx.now();
    // Written before the step: due to the millisecond when the clock goes back, and a millisecond later.
    let (old, not_yet) =
        (node.insert(after(HOUR * 5 + SECOND)).await, node.insert(after(HOUR * 5 + SECOND + MILLI)).await);
    fx.advance(HOUR * 5);
    let (waiting, paused, ahead) =
        (node.insert(job()).await, node.insert(job()).await, node.insert(after(HOUR * 3)).await);
    node.store.pause(&[paused.into()]).await.expect("pause answers");
    let running = node.running(job()).await;
    let key = BusinessKey::new("hourly").expect("a valid key");
    let recurrence = Recurrence::new("0 0 * * * *", "UTC", Some(fx.now()));
    node.store
        .save_recurring(&NewRecurring::new(key, JobSpec::new(payload()), recurrence))
        .await
        .expect("the schedule is stored");
    fx.advance(SECOND);
    fx.clock().step_back(HOUR);
    assert_eq!(node.claim(10).await, [], "nothing is due by the new clock");

    assert_eq!(mend(&node).await, 3);
    for id in [old, waiting, paused] {
        assert_eq!(due(&node, id).await, fx.now());
    }
    assert_eq!(due(&node, not_yet).await, start + HOUR * 5 + SECOND + MILLI, "its time has not come");
    assert_eq!(due(&node, ahead).await, start + HOUR * 8, "nor has that of one that waits for longer");
    assert_eq!(due(&node, running.id).await, running.scheduled_time, "a running one does not wait");
    let reply = node.store.beat(&Beat::new(node.owner.clone(), HOUR)).await.expect("beat answers");
    assert_eq!(reply.next_fire, Some(start + HOUR * 5), "a schedule goes by the wall clock");
    assert!(reply.due_work);

    assert_eq!(mend(&node).await, 0, "sent twice it does no more");
    let claimed: BTreeSet<_> = node.claim(10).await.into_iter().map(|claim| claim.id).collect();
    assert_eq!(claimed, BTreeSet::from([old, waiting]));
}

pub async fn delays_from_before_the_clock_went_back_stay_as_long_as_they_were(fx: Fixture) {
    let node = fx.node("node").await;
    let failed = node.running(job()).await;
    fx.advance(HOUR * 5);
    node.end(&failed, End::Retry { delay: SECOND * 20, error: error("busy") }).await;
    let (hour, longer) = (node.insert(after(HOUR)).await, node.insert(after(HOUR + SECOND * 60)).await);
    let far = due(&node, longer).await;
    fx.clock().step_back(HOUR);
    assert_eq!(mend(&node).await, 2);
    assert_eq!(due(&node, failed.id).await, fx.now() + SECOND * 20);
    assert_eq!(due(&node, hour).await, fx.now() + HOUR);
    assert_eq!(due(&node, longer).await, far, "it may have been meant by the wall clock");
    assert_eq!(mend(&node).await, 0, "sent twice it does no more");
    fx.advance(SECOND * 5);
    assert_eq!(mend(&node).await, 0, "nor when another node sends it");
    assert_eq!(due(&node, hour).await, fx.now() - SECOND * 5 + HOUR);
}

pub async fn what_got_its_due_time_by_the_new_clock_keeps_it(fx: Fixture) {
    let node = fx.node("node").await;
    fx.advance(HOUR * 5);
    let failed = node.running(job()).await;
    fx.advance(SECOND);
    fx.clock().step_back(HOUR);
    let delayed = node.insert(after(HOUR / 2)).await;
    node.end(&failed, End::Retry { delay: HOUR / 2, error: error("busy") }).await;
    let expected = fx.now() + HOUR / 2;
    for wait in [Duration::ZERO, SECOND * 10] {
        fx.advance(wait);
        assert_eq!(mend(&node).await, 0);
        assert_eq!((due(&node, delayed).await, due(&node, failed.id).await), (expected, expected));
    }
}

pub async fn a_beat_that_lies_ahead_counts_as_made_now(fx: Fixture) {
    let (node, observer) = (fx.node_with_lease("node", SECOND * 2).await, fx.node("observer").await);
    let past = fx.node_with_lease("past", SECOND * 2).await;
    let lost = node.running(job()).await;
    fx.advance(HOUR * 2);
    beat(&node, SECOND).await;
    let before = listed(&observer, &past.owner).await;
    fx.clock().step_back(HOUR);
    for _ in 0..2 {
        mend(&observer).await;
        let row = listed(&observer, &node.owner).await;
        assert_eq!((row.heartbeat_at, row.lease_until), (fx.now(), fx.now() + SECOND * 2));
        assert_eq!(row.beating_since, fx.now());
    }
    assert_eq!(listed(&observer, &past.owner).await, before, "one that does not lie ahead stays");
    fx.advance(SECOND * 2 - MILLI);
    assert_eq!(beat(&observer, SECOND).await.dead, []);
    fx.advance(MILLI);
    assert_eq!(
        beat(&observer, SECOND).await.dead,
        std::slice::from_ref(&node.owner),
        "it has not beaten since"
    );
    let moved = observer.store.recover(&[node.owner], &observer.owner, 10).await.expect("recover answers");
    assert_eq!(moved.iter().map(|claim| claim.id).collect::<Vec<_>>(), [lost.id]);
}
