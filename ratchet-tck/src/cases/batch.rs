//! Batches: children that are counted, and a parent that waits for the last of them.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{CancelVerdict, Closed, PageRequest, RetryVerdict};
use ratchet_api::{
    Batch, BatchId, BatchMetrics, BatchProgress, Condition, Edge, End, HandBackReason, Inserted, JobId,
    JobStatus, JobType, NewBatch, NewJob, Refusal, Run, Submission, Verdict,
};

use super::commit::{called_off, commit_all, dead, handed_back, outcome, ran, recorded, retry, succeeded};
use super::effects::{finish, set};
use crate::case::cases;
use crate::fixture::{Fixture, Peer, job, job_with, text};

cases! { "batch";
    a_parent_waits_for_its_children: ["insert.batch"] [192];
    the_last_child_completes_the_batch_and_releases_its_parent: ["commit.batch", "batch.counters"] [89 192];
    a_closed_batch_without_children_is_complete_at_once: ["insert.batch"] [];
    every_way_to_end_without_success_counts_as_failed: ["commit.batch", "cancel.batch", "batch.counters"] [103];
    a_child_that_goes_back_counts_nothing: ["commit.batch"] [];
    a_replayed_end_counts_once: ["commit.batch", "commit.once"] [];
    a_canceled_running_child_counts_with_its_outcome: ["cancel.batch"] [];
    a_child_that_a_refusal_cancels_is_counted: ["commit.batch", "batch.counters"] [103];
    a_child_that_is_stored_as_canceled_is_counted: ["insert.batch", "batch.counters"] [];
    many_children_in_one_call_are_all_counted: ["commit.batch"] [];
    concurrent_commits_are_all_counted_and_release_the_parent_once: ["commit.batch"] [192];
    an_open_batch_takes_more_children_until_it_is_closed: ["batch.close", "insert.batch_closed"] [];
    the_last_child_completes_a_batch_that_was_closed_before: ["batch.close"] [];
    closing_twice_and_closing_nothing_say_so: ["batch.close"] [];
    a_closed_batch_takes_no_more_children: ["insert.batch_closed"] [];
    a_replayed_child_is_counted_once: ["insert.batch_closed", "insert.replay"] [];
    closing_races_with_the_last_child: ["batch.close"] [];
    adding_a_child_races_with_closing: ["batch.close", "insert.batch_closed"] [];
    a_canceled_parent_is_not_released: ["commit.batch"] [];
    a_paused_parent_is_released_and_waits_for_its_resume: ["commit.batch"] [];
    a_retried_child_is_no_longer_counted_as_failed: ["retry.batch"] [];
    a_completed_batch_does_not_complete_again: ["retry.batch"] [];
    a_paused_dead_letter_stays_counted: ["batch.counters"] [];
    children_are_listed_page_by_page: ["batch.children"] [];
    metrics_sum_up_the_ended_children: ["batch_metrics.sums"] [192];
    the_total_duration_is_set_once: ["batch_metrics.sums"] [];
    unknown_batches_are_not_found: ["batch.counters", "batch_metrics.sums"] [];
}

pub async fn a_parent_waits_for_its_children(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (batch, children) = store(&node, 3, true).await;
    let read = find(&other, batch).await;
    assert_eq!(read, Batch::new(batch, BatchProgress::new(3, true), fx.now()));
    let parent = other.job(batch.parent()).await;
    assert_eq!((parent.status, parent.blocked_by > 0), (JobStatus::Pending, true));
    let claimed: Vec<_> = other.claim(10).await.iter().map(|claim| claim.id).collect();
    assert_eq!(set(&claimed), set(&children));
}

pub async fn the_last_child_completes_the_batch_and_releases_its_parent(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (batch, children) = store(&node, 3, true).await;
    let mut expected = BatchProgress::new(3, true);
    for (child, end) in children.iter().zip([succeeded(), dead("boom"), succeeded()]) {
        assert_eq!(find(&other, batch).await.completed_at, None);
        fx.advance(Duration::from_secs(1));
        match end {
            End::Succeeded { .. } => expected.completed += 1,
            _ => expected.failed += 1,
        }
        let led_to = finish(&node, &node.take(*child).await, end, vec![]).await;
        assert_eq!(led_to.batch, Some(expected));
        assert_eq!(led_to.released.contains(&batch.parent()), expected.is_complete());
        assert_eq!(find(&other, batch).await.progress, expected);
    }
    assert_eq!(find(&other, batch).await.completed_at, Some(fx.now()));
    assert_eq!(other.claim_one().await.id, batch.parent());
}

