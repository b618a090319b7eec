//! Recording outcomes: the fenced write and what it does to the job itself.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

mod counts;

use std::time::Duration;

use ratchet_api::store::{Permit, PermitRequest};
use ratchet_api::{
    BatchId, BusinessKey, Condition, DeadReason, Edge, Effect, End, Execution, ExecutionResult, Fence,
    HandBackReason, IdempotencyKey, Inserted, InvalidSubmission, JobClaim, JobId, JobStatus, JsonText,
    NewJob, Outcome, Recorded, Refusal, ResourceLimit, ResourceName, Run, Submission, Verdict,
};

use crate::case::cases;
use crate::fixture::{Fixture, Peer, error, job, job_with, text};
use counts::*;

cases! { "commit";
    a_wrong_fence_changes_nothing: ["commit.fenced"] [172];
    another_owner_changes_nothing: ["commit.fenced"] [26];
    an_old_fence_after_a_new_claim_changes_nothing: ["commit.fenced"] [172 181];
    an_unknown_job_is_lost: ["commit.fenced"] [];
    an_expired_lease_alone_loses_nothing: ["commit.fenced"] [];
    a_recovered_job_is_lost_to_its_old_owner: ["commit.fenced"] [186];
    a_replayed_outcome_does_nothing_twice: ["commit.once"] [];
    an_outcome_that_another_owner_recorded_is_not_ones_own: ["commit.fenced", "commit.once"] [];
    a_hand_back_without_a_run_cannot_be_replayed: ["commit.once"] [];
    a_replay_after_a_new_claim_leaves_the_new_claim_alone: ["commit.once"] [];
    the_same_outcome_twice_in_one_call_is_recorded_once: ["commit.once"] [];
    good_and_stale_outcomes_in_one_call_do_not_affect_each_other: ["commit.isolated"] [];
    every_recorded_outcome_raises_the_fence_by_one: ["commit.fence_raised"] [172];
    success_keeps_the_result_byte_for_byte: ["commit.succeeded"] [86 87];
    successes_of_one_call_keep_what_is_theirs: ["commit.succeeded", "commit.history", "commit.timing", "commit.releases"] [85 86];
    success_after_a_failure_leaves_no_error_and_no_owner: ["commit.succeeded"] [87];
    a_retry_is_due_after_its_delay: ["commit.retry"] [28 96];
    a_retry_keeps_its_business_key: ["commit.retry", "commit.releases"] [184];
    a_dead_letter_is_failed_with_its_error: ["commit.dead_letter"] [97 98 99];
    the_reason_of_a_dead_letter_decides_whether_an_attempt_is_consumed: ["commit.dead_letter"] [91];
    a_hand_back_consumes_no_attempt: ["commit.hand_back", "commit.history"] [75 76];
    a_called_off_job_is_canceled_with_its_reason: ["commit.canceled"] [25];
    every_attempt_leaves_one_row_of_history: ["commit.history"] [190 191];
    an_end_frees_the_business_key: ["commit.releases"] [18 156];
    leaving_running_frees_the_permit: ["commit.releases"] [84 120];
    start_and_end_are_counted_back_from_the_present: ["commit.timing"] [85];
    an_end_is_never_before_its_start: ["commit.timing"] [];
    the_queue_wait_of_a_retry_starts_anew: ["commit.timing"] [85];
    what_an_outcome_submits_is_stored_with_it: ["commit.submit"] [];
    a_refused_submission_is_reported_and_undoes_nothing: ["commit.submit"] [];
    an_edge_added_during_the_run_is_decided_anew: ["commit.edges_changed"] [];
    a_requested_cancel_wins_over_every_end: ["commit.cancel_wins"] [35 81];
}

const DELAY: Duration = Duration::from_secs(10);
const RUN: Run = Run { started_ago: Duration::from_secs(3), ran_for: Duration::from_secs(2) };

pub async fn every_recorded_outcome_raises_the_fence_by_one(fx: Fixture) {
    let node = fx.node("a").await;
    for end in every_end() {
        for run in [None, Some(RUN)] {
            let claim = node.running(job()).await;
            let mut outcome = outcome(&claim, end.clone());
            outcome.run = run;
            recorded(node.commit(outcome).await);
            assert_eq!(node.job(claim.id).await.fence, claim.fence.next(), "{end:?}, run {run:?}");
        }
    }
}

