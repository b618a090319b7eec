//! Manual retries of dead letters, with the dependents that their failure had canceled.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{RetryVerdict, Target};
use ratchet_api::{
    BatchId, Condition, Edge, HandBackReason, Inserted, Job, JobId, JobStatus, Needs, Submission,
};

use super::batch::batch_of;
use super::commit::{business_key, dead, handed_back, history, keyed, retry, succeeded};
use super::effects::{chain, find_all, finish, join, on_success, set, store, submit, waits};
use crate::case::cases;
use crate::fixture::{Fixture, Peer, job, job_with, text};

cases! { "retry";
    a_dead_letter_starts_anew: ["retry.revived"] [30 37];
    nothing_but_a_dead_letter_is_retried: ["retry.revived"] [37];
    every_target_gets_its_own_answer: ["retry.revived"] [];
    many_are_retried_as_they_would_be_one_by_one: ["retry.many", "retry.key", "retry.batch"] [38];
    history_and_fence_go_on_after_a_retry: ["retry.revived"] [172 191];
    a_retried_job_reserves_its_key_again: ["retry.key"] [184];
    a_dead_letter_whose_key_is_taken_stays_dead: ["retry.key"] [184];
    a_retry_races_with_an_insert_for_the_key: ["retry.key"] [184];
    a_chain_that_a_failure_canceled_waits_again: ["retry.dependents"] [];
    a_branch_that_ran_because_of_the_failure_stays_as_it_is: ["retry.dependents"] [];
    what_was_canceled_by_hand_stays_canceled: ["retry.dependents"] [];
    a_dependent_that_another_parent_refused_stays_canceled: ["retry.dependents"] [];
    a_parent_that_succeeded_meanwhile_still_counts: ["retry.dependents"] [];
    a_batch_that_completed_meanwhile_still_counts: ["retry.dependents", "commit.batch"] [];
    a_join_that_still_waits_counts_on_the_revived_parent_again: ["retry.dependents"] [];
    a_join_waits_again_once_enough_of_its_parents_do: ["retry.dependents"] [];
    a_dependent_whose_key_is_taken_keeps_its_parent_dead: ["retry.key", "retry.dependents"] [];
    jobs_with_one_key_are_not_revived_together: ["retry.key", "retry.dependents"] [184];
    a_stale_retry_does_nothing: ["retry.stale"] [38];
    of_two_retries_at_once_one_counts: ["retry.revived"] [38];
}

pub async fn a_dead_letter_starts_anew(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let id = node.insert(job()).await;
    for end in [retry(Duration::ZERO), handed_back(HandBackReason::Crashed), dead("boom")] {
        node.end(&node.take(id).await, end).await;
        fx.advance(Duration::from_secs(10));
    }
    let before = node.job(id).await;
    assert_eq!((before.attempts, before.crash_count), (2, 1));

    fx.advance(Duration::from_secs(60));
    assert_eq!(revive(&node, id).await, RetryVerdict::Retried { revived: vec![] });
    let read = other.job(id).await;
    assert_eq!((read.status, read.scheduled_time), (JobStatus::Pending, fx.now()));
    assert_eq!((read.attempts, read.crash_count, read.last_error), (0, 0, None));
    assert_eq!((read.fence, read.ending, read.picked_by), (before.fence.next(), None, None));
    let claim = other.claim_one().await;
    assert_eq!((claim.id, claim.attempts, claim.crash_count), (id, 0, 0));
}

