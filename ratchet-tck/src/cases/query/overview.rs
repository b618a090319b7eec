//! Queries over many jobs at once: queues, dead letters, schedules and batches.

use std::time::Duration;

use ratchet_api::store::{DeadLetterGroup, QueueHealth};
use ratchet_api::{
    BatchId, Condition, DeadReason, Due, Edge, End, ErrorRecord, HandBackReason, Inserted, JobPriority,
    JobStatus, NewBatch, QueueName,
};

use super::super::keys::lives::{Life, holding, linked, named, schedule};
use super::{SECOND, filter, found, in_queue, target};
use crate::fixture::{error, job, job_with, text};
use crate::{Fixture, Peer};

async fn health(peer: &Peer) -> Vec<(QueueName, QueueHealth)> {
    peer.store.queue_health().await.expect("queue_health answers")
}

async fn health_of(peer: &Peer, queue: &str) -> QueueHealth {
    let queue: QueueName = named(queue);
    let listed: Vec<_> = health(peer).await.into_iter().filter(|(name, _)| *name == queue).collect();
    assert_eq!(listed.len(), 1, "the queue is listed once: {listed:?}");
    listed.into_iter().next().expect("it is listed").1
}

fn expected_health(change: impl FnOnce(&mut QueueHealth)) -> QueueHealth {
    let mut health = QueueHealth::default();
    change(&mut health);
    health
}

pub(super) async fn a_queue_counts_its_jobs_by_what_they_wait_for(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let with_priority = |priority| {
        job_with(|new| {
            new.spec.queue = named("work");
            new.spec.priority = priority;
        })
    };
    // Stores may or may not count a job that is being canceled as running.
    let lives = Life::LIVE.into_iter().filter(|life| *life != Life::CancelRequested).chain(Life::ENDED);
    for life in lives {
        life.reach(&node, in_queue("work")).await;
    }
    node.insert(with_priority(JobPriority::Critical)).await;
    node.insert(with_priority(JobPriority::Lowest)).await;
    let waiting_since = fx.now() - 5 * SECOND;
    node.insert(job_with(|new| {
        new.spec.queue = named("work");
        new.due = Due::At(waiting_since);
    }))
    .await;
    let batch_parent = in_queue("work");
    let child = job_with(|new| new.spec.batch = Some(BatchId::of(batch_parent.spec.id)));
    let mut batch = linked(vec![batch_parent, child], vec![]);
    batch.batch = Some(NewBatch { closed: true });
    assert_eq!(node.submit(batch).await, Inserted::New);
    let blocked_and_late = job_with(|new| {
        new.spec.queue = named("work");
        new.due = Due::After(SECOND);
    });
    let edge = Edge::new(node.insert(job()).await, blocked_and_late.spec.id, Condition::Success);
    assert_eq!(node.submit(linked(vec![blocked_and_late], vec![edge])).await, Inserted::New);

    let expected = expected_health(|it| {
        it.ready = 6; // pending, retrying, handed back, critical, lowest, waiting
        it.ready_by_priority = [1, 0, 4, 0, 1];
        it.oldest_wait = Some(5 * SECOND);
        it.scheduled = 1;
        it.blocked = 3; // by a parent, by a batch, by a parent and time
        it.running = 1;
        it.set_aside = 2; // from pending, from failed
        it.failed = 2; // failed, put back to failed
    });
    assert_eq!(health_of(&reader, "work").await, expected);
}

pub(super) async fn a_queue_is_told_as_it_is_now(fx: Fixture) {
    let node = fx.node("a").await;
    let later = |queue| {
        job_with(move |new| {
            new.spec.queue = named(queue);
            new.due = Due::After(10 * SECOND);
        })
    };
    node.insert(in_queue("work")).await;
    node.insert(later("work")).await;
    node.insert(later("idle")).await;
    let expected = |ready, scheduled, wait| {
        expected_health(|it| {
            it.ready = ready;
            it.ready_by_priority[JobPriority::Normal as usize] = ready;
            it.scheduled = scheduled;
            it.oldest_wait = wait;
        })
    };
    assert_eq!(health_of(&node, "idle").await, expected(0, 1, None), "nobody waits");
    assert_eq!(health_of(&node, "work").await, expected(1, 1, Some(Duration::ZERO)));
    fx.advance(10 * SECOND - Duration::from_millis(1));
    assert_eq!(health_of(&node, "work").await, expected(1, 1, Some(10 * SECOND - Duration::from_millis(1))));
    fx.advance(Duration::from_millis(1));
    assert_eq!(health_of(&node, "work").await, expected(2, 0, Some(10 * SECOND)));

    assert!(node.store.set_queue_paused(&named("work"), true).await.expect("an answer"));
    let mut paused = expected(2, 0, Some(10 * SECOND));
    paused.paused = true;
    assert_eq!(health_of(&node, "work").await, paused, "a paused queue still tells what waits in it");
}

