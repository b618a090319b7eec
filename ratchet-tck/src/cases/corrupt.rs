//! Damaged rows: each ends for itself, and all others go on.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{Loaded, NewRecurring, SavedRecurring};
use ratchet_api::{
    Beat, Condition, DeadReason, Death, Due, Edge, End, Inserted, JobClaim, JobId, JobSpec, JobStatus,
    LogLevel, NewLogLine, Outcome, Recurrence, Timestamp, Verdict, death,
};

use super::keys::lives::{linked, named};
use super::load::spoil;
use crate::case::cases;
use crate::fixture::{error, job, job_with, payload, text};
use crate::{Fixture, Peer, Spoil};

cases! { "corrupt";
    a_claim_marks_a_row_that_cannot_be_read_and_takes_the_others:
        ["claim.corrupt", "load.corrupt", "commit.corrupt"] [];
    what_an_owner_holds_is_told_with_rows_that_cannot_be_read: ["owned.corrupt", "commit.corrupt"] [];
    a_row_that_cannot_be_read_is_recovered_with_the_others: ["recover.corrupt", "commit.corrupt"] [];
    a_damaged_row_ends_with_all_that_follows: ["commit.corrupt"] [];
    a_job_without_its_queue_state_is_lost_and_its_neighbours_are_recorded: ["commit.corrupt", "commit.isolated"] [];
    dependents_of_a_job_without_its_queue_state_are_decided: ["commit.corrupt"] [];
    jobs_that_no_claim_finds_can_be_taken: ["unreachable.taken", "unreachable.lease"] [];
    jobs_that_a_claim_finds_are_left_to_it: ["unreachable.only"] [];
    a_schedule_that_cannot_be_read_keeps_no_other_from_firing: ["recurring.corrupt"] [];
    a_name_that_nobody_gave_hides_no_queue_and_no_dead_letter:
        ["query.health_corrupt", "query.dead_letters_corrupt"] [];
    a_fence_that_was_set_back_keeps_no_job_from_ending: ["commit.corrupt"] [];
    lines_are_added_after_one_with_the_greatest_number: ["log.corrupt"] [];
    a_job_of_an_owner_whose_name_cannot_be_read_is_taken: ["unreachable.owner"] [];
    a_node_that_cannot_be_read_fails_no_beat_and_is_not_dead_for_it: ["beat.corrupt"] [];
}

/// Damage after which claims still find the job.
const UNREADABLE: [Spoil; 2] = [Spoil::QueueState, Spoil::LastVersion];

fn dead_letter() -> End {
    End::DeadLetter { error: error("CorruptRow: it cannot be read"), reason: DeadReason::DoNotRetry }
}

/// Records the end that each claim asks for, all in one call.
async fn settle(node: &Peer, claims: &[JobClaim]) {
    let outcome = |claim: &JobClaim| {
        let end = if claim.corrupt.is_some() { dead_letter() } else { End::Succeeded { result: None } };
        Outcome::new(claim.id, claim.fence, end)
    };
    let outcomes: Vec<Outcome> = claims.iter().map(outcome).collect();
    let verdicts = node.store.commit(&node.owner, &outcomes).await.expect("commit answers");
    for (claim, verdict) in claims.iter().zip(verdicts) {
        assert!(matches!(verdict, Verdict::Recorded(_)), "{claim:?}: {verdict:?}");
    }
    assert_eq!(node.store.owned(&node.owner).await.expect("owned answers"), [], "nothing is left");
}

async fn insert_three(node: &Peer) -> [JobId; 3] {
    let told = || job_with(|new| new.spec.on_failure = Some(payload()));
    [node.insert(job()).await, node.insert(told()).await, node.insert(job()).await]
}

/// Checks that the second of three is marked as corrupt, and the others are unaffected.
fn assert_second_is_corrupt(claims: &[JobClaim], ids: [JobId; 3], how: Spoil) {
    let told: Vec<_> = claims.iter().map(|claim| (claim.id, claim.corrupt.is_some())).collect();
    assert_eq!(told, [(ids[0], false), (ids[1], true), (ids[2], false)], "{how:?}");
    let problem = claims[1].corrupt.as_ref().expect("it is marked");
    assert!(!problem.is_empty(), "{how:?} is described");
}

