//! Locks: one holder at a time, for a time.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::{LockLease, LockName, Owner, StoreErrorKind};

use crate::case::cases;
use crate::{Fixture, Peer};

cases! { "lock";
    while_a_lease_runs_no_other_owner_gets_the_lock: ["lock.exclusive"] [139 140 141];
    under_a_race_exactly_one_owner_gets_the_lock: ["lock.exclusive"] [145];
    locks_of_other_names_are_other_locks: ["lock.exclusive"] [];
    a_lock_expires_to_the_millisecond: ["lock.expires"] [142];
    a_ttl_is_never_rounded_down_to_nothing: ["lock.expires"] [];
    each_change_of_holder_raises_the_term: ["lock.term", "lock.unlock"] [];
    taking_a_held_lock_again_extends_it_under_the_same_term: ["lock.term"] [];
    a_ttl_of_zero_is_an_error: ["lock.ttl"] [];
    renewing_extends_from_now: ["lock.renew"] [];
    a_lease_that_ran_out_cannot_be_renewed: ["lock.renew"] [];
    only_owner_and_term_of_the_present_holding_can_renew_or_unlock: ["lock.renew", "lock.unlock"] [];
    an_unlocked_lock_is_free_at_once: ["lock.unlock"] [];
    a_lock_from_before_the_clock_went_back_runs_out: ["lock.clock_back", "lock.renew", "lock.unlock"] [];
    a_lock_counts_from_when_it_was_extended_last: ["lock.clock_back"] [];
}

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn name(text: &str) -> LockName {
    LockName::new(text).expect("a valid lock name")
}

async fn try_lock(peer: &Peer, text: &str, ttl: Duration) -> Option<LockLease> {
    peer.store.try_lock(&name(text), ttl, &peer.owner).await.expect("try_lock answers")
}

/// Acquires a lock that must be free.
async fn lock(peer: &Peer, ttl: Duration) -> LockLease {
    let lease = try_lock(peer, "purge", ttl).await.expect("the lock is free");
    assert_eq!((&lease.name, &lease.owner), (&name("purge"), &peer.owner));
    lease
}

async fn renew(peer: &Peer, lease: &LockLease, ttl: Duration) -> bool {
    peer.store.renew_lock(lease, ttl).await.expect("renew_lock answers")
}

async fn unlock(peer: &Peer, lease: &LockLease) -> bool {
    peer.store.unlock(lease).await.expect("unlock answers")
}

pub async fn while_a_lease_runs_no_other_owner_gets_the_lock(fx: Fixture) {
    let (holder, other) = (fx.node("node").await, fx.node("node").await);
    lock(&holder, SECOND * 600).await;
    for _ in 0..3 {
        assert_eq!(try_lock(&other, "purge", SECOND).await, None);
        fx.advance(SECOND * 199);
    }
    // The same label in another incarnation is another owner.
    let reborn = Peer { store: fx.connect().await, owner: Owner::incarnate("node") };
    assert_eq!(try_lock(&reborn, "purge", SECOND).await, None);
}

pub async fn under_a_race_exactly_one_owner_gets_the_lock(fx: Fixture) {
    let mut nodes = Vec::new();
    for _ in 0..8 {
        nodes.push(fx.node("node").await);
    }
    let mut last_term = i64::MIN;
    for round in 0..6 {
        let won: Vec<_> = fx
            .race(nodes.len(), |i| {
                let node = nodes[i].clone();
                async move { try_lock(&node, "purge", SECOND).await }
            })
            .await
            .into_iter()
            .enumerate()
            .filter_map(|(i, lease)| Some((i, lease?)))
            .collect();
        let [(winner, lease)] = won.as_slice() else { panic!("one winner in round {round}: {won:?}") };
        assert_eq!(lease.owner, nodes[*winner].owner);
        assert!(lease.term > last_term, "{} after {last_term}", lease.term);
        last_term = lease.term;
        // Freed by hand and by its end in turn: the next race starts from a free lock that was held before.
        if round % 2 == 0 {
            assert!(unlock(&nodes[0], lease).await);
        } else {
            fx.advance(SECOND);
            // The last holder could win again without a change of holder.
            let stranger = fx.node("stranger").await;
            let lease = lock(&stranger, SECOND).await;
            assert!(unlock(&stranger, &lease).await);
        }
    }
}

