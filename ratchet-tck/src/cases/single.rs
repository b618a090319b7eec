//! The single-job operations, which are built on the batched ones.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{Cas, JobStoreExt};
use ratchet_api::{ErrorRecord, JobId, JobStatus, JsonText, Owner, StoreErrorKind, Verdict};

use super::commit::{called_off, dead, recorded, succeeded};
use super::effects::chain;
use super::retry::dead_letter;
use crate::case::cases;
use crate::fixture::{Fixture, Peer, error, job, text};

cases! { "single";
    mark_succeeded_ends_the_job_with_its_result: ["commit.succeeded"] [87];
    mark_failed_ends_the_job_with_its_error: ["commit.dead_letter"] [98 99];
    schedule_retry_makes_the_job_wait: ["commit.retry"] [96];
    hand_back_consumes_nothing: ["commit.hand_back"] [];
    single_operations_are_fenced_like_all_others: ["commit.fenced", "commit.once"] [172];
    a_job_with_dependents_can_be_marked: ["commit.undecided_edge"] [];
    reset_running_gives_back_what_one_owner_holds: ["owned.all", "commit.hand_back"] [136];
    the_status_of_a_job_is_found: ["find.present"] [22];
    a_compare_and_swap_makes_every_legal_move: ["commit.fenced", "cancel.waiting", "pause.origin"] [171];
    a_compare_and_swap_of_a_job_that_is_elsewhere_is_stale: ["cancel.stale", "pause.stale"] [38 171];
    a_compare_and_swap_along_no_drawn_move_is_an_error: ["find.present"] [34 171];
    a_compare_and_swap_to_a_failure_needs_an_error: ["commit.dead_letter"] [171];
    of_two_compare_and_swaps_at_once_one_is_applied: ["retry.stale", "pause.stale"] [38 171];
}