pub async fn a_closed_batch_without_children_is_complete_at_once(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (batch, _) = store(&node, 0, true).await;
    let read = find(&other, batch).await;
    assert_eq!((read.progress, read.completed_at), (BatchProgress::new(0, true), Some(fx.now())));
    assert_eq!(other.claim_one().await.id, batch.parent());

    let (open, _) = store(&node, 0, false).await;
    assert_eq!(find(&other, open).await.completed_at, None);
    assert_eq!(other.claim(1).await, [], "an open batch may still get children");
}

pub async fn every_way_to_end_without_success_counts_as_failed(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (batch, children) = store(&node, 6, true).await;
    let cancel = async |child: JobId| {
        let verdict = node.store.cancel(&[child.into()], &text("stop")).await.expect("cancel answers");
        assert!(matches!(verdict[..], [CancelVerdict::Canceled { .. }]), "{verdict:?}");
    };
    let failed = async |expected: u64| {
        let progress = find(&other, batch).await.progress;
        assert_eq!((progress.completed, progress.failed), (0, expected));
    };

    finish(&node, &node.take(children[0]).await, dead("boom"), vec![]).await;
    failed(1).await;
    finish(&node, &node.take(children[1]).await, called_off(), vec![]).await;
    failed(2).await;
    cancel(children[2]).await;
    failed(3).await;
    node.store.pause(&[children[3].into()]).await.expect("pause answers");
    cancel(children[3]).await;
    failed(4).await;
    let mut successor = Submission::single(job());
    successor.supersedes = Some(children[4]);
    assert_eq!(node.submit(successor).await, Inserted::New);
    failed(5).await;
    assert_eq!(find(&other, batch).await.completed_at, None);
    cancel(children[5]).await;
    failed(6).await;
    assert_eq!(find(&other, batch).await.completed_at, Some(fx.now()));
    node.take(batch.parent()).await;
}

pub async fn a_child_that_goes_back_counts_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 1, true).await;
    for end in [retry(Duration::ZERO), handed_back(HandBackReason::Snoozed)] {
        let led_to = finish(&node, &node.take(children[0]).await, end, vec![]).await;
        assert_eq!(led_to.released, []);
        assert_eq!(find(&node, batch).await.progress, BatchProgress::new(1, true));
        fx.advance(Duration::from_secs(10));
    }
    finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    assert_eq!(find(&node, batch).await.progress.completed, 1);
}

pub async fn a_replayed_end_counts_once(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 4, true).await;
    for (child, end) in children.iter().zip([succeeded(), dead("boom"), called_off()]) {
        let outcome = ran(&node.take(*child).await, end);
        recorded(node.commit(outcome.clone()).await);
        let before = find(&node, batch).await;
        assert_eq!(node.commit(outcome).await, Verdict::AlreadyRecorded);
        assert_eq!(find(&node, batch).await, before);
    }
    let progress = find(&node, batch).await.progress;
    assert_eq!((progress.completed, progress.failed), (1, 2));
}

pub async fn a_canceled_running_child_counts_with_its_outcome(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (batch, children) = store(&node, 1, true).await;
    let claim = node.take(children[0]).await;
    other.store.cancel(&[claim.id.into()], &text("stop")).await.expect("cancel answers");
    assert_eq!(find(&other, batch).await.progress, BatchProgress::new(1, true), "its body still runs");
    assert_eq!(node.commit(ran(&claim, succeeded())).await, Verdict::CanceledInstead);
    let read = find(&other, batch).await;
    assert_eq!((read.progress.completed, read.progress.failed), (0, 1));
    assert_eq!(read.completed_at, Some(fx.now()));
    assert_eq!(other.claim_one().await.id, batch.parent());
}

pub async fn a_child_that_a_refusal_cancels_is_counted(fx: Fixture) {
    let node = fx.node("a").await;
    let (mut submission, children) = batch_of(2, true);
    submission.edges = vec![Edge::new(children[0], children[1], Condition::Success)];
    let batch = BatchId::of(submission.id().expect("it has a head"));
    assert_eq!(node.submit(submission).await, Inserted::New);
    let led_to = finish(&node, &node.take(children[0]).await, dead("boom"), vec![]).await;
    assert_eq!(led_to.canceled, [children[1]]);
    assert_eq!(led_to.released, [batch.parent()]);
    let progress = find(&node, batch).await.progress;
    assert_eq!((progress.completed, progress.failed), (0, 2));
}

