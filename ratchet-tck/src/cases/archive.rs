//! Old jobs: moved once, kept for reading, and forgotten in time.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{ArchiveFilter, Loaded, Retention, RetryVerdict};
use ratchet_api::{
    ArchivedJob, End, Fingerprint, HandBackReason, IdempotencyKey, Inserted, JobId, JobPriority, JobStatus,
    JobType, JsonText, LogLevel, NewDlqAlert, NewJob, NewLogLine, QueueName, Submission, Tag, TargetName,
    Verdict,
};

use super::commit::{business_key, called_off, dead, handed_back, keyed, ran, recorded, retry, succeeded};
use super::effects::{chain, finish};
use super::retry::{dead_letter, revive};
use crate::case::cases;
use crate::fixture::{Fixture, Peer, call, job, job_with, text};

cases! { "archive";
    an_ended_job_moves_into_the_archive: ["archive.moves"] [27 179 180];
    what_belongs_to_a_job_goes_with_it: ["archive.moves"] [180];
    an_archived_job_keeps_what_is_worth_reading: ["archive.found"] [180];
    jobs_stay_for_the_retention_of_their_status: ["archive.retention"] [179];
    no_more_go_at_once_than_asked_for: ["archive.retention"] [];
    live_jobs_are_never_archived: ["archive.retention"] [];
    the_idempotency_key_of_an_archived_job_stays_used: ["archive.moves", "insert.replay"] [12];
    the_business_key_of_an_archived_job_is_free: ["archive.moves"] [18];
    a_child_stays_until_its_batch_is_complete: ["archive.batch"] [];
    a_revived_parent_does_without_an_archived_dependent: ["archive.moves", "retry.dependents"] [];
    a_job_ends_though_its_edges_went_with_their_children: ["commit.edges_changed", "delete.ended"] [];
    the_archive_is_read_by_filter_and_page: ["archive.found"] [];
    the_archive_forgets_after_its_retention: ["archive.purge"] [];
    two_archivers_move_every_job_once: ["archive.moves"] [180];
    archiving_races_with_a_retry: ["archive.moves"] [];
    a_batch_goes_with_its_parent: ["archive.moves", "delete.ended", "purge_dlq.old_failures"] [];
    what_belongs_to_other_jobs_stays: ["archive.moves", "delete.ended", "purge_dlq.old_failures"] [];
    a_tag_that_comes_late_outlives_no_job: ["archive.moves", "delete.ended", "purge_dlq.old_failures", "tag.added"] [];
}

const HOUR: Duration = Duration::from_secs(3600);
const AT_ONCE: Retention = Retention { ended: Duration::ZERO, failed: Duration::ZERO };

pub async fn an_ended_job_moves_into_the_archive(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let mut ended = Vec::new();
    for end in [succeeded(), dead("boom"), called_off()] {
        ended.push(ended_job(&node, job(), end).await);
    }
    let waiting = node.insert(job()).await;
    node.store.cancel(&[waiting.into()], &text("stop")).await.expect("cancel answers");
    ended.push(waiting);
    let live = node.insert(job()).await;
    fx.advance(Duration::from_millis(1));

    assert_eq!(archive(&node, &AT_ONCE, 10).await, 4);
    let statuses = [JobStatus::Succeeded, JobStatus::Failed, JobStatus::Canceled, JobStatus::Canceled];
    let mut expected: Vec<_> = ended.iter().copied().zip(statuses).collect();
    expected.reverse();
    let archived = archived(&other).await;
    assert_eq!(archived.iter().map(|job| (job.id, job.status)).collect::<Vec<_>>(), expected);
    for id in ended {
        assert_eq!(other.find(id).await, None, "never both");
    }
    assert_eq!(other.status(live).await, JobStatus::Pending);
    assert_eq!(archive(&other, &AT_ONCE, 10).await, 0);
}