pub async fn mark_succeeded_ends_the_job_with_its_result(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    let result = Some(JsonText::from_stored(r#"{"total": 1.0}"#));
    recorded(node.store.mark_succeeded(&node.owner, &claim, result.clone()).await.expect("it answers"));
    let read = node.job(claim.id).await;
    assert_eq!(read.status, JobStatus::Succeeded);
    assert_eq!(read.ending.expect("it has ended").result, result);
}

pub async fn mark_failed_ends_the_job_with_its_error(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    recorded(node.store.mark_failed(&node.owner, &claim, error("boom")).await.expect("it answers"));
    let read = node.job(claim.id).await;
    assert_eq!((read.status, read.attempts), (JobStatus::Failed, 1));
    assert_eq!(read.last_error.as_deref(), Some("boom"));
}

pub async fn schedule_retry_makes_the_job_wait(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    let delay = Duration::from_secs(30);
    let verdict = node.store.schedule_retry(&node.owner, &claim, error("boom"), delay).await;
    let due = fx.now() + delay;
    assert_eq!(recorded(verdict.expect("it answers")).next_due, Some(due));
    let read = node.job(claim.id).await;
    assert_eq!((read.status, read.attempts, read.scheduled_time), (JobStatus::Pending, 1, due));
    assert_eq!(read.last_error.as_deref(), Some("boom"));
}

pub async fn hand_back_consumes_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    let delay = Duration::from_secs(30);
    recorded(node.store.hand_back(&node.owner, &claim, delay).await.expect("it answers"));
    let read = node.job(claim.id).await;
    assert_eq!((read.status, read.scheduled_time), (JobStatus::Pending, fx.now() + delay));
    assert_eq!((read.attempts, read.crash_count, read.picked_by), (0, 0, None));
}

pub async fn single_operations_are_fenced_like_all_others(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(job()).await;
    let lost = other.store.mark_succeeded(&other.owner, &claim, None).await.expect("it answers");
    assert_eq!(lost, Verdict::LeaseLost);
    assert_eq!(node.status(claim.id).await, JobStatus::Running);
    recorded(node.store.mark_succeeded(&node.owner, &claim, None).await.expect("it answers"));
    let again = node.store.mark_succeeded(&node.owner, &claim, None).await.expect("it answers");
    assert_eq!(again, Verdict::AlreadyRecorded);
}

pub async fn a_job_with_dependents_can_be_marked(fx: Fixture) {
    let node = fx.node("a").await;
    let (good, bad) = (chain(&node, 2).await, chain(&node, 2).await);
    let claim = node.take(good[0]).await;
    let verdict = node.store.mark_succeeded(&node.owner, &claim, None).await.expect("it answers");
    assert_eq!(recorded(verdict).released, [good[1]]);
    let claim = node.take(bad[0]).await;
    let verdict = node.store.mark_failed(&node.owner, &claim, error("boom")).await.expect("it answers");
    assert_eq!(recorded(verdict).canceled, [bad[1]]);
}

pub async fn reset_running_gives_back_what_one_owner_holds(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (first, parent) = (node.running(job()).await, chain(&node, 2).await[0]);
    node.take(parent).await;
    let kept = other.running(job()).await;
    assert_eq!(other.store.reset_running(&node.owner).await.expect("it answers"), 2);
    for id in [first.id, parent] {
        let read = other.job(id).await;
        assert_eq!((read.status, read.attempts, read.picked_by), (JobStatus::Pending, 0, None));
    }
    assert_eq!(other.status(kept.id).await, JobStatus::Running);
    assert_eq!(other.store.reset_running(&node.owner).await.expect("it answers"), 0);
    assert_eq!(other.store.reset_running(&Owner::incarnate("nobody")).await.expect("it answers"), 0);
}

pub async fn the_status_of_a_job_is_found(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for status in JobStatus::ALL {
        let id = job_in(&node, status).await;
        assert_eq!(other.store.status_of(id).await.expect("it answers"), Some(status));
    }
    assert_eq!(other.store.status_of(JobId::generate()).await.expect("it answers"), None);
}

/// Every move that a compare-and-swap can make: all transitions but the claim. A job paused from PENDING cannot fail.
const MOVES: [(JobStatus, JobStatus); 10] = [
    (JobStatus::Pending, JobStatus::Paused),
    (JobStatus::Pending, JobStatus::Canceled),
    (JobStatus::Running, JobStatus::Succeeded),
    (JobStatus::Running, JobStatus::Pending),
    (JobStatus::Running, JobStatus::Failed),
    (JobStatus::Running, JobStatus::Canceled),
    (JobStatus::Paused, JobStatus::Pending),
    (JobStatus::Paused, JobStatus::Canceled),
    (JobStatus::Failed, JobStatus::Pending),
    (JobStatus::Failed, JobStatus::Paused),
];

pub async fn a_compare_and_swap_makes_every_legal_move(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for (from, to) in MOVES {
        let id = job_in(&node, from).await;
        let before = node.job(id).await;
        assert_eq!(swap(&other, id, from, to).await, Cas::Applied, "{from} to {to}");
        let after = node.job(id).await;
        assert_eq!((after.status, after.fence), (to, before.fence.next()), "{from} to {to}");
    }
    let set_aside = dead_letter(&node).await;
    node.store.pause(&[set_aside.into()]).await.expect("pause answers");
    assert_eq!(swap(&other, set_aside, JobStatus::Paused, JobStatus::Failed).await, Cas::Applied);
    assert_eq!(node.status(set_aside).await, JobStatus::Failed);
}

pub async fn a_compare_and_swap_of_a_job_that_is_elsewhere_is_stale(fx: Fixture) {
    let node = fx.node("a").await;
    for actual in JobStatus::ALL {
        let id = job_in(&node, actual).await;
        let before = node.job(id).await;
        for (from, to) in MOVES.into_iter().filter(|(from, _)| *from != actual) {
            let answer = swap(&node, id, from, to).await;
            assert_eq!(answer, Cas::Stale(Some(actual)), "{from} to {to} of a {actual} job");
        }
        assert_eq!(node.job(id).await, before);
    }
    let unknown = swap(&node, JobId::generate(), JobStatus::Pending, JobStatus::Paused).await;
    assert_eq!(unknown, Cas::Stale(None));
}

pub async fn a_compare_and_swap_along_no_drawn_move_is_an_error(fx: Fixture) {
    let node = fx.node("a").await;
    for from in JobStatus::ALL {
        let id = job_in(&node, from).await;
        let before = node.job(id).await;
        for to in JobStatus::ALL {
            if MOVES.contains(&(from, to)) {
                continue;
            }
            let answer = try_swap(&node, id, from, to, Some(error("boom"))).await;
            assert_eq!(answer, Err(StoreErrorKind::Invalid), "{from} to {to}");
        }
        assert_eq!(node.job(id).await, before);
    }
}

pub async fn a_compare_and_swap_to_a_failure_needs_an_error(fx: Fixture) {
    let node = fx.node("a").await;
    let id = job_in(&node, JobStatus::Running).await;
    let before = node.job(id).await;
    for to in [JobStatus::Failed, JobStatus::Pending] {
        let answer = try_swap(&node, id, JobStatus::Running, to, None).await;
        assert_eq!(answer, Err(StoreErrorKind::Invalid), "{to}");
    }
    assert_eq!(node.job(id).await, before);
}

pub async fn of_two_compare_and_swaps_at_once_one_is_applied(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..10 {
        let id = dead_letter(&node).await;
        let before = node.job(id).await;
        let goals = [JobStatus::Pending, JobStatus::Paused];
        let answers = fx
            .race(2, |i| {
                let (peer, to) = ([&node, &other][i].clone(), goals[i]);
                async move { swap(&peer, id, JobStatus::Failed, to).await }
            })
            .await;
        let winner = answers.iter().position(|answer| *answer == Cas::Applied).expect("one is applied");
        assert_eq!(answers[1 - winner], Cas::Stale(Some(goals[winner])), "round {round}");
        let after = node.job(id).await;
        assert_eq!((after.status, after.fence), (goals[winner], before.fence.next()), "round {round}");
    }
}

/// Stores a new job in this state; a paused one was pending before.
async fn job_in(node: &Peer, status: JobStatus) -> JobId {
    let ended = async |end| {
        let claim = node.running(job()).await;
        node.end(&claim, end).await;
        claim.id
    };
    match status {
        JobStatus::Pending => node.insert(job()).await,
        JobStatus::Running => node.running(job()).await.id,
        JobStatus::Succeeded => ended(succeeded()).await,
        JobStatus::Failed => ended(dead("boom")).await,
        JobStatus::Canceled => ended(called_off()).await,
        JobStatus::Paused => {
            let id = node.insert(job()).await;
            node.store.pause(&[id.into()]).await.expect("pause answers");
            id
        }
    }
}

async fn swap(peer: &Peer, id: JobId, from: JobStatus, to: JobStatus) -> Cas {
    try_swap(peer, id, from, to, Some(error("boom"))).await.expect("the move is drawn")
}

async fn try_swap(
    peer: &Peer,
    id: JobId,
    from: JobStatus,
    to: JobStatus,
    error: Option<ErrorRecord>,
) -> Result<Cas, StoreErrorKind> {
    let swapped = peer.store.compare_and_swap_status(id, from, to, error, &text("swapped")).await;
    swapped.map_err(|error| error.kind())
}