async fn assert_ended(node: &Peer, ids: [JobId; 3], how: Spoil) {
    for id in [ids[0], ids[2]] {
        assert_eq!(node.status(id).await, JobStatus::Succeeded, "{how:?}");
    }
    assert_eq!(failed(node, ids[1]).await, 1, "{how:?}: one job failed");
    assert_eq!(node.claim(10).await, [], "{how:?}: nobody meets it again");
    assert_eq!(node.store.delete(&ids).await.expect("delete answers"), 3, "{how:?}");
}

/// Returns the number of dead letters; the newest group must name `newest`.
async fn failed(node: &Peer, newest: JobId) -> u64 {
    let groups = node.store.dead_letters(10).await.expect("dead letters are listed");
    assert_eq!(groups.first().map(|group| group.newest), Some(newest));
    groups.iter().map(|group| group.count).sum()
}

pub async fn a_claim_marks_a_row_that_cannot_be_read_and_takes_the_others(fx: Fixture) {
    let node = fx.node("a").await;
    for how in UNREADABLE {
        let ids = insert_three(&node).await;
        spoil(&fx, ids[1], how).await;

        let claims = node.claim(10).await;

        assert_second_is_corrupt(&claims, ids, how);
        let loaded = node.store.load(&node.owner, &claims).await.expect("load answers");
        let [Loaded::Job(..), Loaded::Corrupt { problem, on_failure }, Loaded::Job(..)] = &loaded[..] else {
            panic!("{how:?}: {loaded:?}");
        };
        assert_eq!(Some(problem), claims[1].corrupt.as_ref(), "{how:?}");
        assert_eq!(*on_failure, Some(payload()), "{how:?}: who is to be told is known");
        settle(&node, &claims).await;
        assert_ended(&node, ids, how).await;
    }
}

pub async fn what_an_owner_holds_is_told_with_rows_that_cannot_be_read(fx: Fixture) {
    let node = fx.node("a").await;
    for how in UNREADABLE {
        let ids = insert_three(&node).await;
        assert_eq!(node.claim(10).await.len(), 3);
        spoil(&fx, ids[1], how).await;

        let claims = node.store.owned(&node.owner).await.expect("owned answers");

        assert_second_is_corrupt(&claims, ids, how);
        settle(&node, &claims).await;
        assert_ended(&node, ids, how).await;
    }
}

pub async fn a_row_that_cannot_be_read_is_recovered_with_the_others(fx: Fixture) {
    let lease = Duration::from_secs(30);
    for how in UNREADABLE {
        let (dead, alive) = (fx.node_with_lease("dead", lease).await, fx.node("alive").await);
        let ids = insert_three(&dead).await;
        assert_eq!(dead.claim(10).await.len(), 3);
        spoil(&fx, ids[1], how).await;
        fx.advance(lease + lease);

        let owners = [dead.owner];
        let claims = alive.store.recover(&owners, &alive.owner, 10).await.expect("recover answers");

        assert_second_is_corrupt(&claims, ids, how);
        settle(&alive, &claims).await;
        assert_ended(&alive, ids, how).await;
    }
}