pub async fn success_keeps_the_result_byte_for_byte(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let long = format!("[{:?}]", "ß\u{1F980}x".repeat(2_000));
    for result in [
        None,
        Some("null"),
        Some(r#" {"b" : 1.0, "a":1e400,"a": "\ud800\u0000\u00e9é"} "#),
        Some("12345678901234567890.123456789012345678901234567890"),
        Some(long.as_str()),
    ] {
        let result = result.map(|text| JsonText::parse(text).expect("the result is JSON"));
        let claim = node.running(job()).await;
        recorded(node.commit(ran(&claim, End::Succeeded { result: result.clone() })).await);
        let read = other.job(claim.id).await;
        assert_eq!(read.status, JobStatus::Succeeded);
        assert_eq!(read.ending.expect("it has ended").result, result);
    }
}

pub async fn successes_of_one_call_keep_what_is_theirs(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let mut outcomes = Vec::new();
    for (nth, key) in (1..).zip(["a", "b", "c"]) {
        let claim = node.running(keyed(key)).await;
        let mut outcome = outcome(&claim, End::Succeeded { result: JsonText::parse(nth.to_string()).ok() });
        let ran_for = Duration::from_secs(nth);
        outcome.run = Some(Run { started_ago: ran_for + Duration::from_secs(10), ran_for });
        outcomes.push(outcome);
    }
    let now = fx.now();
    for verdict in [Verdict::Recorded(Recorded::default()), Verdict::AlreadyRecorded] {
        let verdicts = node.store.commit(&node.owner, &outcomes).await.expect("commit answers");
        assert_eq!(verdicts, vec![verdict; outcomes.len()]);
        fx.advance(DELAY);
    }
    for (outcome, key) in outcomes.iter().zip(["a", "b", "c"]) {
        let run = outcome.run.expect("it ran");
        let ending = other.job(outcome.id).await.ending.expect("it has ended");
        let End::Succeeded { result } = &outcome.end else { panic!("it succeeded") };
        assert_eq!(ending.result, *result);
        assert_eq!((ending.started_at, ending.duration()), (Some(now - run.started_ago), Some(run.ran_for)));
        let mut row =
            Execution::new(outcome.id, outcome.fence, node.owner.clone(), ExecutionResult::Succeeded, 0, now);
        (row.started_at, row.duration) = (Some(now - run.started_ago), Some(run.ran_for));
        assert_eq!(other.store.executions(outcome.id).await.expect("executions answers"), [row]);
        let holder = other.store.find_active_by_business_key(&business_key(key)).await;
        assert_eq!(holder.expect("find answers"), None, "the end of {} frees its key", outcome.id);
    }
}

pub async fn success_after_a_failure_leaves_no_error_and_no_owner(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let first = node.running(job()).await;
    node.end(&first, retry(Duration::ZERO)).await;
    let second = node.take(first.id).await;
    let verdict = recorded(node.commit(ran(&second, succeeded())).await);
    assert_eq!(verdict.next_due, None);
    let read = other.job(first.id).await;
    assert_eq!((read.status, read.last_error, read.attempts), (JobStatus::Succeeded, None, 1));
    assert_eq!((read.picked_by, read.picked_at), (None, None));
    assert_eq!(other.store.owned(&node.owner).await.expect("owned answers"), []);
}

pub async fn a_retry_is_due_after_its_delay(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(job()).await;
    fx.advance(Duration::from_secs(5));
    let due = fx.now() + Duration::from_millis(2);
    let delay = Duration::from_micros(1_500);
    let verdict = recorded(node.commit(ran(&claim, retry(delay))).await);
    assert_eq!(verdict.next_due, Some(due), "a delay is rounded up to whole milliseconds");

    let read = other.job(claim.id).await;
    assert_eq!((read.status, read.scheduled_time, read.attempts), (JobStatus::Pending, due, 1));
    assert_eq!(read.last_error.as_deref(), Some("try again"));
    assert_eq!((read.picked_by, read.picked_at, read.ending), (None, None, None));

    fx.advance(Duration::from_millis(1));
    assert_eq!(other.claim(1).await, []);
    fx.advance(Duration::from_millis(1));
    assert_eq!(other.claim_one().await.attempts, 1);
}

pub async fn a_retry_keeps_its_business_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(keyed("k")).await;
    recorded(node.commit(ran(&claim, retry(DELAY))).await);
    assert_eq!(other.submit(Submission::single(keyed("k"))).await, Inserted::KeyTaken { holder: claim.id });
}