pub(super) async fn queues_are_listed_by_name_if_they_have_jobs_or_are_paused(fx: Fixture) {
    let node = fx.node("a").await;
    assert_eq!(health(&node).await, []);
    for queue in ["b", "d", "a", "b"] {
        node.insert(in_queue(queue)).await;
    }
    for (queue, paused) in [("c", true), ("e", true), ("e", false)] {
        node.store.set_queue_paused(&named(queue), paused).await.expect("set_queue_paused answers");
    }

    let listed = health(&node).await;

    let names: Vec<_> = listed.iter().map(|(name, health)| (name.as_str(), health.ready)).collect();
    assert_eq!(names, [("a", 1), ("b", 2), ("c", 0), ("d", 1)]);
    let paused: Vec<_> = listed.iter().filter(|(_, health)| health.paused).map(|(name, _)| name).collect();
    assert_eq!(paused, [&named::<QueueName>("c")]);
}

pub(super) async fn a_schedule_is_never_ready(fx: Fixture) {
    let node = fx.node("a").await;
    schedule(&fx, &node, "hourly").await;
    for _ in 0..2 {
        let ready: u64 = health(&node).await.iter().map(|(_, health)| health.ready).sum();
        assert_eq!(ready, 0);
        fx.advance(Duration::from_hours(2));
    }
}

pub(super) async fn counts_are_those_of_one_moment(fx: Fixture) {
    const JOBS: u64 = 8;
    let (workers, reader) = ([fx.node("a").await, fx.node("b").await], fx.node("reader").await);
    for _ in 0..JOBS {
        reader.insert(job()).await;
    }

    let sums = fx
        .race(3, |i| {
            let (worker, reader) = (workers.get(i).cloned(), reader.clone());
            async move {
                let mut sums = Vec::new();
                for _ in 0..25 {
                    let Some(worker) = &worker else {
                        let health = health_of(&reader, "default").await;
                        sums.push(health.ready + health.running);
                        continue;
                    };
                    for claim in worker.claim(3).await {
                        let reason = HandBackReason::Released;
                        worker.end(&claim, End::HandBack { delay: Duration::ZERO, reason }).await;
                    }
                }
                sums
            }
        })
        .await;

    assert_eq!(sums[2], [JOBS; 25], "a job is ready or running, never both and never neither");
}

async fn dead_letters(peer: &Peer, limit: usize) -> Vec<DeadLetterGroup> {
    peer.store.dead_letters(limit).await.expect("dead_letters answers")
}

pub(super) async fn dead_letters_are_grouped_by_fingerprint(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    assert_eq!(dead_letters(&node, 10).await, []);
    let mut expected: Vec<DeadLetterGroup> = Vec::new();
    let failures = [
        ("billing.Pay", "no answer after 31 ms", 0),
        ("billing.Pay", "no answer after 7 ms", 0),
        ("mail.Send", "no answer after 7 ms", 1),
        ("billing.Pay", "refused", 2),
        ("billing.Pay", "no answer after 9000 ms", 0),
        ("mail.Send", "no answer after 8 ms", 1),
    ];
    for (name, message, group) in failures {
        fx.advance(SECOND);
        let claim = node.running(job_with(|new| new.spec.payload = target(name))).await;
        let error = ErrorRecord::new(name, text("Timeout"), text(message));
        let fingerprint = error.fingerprint.clone();
        node.end(&claim, End::DeadLetter { error, reason: DeadReason::DoNotRetry }).await;
        let mut newest = DeadLetterGroup::new(fingerprint, named(name), message.into(), claim.id, fx.now());
        match expected.get(group) {
            Some(older) => {
                newest.count += older.count;
                expected[group] = newest;
            }
            None => expected.push(newest),
        }
    }

    assert_eq!(dead_letters(&reader, 10).await, expected, "most first, each told by its newest");
    assert_eq!(dead_letters(&reader, 2).await, expected[..2]);
}