pub async fn a_damaged_row_ends_with_all_that_follows(fx: Fixture) {
    let node = fx.node("a").await;
    for how in [Spoil::UnknownType, Spoil::UnknownBackoff, Spoil::QueueState] {
        let (parent, child) = (job_with(|new| new.spec.business_key = Some(named("alone"))), job());
        let (id, waiting) = (parent.spec.id, child.spec.id);
        let edges = vec![Edge::new(id, waiting, Condition::Success)];
        assert_eq!(node.submit(linked(vec![parent, child], edges)).await, Inserted::New);
        let (claim, neighbour) = (node.take(id).await, node.running(job()).await);
        spoil(&fx, id, how).await;

        let mut dead = Outcome::new(id, claim.fence, dead_letter());
        dead.edges_seen = 1;
        let success = Outcome::new(neighbour.id, neighbour.fence, End::Succeeded { result: None });
        let verdicts = node.store.commit(&node.owner, &[dead, success]).await.expect("commit answers");

        let [Verdict::Recorded(led_to), Verdict::Recorded(_)] = &verdicts[..] else {
            panic!("{how:?}: {verdicts:?}");
        };
        assert_eq!(led_to.canceled, [waiting], "{how:?}");
        let holder = node.store.find_active_by_business_key(&named("alone")).await.expect("an answer");
        assert_eq!(holder, None, "{how:?}: its key is free");
        assert_eq!(failed(&node, id).await, 1, "{how:?}");
        node.store.delete(&[id]).await.expect("delete answers");
    }
}

pub async fn a_job_without_its_queue_state_is_lost_and_its_neighbours_are_recorded(fx: Fixture) {
    let node = fx.node("a").await;
    let ids = insert_three(&node).await;
    let claims = node.claim(10).await;
    spoil(&fx, ids[1], Spoil::QueueStateGone).await;

    let end = |claim: &JobClaim| Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
    let outcomes: Vec<Outcome> = claims.iter().map(end).collect();
    for _ in 0..2 {
        let verdicts = node.store.commit(&node.owner, &outcomes).await.expect("commit answers");
        assert_eq!(verdicts[1], Verdict::LeaseLost);
        for verdict in [&verdicts[0], &verdicts[2]] {
            assert!(matches!(verdict, Verdict::Recorded(_) | Verdict::AlreadyRecorded), "{verdict:?}");
        }
    }

    let lost = node.job(ids[1]).await;
    assert_eq!(lost.status, JobStatus::Failed);
    assert!(lost.last_error.expect("an error").starts_with("CorruptRow"));
    assert_eq!(failed(&node, ids[1]).await, 1);
}

pub async fn dependents_of_a_job_without_its_queue_state_are_decided(fx: Fixture) {
    let node = fx.node("a").await;
    let (parent, child) = (job(), job());
    let (id, waiting) = (parent.spec.id, child.spec.id);
    let edges = vec![Edge::new(id, waiting, Condition::Success)];
    assert_eq!(node.submit(linked(vec![parent, child], edges)).await, Inserted::New);
    let claim = node.take(id).await;
    spoil(&fx, id, Spoil::QueueStateGone).await;

    let verdict = node.commit(Outcome::new(id, claim.fence, End::Succeeded { result: None })).await;

    assert_eq!(verdict, Verdict::LeaseLost);
    assert_eq!(node.status(waiting).await, JobStatus::Canceled);
}

pub async fn jobs_that_no_claim_finds_can_be_taken(fx: Fixture) {
    let (node, gone) = (fx.node("a").await, fx.node_with_lease("gone", Duration::from_secs(1)).await);
    fx.advance(Duration::from_secs(2));
    for (how, field) in [(Spoil::Priority, "priority"), (Spoil::QueueName, "queue")] {
        let ids = insert_three(&node).await;
        spoil(&fx, ids[1], how).await;
        assert_eq!(node.claim(10).await.len(), 2, "{how:?}");
        let late = gone.store.pick_up_unreachable(&gone.owner, 10).await.expect("it answers");
        assert_eq!(late, [], "{how:?}: its lease is over");
        let none = node.store.pick_up_unreachable(&node.owner, 0).await.expect("it answers");
        assert_eq!(none, [], "{how:?}");

        let taken = node.store.pick_up_unreachable(&node.owner, 10).await.expect("it answers");

        let told: Vec<_> = taken.iter().map(|claim| (claim.id, claim.corrupt.is_some())).collect();
        assert_eq!(told, [(ids[1], true)], "{how:?}");
        let problem = taken[0].corrupt.as_deref().unwrap_or_default();
        assert!(
            problem.to_lowercase().contains(field),
            "{how:?}: the problem names the field {field}: {problem}"
        );
        let owned = node.store.owned(&node.owner).await.expect("owned answers");
        assert_eq!(owned.iter().map(|claim| claim.id).collect::<Vec<_>>(), ids, "{how:?}");
        let mut all = owned;
        all[1] = taken[0].clone();
        settle(&node, &all).await;
        assert_ended(&node, ids, how).await;
    }
}