pub async fn a_child_that_is_stored_as_canceled_is_counted(fx: Fixture) {
    let node = fx.node("a").await;
    let gone = node.running(job()).await;
    node.end(&gone, called_off()).await;
    let (mut submission, children) = batch_of(2, true);
    submission.edges = vec![Edge::new(gone.id, children[0], Condition::Success)];
    let batch = BatchId::of(submission.id().expect("it has a head"));
    assert_eq!(node.submit(submission).await, Inserted::New);
    assert_eq!(node.status(children[0]).await, JobStatus::Canceled);
    let progress = find(&node, batch).await.progress;
    assert_eq!((progress.total, progress.completed, progress.failed), (2, 0, 1));
    let led_to = finish(&node, &node.take(children[1]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [batch.parent()]);
}

pub async fn many_children_in_one_call_are_all_counted(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 60, true).await;
    let claims = node.claim(100).await;
    assert_eq!(claims.len(), children.len());
    let end = |at: usize| if at.is_multiple_of(3) { dead("boom") } else { succeeded() };
    let outcomes: Vec<_> = claims.iter().enumerate().map(|(at, claim)| ran(claim, end(at))).collect();
    let verdicts = commit_all(&node, &outcomes).await;
    let released: Vec<_> = verdicts.into_iter().flat_map(|verdict| recorded(verdict).released).collect();
    assert_eq!(released, [batch.parent()]);
    let progress = find(&node, batch).await.progress;
    assert_eq!((progress.total, progress.completed, progress.failed), (60, 40, 20));
}

pub async fn concurrent_commits_are_all_counted_and_release_the_parent_once(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, _) = store(&node, 40, true).await;
    let mut workers = Vec::new();
    for label in ["b", "c", "d", "e"] {
        let worker = fx.node(label).await;
        let claims = worker.claim(10).await;
        workers.push((worker, claims));
    }
    let released = fx
        .race(4, |i| {
            let (worker, claims) = workers[i].clone();
            async move {
                let mut released = Vec::new();
                for (at, claim) in claims.iter().enumerate() {
                    let end = if at == 0 { dead("boom") } else { succeeded() };
                    released.extend(recorded(worker.commit(ran(claim, end)).await).released);
                }
                released
            }
        })
        .await;
    assert_eq!(released.concat(), [batch.parent()]);
    let read = find(&node, batch).await;
    assert_eq!((read.progress.completed, read.progress.failed), (36, 4));
    assert_eq!(read.completed_at, Some(fx.now()));
    assert_eq!(node.claim_one().await.id, batch.parent());
    assert_eq!(node.claim(1).await, []);
}

pub async fn an_open_batch_takes_more_children_until_it_is_closed(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (batch, children) = store(&node, 1, false).await;
    let led_to = finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [], "more may come");
    let second = other.insert(child_of(batch)).await;
    assert_eq!(find(&node, batch).await.progress.total, 2);
    finish(&node, &node.take(second).await, dead("boom"), vec![]).await;
    assert_eq!(find(&node, batch).await.completed_at, None);

    fx.advance(Duration::from_secs(1));
    let Closed::Closed(progress) = other.store.close_batch(batch).await.expect("close answers") else {
        panic!("an open batch is closed");
    };
    assert_eq!((progress.total, progress.completed, progress.failed, progress.closed), (2, 1, 1, true));
    let read = find(&node, batch).await;
    assert_eq!((read.progress, read.completed_at), (progress, Some(fx.now())));
    assert_eq!(node.claim_one().await.id, batch.parent());
}

pub async fn the_last_child_completes_a_batch_that_was_closed_before(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 2, false).await;
    finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    let closed = node.store.close_batch(batch).await.expect("close answers");
    assert!(matches!(closed, Closed::Closed(progress) if !progress.is_complete()), "{closed:?}");
    assert_eq!(find(&node, batch).await.completed_at, None);
    let led_to = finish(&node, &node.take(children[1]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [batch.parent()]);
}