pub(super) async fn only_failed_jobs_are_dead_letters(fx: Fixture) {
    let node = fx.node("a").await;
    for life in Life::LIVE.into_iter().chain(Life::ENDED) {
        life.reach(&node, job()).await;
    }
    let failed = filter(|it| it.statuses = vec![JobStatus::Failed]);
    let counted = async || dead_letters(&node, 100).await.iter().map(|group| group.count).sum::<u64>();
    let listed = found(&node, &failed).await;
    assert_eq!(counted().await, listed.len() as u64, "every failed job once");

    node.store.retry(&[listed[0].into()]).await.expect("retry answers");
    node.store.pause(&[listed[1].into()]).await.expect("pause answers");

    assert_eq!(counted().await, listed.len() as u64 - 2);
    let reasons = [
        DeadReason::Exhausted,
        DeadReason::DoNotRetry,
        DeadReason::PolicyRefused,
        DeadReason::Crashed,
        DeadReason::Denied,
        DeadReason::UnknownTarget,
    ];
    for reason in reasons {
        let claim = node.running(job()).await;
        node.end(&claim, End::DeadLetter { error: error("whatever the reason"), reason }).await;
    }
    assert_eq!(counted().await, listed.len() as u64 - 2 + reasons.len() as u64);
}

pub(super) async fn schedules_are_listed_by_key_with_their_next_fire(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    assert_eq!(node.store.recurring().await.expect("recurring answers"), []);
    let second = schedule(&fx, &node, "b").await;
    let gone = schedule(&fx, &node, "c").await;
    fx.advance(SECOND);
    let third = schedule(&fx, &node, "d").await;
    let first = schedule(&fx, &node, "a").await;
    node.insert(holding("e")).await;
    node.store.pause(&[third.into()]).await.expect("pause answers");
    let ended = node.store.cancel_recurring_by_key(&named("c"), &text("gone")).await;
    assert_eq!(ended.expect("cancel_recurring_by_key answers"), 1, "{gone}");

    let listed = reader.store.recurring().await.expect("recurring answers");

    assert_eq!(listed, [reader.job(first).await, reader.job(second).await, reader.job(third).await]);
    let fires: Vec<_> =
        listed.iter().map(|job| job.recurrence.as_ref().and_then(|schedule| schedule.next_fire)).collect();
    let hour = fx.now() + Duration::from_hours(1);
    assert_eq!(fires, [Some(hour), Some(hour - SECOND), Some(hour)]);
    let statuses: Vec<_> = listed.iter().map(|job| job.status).collect();
    assert_eq!(statuses, [JobStatus::Pending, JobStatus::Pending, JobStatus::Paused]);
}

pub(super) async fn batches_are_listed_newest_first_page_after_page(fx: Fixture) {
    let node = fx.node("a").await;
    let mut batches = Vec::new();
    for children in 0..5 {
        let parent = job();
        let batch = BatchId::of(parent.spec.id);
        let child = |_| job_with(|new| new.spec.batch = Some(batch));
        let mut jobs = vec![parent];
        jobs.extend((0..children).map(child));
        let mut submission = linked(jobs, vec![]);
        submission.batch = Some(NewBatch { closed: children % 2 == 0 });
        assert_eq!(node.submit(submission).await, Inserted::New);
        node.insert(job()).await;
        batches.insert(0, batch);
    }
    let stored = node.store.find_batches(&batches).await.expect("find_batches answers");
    let stored: Vec<_> = stored.into_iter().flatten().collect();
    assert_eq!(stored.len(), 5);
    for limit in [1, 2, 5, 10] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = node.store.batches(after, limit).await.expect("batches answers");
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            listed.extend(page);
            assert!(listed.len() <= stored.len(), "no batch comes twice");
        }
        assert_eq!(listed, stored, "pages of {limit}");
    }
}