pub async fn jobs_that_a_claim_finds_are_left_to_it(fx: Fixture) {
    let node = fx.node("a").await;
    let due = node.insert(job()).await;
    let running = node.running(job()).await;
    let later = job_with(|new| new.due = Due::At(Timestamp::MAX));
    let later = node.insert(later).await;
    let (parent, child) = (job(), job());
    let (id, waiting) = (parent.spec.id, child.spec.id);
    let edges = vec![Edge::new(id, waiting, Condition::Success)];
    assert_eq!(node.submit(linked(vec![parent, child], edges)).await, Inserted::New);
    let foreign = node.insert(job_with(|new| new.spec.queue = named("of-others"))).await;
    node.store.pause(&[due.into()]).await.expect("pause answers");

    let taken = node.store.pick_up_unreachable(&node.owner, 10).await.expect("it answers");

    assert_eq!(taken, []);
    for (job, status) in [
        (due, JobStatus::Paused),
        (running.id, JobStatus::Running),
        (later, JobStatus::Pending),
        (id, JobStatus::Pending),
        (waiting, JobStatus::Pending),
        (foreign, JobStatus::Pending),
    ] {
        assert_eq!(node.status(job).await, status);
    }
}

pub async fn a_schedule_that_cannot_be_read_keeps_no_other_from_firing(fx: Fixture) {
    let node = fx.node("a").await;
    let save = async |key: &str, fire: Timestamp| {
        let recurrence = Recurrence::new("0 0 * * * *", "UTC", Some(fire));
        let new = NewRecurring::new(named(key), JobSpec::new(payload()), recurrence);
        let saved = node.store.save_recurring(&new).await.expect("it is saved");
        assert_eq!(saved, SavedRecurring::Created(new.spec.id));
        new.spec.id
    };
    let bad = save("bad", fx.now()).await;
    let good = save("good", fx.now() + Duration::from_secs(1)).await;
    fx.advance(Duration::from_secs(2));
    spoil(&fx, bad, Spoil::UnknownBackoff).await;

    for _ in 0..2 {
        let due = node.store.due_recurring(1).await.expect("due schedules are listed");
        assert_eq!(due.iter().map(|job| job.spec.id).collect::<Vec<_>>(), [good]);
    }

    assert_eq!(failed(&node, bad).await, 1);
    let listed = node.store.recurring().await.expect("schedules are listed");
    assert_eq!(listed.iter().map(|job| job.spec.id).collect::<Vec<_>>(), [good]);
    save("bad", fx.now()).await;
}

pub async fn a_name_that_nobody_gave_hides_no_queue_and_no_dead_letter(fx: Fixture) {
    let node = fx.node("a").await;
    let other = node.insert(job_with(|new| new.spec.queue = named("other"))).await;
    for how in [Spoil::QueueName, Spoil::TargetName] {
        let claim = node.running(job()).await;
        node.end(&claim, dead_letter()).await;
        spoil(&fx, claim.id, how).await;

        let health = node.store.queue_health().await.expect("queues are listed");
        let groups = node.store.dead_letters(10).await.expect("dead letters are listed");

        let ready: u64 = health.iter().map(|(_, queue)| queue.ready).sum();
        let failed: u64 = health.iter().map(|(_, queue)| queue.failed).sum();
        assert_eq!((ready, failed), (1, 1), "{how:?}: {health:?}");
        assert!(health.iter().any(|(name, _)| name.as_str() == "other"), "{how:?}");
        assert_eq!(groups.iter().map(|group| group.newest).collect::<Vec<_>>(), [claim.id], "{how:?}");
        node.store.delete(&[claim.id]).await.expect("delete answers");
    }
    assert_eq!(node.status(other).await, JobStatus::Pending);
}