pub async fn nothing_but_a_dead_letter_is_retried(fx: Fixture) {
    let node = fx.node("a").await;
    let pending = node.insert(job()).await;
    let blocked = chain(&node, 2).await[1];
    let running = node.running(job()).await.id;
    let stopping = node.running(job()).await.id;
    let done = node.running(job()).await;
    node.end(&done, succeeded()).await;
    let (canceled, paused) = (node.insert(job()).await, node.insert(job()).await);
    let paused_dead = dead_letter(&node).await;
    let called_off = [canceled, stopping].map(Target::from);
    node.store.cancel(&called_off, &text("stop")).await.expect("cancel answers");
    node.store.pause(&[paused.into(), paused_dead.into()]).await.expect("pause answers");
    for (id, status) in [
        (pending, JobStatus::Pending),
        (blocked, JobStatus::Pending),
        (running, JobStatus::Running),
        (stopping, JobStatus::Canceled),
        (done.id, JobStatus::Succeeded),
        (canceled, JobStatus::Canceled),
        (paused, JobStatus::Paused),
        (paused_dead, JobStatus::Paused),
    ] {
        let before = node.job(id).await;
        assert_eq!(revive(&node, id).await, RetryVerdict::NotFailed(status));
        assert_eq!(node.job(id).await, before);
    }
}

pub async fn every_target_gets_its_own_answer(fx: Fixture) {
    let node = fx.node("a").await;
    let (first, second, pending) =
        (dead_letter(&node).await, dead_letter(&node).await, node.insert(job()).await);
    let targets = [JobId::generate(), first, pending, second, first].map(Target::from);
    let verdicts = node.store.retry(&targets).await.expect("retry answers");
    let retried = RetryVerdict::Retried { revived: vec![] };
    let not_failed = RetryVerdict::NotFailed(JobStatus::Pending);
    assert_eq!(verdicts, [RetryVerdict::Unknown, retried.clone(), not_failed.clone(), retried, not_failed]);
    assert_eq!(node.store.retry(&[]).await.expect("retry answers"), []);
}

/// Stores jobs that are related in every way that matters when they are retried.
async fn relatives(peer: &Peer, name: &str) -> Vec<JobId> {
    let fail = async |id| {
        finish(peer, &peer.take(id).await, dead("boom"), vec![]).await;
    };
    let mut ids = Vec::new();
    for key in ["twins", "single", "twins", "shared"] {
        let id = peer.insert(keyed(&format!("{name} {key}"))).await;
        fail(id).await;
        ids.push(id);
    }
    ids.extend([dead_letter(peer).await, peer.insert(job()).await, dead_letter(peer).await]);
    let steps = [job(), keyed(&format!("{name} shared")), job()];
    let edges = steps.windows(2).map(|pair| on_success(&pair[0], &pair[1])).collect();
    let steps = store(peer, steps, edges).await;
    fail(steps[0]).await;
    ids.extend(steps);
    let (parents, child) = join(peer, 2, Needs::All).await;
    for parent in &parents {
        fail(*parent).await;
    }
    ids.extend(parents);
    ids.push(child);
    let (batch, children) = super::batch::store(peer, 3, true).await;
    for child in &children {
        fail(*child).await;
    }
    ids.extend(children);
    ids.push(batch.parent());
    ids
}

