//! Submissions that replace something: successors of replaced jobs, and fires of schedules.

use std::time::Duration;

use ratchet_api::{Inserted, JobId, JobStatus, Refusal, Timestamp};

use super::super::keys::lives::{
    Life, connections, holding, linked, named, race_inserts, replacing, schedule,
};
use super::{SECOND, after, batch_id, batch_of, fired, ids, progress, traces};
use crate::fixture::{job, text};
use crate::{Fixture, Peer};

pub(super) async fn a_superseded_job_makes_way_and_hands_over_its_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for life in [
        Life::Pending,
        Life::Scheduled,
        Life::Blocked,
        Life::Retrying,
        Life::HandedBack,
        Life::Paused,
        Life::PausedFromFailed,
    ] {
        let key = format!("{life:?}");
        let old = life.reach(&node, holding(&key)).await;
        let successor = holding(&key);
        let new = successor.spec.id;
        fx.advance(SECOND);

        assert_eq!(other.submit(replacing(old, successor)).await, Inserted::New, "{life:?}");

        let replaced = node.job(old).await;
        assert_eq!((replaced.status, replaced.superseded_by), (JobStatus::Canceled, Some(new)), "{life:?}");
        let ending = replaced.ending.expect("a canceled job has ended");
        assert_eq!(ending.terminated_at, fx.now(), "{life:?}");
        assert_eq!(replaced.spec.business_key, Some(named(&key)), "{life:?} still tells its key");
        let holder = node.store.find_active_by_business_key(&named(&key)).await;
        assert_eq!(holder.expect("find_active_by_business_key answers"), Some(new), "{life:?}");
        assert_eq!(node.status(new).await, JobStatus::Pending, "{life:?}");
        assert_eq!(node.job(new).await.superseded_by, None, "{life:?}");
        let taken = node.store.pick_up(&node.owner, &[old]).await.expect("pick_up answers");
        assert_eq!(taken, [], "{life:?} never runs");
    }
}

pub(super) async fn superseding_cancels_what_waited_for_the_old_job(fx: Fixture) {
    let node = fx.node("a").await;
    let parent = batch_of(vec![job()], true);
    assert_eq!(node.submit(parent.clone()).await, Inserted::New);
    let old = ids(&parent)[1];
    let follower = job();
    let follower_id = follower.spec.id;
    assert_eq!(node.submit(after(old, follower)).await, Inserted::New);

    assert_eq!(node.submit(replacing(old, job())).await, Inserted::New);

    assert_eq!(node.status(follower_id).await, JobStatus::Canceled, "nobody else would ever release it");
    let progress = progress(&node, batch_id(&parent)).await;
    assert_eq!((progress.total, progress.failed), (1, 1));
}

pub(super) async fn a_successor_cannot_wait_for_what_it_replaces(fx: Fixture) {
    let node = fx.node("a").await;
    for depth in 0..2 {
        let mut chain = vec![node.insert(job()).await];
        let follower = job();
        chain.push(follower.spec.id);
        assert_eq!(node.submit(after(chain[0], follower)).await, Inserted::New);
        let successor = job();
        let new = successor.spec.id;
        let mut submission = after(chain[depth], successor);
        submission.supersedes = Some(chain[0]);
        assert_eq!(node.submit(submission).await, Inserted::New);
        assert_eq!(
            node.status(new).await,
            JobStatus::Canceled,
            "nobody would ever release it: depth {depth}"
        );
    }
}

pub(super) async fn a_job_that_has_started_or_ended_is_not_superseded(fx: Fixture) {
    let node = fx.node("a").await;
    for life in Life::ENDED.into_iter().chain([Life::Running, Life::CancelRequested]) {
        let old = life.reach(&node, job()).await;
        let before = traces(&node, &[old]).await;
        let successor = job();
        let new = successor.spec.id;

        let inserted = node.submit(replacing(old, successor)).await;

        let Inserted::Refused(Refusal::NotReplaceable { id, status }) = inserted else {
            panic!("{life:?}: {inserted:?}");
        };
        assert_eq!(id, old, "{life:?}");
        if life != Life::CancelRequested {
            assert_eq!(status, Some(life.status()), "{life:?}");
        }
        assert_eq!(traces(&node, &[old]).await, before, "{life:?}");
        assert_eq!(node.find(new).await, None, "{life:?}");
    }
    let unknown = JobId::generate();
    let refused = Inserted::Refused(Refusal::NotReplaceable { id: unknown, status: None });
    assert_eq!(node.submit(replacing(unknown, job())).await, refused);
}

pub(super) async fn a_successor_that_is_refused_leaves_the_old_job_in_place(fx: Fixture) {
    let node = fx.node("a").await;
    let old = node.insert(holding("order-1")).await;
    let other = node.insert(holding("order-2")).await;
    let before = node.job(old).await;
    let successor = linked(vec![holding("order-1"), holding("order-2")], vec![]);
    let mut submission = successor.clone();
    submission.supersedes = Some(old);

    assert_eq!(node.submit(submission).await, Inserted::KeyTaken { holder: other });
    assert_eq!(node.submit(successor).await, Inserted::KeyTaken { holder: old });

    assert_eq!(node.job(old).await, before);
    let holder = node.store.find_active_by_business_key(&named("order-1")).await;
    assert_eq!(holder.expect("find_active_by_business_key answers"), Some(old));
}