pub async fn a_fence_that_was_set_back_keeps_no_job_from_ending(fx: Fixture) {
    let node = fx.node("a").await;
    let (claim, neighbour) = (node.running(job()).await, node.running(job()).await);
    node.end(&claim, End::Retry { delay: Duration::ZERO, error: error("told to fail") }).await;
    spoil(&fx, claim.id, Spoil::FirstVersion).await;

    let again = node.take(claim.id).await;
    assert_eq!(again.fence, claim.fence, "history has a row of it");
    settle(&node, &[again, neighbour.clone()]).await;

    for id in [claim.id, neighbour.id] {
        assert_eq!(node.status(id).await, JobStatus::Succeeded);
    }
}

pub async fn lines_are_added_after_one_with_the_greatest_number(fx: Fixture) {
    let node = fx.node("a").await;
    let (damaged, other) = (node.running(job()).await, node.running(job()).await);
    let line = |claim: &JobClaim, message: &str| NewLogLine {
        job: claim.id,
        fence: claim.fence,
        level: LogLevel::Info,
        message: text(message),
    };
    node.store.append_logs(&[line(&damaged, "first")]).await.expect("a line is added");
    spoil(&fx, damaged.id, Spoil::LogNumber).await;

    for message in ["second", "third"] {
        let lines = [line(&damaged, message), line(&other, message)];
        node.store.append_logs(&lines).await.expect("lines are added");
    }

    let told = async |claim: &JobClaim| {
        let lines = node.store.logs(claim.id, None, 10).await.expect("lines are read");
        lines.into_iter().map(|line| line.message).collect::<Vec<_>>()
    };
    assert_eq!(told(&other).await, ["second", "third"]);
    let damaged = told(&damaged).await;
    assert!(
        ["first", "second", "third"].iter().all(|line| damaged.contains(&(*line).to_owned())),
        "{damaged:?}"
    );
}

pub async fn a_job_of_an_owner_whose_name_cannot_be_read_is_taken(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (damaged, healthy) = (other.running(job()).await, other.running(job()).await);
    spoil(&fx, damaged.id, Spoil::OwnerName).await;

    let beat = Beat::new(node.owner.clone(), Fixture::LONG);
    let dead = node.store.beat(&beat).await.expect("beat answers").dead;
    let mut taken = node.store.recover(&dead, &node.owner, 10).await.expect("recover answers");
    taken.extend(node.store.pick_up_unreachable(&node.owner, 10).await.expect("it answers"));

    assert_eq!(taken.iter().map(|claim| claim.id).collect::<Vec<_>>(), [damaged.id]);
    settle(&node, &taken).await;
    let held = other.store.owned(&other.owner).await.expect("owned answers");
    assert_eq!(held.iter().map(|claim| claim.id).collect::<Vec<_>>(), [healthy.id]);
}

pub async fn a_node_that_cannot_be_read_fails_no_beat_and_is_not_dead_for_it(fx: Fixture) {
    let lease = Duration::from_secs(30);
    let (silent, alive) = (fx.node_with_lease("silent", lease).await, fx.node("alive").await);
    let claim = silent.running(job()).await;
    spoil(&fx, claim.id, Spoil::OwnerBeats).await;
    fx.advance(lease + lease);

    let beat = Beat::new(alive.owner.clone(), lease);
    let reply = alive.store.beat(&beat).await.expect("beat answers");

    assert_eq!(reply.dead, std::slice::from_ref(&silent.owner));
    let pulse = reply.pulses.iter().find(|pulse| pulse.owner == silent.owner).expect("it is told of");
    assert_eq!((pulse.lease, pulse.reaped), (lease, false));
    let death = death(&silent.owner, &reply.pulses, reply.db_now);
    assert!(matches!(death, Death::Unproven { .. }), "nobody beat for a whole lease: {:?}", reply.pulses);
}