pub async fn many_are_retried_as_they_would_be_one_by_one(fx: Fixture) {
    let node = fx.node("a").await;
    let orders = [
        vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        vec![16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
        vec![4, 4, 2, 0, 9, 7, 9, 7, 3, 11, 10, 12, 13, 13, 6],
    ];
    for (round, order) in orders.into_iter().enumerate() {
        let (together, alone) =
            (relatives(&node, &format!("{round}a")).await, relatives(&node, &format!("{round}b")).await);
        let targets: Vec<Target> = order.iter().map(|&place| together[place].into()).collect();
        let at_once = node.store.retry(&targets).await.expect("retry answers");
        let mut one_by_one = Vec::new();
        for place in order {
            one_by_one.push(revive(&node, alone[place]).await);
        }
        let told = |family: &[JobId], verdicts: &[RetryVerdict]| places(family, &format!("{verdicts:?}"));
        assert_eq!(told(&together, &at_once), told(&alone, &one_by_one), "round {round}");
        assert_alike(&node, &together, &alone).await;
    }
}

/// Replaces the ids of a family in a text by their indexes.
pub(super) fn places(family: &[JobId], text: &str) -> String {
    let named =
        |text: String, (place, id): (usize, &JobId)| text.replace(&id.to_string(), &format!("#{place}"));
    family.iter().enumerate().fold(text.to_owned(), named)
}

/// Checks that the jobs of two families, and the batches whose parents they are, are in the same states.
pub(super) async fn assert_alike(peer: &Peer, some: &[JobId], others: &[JobId]) {
    let batches = |family: &[JobId]| family.iter().map(|id| BatchId::of(*id)).collect::<Vec<_>>();
    let found =
        peer.store.find_batches(&[batches(some), batches(others)].concat()).await.expect("find answers");
    let counted: Vec<_> =
        found.iter().map(|batch| batch.as_ref().map(|it| (it.progress, it.completed_at))).collect();
    assert_eq!(counted[..some.len()], counted[some.len()..]);
    let jobs = find_all(peer, some).await.into_iter().zip(find_all(peer, others).await);
    for (place, (one, other)) in jobs.enumerate() {
        let seen = |job: &Job| {
            let ended = job.ending.as_ref().map(|ending| ending.terminated_at);
            let causes = (job.last_error.clone(), job.cancel_reason.clone(), ended);
            (waits(job), job.fence, job.attempts, job.crash_count, job.scheduled_time, causes)
        };
        assert_eq!(seen(&one), seen(&other), "job {place}");
    }
}

pub async fn history_and_fence_go_on_after_a_retry(fx: Fixture) {
    let node = fx.node("a").await;
    let id = dead_letter(&node).await;
    revive(&node, id).await;
    node.end(&node.take(id).await, dead("again")).await;
    revive(&node, id).await;
    node.end(&node.take(id).await, succeeded()).await;
    let rows = history(&node, id).await;
    assert_eq!(rows.len(), 3);
    assert!(rows.is_sorted_by(|a, b| a.fence < b.fence), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.attempt).collect::<Vec<_>>(), [1, 1, 0]);
}

pub async fn a_retried_job_reserves_its_key_again(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(keyed("k")).await;
    node.end(&claim, dead("boom")).await;
    revive(&node, claim.id).await;
    let holder = other.store.find_active_by_business_key(&business_key("k")).await;
    assert_eq!(holder.expect("find answers"), Some(claim.id));
    let taken = other.submit(Submission::single(keyed("k"))).await;
    assert_eq!(taken, Inserted::KeyTaken { holder: claim.id });
}

pub async fn a_dead_letter_whose_key_is_taken_stays_dead(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(keyed("k")).await;
    node.end(&claim, dead("boom")).await;
    let holder = other.insert(keyed("k")).await;
    let before = node.job(claim.id).await;
    assert_eq!(revive(&node, claim.id).await, RetryVerdict::KeyTaken { holder });
    assert_eq!(node.job(claim.id).await, before);
    other.end(&other.take(holder).await, succeeded()).await;
    assert_eq!(revive(&node, claim.id).await, RetryVerdict::Retried { revived: vec![] });
}

pub async fn a_retry_races_with_an_insert_for_the_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..10 {
        let key = format!("k{round}");
        let claim = node.running(keyed(&key)).await;
        node.end(&claim, dead("boom")).await;
        let rival = keyed(&key);
        let answers = fx
            .race(2, |i| {
                let (node, other, rival) = (node.clone(), other.clone(), rival.clone());
                async move {
                    match i {
                        0 => (Some(revive(&node, claim.id).await), None),
                        _ => (None, Some(other.submit(Submission::single(rival)).await)),
                    }
                }
            })
            .await;
        let retried = answers[0].0.as_ref().expect("the retry was answered");
        let inserted = answers[1].1.as_ref().expect("the insert was answered");
        let (winner, loser) = match retried {
            RetryVerdict::Retried { .. } => {
                assert_eq!(*inserted, Inserted::KeyTaken { holder: claim.id }, "round {round}");
                (claim.id, None)
            }
            verdict => {
                assert_eq!(*verdict, RetryVerdict::KeyTaken { holder: rival.spec.id }, "round {round}");
                assert_eq!(*inserted, Inserted::New, "round {round}");
                (rival.spec.id, Some(JobStatus::Failed))
            }
        };
        let holder = node.store.find_active_by_business_key(&business_key(&key)).await;
        assert_eq!(holder.expect("find answers"), Some(winner), "round {round}");
        if let Some(status) = loser {
            assert_eq!(node.status(claim.id).await, status, "round {round}");
        }
    }
}