pub async fn closing_twice_and_closing_nothing_say_so(fx: Fixture) {
    let node = fx.node("a").await;
    let (open, _) = store(&node, 0, false).await;
    let (closed, _) = store(&node, 1, true).await;
    let plain = node.insert(job()).await;
    let close = async |batch| node.store.close_batch(batch).await.expect("close answers");
    assert!(matches!(close(open).await, Closed::Closed(_)));
    let before = find(&node, open).await;
    fx.advance(Duration::from_secs(1));
    assert_eq!(close(open).await, Closed::AlreadyClosed);
    assert_eq!(find(&node, open).await, before);
    assert_eq!(close(closed).await, Closed::AlreadyClosed);
    assert_eq!(close(BatchId::of(plain)).await, Closed::Unknown);
    assert_eq!(close(BatchId::of(JobId::generate())).await, Closed::Unknown);
}

pub async fn a_closed_batch_takes_no_more_children(fx: Fixture) {
    let node = fx.node("a").await;
    let (closed, _) = store(&node, 1, true).await;
    let (late, _) = store(&node, 0, false).await;
    node.store.close_batch(late).await.expect("close answers");
    let unknown = BatchId::of(JobId::generate());
    for (batch, refusal) in [
        (closed, Refusal::BatchClosed(closed)),
        (late, Refusal::BatchClosed(late)),
        (unknown, Refusal::UnknownBatch(unknown)),
    ] {
        let child = child_of(batch);
        let id = child.spec.id;
        assert_eq!(node.submit(Submission::single(child)).await, Inserted::Refused(refusal));
        assert_eq!(node.find(id).await, None);
    }
    assert_eq!(find(&node, closed).await.progress.total, 1);
    assert_eq!(find(&node, late).await.progress.total, 0);
}

pub async fn a_replayed_child_is_counted_once(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (batch, _) = store(&node, 0, false).await;
    let child = child_of(batch);
    let id = node.insert(child.clone()).await;
    assert_eq!(other.submit(Submission::single(child.clone())).await, Inserted::Existing(id));
    assert_eq!(find(&other, batch).await.progress.total, 1);
    node.store.close_batch(batch).await.expect("close answers");
    let late = other.submit(Submission::single(child)).await;
    assert_eq!(late, Inserted::Existing(id), "it went in before the batch was closed");
    assert_eq!(find(&other, batch).await.progress.total, 1);
}

pub async fn closing_races_with_the_last_child(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..10 {
        let (batch, children) = store(&node, 1, false).await;
        let claim = node.take(children[0]).await;
        let settled = fx
            .race(2, |i| {
                let (node, other, claim) = (node.clone(), other.clone(), claim.clone());
                async move {
                    match i {
                        0 => recorded(node.commit(ran(&claim, succeeded())).await).batch.is_some(),
                        _ => {
                            let closed = other.store.close_batch(batch).await.expect("close answers");
                            matches!(closed, Closed::Closed(_))
                        }
                    }
                }
            })
            .await;
        assert_eq!(settled, [true, true], "round {round}");
        let read = find(&node, batch).await;
        assert!(read.progress.is_complete() && read.completed_at.is_some(), "round {round}: {read:?}");
        let claims = [node.claim(1).await, other.claim(1).await].concat();
        assert_eq!(claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), [batch.parent()]);
    }
}

pub async fn adding_a_child_races_with_closing(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..10 {
        let (batch, _) = store(&node, 0, false).await;
        let child = child_of(batch);
        let inserted = fx
            .race(2, |i| {
                let (node, other, child) = (node.clone(), other.clone(), child.clone());
                async move {
                    match i {
                        0 => Some(node.submit(Submission::single(child)).await),
                        _ => {
                            other.store.close_batch(batch).await.expect("close answers");
                            None
                        }
                    }
                }
            })
            .await;
        let read = find(&node, batch).await;
        match inserted[0].as_ref().expect("the child was submitted") {
            Inserted::New => {
                assert_eq!((read.progress.total, read.completed_at), (1, None), "round {round}");
                finish(&node, &node.take(child.spec.id).await, succeeded(), vec![]).await;
            }
            refused => {
                assert_eq!(*refused, Inserted::Refused(Refusal::BatchClosed(batch)), "round {round}");
                assert_eq!(read.progress.total, 0, "round {round}");
            }
        }
        assert!(find(&node, batch).await.completed_at.is_some(), "round {round}");
        assert_eq!(other.claim_one().await.id, batch.parent(), "round {round}");
    }
}