pub async fn a_dead_letter_is_failed_with_its_error(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(job()).await;
    fx.advance(Duration::from_secs(5));
    let verdict = recorded(node.commit(ran(&claim, dead("no such account"))).await);
    assert_eq!(verdict.next_due, None);
    let read = other.job(claim.id).await;
    assert_eq!((read.status, read.attempts), (JobStatus::Failed, 1));
    assert_eq!(read.last_error.as_deref(), Some("no such account"));
    assert_eq!((read.picked_by, read.picked_at), (None, None));
    let ending = read.ending.expect("it has ended");
    assert_eq!((ending.terminated_at, ending.result), (fx.now(), None));
    fx.advance(Duration::from_secs(3600));
    assert_eq!(other.claim(1).await, []);
}

pub async fn the_reason_of_a_dead_letter_decides_whether_an_attempt_is_consumed(fx: Fixture) {
    let node = fx.node("a").await;
    for (reason, attempts) in [
        (DeadReason::Exhausted, 2),
        (DeadReason::DoNotRetry, 2),
        (DeadReason::PolicyRefused, 2),
        (DeadReason::Crashed, 1),
        (DeadReason::Denied, 1),
        (DeadReason::UnknownTarget, 1),
    ] {
        let first = node.running(job()).await;
        node.end(&first, retry(Duration::ZERO)).await;
        let second = node.take(first.id).await;
        node.end(&second, End::DeadLetter { error: error("boom"), reason }).await;
        let read = node.job(first.id).await;
        assert_eq!((read.status, read.attempts), (JobStatus::Failed, attempts), "{reason:?}");
        let rows = history(&node, first.id).await;
        assert_eq!(rows.len(), 2, "{reason:?}");
        assert_eq!(rows[1].attempt, attempts, "{reason:?}");
    }
}

pub async fn a_hand_back_consumes_no_attempt(fx: Fixture) {
    use HandBackReason::{BreakerOpen, Crashed, Released, Snoozed, UnknownTarget};
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for reason in [Released, BreakerOpen, UnknownTarget, Snoozed, Crashed] {
        let crashed = u32::from(reason == Crashed);
        for (run, rows) in [(None, crashed), (Some(RUN), 1)] {
            let first = node.running(job()).await;
            node.end(&first, retry(Duration::ZERO)).await;
            let second = node.take(first.id).await;
            let mut outcome = outcome(&second, handed_back(reason));
            outcome.run = run;
            let verdict = recorded(node.commit(outcome).await);

            let (read, due) = (other.job(first.id).await, fx.now() + DELAY);
            assert_eq!((read.status, read.scheduled_time), (JobStatus::Pending, due), "{reason:?}");
            assert_eq!(verdict.next_due, Some(due), "{reason:?}");
            assert_eq!((read.attempts, read.crash_count), (1, crashed), "{reason:?}");
            assert_eq!((read.picked_by, read.picked_at), (None, None), "{reason:?}");
            let written = history(&other, first.id).await.len() - 1;
            assert_eq!(written, rows as usize, "{reason:?}, run {run:?}");
        }
    }
}

pub async fn a_called_off_job_is_canceled_with_its_reason(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(job()).await;
    fx.advance(Duration::from_secs(5));
    let verdict = recorded(node.commit(outcome(&claim, called_off())).await);
    assert_eq!(verdict.next_due, None);
    let read = other.job(claim.id).await;
    assert_eq!((read.status, read.picked_by), (JobStatus::Canceled, None));
    assert_eq!(read.cancel_reason.as_deref(), Some("no longer needed"));
    assert_eq!(read.ending.expect("it has ended").terminated_at, fx.now());
    assert_eq!(read.attempts, 0);
}

pub async fn every_attempt_leaves_one_row_of_history(fx: Fixture) {
    let (a, b) = (fx.node("a").await, fx.node("b").await);
    let id = a.insert(job()).await;
    let mut expected = Vec::new();
    for (node, end, run, result, attempt) in [
        (&a, retry(Duration::ZERO), Some(RUN), Some(ExecutionResult::Failed), 1),
        (&b, handed_back(HandBackReason::Released), None, None, 1),
        (&b, handed_back(HandBackReason::Snoozed), Some(RUN), Some(ExecutionResult::Snoozed), 1),
        (&a, handed_back(HandBackReason::Crashed), None, Some(ExecutionResult::Crashed), 1),
        (&b, dead("boom"), Some(RUN), Some(ExecutionResult::Failed), 2),
    ] {
        fx.advance(Duration::from_secs(60));
        let claim = node.take(id).await;
        fx.advance(Duration::from_secs(4));
        let mut outcome = outcome(&claim, end.clone());
        outcome.run = run;
        recorded(node.commit(outcome).await);
        let Some(result) = result else { continue };
        let mut row = Execution::new(id, claim.fence, node.owner.clone(), result, attempt, fx.now());
        if run.is_some() {
            row.started_at = Some(fx.now() - RUN.started_ago);
            row.duration = Some(RUN.ran_for);
        }
        if let End::Retry { error, .. } | End::DeadLetter { error, .. } = end {
            row.error_class = Some(error.class.into());
            row.error = Some(error.message.into());
        }
        expected.push(row);
    }
    assert_eq!(history(&a, id).await, expected);
}