pub async fn a_chain_that_a_failure_canceled_waits_again(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let steps = chain(&node, 20).await;
    finish(&node, &node.take(steps[0]).await, dead("boom"), vec![]).await;
    let canceled = find_all(&node, &steps[1..]).await;
    assert_eq!(revive(&node, steps[0]).await, RetryVerdict::Retried { revived: steps[1..].to_vec() });
    for (before, read) in canceled.iter().zip(find_all(&other, &steps[1..]).await) {
        assert_eq!(waits(&read), (JobStatus::Pending, 1, 1));
        assert_eq!((read.ending, read.cancel_reason), (None, None));
        assert_eq!(read.fence, before.fence.next());
    }
    for step in steps {
        let claim = other.claim_one().await;
        assert_eq!(claim.id, step, "they run one after the other again");
        finish(&other, &claim, succeeded(), vec![]).await;
    }
}

pub async fn a_branch_that_ran_because_of_the_failure_stays_as_it_is(fx: Fixture) {
    let node = fx.node("a").await;
    for started in [false, true] {
        let (step, rescue, next) = (job(), job(), job());
        let edges =
            vec![Edge::new(step.spec.id, rescue.spec.id, Condition::Failure), on_success(&step, &next)];
        let [step, rescue, next] = store(&node, [step, rescue, next], edges).await;
        finish(&node, &node.take(step).await, dead("boom"), vec![]).await;
        if started {
            node.end(&node.take(rescue).await, succeeded()).await;
        }
        let before = node.job(rescue).await;
        assert_eq!(revive(&node, step).await, RetryVerdict::Retried { revived: vec![next] });
        assert_eq!(node.job(rescue).await, before, "started: {started}");
    }
}

pub async fn what_was_canceled_by_hand_stays_canceled(fx: Fixture) {
    let node = fx.node("a").await;
    let steps = chain(&node, 4).await;
    node.store.cancel(&[steps[2].into()], &text("stop")).await.expect("cancel answers");
    finish(&node, &node.take(steps[0]).await, dead("boom"), vec![]).await;
    let by_hand = find_all(&node, &steps[2..]).await;
    let end = |job: &Job| (job.status, job.fence, job.cancel_reason.clone(), job.ending.clone());
    assert_eq!(revive(&node, steps[0]).await, RetryVerdict::Retried { revived: vec![steps[1]] });
    assert_eq!(waits(&node.job(steps[1]).await), (JobStatus::Pending, 1, 1));
    for (before, read) in by_hand.iter().zip(find_all(&node, &steps[2..]).await) {
        assert_eq!(end(&read), end(before));
    }
}

pub async fn a_dependent_that_another_parent_refused_stays_canceled(fx: Fixture) {
    let node = fx.node("a").await;
    let (parents, join) = join(&node, 2, Needs::All).await;
    for parent in &parents {
        finish(&node, &node.take(*parent).await, dead("boom"), vec![]).await;
    }
    assert_eq!(revive(&node, parents[0]).await, RetryVerdict::Retried { revived: vec![] });
    assert_eq!(node.status(join).await, JobStatus::Canceled, "the other parent is still dead");
    assert_eq!(revive(&node, parents[1]).await, RetryVerdict::Retried { revived: vec![join] });
    assert_eq!(waits(&node.job(join).await), (JobStatus::Pending, 2, 2));
    for parent in parents {
        finish(&node, &node.take(parent).await, succeeded(), vec![]).await;
    }
    node.take(join).await;
}