pub async fn a_canceled_parent_is_not_released(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 1, true).await;
    node.store.cancel(&[batch.parent().into()], &text("stop")).await.expect("cancel answers");
    let parent = node.job(batch.parent()).await;
    let led_to = finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, []);
    let after = node.job(batch.parent()).await;
    assert_eq!((after.status, after.fence), (JobStatus::Canceled, parent.fence));
    assert_eq!(find(&node, batch).await.progress.completed, 1, "children are counted all the same");
}

pub async fn a_paused_parent_is_released_and_waits_for_its_resume(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 1, true).await;
    node.store.pause(&[batch.parent().into()]).await.expect("pause answers");
    finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    let parent = node.job(batch.parent()).await;
    assert_eq!((parent.status, parent.blocked_by), (JobStatus::Paused, 0));
    assert_eq!(node.claim(1).await, []);
    node.store.resume(&[batch.parent().into()]).await.expect("resume answers");
    assert_eq!(node.claim_one().await.id, batch.parent());
}

pub async fn a_retried_child_is_no_longer_counted_as_failed(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 2, true).await;
    finish(&node, &node.take(children[0]).await, dead("boom"), vec![]).await;
    revive(&node, children[0]).await;
    assert_eq!(find(&node, batch).await.progress, BatchProgress::new(2, true));
    let led_to = finish(&node, &node.take(children[1]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [], "the revived child has not ended");
    let led_to = finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [batch.parent()]);
    let progress = find(&node, batch).await.progress;
    assert_eq!((progress.completed, progress.failed), (2, 0));
}

pub async fn a_completed_batch_does_not_complete_again(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 1, true).await;
    finish(&node, &node.take(children[0]).await, dead("boom"), vec![]).await;
    let completed = find(&node, batch).await.completed_at;
    finish(&node, &node.take(batch.parent()).await, succeeded(), vec![]).await;
    let parent = node.job(batch.parent()).await;

    fx.advance(Duration::from_secs(60));
    revive(&node, children[0]).await;
    assert_eq!(find(&node, batch).await.progress.failed, 0);
    let led_to = finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, []);
    let read = find(&node, batch).await;
    assert_eq!((read.progress.completed, read.progress.failed), (1, 0));
    assert_eq!(read.completed_at, completed, "set once, for ever");
    assert_eq!(node.job(batch.parent()).await, parent);
}

pub async fn a_paused_dead_letter_stays_counted(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 3, true).await;
    let counted = async || find(&node, batch).await.progress.failed;
    for child in &children[..2] {
        finish(&node, &node.take(*child).await, dead("boom"), vec![]).await;
    }
    node.store.pause(&[children[0].into(), children[1].into()]).await.expect("pause answers");
    assert_eq!(counted().await, 2);
    node.store.resume(&[children[0].into()]).await.expect("resume answers");
    assert_eq!(counted().await, 2);
    node.store.cancel(&[children[1].into()], &text("stop")).await.expect("cancel answers");
    assert_eq!(counted().await, 2, "it was counted when it failed");
    let led_to = finish(&node, &node.take(children[2]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [batch.parent()]);
}

pub async fn children_are_listed_page_by_page(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, mut children) = store(&node, 5, false).await;
    store(&node, 2, true).await;
    children.push(node.insert(child_of(batch)).await);
    children.push(node.insert(child_of(batch)).await);
    finish(&node, &node.take(children[1]).await, succeeded(), vec![]).await;
    finish(&node, &node.take(children[4]).await, succeeded(), vec![]).await;
    let list = async |status| {
        let (mut listed, mut page) = (Vec::new(), PageRequest::first(3));
        loop {
            let part = node.store.batch_children(batch, status, &page).await.expect("children answer");
            assert!(part.jobs.len() <= page.limit && part.unreadable.is_empty());
            listed.extend(part.jobs.iter().map(|job| job.spec.id));
            page.after = part.next;
            if part.next.is_none() {
                return listed;
            }
        }
    };
    assert_eq!(list(None).await, children);
    assert_eq!(list(Some(JobStatus::Succeeded)).await, [children[1], children[4]]);
    assert_eq!(list(Some(JobStatus::Failed)).await, []);
}