pub async fn locks_of_other_names_are_other_locks(fx: Fixture) {
    let (first, second) = (fx.node("first").await, fx.node("second").await);
    let names = ["purge", "Purge", "purge ", "pürge", "purge2"];
    for taken in names {
        assert!(try_lock(&first, taken, SECOND).await.is_some(), "{taken:?} is its own lock");
    }
    for taken in names {
        assert_eq!(try_lock(&second, taken, SECOND).await, None, "{taken:?}");
    }
    let other = try_lock(&second, "archive", SECOND).await.expect("it is free");
    assert!(unlock(&second, &other).await);
    assert_eq!(try_lock(&second, "purge", SECOND).await, None, "unlocking one frees no other");
}

pub async fn a_lock_expires_to_the_millisecond(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    for ttl in [MILLI, MILLI * 250, MILLI * 999, SECOND, SECOND * 600 + MILLI] {
        let old = lock(&holder, ttl).await;
        fx.advance(ttl - MILLI);
        assert_eq!(try_lock(&other, "purge", SECOND).await, None, "{ttl:?}");
        fx.advance(MILLI);
        let new = lock(&other, ttl).await;
        assert!(new.term > old.term, "{ttl:?}");
        assert!(unlock(&other, &new).await);
    }
}

pub async fn a_ttl_is_never_rounded_down_to_nothing(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    for (ttl, millis) in [(Duration::from_nanos(1), 1), (Duration::from_micros(1_001), 2)] {
        lock(&holder, ttl).await;
        fx.advance(MILLI * (millis - 1));
        assert_eq!(try_lock(&other, "purge", SECOND).await, None, "{ttl:?}");
        fx.advance(MILLI);
        let lease = lock(&other, SECOND).await;
        assert!(unlock(&other, &lease).await);
    }
}

pub async fn each_change_of_holder_raises_the_term(fx: Fixture) {
    let (first, second) = (fx.node("first").await, fx.node("second").await);
    let mut terms = Vec::new();
    for round in 0..6 {
        let holder = if round % 2 == 0 { &first } else { &second };
        let lease = lock(holder, SECOND).await;
        terms.push(lease.term);
        if round < 3 {
            fx.advance(SECOND);
        } else {
            assert!(unlock(holder, &lease).await);
        }
    }
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    let again = lock(&second, SECOND).await;
    assert!(again.term > terms[5], "the same owner after an unlock holds it anew");
}

pub async fn taking_a_held_lock_again_extends_it_under_the_same_term(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    let first = lock(&holder, SECOND).await;
    fx.advance(SECOND - MILLI);
    let second = lock(&holder, SECOND).await;
    assert_eq!(second, first);
    fx.advance(SECOND - MILLI);
    assert_eq!(try_lock(&other, "purge", SECOND).await, None);
    fx.advance(MILLI);
    assert!(try_lock(&other, "purge", SECOND).await.is_some());
}

pub async fn a_ttl_of_zero_is_an_error(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    let refused = node.store.try_lock(&name("purge"), Duration::ZERO, &node.owner).await;
    assert_eq!(refused.map_err(|error| error.kind()), Err(StoreErrorKind::Invalid));
    lock(&other, SECOND).await;
}

pub async fn renewing_extends_from_now(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    let lease = lock(&holder, SECOND).await;
    for _ in 0..3 {
        fx.advance(SECOND - MILLI);
        assert!(renew(&holder, &lease, SECOND).await);
    }
    assert!(renew(&holder, &lease, MILLI * 300).await, "also to less than was left");
    fx.advance(MILLI * 299);
    assert_eq!(try_lock(&other, "purge", SECOND).await, None);
    fx.advance(MILLI);
    assert!(lock(&other, SECOND).await.term > lease.term);
}

