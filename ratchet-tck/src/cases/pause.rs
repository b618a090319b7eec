//! Pausing and resuming of jobs and schedules.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{NewRecurring, PauseVerdict, ResumeVerdict, SavedRecurring, Target};
use ratchet_api::{
    Due, Fire, Inserted, JobId, JobSpec, JobStatus, Recurrence, Refusal, Submission, Timestamp,
};

use super::commit::{business_key, called_off, dead, keyed, ran, recorded, retry, succeeded};
use super::effects::{chain, finish, waits};
use super::retry::dead_letter;
use crate::case::cases;
use crate::fixture::{Fixture, Peer, job, job_with, payload, text};

cases! { "pause";
    a_pending_job_is_set_aside_and_not_claimed: ["pause.origin"] [24 31];
    a_dead_letter_is_set_aside_and_remembers_it: ["pause.origin"] [30 31];
    a_paused_schedule_neither_is_due_nor_fires: ["pause.origin", "resume.origin"] [31];
    pausing_twice_changes_nothing: ["pause.idempotent"] [32];
    running_and_ended_jobs_cannot_be_paused: ["pause.idempotent"] [33];
    a_paused_job_holds_its_key: ["pause.key"] [184];
    a_dead_letter_reserves_its_key_or_is_not_paused: ["pause.key"] [184];
    a_paused_job_is_released_or_canceled_by_its_parents: ["pause.waits_on"] [];
    a_resumed_job_is_pending_with_its_due_time: ["resume.origin"] [31];
    a_resumed_dead_letter_is_failed_as_before_and_frees_its_key: ["resume.origin"] [31];
    only_paused_jobs_are_resumed: ["resume.origin"] [];
    a_stale_pause_does_nothing: ["pause.stale"] [38];
    a_stale_resume_does_nothing: ["resume.stale"] [38];
    every_target_gets_its_own_answer: ["pause.idempotent", "resume.origin"] [];
    a_pause_races_with_a_claim: ["pause.origin"] [38];
}

pub async fn a_pending_job_is_set_aside_and_not_claimed(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(job()).await;
    node.end(&claim, retry(Duration::from_secs(60))).await;
    let before = node.job(claim.id).await;
    assert_eq!(pause(&node, claim.id).await, PauseVerdict::Paused);
    let read = other.job(claim.id).await;
    assert_eq!((read.status, read.paused_from), (JobStatus::Paused, Some(JobStatus::Pending)));
    assert_eq!(read.fence, before.fence.next());
    assert_eq!((read.scheduled_time, read.attempts), (before.scheduled_time, 1));
    assert_eq!(read.last_error, before.last_error);
    fx.advance(Duration::from_secs(3600));
    assert_eq!(other.claim(1).await, []);
    let picked = other.store.pick_up(&other.owner, &[claim.id]).await.expect("pick-up answers");
    assert_eq!(picked, []);
}

pub async fn a_dead_letter_is_set_aside_and_remembers_it(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let id = dead_letter(&node).await;
    let before = node.job(id).await;
    assert_eq!(pause(&node, id).await, PauseVerdict::Paused);
    let read = other.job(id).await;
    assert_eq!((read.status, read.paused_from), (JobStatus::Paused, Some(JobStatus::Failed)));
    assert_eq!((read.fence, read.last_error), (before.fence.next(), before.last_error));
    fx.advance(Duration::from_secs(3600));
    assert_eq!(other.claim(1).await, []);
}

pub async fn a_paused_schedule_neither_is_due_nor_fires(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let fires = fx.now() + Duration::from_secs(60);
    let master = schedule(&node, "nightly", fires).await;
    fx.advance(Duration::from_secs(60));
    assert_eq!(pause(&node, master).await, PauseVerdict::Paused);
    let due = async || other.store.due_recurring(10).await.expect("due answers").len();
    let fire = || {
        let mut submission = Submission::single(job());
        submission.fire = Some(Fire { master, instant: fires, next_fire: None });
        submission
    };
    assert_eq!(other.status(master).await, JobStatus::Paused);
    assert_eq!(due().await, 0);
    assert_eq!(other.submit(fire()).await, Inserted::Refused(Refusal::MasterInactive(master)));
    let holder = other.store.find_active_by_business_key(&business_key("nightly")).await;
    assert_eq!(holder.expect("find answers"), Some(master));

    assert_eq!(resume(&node, master).await, ResumeVerdict::Resumed(JobStatus::Pending));
    let read = other.job(master).await;
    assert_eq!(read.recurrence.expect("it is a schedule").next_fire, Some(fires));
    assert_eq!(due().await, 1);
    assert_eq!(other.submit(fire()).await, Inserted::New);
}

pub async fn pausing_twice_changes_nothing(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for id in [node.insert(job()).await, dead_letter(&node).await] {
        pause(&node, id).await;
        let before = node.job(id).await;
        assert_eq!(pause(&other, id).await, PauseVerdict::AlreadyPaused);
        assert_eq!(node.job(id).await, before);
    }
}