pub async fn an_end_frees_the_business_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for (end, key) in every_end().into_iter().zip(["a", "b", "c", "d", "e"]) {
        let claim = node.running(keyed(key)).await;
        recorded(node.commit(ran(&claim, end.clone())).await);
        let live = matches!(end, End::Retry { .. } | End::HandBack { .. });
        let holder = other.store.find_active_by_business_key(&business_key(key)).await;
        assert_eq!(holder.expect("find answers"), live.then_some(claim.id), "{end:?}");
        let next = other.submit(Submission::single(keyed(key))).await;
        let expected = if live { Inserted::KeyTaken { holder: claim.id } } else { Inserted::New };
        assert_eq!(next, expected, "{end:?}");
        assert_eq!(other.job(claim.id).await.spec.business_key, Some(business_key(key)), "kept to be read");
    }
}

pub async fn leaving_running_frees_the_permit(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let resource = ResourceName::new("printer").expect("the name is valid");
    node.store.configure_resource(&ResourceLimit::new(resource.clone(), 1)).await.expect("it is configured");
    let ask = async |peer: &Peer, claim: &JobClaim| {
        let request = PermitRequest { id: claim.id, fence: claim.fence, resource: resource.clone() };
        peer.store.acquire(&peer.owner, &[request]).await.expect("acquire answers").remove(0)
    };
    for end in every_end() {
        let (holder, waiting) = (node.running(job()).await, other.running(job()).await);
        assert_eq!(ask(&node, &holder).await, Permit::Granted, "after the one before {end:?}");
        let mut stale = outcome(&holder, end.clone());
        stale.fence = Fence::FIRST;
        assert_eq!(node.commit(stale).await, Verdict::LeaseLost);
        assert!(matches!(ask(&other, &waiting).await, Permit::Full { .. }), "a lost outcome frees nothing");

        recorded(node.commit(ran(&holder, end.clone())).await);
        let used = other.store.resources().await.expect("resources answer").remove(0);
        assert_eq!(used.holders, [], "{end:?}");
        assert_eq!(ask(&other, &waiting).await, Permit::Granted, "{end:?}");
        other.end(&waiting, succeeded()).await;
    }
}

pub async fn start_and_end_are_counted_back_from_the_present(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let seconds = Duration::from_secs;
    let id = node.insert(job_with(|job| job.due = ratchet_api::Due::After(seconds(10)))).await;
    fx.advance(seconds(25));
    let claim = node.take(id).await;
    fx.advance(seconds(60));
    let mut outcome = outcome(&claim, succeeded());
    outcome.run = Some(Run { started_ago: seconds(50), ran_for: seconds(30) });
    recorded(node.commit(outcome).await);

    let ending = other.job(id).await.ending.expect("it has ended");
    assert_eq!(ending.terminated_at, fx.now());
    assert_eq!(ending.started_at, Some(fx.now() - seconds(50)));
    assert_eq!(ending.ended_at, Some(fx.now() - seconds(20)));
    assert_eq!(ending.queue_wait, Some(seconds(15)));
}

pub async fn an_end_is_never_before_its_start(fx: Fixture) {
    let node = fx.node("a").await;
    fx.advance(Duration::from_secs(1));
    let micros = Duration::from_micros;
    for (started_ago, ran_for) in [
        (micros(0), micros(0)),
        (micros(1), micros(2_500)),
        (micros(5_000), micros(9_000)),
        (micros(1_500), micros(1_400)),
    ] {
        let claim = node.running(job()).await;
        let mut outcome = outcome(&claim, dead("boom"));
        outcome.run = Some(Run { started_ago, ran_for });
        recorded(node.commit(outcome).await);
        let ending = node.job(claim.id).await.ending.expect("it has ended");
        let (started, ended) = (ending.started_at.expect("it ran"), ending.ended_at.expect("it ran"));
        assert!(started <= ended && ended <= fx.now(), "{started_ago:?} {ran_for:?}: {started} to {ended}");
    }
}