pub(super) async fn a_race_to_supersede_one_job_has_one_winner(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    for round in 0..6 {
        let key = format!("order-{round}");
        let old = node.insert(holding(&key)).await;
        let submissions: Vec<_> = (0..4).map(|_| replacing(old, holding(&key))).collect();

        let inserted = race_inserts(&fx, &stores, &submissions).await;

        let winner = node.job(old).await.superseded_by.expect("someone replaced it");
        for (submission, answer) in submissions.iter().zip(inserted) {
            let new = ids(submission)[0];
            assert_eq!(node.find(new).await.is_some(), new == winner, "round {round}");
            let sensible = match answer {
                Inserted::New => new == winner,
                Inserted::KeyTaken { holder } => new != winner && holder == winner,
                Inserted::Refused(Refusal::NotReplaceable { id, .. }) => new != winner && id == old,
                _ => false,
            };
            assert!(sensible, "round {round}: {answer:?}");
        }
    }
}

pub(super) async fn a_job_is_either_claimed_or_superseded_under_a_race(fx: Fixture) {
    let (worker, submitter) = (fx.node("worker").await, fx.node("submitter").await);
    for round in 0..10 {
        let old = worker.insert(job()).await;
        let submission = replacing(old, job());
        let new = ids(&submission)[0];

        let answers = fx
            .race(2, |i| {
                let peer = if i == 0 { worker.clone() } else { submitter.clone() };
                let submission = (i == 1).then(|| submission.clone());
                async move {
                    match submission {
                        Some(submission) => (0, Some(peer.submit(submission).await)),
                        None => {
                            let taken = peer.store.pick_up(&peer.owner, &[old]).await;
                            (taken.expect("pick_up answers under a race").len(), None)
                        }
                    }
                }
            })
            .await;

        let replaced = worker.job(old).await;
        match (answers[0].0, answers[1].1.clone().expect("an answer")) {
            (0, Inserted::New) => assert_eq!(replaced.superseded_by, Some(new), "round {round}"),
            (1, Inserted::Refused(Refusal::NotReplaceable { .. })) => {
                assert_eq!(replaced.status, JobStatus::Running, "round {round}");
                assert_eq!(worker.find(new).await, None, "round {round}");
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
}

async fn next_fire(peer: &Peer, master: JobId) -> Option<Timestamp> {
    peer.job(master).await.recurrence.expect("a master has a schedule").next_fire
}

pub(super) async fn a_fire_is_stored_once_and_moves_the_next_one(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let master = schedule(&fx, &node, "hourly").await;
    let neighbour = schedule(&fx, &node, "also hourly").await;
    let hour = Duration::from_hours(1);
    let (first, second, third) = (fx.now() + hour, fx.now() + 2 * hour, fx.now() + 3 * hour);
    fx.advance(hour);

    assert_eq!(node.submit(fired(master, first, Some(second))).await, Inserted::New);

    assert_eq!(next_fire(&other, master).await, Some(second));
    let due = node.store.due_recurring(10).await.expect("due_recurring answers");
    assert_eq!(due.into_iter().map(|job| job.spec.id).collect::<Vec<_>>(), [neighbour]);
    let late = fired(master, first, Some(third));
    assert_eq!(other.submit(late.clone()).await, Inserted::AlreadyFired);
    assert_eq!(node.find(ids(&late)[0]).await, None);
    assert_eq!(next_fire(&node, master).await, Some(second), "a late one moves nothing");
    assert_eq!(node.submit(fired(neighbour, first, Some(second))).await, Inserted::New, "another master");
    assert_eq!(node.submit(fired(master, second, None)).await, Inserted::New, "another instant");
    assert_eq!(next_fire(&node, master).await, None, "never again");
}

pub(super) async fn a_schedule_that_is_not_active_does_not_fire(fx: Fixture) {
    let node = fx.node("a").await;
    let single = node.insert(job()).await;
    let paused = schedule(&fx, &node, "paused").await;
    let canceled = schedule(&fx, &node, "canceled").await;
    let instant = fx.now() + Duration::from_hours(1);
    node.store.pause(&[paused.into()]).await.expect("pause answers");
    let ended = node.store.cancel_recurring_by_key(&named("canceled"), &text("gone")).await;
    assert_eq!(ended.expect("cancel_recurring_by_key answers"), 1);

    for master in [paused, canceled, JobId::generate(), single] {
        let submission = fired(master, instant, None);
        let inserted = node.submit(submission.clone()).await;
        assert_eq!(inserted, Inserted::Refused(Refusal::MasterInactive(master)));
        assert_eq!(node.find(ids(&submission)[0]).await, None);
    }

    assert_eq!(next_fire(&node, paused).await, Some(instant), "a refused fire moves nothing");
    node.store.resume(&[paused.into()]).await.expect("resume answers");
    assert_eq!(node.submit(fired(paused, instant, None)).await, Inserted::New, "and uses nothing up");
}

pub(super) async fn a_race_to_fire_has_one_winner(fx: Fixture) {
    let stores = connections(&fx, 5).await;
    let node = fx.node("a").await;
    let master = schedule(&fx, &node, "often").await;
    for round in 0..6 {
        let instant = fx.now();
        fx.advance(SECOND);
        let submissions: Vec<_> = (0..5).map(|_| fired(master, instant, Some(fx.now()))).collect();

        let inserted = race_inserts(&fx, &stores, &submissions).await;

        for (submission, answer) in submissions.iter().zip(&inserted) {
            let told = match node.find(ids(submission)[0]).await {
                Some(_) => Inserted::New,
                None => Inserted::AlreadyFired,
            };
            assert_eq!(*answer, told, "round {round}");
        }
        let new = inserted.iter().filter(|answer| **answer == Inserted::New).count();
        assert_eq!(new, 1, "round {round}: {inserted:?}");
        assert_eq!(next_fire(&node, master).await, Some(fx.now()), "round {round}");
    }
}