pub async fn running_and_ended_jobs_cannot_be_paused(fx: Fixture) {
    let node = fx.node("a").await;
    let (running, stopping) = (node.running(job()).await.id, node.running(job()).await.id);
    node.store.cancel(&[stopping.into()], &text("stop")).await.expect("cancel answers");
    let (done, canceled) = (node.running(job()).await, node.running(job()).await);
    node.end(&done, succeeded()).await;
    node.end(&canceled, called_off()).await;
    for (id, status) in [
        (running, JobStatus::Running),
        (stopping, JobStatus::Canceled),
        (done.id, JobStatus::Succeeded),
        (canceled.id, JobStatus::Canceled),
    ] {
        let before = node.job(id).await;
        assert_eq!(pause(&node, id).await, PauseVerdict::NotPausable(status));
        assert_eq!(node.job(id).await, before);
    }
}

pub async fn a_paused_job_holds_its_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let holder = node.insert(keyed("k")).await;
    pause(&node, holder).await;
    let found = other.store.find_active_by_business_key(&business_key("k")).await;
    assert_eq!(found.expect("find answers"), Some(holder));
    assert_eq!(other.submit(Submission::single(keyed("k"))).await, Inserted::KeyTaken { holder });
}

pub async fn a_dead_letter_reserves_its_key_or_is_not_paused(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let dying = node.running(keyed("k")).await;
    node.end(&dying, dead("boom")).await;
    let holder = other.insert(keyed("k")).await;
    let before = node.job(dying.id).await;
    assert_eq!(pause(&node, dying.id).await, PauseVerdict::KeyTaken { holder });
    assert_eq!(node.job(dying.id).await, before);

    other.end(&other.take(holder).await, succeeded()).await;
    assert_eq!(pause(&node, dying.id).await, PauseVerdict::Paused);
    let taken = other.submit(Submission::single(keyed("k"))).await;
    assert_eq!(taken, Inserted::KeyTaken { holder: dying.id });
}

pub async fn a_paused_job_is_released_or_canceled_by_its_parents(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (good, bad) = (chain(&node, 2).await, chain(&node, 2).await);
    for child in [good[1], bad[1]] {
        pause(&node, child).await;
    }
    finish(&node, &node.take(good[0]).await, succeeded(), vec![]).await;
    finish(&node, &node.take(bad[0]).await, dead("boom"), vec![]).await;
    assert_eq!(waits(&other.job(good[1]).await), (JobStatus::Paused, 0, 0));
    assert_eq!(other.status(bad[1]).await, JobStatus::Canceled);
    assert_eq!(resume(&node, bad[1]).await, ResumeVerdict::NotPaused(JobStatus::Canceled));
    assert_eq!(resume(&node, good[1]).await, ResumeVerdict::Resumed(JobStatus::Pending));
    assert_eq!(other.claim_one().await.id, good[1]);
}

pub async fn a_resumed_job_is_pending_with_its_due_time(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let due = fx.now() + Duration::from_secs(60);
    let id = node.insert(job_with(|job| job.due = Due::At(due))).await;
    for (wait, claimable) in [(10, false), (49, false), (1, true)] {
        pause(&node, id).await;
        let paused = node.job(id).await;
        fx.advance(Duration::from_secs(wait));
        assert_eq!(resume(&node, id).await, ResumeVerdict::Resumed(JobStatus::Pending));
        let read = other.job(id).await;
        assert_eq!((read.status, read.paused_from), (JobStatus::Pending, None));
        assert_eq!((read.scheduled_time, read.fence), (due, paused.fence.next()));
        assert_eq!(!other.claim(1).await.is_empty(), claimable);
    }
}

pub async fn a_resumed_dead_letter_is_failed_as_before_and_frees_its_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(keyed("k")).await;
    fx.advance(Duration::from_secs(5));
    recorded(node.commit(ran(&claim, dead("no such account"))).await);
    let before = node.job(claim.id).await;
    fx.advance(Duration::from_secs(60));
    pause(&node, claim.id).await;
    fx.advance(Duration::from_secs(60));
    assert_eq!(resume(&node, claim.id).await, ResumeVerdict::Resumed(JobStatus::Failed));

    let mut read = other.job(claim.id).await;
    assert_eq!(read.fence, before.fence.next().next(), "two moves");
    read.fence = before.fence;
    assert_eq!(read, before);
    assert_eq!(other.submit(Submission::single(keyed("k"))).await, Inserted::New);
    assert_ne!(other.claim_one().await.id, claim.id);
}