pub async fn a_parent_that_succeeded_meanwhile_still_counts(fx: Fixture) {
    let node = fx.node("a").await;
    for failing_first in [true, false] {
        let (parents, join) = join(&node, 2, Needs::All).await;
        let (dying, other) = (node.take(parents[0]).await, node.take(parents[1]).await);
        if failing_first {
            finish(&node, &dying, dead("boom"), vec![]).await;
            finish(&node, &other, succeeded(), vec![]).await;
        } else {
            finish(&node, &other, succeeded(), vec![]).await;
            finish(&node, &dying, dead("boom"), vec![]).await;
        }
        assert_eq!(node.status(join).await, JobStatus::Canceled);
        let verdict = revive(&node, parents[0]).await;
        assert_eq!(verdict, RetryVerdict::Retried { revived: vec![join] }, "first: {failing_first}");
        assert_eq!(waits(&node.job(join).await), (JobStatus::Pending, 1, 1), "first: {failing_first}");
        let led_to = finish(&node, &node.take(parents[0]).await, succeeded(), vec![]).await;
        assert_eq!(led_to.released, [join]);
    }
}

pub async fn a_batch_that_completed_meanwhile_still_counts(fx: Fixture) {
    let node = fx.node("a").await;
    for batch_first in [false, true] {
        let first = job();
        let (mut batch, children) = batch_of(1, true);
        let parent = batch.jobs[0].spec.id;
        batch.edges = vec![Edge::new(first.spec.id, parent, Condition::Success)];
        let first = node.insert(first).await;
        assert_eq!(node.submit(batch).await, Inserted::New);
        let child = node.take(children[0]).await;
        if batch_first {
            finish(&node, &child, succeeded(), vec![]).await;
        }
        let led_to = finish(&node, &node.take(first).await, dead("boom"), vec![]).await;
        assert_eq!(led_to.canceled, [parent]);
        if !batch_first {
            let led_to = finish(&node, &child, succeeded(), vec![]).await;
            assert_eq!(led_to.released, [], "it has ended");
            assert_eq!(node.status(parent).await, JobStatus::Canceled);
        }
        assert_eq!(revive(&node, first).await, RetryVerdict::Retried { revived: vec![parent] });
        assert_eq!(waits(&node.job(parent).await), (JobStatus::Pending, 1, 1), "first: {batch_first}");
        let led_to = finish(&node, &node.take(first).await, succeeded(), vec![]).await;
        assert_eq!(led_to.released, [parent], "first: {batch_first}");
        node.end(&node.take(parent).await, succeeded()).await;
    }
}