pub async fn metrics_sum_up_the_ended_children(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 3, true).await;
    let run = async |child: JobId, end: End, seconds: u64| {
        let mut outcome = outcome(&node.take(child).await, end);
        let ran_for = Duration::from_secs(seconds);
        outcome.run = Some(Run { started_ago: ran_for, ran_for });
        recorded(node.commit(outcome).await);
    };
    let check = async |success, failure, seconds| {
        let read = metrics(&node, batch).await;
        assert_eq!((read.child_count, read.success_count, read.failure_count), (3, success, failure));
        assert_eq!(read.child_execution, Duration::from_secs(seconds));
        let progress = find(&node, batch).await.progress;
        assert_eq!((progress.completed, progress.failed), (success, failure));
    };
    fx.advance(Duration::from_secs(60));
    check(0, 0, 0).await;
    run(children[0], retry(Duration::ZERO), 7).await;
    check(0, 0, 0).await;
    run(children[0], succeeded(), 2).await;
    check(1, 0, 2).await;
    run(children[1], dead("boom"), 5).await;
    check(1, 1, 7).await;
    node.store.cancel(&[children[2].into()], &text("stop")).await.expect("cancel answers");
    check(1, 2, 7).await;
    revive(&node, children[1]).await;
    check(1, 1, 2).await;
    run(children[1], succeeded(), 1).await;
    check(2, 1, 3).await;
}

pub async fn the_total_duration_is_set_once(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = store(&node, 1, true).await;
    fx.advance(Duration::from_millis(90_001));
    assert_eq!(metrics(&node, batch).await.total_duration, None);
    finish(&node, &node.take(children[0]).await, dead("boom"), vec![]).await;
    let total = Some(Duration::from_millis(90_001));
    assert_eq!(metrics(&node, batch).await.total_duration, total);
    fx.advance(Duration::from_secs(60));
    revive(&node, children[0]).await;
    finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    assert_eq!(metrics(&node, batch).await.total_duration, total);
}

pub async fn unknown_batches_are_not_found(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, _) = store(&node, 1, true).await;
    let (plain, unknown) = (BatchId::of(node.insert(job()).await), BatchId::of(JobId::generate()));
    let found = node.store.find_batches(&[plain, batch, unknown, batch]).await.expect("find answers");
    let ids: Vec<_> = found.iter().map(|batch| batch.as_ref().map(|batch| batch.id)).collect();
    assert_eq!(ids, [None, Some(batch), None, Some(batch)]);
    for batch in [plain, unknown] {
        assert_eq!(node.store.batch_metrics(batch).await.expect("metrics answer"), None);
    }
}

/// Makes a submission of a batch with its children; returns it with the children's ids.
pub(super) fn batch_of(children: usize, closed: bool) -> (Submission, Vec<JobId>) {
    let parent = job_with(|job| job.spec.job_type = JobType::BatchParent);
    let batch = BatchId::of(parent.spec.id);
    let children: Vec<_> = (0..children).map(|_| child_of(batch)).collect();
    let ids = children.iter().map(|child| child.spec.id).collect();
    let mut submission = Submission::default();
    submission.jobs = [vec![parent], children].concat();
    submission.batch = Some(NewBatch { closed });
    (submission, ids)
}

pub(super) fn child_of(batch: BatchId) -> NewJob {
    job_with(|job| {
        job.spec.job_type = JobType::BatchChild;
        job.spec.batch = Some(batch);
    })
}

/// Stores a batch with its children.
pub(super) async fn store(peer: &Peer, children: usize, closed: bool) -> (BatchId, Vec<JobId>) {
    let (submission, ids) = batch_of(children, closed);
    let batch = BatchId::of(submission.id().expect("it has a head"));
    assert_eq!(peer.submit(submission).await, Inserted::New);
    (batch, ids)
}

async fn find(peer: &Peer, batch: BatchId) -> Batch {
    let found = peer.store.find_batches(&[batch]).await.expect("find answers");
    found.into_iter().next().flatten().expect("the batch exists")
}

async fn metrics(peer: &Peer, batch: BatchId) -> BatchMetrics {
    peer.store.batch_metrics(batch).await.expect("metrics answer").expect("the batch exists")
}

async fn revive(peer: &Peer, child: JobId) {
    let verdicts = peer.store.retry(&[child.into()]).await.expect("retry answers");
    assert_eq!(verdicts, [RetryVerdict::Retried { revived: vec![] }]);
}