pub async fn only_paused_jobs_are_resumed(fx: Fixture) {
    let node = fx.node("a").await;
    let (pending, running) = (node.insert(job()).await, node.running(job()).await.id);
    let (failed, done, canceled) =
        (dead_letter(&node).await, node.running(job()).await, node.running(job()).await);
    node.end(&done, succeeded()).await;
    node.end(&canceled, called_off()).await;
    for (id, status) in [
        (pending, JobStatus::Pending),
        (running, JobStatus::Running),
        (failed, JobStatus::Failed),
        (done.id, JobStatus::Succeeded),
        (canceled.id, JobStatus::Canceled),
    ] {
        let before = node.job(id).await;
        assert_eq!(resume(&node, id).await, ResumeVerdict::NotPaused(status));
        assert_eq!(node.job(id).await, before);
    }
}

pub async fn a_stale_pause_does_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    for id in [node.insert(job()).await, dead_letter(&node).await] {
        let before = node.job(id).await;
        let pause = async |fence| {
            let verdicts = node.store.pause(&[Target::from((id, fence))]).await;
            verdicts.expect("pause answers").remove(0)
        };
        assert_eq!(pause(before.fence.next()).await, PauseVerdict::Stale(before.status));
        assert_eq!(node.job(id).await, before);
        assert_eq!(pause(before.fence).await, PauseVerdict::Paused);
    }
}

pub async fn a_stale_resume_does_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    for id in [node.insert(job()).await, dead_letter(&node).await] {
        let origin = node.job(id).await;
        pause(&node, id).await;
        let before = node.job(id).await;
        let resume = async |fence| {
            let verdicts = node.store.resume(&[Target::from((id, fence))]).await;
            verdicts.expect("resume answers").remove(0)
        };
        assert_eq!(resume(origin.fence).await, ResumeVerdict::Stale(JobStatus::Paused));
        assert_eq!(node.job(id).await, before);
        assert_eq!(resume(before.fence).await, ResumeVerdict::Resumed(origin.status));
    }
}

pub async fn every_target_gets_its_own_answer(fx: Fixture) {
    let node = fx.node("a").await;
    let (first, second, unknown) = (node.insert(job()).await, dead_letter(&node).await, JobId::generate());
    let running = node.running(job_with(|job| job.due = Due::NOW)).await.id;
    let targets = [unknown, first, running, second, first].map(Target::from);
    let paused = node.store.pause(&targets).await.expect("pause answers");
    assert_eq!(
        paused,
        [
            PauseVerdict::Unknown,
            PauseVerdict::Paused,
            PauseVerdict::NotPausable(JobStatus::Running),
            PauseVerdict::Paused,
            PauseVerdict::AlreadyPaused,
        ]
    );
    let resumed = node.store.resume(&targets).await.expect("resume answers");
    assert_eq!(
        resumed,
        [
            ResumeVerdict::Unknown,
            ResumeVerdict::Resumed(JobStatus::Pending),
            ResumeVerdict::NotPaused(JobStatus::Running),
            ResumeVerdict::Resumed(JobStatus::Failed),
            ResumeVerdict::NotPaused(JobStatus::Pending),
        ]
    );
}

pub async fn a_pause_races_with_a_claim(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..20 {
        let id = node.insert(job()).await;
        let answers = fx
            .race(2, |i| {
                let (node, other) = (node.clone(), other.clone());
                async move {
                    match i {
                        0 => (Some(pause(&node, id).await), Vec::new()),
                        _ => (None, other.claim(1).await),
                    }
                }
            })
            .await;
        let claims = &answers[1].1;
        match answers[0].0.as_ref().expect("the pause was answered") {
            PauseVerdict::Paused => assert_eq!(*claims, [], "round {round}"),
            verdict => {
                assert_eq!(*verdict, PauseVerdict::NotPausable(JobStatus::Running), "round {round}");
                assert_eq!(claims.len(), 1, "round {round}");
            }
        }
        let status = if claims.is_empty() { JobStatus::Paused } else { JobStatus::Running };
        assert_eq!(node.status(id).await, status, "round {round}");
    }
}

async fn schedule(peer: &Peer, key: &str, next_fire: Timestamp) -> JobId {
    let recurrence = Recurrence::new("0 0 2 * * *", "UTC", Some(next_fire));
    let new = NewRecurring::new(business_key(key), JobSpec::new(payload()), recurrence);
    match peer.store.save_recurring(&new).await.expect("save answers") {
        SavedRecurring::Created(id) => id,
        other => panic!("the schedule is new, not {other:?}"),
    }
}

async fn pause(peer: &Peer, id: JobId) -> PauseVerdict {
    let mut verdicts = peer.store.pause(&[id.into()]).await.expect("pause answers");
    assert_eq!(verdicts.len(), 1, "one verdict for one job");
    verdicts.remove(0)
}

async fn resume(peer: &Peer, id: JobId) -> ResumeVerdict {
    let mut verdicts = peer.store.resume(&[id.into()]).await.expect("resume answers");
    assert_eq!(verdicts.len(), 1, "one verdict for one job");
    verdicts.remove(0)
}