pub async fn what_belongs_to_a_job_goes_with_it(fx: Fixture) {
    let node = fx.node("a").await;
    let tag = Tag::new("old").expect("the tag is valid");
    let steps = chain(&node, 2).await;
    node.store.add_tags(steps[0], std::slice::from_ref(&tag)).await.expect("tags answer");
    let claim = node.take(steps[0]).await;
    let line =
        NewLogLine { job: claim.id, fence: claim.fence, level: LogLevel::Info, message: text("hello") };
    node.store.append_logs(&[line]).await.expect("logs answer");
    finish(&node, &claim, succeeded(), vec![]).await;
    fx.advance(Duration::from_millis(1));
    assert_eq!(archive(&node, &AT_ONCE, 10).await, 1);

    assert_eq!(node.store.jobs_by_tag(&tag, None, 10).await.expect("tags answer"), []);
    assert_eq!(node.store.edges_from(&[steps[0]]).await.expect("edges answer"), []);
    assert_eq!(node.store.job_story(steps[0]).await.expect("story answers"), None);
    assert_eq!(node.store.delete(&[steps[0]]).await.expect("delete answers"), 0);
    assert_eq!(node.claim_one().await.id, steps[1], "what waits for nothing any more goes on");
}

pub async fn an_archived_job_keeps_what_is_worth_reading(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let full = job_with(|job| {
        job.spec.job_type = JobType::Callback;
        job.spec.priority = JobPriority::Critical;
        job.spec.queue = QueueName::new("mail").expect("the queue is valid");
        job.spec.payload = call(r#"[1.0,"é \u0000", {"b":1,"a":2}]"#);
        job.spec.business_key = Some(business_key("k"));
        job.spec.tags = vec![Tag::new("x").expect("valid"), Tag::new("y").expect("valid")];
    });
    let mut expected = Vec::new();
    for end in [End::Succeeded { result: Some(JsonText::from_stored(r#"{"t": 1.00}"#)) }, dead("boom")] {
        let mut new = full.clone();
        new.spec.id = JobId::generate();
        let first = node.running(new).await;
        fx.advance(HOUR);
        node.end(&first, retry(Duration::ZERO)).await;
        recorded(node.commit(ran(&node.take(first.id).await, end)).await);
        expected.push(node.job(first.id).await);
    }
    fx.advance(HOUR);
    assert_eq!(archive(&node, &AT_ONCE, 10).await, 2);
    let expected = expected.into_iter().rev().map(|job| ArchivedJob::of(job, fx.now()));
    assert_eq!(
        archived(&other).await.into_iter().map(Some).collect::<Vec<_>>(),
        expected.collect::<Vec<_>>()
    );
}

pub async fn jobs_stay_for_the_retention_of_their_status(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let retention = Retention { ended: HOUR, failed: 3 * HOUR };
    let millisecond = Duration::from_millis(1);
    let done = ended_job(&node, job(), succeeded()).await;
    let canceled = ended_job(&node, job(), called_off()).await;
    let failed = ended_job(&node, job(), dead("boom")).await;

    fx.advance(HOUR);
    assert_eq!(archive(&node, &retention, 10).await, 0, "an hour old is not past an hour");
    fx.advance(millisecond);
    assert_eq!(archive(&node, &retention, 10).await, 2);
    for id in [done, canceled] {
        assert_eq!(other.find(id).await, None);
    }
    fx.advance(2 * HOUR - millisecond);
    assert_eq!(archive(&node, &retention, 10).await, 0);
    assert_eq!(other.status(failed).await, JobStatus::Failed);
    fx.advance(millisecond);
    assert_eq!(archive(&node, &retention, 10).await, 1);
    assert_eq!(other.find(failed).await, None);
}

pub async fn no_more_go_at_once_than_asked_for(fx: Fixture) {
    let node = fx.node("a").await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(ended_job(&node, job(), succeeded()).await);
    }
    fx.advance(HOUR);
    for (limit, left) in [(2, 3), (0, 3), (1, 2), (10, 0)] {
        archive(&node, &AT_ONCE, limit).await;
        let found = node.store.find(&ids).await.expect("find answers");
        assert_eq!(found.iter().flatten().count(), left, "after a limit of {limit}");
        assert_eq!(archived(&node).await.len(), ids.len() - left);
    }
}

pub async fn live_jobs_are_never_archived(fx: Fixture) {
    let node = fx.node("a").await;
    let blocked = chain(&node, 2).await;
    let (waiting, running) = (node.insert(job()).await, node.running(job()).await);
    let (stopping, paused) = (node.running(job()).await.id, node.insert(job()).await);
    let (set_aside, revived) = (dead_letter(&node).await, dead_letter(&node).await);
    node.store.cancel(&[stopping.into()], &text("stop")).await.expect("cancel answers");
    node.store.pause(&[paused.into(), set_aside.into()]).await.expect("pause answers");
    revive(&node, revived).await;
    let retried = node.running(job()).await;
    node.end(&retried, retry(HOUR)).await;
    fx.advance(1_000 * HOUR);
    assert_eq!(archive(&node, &AT_ONCE, 100).await, 0);
    assert_eq!(archived(&node).await, []);
    for id in [blocked[0], blocked[1], waiting, running.id, stopping, paused, set_aside, revived, retried.id]
    {
        assert!(node.find(id).await.is_some());
    }
}

pub async fn the_idempotency_key_of_an_archived_job_stays_used(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let key = IdempotencyKey::new("once").expect("the key is valid");
    let once = || job_with(|job| job.spec.idempotency_key = Some(key.clone()));
    let first = once();
    let id = ended_job(&node, first.clone(), succeeded()).await;
    fx.advance(HOUR);
    archive(&node, &AT_ONCE, 10).await;
    for forgotten in [false, true] {
        if forgotten {
            fx.advance(HOUR);
            assert_eq!(node.store.purge_archive(Duration::ZERO, 10).await.expect("purge answers"), 1);
        }
        for again in [first.clone(), once()] {
            assert_eq!(other.submit(Submission::single(again)).await, Inserted::Existing(id));
        }
        let found = other.store.find_by_idempotency_key(&key).await.expect("find answers");
        assert_eq!(found, Some(id), "forgotten: {forgotten}");
        assert_eq!(other.find(id).await, None);
    }
}

pub async fn the_business_key_of_an_archived_job_is_free(fx: Fixture) {
    let node = fx.node("a").await;
    ended_job(&node, keyed("k"), succeeded()).await;
    fx.advance(HOUR);
    archive(&node, &AT_ONCE, 10).await;
    let holder = node.store.find_active_by_business_key(&business_key("k")).await;
    assert_eq!(holder.expect("find answers"), None);
    let next = node.insert(keyed("k")).await;
    assert_eq!(archive(&node, &AT_ONCE, 10).await, 0);
    let holder = node.store.find_active_by_business_key(&business_key("k")).await;
    assert_eq!(holder.expect("find answers"), Some(next));
}

pub async fn a_child_stays_until_its_batch_is_complete(fx: Fixture) {
    let node = fx.node("a").await;
    let (batch, children) = super::batch::store(&node, 2, false).await;
    finish(&node, &node.take(children[0]).await, succeeded(), vec![]).await;
    fx.advance(HOUR);
    assert_eq!(archive(&node, &AT_ONCE, 10).await, 0, "its sibling has not ended");
    finish(&node, &node.take(children[1]).await, succeeded(), vec![]).await;
    fx.advance(HOUR);
    assert_eq!(archive(&node, &AT_ONCE, 10).await, 0, "more may come");
    node.store.close_batch(batch).await.expect("close answers");
    assert_eq!(archive(&node, &AT_ONCE, 10).await, 2);
    assert_eq!(node.claim_one().await.id, batch.parent());
    let found = node.store.find_batches(&[batch]).await.expect("find answers").remove(0);
    assert_eq!(found.expect("the batch exists").progress.completed, 2, "they are still counted");
}

pub async fn a_revived_parent_does_without_an_archived_dependent(fx: Fixture) {
    let node = fx.node("a").await;
    let steps = chain(&node, 3).await;
    finish(&node, &node.take(steps[0]).await, dead("boom"), vec![]).await;
    fx.advance(HOUR);
    let retention = Retention { ended: Duration::ZERO, failed: 2 * HOUR };
    assert_eq!(archive(&node, &retention, 10).await, 2);
    assert_eq!(revive(&node, steps[0]).await, RetryVerdict::Retried { revived: vec![] });
    let claim = node.take(steps[0]).await;
    let led_to = finish(&node, &claim, succeeded(), vec![]).await;
    assert_eq!((led_to.released, led_to.canceled), (vec![], vec![]));
    assert_eq!(node.find(steps[1]).await, None);
}

pub async fn a_job_ends_though_its_edges_went_with_their_children(fx: Fixture) {
    let node = fx.node("a").await;
    for (way, end) in [Way::Archived, Way::Deleted]
        .into_iter()
        .flat_map(|way| [succeeded(), dead("again")].map(|end| (way, end)))
    {
        let steps = chain(&node, 2).await;
        finish(&node, &node.take(steps[0]).await, dead("boom"), vec![]).await;
        // A paused dead letter is none for a while, and the archive leaves it alone.
        node.store.pause(&[steps[0].into()]).await.expect("pause answers");
        fx.advance(Duration::from_millis(1));
        way.remove(&node, steps[1]).await;
        assert_eq!(node.find(steps[1]).await, None, "{way:?}");
        node.store.resume(&[steps[0].into()]).await.expect("resume answers");
        assert_eq!(revive(&node, steps[0]).await, RetryVerdict::Retried { revived: vec![] });

        let claim = node.take(steps[0]).await;
        let loaded = node.store.load(&node.owner, std::slice::from_ref(&claim)).await.expect("load answers");
        let [Loaded::Job(job, edges)] = &loaded[..] else { panic!("{loaded:?}") };
        assert_eq!(*edges, [], "{way:?}");
        let mut outcome = ran(&claim, end.clone());
        outcome.edges_seen = 0;
        if let Verdict::EdgesChanged { edges, edge_count } = node.commit(outcome.clone()).await {
            assert_eq!((edges, edge_count), (vec![], job.edge_count), "{way:?}");
            outcome.edges_seen = edge_count;
            recorded(node.commit(outcome).await);
        }
        assert!(node.job(steps[0]).await.ending.is_some(), "{way:?}, {end:?}");
    }
}

pub async fn the_archive_is_read_by_filter_and_page(fx: Fixture) {
    let node = fx.node("a").await;
    let target = TargetName::new("tck.Other").expect("the target is valid");
    let other = || {
        let args = JsonText::from_stored("[]");
        let payload = ratchet_api::JobPayload::new("tck.Other", "run", &args).expect("the names are valid");
        job_with(|job| job.spec.payload = payload)
    };
    let mut ids = Vec::new();
    for new in [job(), keyed("k"), other(), keyed("K"), other(), keyed("k")] {
        fx.advance(Duration::from_secs(1));
        ids.push(ended_job(&node, new, succeeded()).await);
    }
    fx.advance(HOUR);
    archive(&node, &AT_ONCE, 10).await;
    let read = async |filter: &ArchiveFilter, limit: usize| -> Vec<JobId> {
        let jobs = node.store.archived(filter, limit).await.expect("archive answers");
        jobs.into_iter().map(|job| job.id).collect()
    };
    let mut filter = ArchiveFilter::default();
    assert_eq!(read(&filter, 4).await, [ids[5], ids[4], ids[3], ids[2]]);
    filter.before = Some(ids[2]);
    assert_eq!(read(&filter, 4).await, [ids[1], ids[0]]);
    filter = ArchiveFilter { target: Some(target), ..ArchiveFilter::default() };
    assert_eq!(read(&filter, 10).await, [ids[4], ids[2]]);
    filter = ArchiveFilter { business_key: Some(business_key("k")), ..ArchiveFilter::default() };
    assert_eq!(read(&filter, 10).await, [ids[5], ids[1]]);
    filter.before = Some(ids[5]);
    assert_eq!(read(&filter, 10).await, [ids[1]]);
    filter.business_key = Some(business_key("%"));
    assert_eq!(read(&filter, 10).await, []);
}

pub async fn the_archive_forgets_after_its_retention(fx: Fixture) {
    let node = fx.node("a").await;
    let purge =
        async |retention, limit| node.store.purge_archive(retention, limit).await.expect("it answers");
    for _ in 0..3 {
        ended_job(&node, job(), succeeded()).await;
    }
    let live = ended_job(&node, job(), dead("boom")).await;
    fx.advance(10 * HOUR);
    let keep_failed = Retention { ended: Duration::ZERO, failed: Fixture::LONG };
    assert_eq!(archive(&node, &keep_failed, 10).await, 3);

    fx.advance(HOUR);
    assert_eq!(purge(HOUR, 10).await, 0, "the retention counts from archiving, and is not over");
    fx.advance(Duration::from_millis(1));
    assert_eq!(purge(HOUR, 2).await, 2);
    assert_eq!(archived(&node).await.len(), 1);
    assert_eq!(purge(HOUR, 2).await, 1);
    assert_eq!(archived(&node).await, []);
    assert_eq!(node.status(live).await, JobStatus::Failed);
}

pub async fn two_archivers_move_every_job_once(fx: Fixture) {
    let peers = [fx.node("a").await, fx.node("b").await];
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(ended_job(&peers[0], job(), succeeded()).await);
    }
    fx.advance(HOUR);
    let moved = fx
        .race(2, |i| {
            let peer = peers[i].clone();
            async move {
                let mut moved = 0;
                for _ in 0..12 {
                    moved += archive(&peer, &AT_ONCE, 4).await;
                }
                moved
            }
        })
        .await;
    assert_eq!(moved.iter().sum::<u64>(), 40, "{moved:?}");
    let mut archived: Vec<_> = archived(&peers[0]).await.iter().map(|job| job.id).collect();
    archived.reverse();
    assert_eq!(archived, ids);
    let found = peers[1].store.find(&ids).await.expect("find answers");
    assert!(found.iter().all(Option::is_none));
}

pub async fn archiving_races_with_a_retry(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..15 {
        let id = dead_letter(&node).await;
        fx.advance(Duration::from_millis(1));
        let answers = fx
            .race(2, |i| {
                let (node, other) = (node.clone(), other.clone());
                async move {
                    match i {
                        0 => (Some(revive(&node, id).await), 0),
                        _ => (None, archive(&other, &AT_ONCE, 10).await),
                    }
                }
            })
            .await;
        let in_archive = archived(&node).await.iter().any(|job| job.id == id);
        let found = other.find(id).await.map(|job| job.status);
        match answers[0].0.as_ref().expect("the retry was answered") {
            RetryVerdict::Retried { .. } => {
                assert_eq!((found, in_archive), (Some(JobStatus::Pending), false), "round {round}");
                assert_eq!(answers[1].1, 0, "round {round}");
                node.end(&node.take(id).await, handed_back(HandBackReason::Released)).await;
            }
            verdict => {
                assert_eq!(*verdict, RetryVerdict::Unknown, "round {round}");
                assert_eq!((found, in_archive, answers[1].1), (None, true, 1), "round {round}");
            }
        }
    }
}

pub async fn a_batch_goes_with_its_parent(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for way in Way::ALL {
        let (batch, children) = super::batch::store(&node, 2, true).await;
        for child in children {
            finish(&node, &node.take(child).await, succeeded(), vec![]).await;
        }
        finish(&node, &node.take(batch.parent()).await, dead("boom"), vec![]).await;
        fx.advance(Duration::from_millis(1));
        way.remove(&other, batch.parent()).await;
        assert_eq!(node.find(batch.parent()).await, None, "{way:?}");
        let found = node.store.find_batches(&[batch]).await.expect("find answers");
        assert_eq!(found, [None], "{way:?}");
        assert_eq!(node.store.batch_metrics(batch).await.expect("metrics answer"), None, "{way:?}");
    }
}

pub async fn what_belongs_to_other_jobs_stays(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for way in Way::ALL {
        let neighbours = chain(&node, 2).await;
        let doomed = node.insert(job()).await;
        for (id, end) in [(neighbours[0], retry(Duration::ZERO)), (doomed, dead("boom"))] {
            let claim = node.take(id).await;
            let line =
                NewLogLine { job: id, fence: claim.fence, level: LogLevel::Info, message: text("hello") };
            node.store.append_logs(&[line]).await.expect("logs answer");
            finish(&node, &claim, end, vec![]).await;
            let fingerprint = Fingerprint::of("tck.Service", "TestError", "boom");
            let alert = NewDlqAlert { job: id, error_hash: format!("{:0>64}", 1), fingerprint, window: HOUR };
            node.store.record_alerts(&[alert]).await.expect("alerts answer");
        }
        let kept = belongings(&node, neighbours[0]).await;
        assert_eq!(kept, (1, 1, 1, 1), "{way:?}");
        fx.advance(Duration::from_millis(1));

        assert_eq!(way.remove(&other, doomed).await, 1, "{way:?}");
        assert_eq!(belongings(&node, doomed).await, (0, 0, 0, 0), "{way:?}");
        assert_eq!(belongings(&node, neighbours[0]).await, kept, "{way:?}");
        let led_to = finish(&node, &node.take(neighbours[0]).await, succeeded(), vec![]).await;
        assert_eq!(led_to.released, neighbours[1..], "{way:?}");
        node.end(&node.take(neighbours[1]).await, succeeded()).await;
        // For the next way to end, which archives every ended job.
        fx.advance(Duration::from_millis(1));
        assert_eq!(archive(&node, &AT_ONCE, 10).await, 2, "{way:?}");
    }
}

/// Returns the numbers of history rows, log lines, alerts and edges of a job.
async fn belongings(peer: &Peer, id: JobId) -> (usize, usize, usize, usize) {
    let store = &peer.store;
    let history = store.executions(id).await.expect("executions answer").len();
    let lines = store.logs(id, None, 10).await.expect("logs answer").len();
    let alerts = store.alerts(id).await.expect("alerts answer").len();
    let edges = store.edges_from(&[id]).await.expect("edges answer").len();
    (history, lines, alerts, edges)
}

pub async fn a_tag_that_comes_late_outlives_no_job(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let late = Tag::new("late").expect("the tag is valid");
    for round in 0..15 {
        let way = Way::ALL[round % Way::ALL.len()];
        let id = dead_letter(&node).await;
        fx.advance(Duration::from_millis(1));
        fx.race(2, |i| {
            let (node, other, late) = (node.clone(), other.clone(), late.clone());
            async move {
                match i {
                    0 => u64::from(node.store.add_tags(id, &[late]).await.expect("tags answer")),
                    _ => way.remove(&other, id).await,
                }
            }
        })
        .await;
        let tagged = node.store.jobs_by_tag(&late, None, 10).await.expect("tags answer");
        let expected = if node.find(id).await.is_some() { vec![id] } else { vec![] };
        assert_eq!(tagged, expected, "{way:?} in round {round}");
        way.remove(&node, id).await;
    }
}

/// The ways in which a dead letter leaves the live tables.
#[derive(Clone, Copy, Debug)]
enum Way {
    Archived,
    Deleted,
    Purged,
}

impl Way {
    const ALL: [Self; 3] = [Self::Archived, Self::Deleted, Self::Purged];

    async fn remove(self, peer: &Peer, id: JobId) -> u64 {
        let removed = match self {
            Self::Archived => peer.store.archive(&AT_ONCE, 10).await,
            Self::Deleted => peer.store.delete(&[id]).await,
            Self::Purged => peer.store.purge_dead_letters(Duration::ZERO, 10).await,
        };
        removed.expect("an answer")
    }
}

/// Stores a job and ends it like this.
async fn ended_job(peer: &Peer, new: NewJob, end: End) -> JobId {
    let claim = peer.running(new).await;
    peer.end(&claim, end).await;
    claim.id
}

async fn archive(peer: &Peer, retention: &Retention, limit: usize) -> u64 {
    peer.store.archive(retention, limit).await.expect("archive answers")
}

/// Returns everything in the archive, newest first.
async fn archived(peer: &Peer) -> Vec<ArchivedJob> {
    peer.store.archived(&ArchiveFilter::default(), 1_000).await.expect("archive answers")
}
