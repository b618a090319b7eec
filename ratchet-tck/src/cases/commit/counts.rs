//! Fencing and replay: which outcomes are recorded, and how often.

use std::time::Duration;

use ratchet_api::{End, Fence, HandBackReason, JobId, JobStatus, Outcome, Verdict};

use super::{
    DELAY, RUN, called_off, commit_all, dead, every_end, handed_back, history, keyed, outcome, ran, recorded,
    retry, submit, succeeded,
};
use crate::Fixture;
use crate::fixture::{job, text};

/// Fences that differ from the current one of a first claim, which is 2.
const WRONG_FENCES: [Fence; 3] = [Fence::from_version(0), Fence::FIRST, Fence::from_version(3)];

pub(super) async fn a_wrong_fence_changes_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(keyed("k")).await;
    let (before, callback) = (node.job(claim.id).await, job());
    for end in every_end() {
        for fence in WRONG_FENCES {
            let mut outcome = ran(&claim, end.clone());
            outcome.fence = fence;
            outcome.effects = vec![submit(callback.clone())];
            assert_eq!(node.commit(outcome).await, Verdict::LeaseLost, "{end:?} under {fence}");
        }
    }
    assert_eq!(node.job(claim.id).await, before);
    assert_eq!(history(&node, claim.id).await, []);
    assert_eq!(node.find(callback.spec.id).await, None);
}

pub(super) async fn another_owner_changes_nothing(fx: Fixture) {
    let (owner, other) = (fx.node("a").await, fx.node("b").await);
    let claim = owner.running(job()).await;
    let before = owner.job(claim.id).await;
    for end in every_end() {
        assert_eq!(other.commit(ran(&claim, end.clone())).await, Verdict::LeaseLost, "{end:?}");
    }
    assert_eq!(owner.job(claim.id).await, before);
    assert_eq!(history(&owner, claim.id).await, []);
    owner.end(&claim, succeeded()).await;
}

pub(super) async fn an_old_fence_after_a_new_claim_changes_nothing(fx: Fixture) {
    let (a, b) = (fx.node("a").await, fx.node("b").await);
    let first = a.running(job()).await;
    a.end(&first, handed_back(HandBackReason::Released)).await;
    for holder in [&b, &a] {
        fx.advance(DELAY);
        let second = holder.take(first.id).await;
        let before = a.job(first.id).await;
        assert_eq!(a.commit(ran(&first, succeeded())).await, Verdict::LeaseLost);
        assert_eq!(a.job(first.id).await, before);
        holder.end(&second, handed_back(HandBackReason::Released)).await;
    }
}

pub(super) async fn an_unknown_job_is_lost(fx: Fixture) {
    let node = fx.node("a").await;
    for end in every_end() {
        let outcome = Outcome::new(JobId::generate(), Fence::FIRST, end);
        assert_eq!(node.commit(outcome).await, Verdict::LeaseLost);
    }
}

pub(super) async fn an_expired_lease_alone_loses_nothing(fx: Fixture) {
    let node = fx.node_with_lease("a", Duration::from_secs(1)).await;
    let claim = node.running(job()).await;
    fx.advance(Duration::from_secs(3600));
    node.end(&claim, succeeded()).await;
    assert_eq!(node.status(claim.id).await, JobStatus::Succeeded);
}

pub(super) async fn a_recovered_job_is_lost_to_its_old_owner(fx: Fixture) {
    let frozen = fx.node_with_lease("frozen", Duration::from_secs(1)).await;
    let healthy = fx.node("healthy").await;
    let claim = frozen.running(job()).await;
    fx.advance(Duration::from_secs(2));
    let dead = [frozen.owner.clone()];
    let moved = healthy.store.recover(&dead, &healthy.owner, 10).await.expect("recover answers");
    assert_eq!(moved.len(), 1);
    let before = healthy.job(claim.id).await;
    assert_eq!(frozen.commit(ran(&claim, succeeded())).await, Verdict::LeaseLost);
    assert_eq!(healthy.job(claim.id).await, before);
    healthy.end(&moved[0], handed_back(HandBackReason::Crashed)).await;
}

pub(super) async fn a_replayed_outcome_does_nothing_twice(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let run = every_end().into_iter().map(|end| (Some(RUN), end));
    let without_run = ends_with_a_trace().into_iter().map(|end| (None, end));
    for (run, end) in run.chain(without_run) {
        let claim = node.running(job()).await;
        let mut outcome = outcome(&claim, end.clone());
        outcome.run = run;
        outcome.effects = vec![submit(job())];
        recorded(node.commit(outcome.clone()).await);
        let (before, rows) = (node.job(claim.id).await, history(&node, claim.id).await);

        fx.advance(Duration::from_secs(1));
        assert_eq!(node.commit(outcome).await, Verdict::AlreadyRecorded, "{end:?}, run {run:?}");
        assert_eq!(other.job(claim.id).await, before, "{end:?}");
        assert_eq!(history(&other, claim.id).await, rows, "{end:?}");
        assert_eq!(rows.len(), 1, "{end:?}");
    }
}