pub async fn a_join_that_still_waits_counts_on_the_revived_parent_again(fx: Fixture) {
    let node = fx.node("a").await;
    let (parents, join) = join(&node, 2, Needs::AtLeast(1)).await;
    finish(&node, &node.take(parents[0]).await, dead("boom"), vec![]).await;
    assert_eq!(waits(&node.job(join).await), (JobStatus::Pending, 1, 1));
    assert_eq!(revive(&node, parents[0]).await, RetryVerdict::Retried { revived: vec![] });
    assert_eq!(waits(&node.job(join).await), (JobStatus::Pending, 1, 2), "as if it had not failed");
    finish(&node, &node.take(parents[1]).await, dead("boom"), vec![]).await;
    let led_to = finish(&node, &node.take(parents[0]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [join]);
}

pub async fn a_join_waits_again_once_enough_of_its_parents_do(fx: Fixture) {
    let node = fx.node("a").await;
    for (branches, needs) in [(2, Needs::All), (3, Needs::All), (3, Needs::AtLeast(2))] {
        let (top, sides) = (job(), (0..branches).map(|_| job()).collect::<Vec<_>>());
        let bottom = job_with(|job| job.needs = needs);
        let from_top = sides.iter().map(|side| on_success(&top, side));
        let edges = from_top.chain(sides.iter().map(|side| on_success(side, &bottom))).collect();
        let (top_id, bottom_id) = (top.spec.id, bottom.spec.id);
        let mut canceled: Vec<JobId> = sides.iter().map(|side| side.spec.id).collect();
        canceled.push(bottom_id);
        submit(&node, [vec![top], sides, vec![bottom]].concat(), edges).await;
        let before = node.job(bottom_id).await;
        let led_to = finish(&node, &node.take(top_id).await, dead("boom"), vec![]).await;
        assert_eq!(set(&led_to.canceled), set(&canceled), "{needs:?} of {branches}");

        let RetryVerdict::Retried { revived } = revive(&node, top_id).await else { panic!("it was dead") };
        assert_eq!(revived.len(), canceled.len(), "each once: {needs:?} of {branches}");
        assert_eq!(set(&revived), set(&canceled), "{needs:?} of {branches}");
        assert_eq!(waits(&node.job(bottom_id).await), waits(&before), "{needs:?} of {branches}");
    }
}

pub async fn a_dependent_whose_key_is_taken_keeps_its_parent_dead(fx: Fixture) {
    let node = fx.node("a").await;
    let (first, middle, last) = (job(), job(), keyed("last"));
    let edges = vec![on_success(&first, &middle), on_success(&middle, &last)];
    let ids = store(&node, [first, middle, last], edges).await;
    finish(&node, &node.take(ids[0]).await, dead("boom"), vec![]).await;
    let holder = node.insert(keyed("last")).await;
    let before = find_all(&node, &ids).await;
    assert_eq!(revive(&node, ids[0]).await, RetryVerdict::KeyTaken { holder });
    assert_eq!(find_all(&node, &ids).await, before);
}

pub async fn jobs_with_one_key_are_not_revived_together(fx: Fixture) {
    let node = fx.node("a").await;
    for (parent, dependents) in
        [(keyed("own"), vec![keyed("own")]), (job(), vec![keyed("shared"), keyed("shared")])]
    {
        let mut ids = vec![node.insert(parent.clone()).await];
        finish(&node, &node.take(ids[0]).await, dead("boom"), vec![]).await;
        for dependent in dependents {
            let edges = vec![on_success(&parent, &dependent)];
            ids.extend(store(&node, [dependent], edges).await);
        }
        let before = find_all(&node, &ids).await;
        let verdict = revive(&node, ids[0]).await;
        assert!(matches!(verdict, RetryVerdict::KeyTaken { holder } if ids.contains(&holder)), "{verdict:?}");
        assert_eq!(find_all(&node, &ids).await, before);
    }
}

pub async fn a_stale_retry_does_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    let id = dead_letter(&node).await;
    let before = node.job(id).await;
    let retry = async |fence| {
        let verdicts = node.store.retry(&[Target::from((id, fence))]).await;
        verdicts.expect("retry answers").remove(0)
    };
    assert_eq!(retry(before.fence.next()).await, RetryVerdict::Stale(JobStatus::Failed));
    assert_eq!(node.job(id).await, before);
    assert_eq!(retry(before.fence).await, RetryVerdict::Retried { revived: vec![] });
}

pub async fn of_two_retries_at_once_one_counts(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..10 {
        let steps = chain(&node, 2).await;
        finish(&node, &node.take(steps[0]).await, dead("boom"), vec![]).await;
        let before = node.job(steps[0]).await;
        let verdicts = fx
            .race(2, |i| {
                let (peer, id) = ([&node, &other][i].clone(), steps[0]);
                async move { revive(&peer, id).await }
            })
            .await;
        assert!(verdicts.contains(&RetryVerdict::Retried { revived: vec![steps[1]] }), "round {round}");
        assert!(verdicts.contains(&RetryVerdict::NotFailed(JobStatus::Pending)), "round {round}");
        assert_eq!(node.job(steps[0]).await.fence, before.fence.next(), "round {round}");
        assert_eq!(waits(&node.job(steps[1]).await), (JobStatus::Pending, 1, 1), "round {round}");
        node.end(&node.take(steps[0]).await, super::commit::called_off()).await;
    }
}

/// Stores a job and lets it fail for good.
pub(super) async fn dead_letter(peer: &Peer) -> JobId {
    let claim = peer.running(job()).await;
    peer.end(&claim, dead("boom")).await;
    claim.id
}

pub(super) async fn revive(peer: &Peer, id: JobId) -> RetryVerdict {
    let mut verdicts = peer.store.retry(&[id.into()]).await.expect("retry answers");
    assert_eq!(verdicts.len(), 1, "one verdict for one job");
    verdicts.remove(0)
}