pub async fn the_queue_wait_of_a_retry_starts_anew(fx: Fixture) {
    let node = fx.node("a").await;
    let first = node.running(job()).await;
    fx.advance(Duration::from_secs(60));
    node.end(&first, retry(Duration::from_secs(10))).await;
    fx.advance(Duration::from_secs(13));
    let second = node.take(first.id).await;
    recorded(node.commit(ran(&second, succeeded())).await);
    let ending = node.job(first.id).await.ending.expect("it has ended");
    assert_eq!(ending.queue_wait, Some(Duration::from_secs(3)));
}

pub async fn what_an_outcome_submits_is_stored_with_it(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for end in every_end() {
        let claim = node.running(job()).await;
        let (callback, step, next) = (job(), job(), job());
        let mut steps = Submission::default();
        steps.edges = vec![Edge::new(step.spec.id, next.spec.id, Condition::Success)];
        steps.jobs = vec![step.clone(), next.clone()];
        let mut outcome = ran(&claim, end.clone());
        outcome.effects = vec![submit(callback.clone()), Effect::Submit(Box::new(steps))];
        let verdict = recorded(node.commit(outcome).await);

        assert_eq!(verdict.submitted, [Inserted::New, Inserted::New], "{end:?}");
        for (new, blocked_by) in [(callback, 0), (step, 0), (next, 1)] {
            let read = other.job(new.spec.id).await;
            assert_eq!((read.status, read.blocked_by), (JobStatus::Pending, blocked_by), "{end:?}");
            assert_eq!(read.spec, new.spec, "{end:?}");
        }
    }
}

pub async fn a_refused_submission_is_reported_and_undoes_nothing(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let holder = node.insert(keyed("taken")).await;
    let once = IdempotencyKey::new("once").expect("the key is valid");
    let used = || job_with(|job| job.spec.idempotency_key = Some(once.clone()));
    let first = node.insert(used()).await;
    let (stranger, orphan, good) = (JobId::generate(), job(), job());
    let mut orphaned = Submission::default();
    orphaned.edges = vec![Edge::new(stranger, orphan.spec.id, Condition::Success)];
    orphaned.jobs = vec![orphan.clone()];
    let lost_child = job_with(|job| job.spec.batch = Some(BatchId::of(stranger)));

    let claim = node.running(job()).await;
    let mut outcome = ran(&claim, succeeded());
    outcome.effects = vec![
        submit(keyed("taken")),
        submit(used()),
        Effect::Submit(Box::default()),
        submit(good.clone()),
        Effect::Submit(Box::new(orphaned)),
        submit(lost_child),
    ];
    let verdict = recorded(node.commit(outcome).await);

    assert_eq!(
        verdict.submitted,
        [
            Inserted::KeyTaken { holder },
            Inserted::Existing(first),
            Inserted::Refused(Refusal::Invalid(InvalidSubmission::Empty)),
            Inserted::New,
            Inserted::Refused(Refusal::UnknownParent(stranger)),
            Inserted::Refused(Refusal::UnknownBatch(BatchId::of(stranger))),
        ]
    );
    assert_eq!(other.status(claim.id).await, JobStatus::Succeeded);
    assert_eq!(other.status(good.spec.id).await, JobStatus::Pending);
    assert_eq!(other.find(orphan.spec.id).await, None);
}

pub async fn an_edge_added_during_the_run_is_decided_anew(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for end in [succeeded(), dead("boom")] {
        let claim = node.running(job()).await;
        let (child, callback) = (job(), job());
        let edge = Edge::new(claim.id, child.spec.id, Condition::Custom("later".into()));
        let mut late = Submission::single(child.clone());
        late.edges = vec![edge];
        assert_eq!(other.submit(late).await, Inserted::New);
        let (before, waiting) = (node.job(claim.id).await, node.job(child.spec.id).await);

        let mut outcome = ran(&claim, end.clone());
        outcome.effects = vec![submit(callback.clone())];
        let Verdict::EdgesChanged { edges, edge_count } = node.commit(outcome.clone()).await else {
            panic!("an edge that was not seen is answered, {end:?}");
        };
        assert_eq!(edges.iter().map(|edge| edge.child).collect::<Vec<_>>(), [child.spec.id]);
        assert_eq!(node.job(claim.id).await, before, "nothing is done");
        assert_eq!(node.job(child.spec.id).await, waiting, "nothing is done");
        assert_eq!(node.find(callback.spec.id).await, None);

        outcome.edges_seen = edge_count;
        outcome.effects.push(Effect::Satisfy(child.spec.id));
        let verdict = recorded(node.commit(outcome).await);
        assert_eq!(verdict.released, [child.spec.id], "{end:?}");
        assert_eq!(verdict.submitted, [Inserted::New], "{end:?}");
    }
}