pub(super) async fn an_outcome_that_another_owner_recorded_is_not_ones_own(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let namesake = fx.node("a").await;
    for end in every_end() {
        let claim = node.running(job()).await;
        let outcome = ran(&claim, end.clone());
        recorded(node.commit(outcome.clone()).await);
        let before = (node.job(claim.id).await, history(&node, claim.id).await);
        for stranger in [&other, &namesake] {
            assert_eq!(stranger.commit(outcome.clone()).await, Verdict::LeaseLost, "{end:?}");
        }
        assert_eq!((node.job(claim.id).await, history(&node, claim.id).await), before, "{end:?}");
    }
}

pub(super) async fn a_hand_back_without_a_run_cannot_be_replayed(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    let outcome = outcome(&claim, handed_back(HandBackReason::Released));
    recorded(node.commit(outcome.clone()).await);
    let before = node.job(claim.id).await;
    assert_eq!(node.commit(outcome).await, Verdict::LeaseLost);
    assert_eq!(node.job(claim.id).await, before);
}

pub(super) async fn a_replay_after_a_new_claim_leaves_the_new_claim_alone(fx: Fixture) {
    let (a, b) = (fx.node("a").await, fx.node("b").await);
    for end in [retry(Duration::ZERO), dead("boom"), handed_back(HandBackReason::Snoozed)] {
        let first = a.running(job()).await;
        let outcome = ran(&first, end.clone());
        recorded(a.commit(outcome.clone()).await);
        if a.status(first.id).await == JobStatus::Failed {
            a.store.retry(&[first.id.into()]).await.expect("retry answers");
        }
        fx.advance(DELAY);
        let second = b.take(first.id).await;
        let before = b.job(first.id).await;

        assert_eq!(a.commit(outcome).await, Verdict::AlreadyRecorded, "{end:?}");
        assert_eq!(b.job(first.id).await, before, "{end:?}");
        b.end(&second, succeeded()).await;
        assert_eq!(b.status(first.id).await, JobStatus::Succeeded);
    }
}

pub(super) async fn the_same_outcome_twice_in_one_call_is_recorded_once(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    let outcome = ran(&claim, retry(DELAY));
    let verdicts = commit_all(&node, &[outcome.clone(), outcome]).await;
    assert!(matches!(verdicts[..], [Verdict::Recorded(_), Verdict::AlreadyRecorded]), "{verdicts:?}");
    let read = node.job(claim.id).await;
    assert_eq!((read.attempts, read.fence), (1, claim.fence.next()));
    assert_eq!(history(&node, claim.id).await.len(), 1);
}

pub(super) async fn good_and_stale_outcomes_in_one_call_do_not_affect_each_other(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (good, worse, stale) =
        (node.running(job()).await, node.running(job()).await, node.running(job()).await);
    let (foreign, canceled, last) =
        (other.running(job()).await, node.running(job()).await, node.running(job()).await);
    node.store.cancel(&[canceled.id.into()], &text("stop")).await.expect("cancel answers");
    let replayed = ran(&node.running(job()).await, dead("boom"));
    recorded(node.commit(replayed.clone()).await);
    let mut too_late = ran(&stale, succeeded());
    too_late.fence = Fence::FIRST;

    let verdicts = commit_all(
        &node,
        &[
            Outcome::new(JobId::generate(), Fence::FIRST, succeeded()),
            ran(&good, succeeded()),
            too_late,
            ran(&worse, dead("boom")),
            ran(&foreign, succeeded()),
            replayed,
            ran(&canceled, succeeded()),
            ran(&last, retry(DELAY)),
        ],
    )
    .await;

    assert!(
        matches!(
            verdicts[..],
            [
                Verdict::LeaseLost,
                Verdict::Recorded(_),
                Verdict::LeaseLost,
                Verdict::Recorded(_),
                Verdict::LeaseLost,
                Verdict::AlreadyRecorded,
                Verdict::CanceledInstead,
                Verdict::Recorded(_)
            ]
        ),
        "{verdicts:?}"
    );
    for (claim, status) in [
        (good, JobStatus::Succeeded),
        (worse, JobStatus::Failed),
        (stale, JobStatus::Running),
        (foreign, JobStatus::Running),
        (canceled, JobStatus::Canceled),
        (last, JobStatus::Pending),
    ] {
        assert_eq!(other.status(claim.id).await, status);
    }
    assert_eq!(commit_all(&node, &[]).await, []);
}

/// Returns the ends that are recognised when they are repeated, even if no body ran.
fn ends_with_a_trace() -> Vec<End> {
    vec![succeeded(), retry(DELAY), dead("boom"), handed_back(HandBackReason::Crashed), called_off()]
}