pub async fn a_lease_that_ran_out_cannot_be_renewed(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    let lease = lock(&holder, SECOND).await;
    fx.advance(SECOND);
    assert!(!renew(&holder, &lease, SECOND).await, "although nobody took it");
    lock(&other, SECOND).await;
}

pub async fn only_owner_and_term_of_the_present_holding_can_renew_or_unlock(fx: Fixture) {
    let (old, holder) = (fx.node("old").await, fx.node("holder").await);
    let stale = lock(&old, SECOND).await;
    fx.advance(SECOND);
    let present = lock(&holder, SECOND).await;
    let unknown = LockLease { name: name("never taken"), ..present.clone() };
    let forgeries = [
        ("the holding before", stale.clone()),
        ("the old owner with the present term", LockLease { term: present.term, ..stale.clone() }),
        ("the present owner with the old term", LockLease { term: stale.term, ..present.clone() }),
        ("the present owner with a term to come", LockLease { term: present.term + 1, ..present.clone() }),
        ("a lock that nobody took", unknown),
    ];
    for (what, lease) in &forgeries {
        assert!(!renew(&old, lease, SECOND * 60).await, "{what}");
        assert!(!unlock(&old, lease).await, "{what}");
        assert_eq!(try_lock(&old, "purge", SECOND).await, None, "{what}");
    }
    fx.advance(SECOND - MILLI);
    assert!(renew(&holder, &present, SECOND).await, "the holder did not notice");
    assert!(unlock(&holder, &present).await);
}

pub async fn an_unlocked_lock_is_free_at_once(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    let lease = lock(&holder, SECOND * 600).await;
    assert!(unlock(&holder, &lease).await);
    assert!(!unlock(&holder, &lease).await, "once");
    assert!(!renew(&holder, &lease, SECOND).await);
    let next = lock(&other, SECOND).await;
    assert!(next.term > lease.term);
    assert!(!unlock(&holder, &lease).await, "the next holding is not touched");
    assert_eq!(try_lock(&holder, "purge", SECOND).await, None);
}

pub async fn a_lock_from_before_the_clock_went_back_runs_out(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    let old = lock(&holder, SECOND * 30).await;
    fx.clock().step_back(SECOND * 30);
    assert_eq!(try_lock(&other, "purge", SECOND).await, None, "by no more than it was taken for");
    assert_eq!(try_lock(&holder, "purge", SECOND * 30).await.as_ref(), Some(&old), "its holder has it still");
    fx.clock().step_back(SECOND * 30 + MILLI);
    assert!(!renew(&holder, &old, SECOND).await);
    assert!(!unlock(&holder, &old).await);
    let own = lock(&holder, SECOND * 30).await;
    assert!(own.term > old.term, "its holder holds it anew");
    fx.clock().step_back(SECOND * 3_600);
    assert!(lock(&other, SECOND).await.term > own.term);
}

pub async fn a_lock_counts_from_when_it_was_extended_last(fx: Fixture) {
    let (holder, other) = (fx.node("holder").await, fx.node("other").await);
    let mut lease = lock(&holder, SECOND * 30).await;
    fx.advance(SECOND * 20);
    assert!(renew(&holder, &lease, SECOND * 30).await);
    fx.clock().step_back(SECOND * 30 + MILLI);
    lease = lock(&other, SECOND * 30).await;
    fx.advance(SECOND * 20);
    assert_eq!(lock(&other, SECOND * 30).await, lease, "taken once more");
    fx.clock().step_back(SECOND * 30);
    assert_eq!(try_lock(&holder, "purge", SECOND).await, None);
    fx.clock().step_back(MILLI);
    assert!(lock(&holder, SECOND).await.term > lease.term);
}