pub async fn a_requested_cancel_wins_over_every_end(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for (end, key) in every_end().into_iter().zip(["a", "b", "c", "d", "e"]) {
        let claim = node.running(keyed(key)).await;
        other.store.cancel(&[claim.id.into()], &text("stop it")).await.expect("cancel answers");
        let callback = job();
        let mut outcome = ran(&claim, end.clone());
        outcome.effects = vec![submit(callback.clone())];
        assert_eq!(node.commit(outcome.clone()).await, Verdict::CanceledInstead, "{end:?}");

        let read = other.job(claim.id).await;
        assert_eq!((read.status, read.picked_by), (JobStatus::Canceled, None), "{end:?}");
        assert_eq!(read.cancel_reason.as_deref(), Some("stop it"), "{end:?}");
        assert_eq!(read.fence, claim.fence.next(), "{end:?}");
        assert_eq!(read.ending.expect("it has ended").result, None, "{end:?}");
        assert_eq!(other.find(callback.spec.id).await, None, "effects are dropped, {end:?}");
        let rows = history(&other, claim.id).await;
        assert_eq!(rows.iter().map(|row| row.result).collect::<Vec<_>>(), [ExecutionResult::Canceled]);
        assert_eq!(other.submit(Submission::single(keyed(key))).await, Inserted::New, "the key is free");
        let again = node.commit(outcome).await;
        assert!(matches!(again, Verdict::AlreadyRecorded | Verdict::CanceledInstead), "{again:?}");
    }
}

/// Returns every way in which an attempt can end.
pub(super) fn every_end() -> Vec<End> {
    let result = Some(JsonText::from_stored("[1]"));
    vec![
        End::Succeeded { result },
        retry(DELAY),
        dead("boom"),
        handed_back(HandBackReason::Snoozed),
        called_off(),
    ]
}

pub(super) fn succeeded() -> End {
    End::Succeeded { result: None }
}

pub(super) fn retry(delay: Duration) -> End {
    End::Retry { delay, error: error("try again") }
}

pub(super) fn dead(message: &str) -> End {
    End::DeadLetter { error: error(message), reason: DeadReason::Exhausted }
}

pub(super) fn handed_back(reason: HandBackReason) -> End {
    End::HandBack { delay: DELAY, reason }
}

pub(super) fn called_off() -> End {
    End::Canceled { reason: text("no longer needed") }
}

/// Makes the outcome that an engine commits for a claim whose body did not run.
pub(super) fn outcome(claim: &JobClaim, end: End) -> Outcome {
    let mut outcome = Outcome::new(claim.id, claim.fence, end);
    outcome.edges_seen = claim.edge_count;
    outcome
}

/// Makes the outcome that an engine commits for a claim whose body ran.
pub(super) fn ran(claim: &JobClaim, end: End) -> Outcome {
    let mut outcome = outcome(claim, end);
    outcome.run = Some(RUN);
    outcome
}

/// Returns the content of a verdict that must be `Recorded`.
pub(super) fn recorded(verdict: Verdict) -> Recorded {
    match verdict {
        Verdict::Recorded(recorded) => recorded,
        other => panic!("the outcome is recorded, not {other:?}"),
    }
}

pub(super) async fn commit_all(peer: &Peer, outcomes: &[Outcome]) -> Vec<Verdict> {
    let verdicts = peer.store.commit(&peer.owner, outcomes).await.expect("commit answers");
    assert_eq!(verdicts.len(), outcomes.len(), "one verdict for each outcome");
    verdicts
}

pub(super) async fn history(peer: &Peer, id: JobId) -> Vec<Execution> {
    peer.store.executions(id).await.expect("executions answer")
}

pub(super) fn submit(job: NewJob) -> Effect {
    Effect::Submit(Box::new(Submission::single(job)))
}

pub(super) fn business_key(key: &str) -> BusinessKey {
    BusinessKey::new(key).expect("the key is valid")
}

pub(super) fn keyed(key: &str) -> NewJob {
    job_with(|job| job.spec.business_key = Some(business_key(key)))
}
