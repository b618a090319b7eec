//! Queries for people and tools: lists, histories, queues, dead letters, schedules and batches.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

mod overview;

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::{JobFilter, JobPage, PageRequest};
use ratchet_api::{
    Condition, DeadReason, Edge, End, Fingerprint, Inserted, Job, JobId, JobPayload, JobStatus, JobType,
    JsonText, LogLevel, NewDlqAlert, NewJob, NewLogLine, QueueName, Submission, Timestamp,
};

use super::keys::lives::{Life, connections, holding, linked, named};
use super::load::spoil;
use crate::case::cases;
use crate::fixture::{error, job, job_with, text};
use crate::{Fixture, Peer, Spoil};
use overview::*;

cases! { "query";
    an_empty_filter_lists_every_job_newest_first: ["query.filter"] [];
    each_field_restricts_by_its_value: ["query.filter"] [156 190];
    jobs_are_found_by_when_they_ended: ["query.filter"] [];
    dead_letters_are_found_by_their_fingerprint: ["query.filter"] [97];
    fields_restrict_together: ["query.filter"] [];
    jobs_are_found_by_the_state_that_readers_see: ["query.filter", "find.canceled_early"] [22];
    values_are_never_taken_for_patterns: ["query.filter"] [];
    pages_show_every_job_once: ["query.pages"] [];
    pages_are_not_disturbed_by_what_happens_meanwhile: ["query.pages"] [];
    pages_read_while_others_write_show_every_job_once: ["query.pages"] [];
    an_unreadable_row_is_named_and_hides_no_other: ["query.unreadable", "query.pages"] [];
    a_story_tells_everything_about_one_job: ["query.story"] [190 191];
    a_job_that_does_not_exist_has_no_story: ["query.story"] [];
    a_queue_counts_its_jobs_by_what_they_wait_for: ["query.health"] [];
    a_queue_is_told_as_it_is_now: ["query.health"] [];
    queues_are_listed_by_name_if_they_have_jobs_or_are_paused: ["query.health"] [];
    a_schedule_is_never_ready: ["query.health"] [];
    counts_are_those_of_one_moment: ["query.health"] [];
    dead_letters_are_grouped_by_fingerprint: ["query.dead_letters"] [97];
    only_failed_jobs_are_dead_letters: ["query.dead_letters"] [97];
    schedules_are_listed_by_key_with_their_next_fire: ["query.recurring"] [149];
    batches_are_listed_newest_first_page_after_page: ["query.batches"] [192];
}

const SECOND: Duration = Duration::from_secs(1);

async fn page(peer: &Peer, filter: &JobFilter, after: Option<JobId>, limit: usize) -> JobPage {
    peer.store.query_jobs(filter, &PageRequest { after, limit }).await.expect("query_jobs answers")
}

fn ids(page: &JobPage) -> Vec<JobId> {
    page.jobs.iter().map(|job| job.spec.id).collect()
}

async fn found(peer: &Peer, filter: &JobFilter) -> Vec<JobId> {
    let page = page(peer, filter, None, 1_000).await;
    assert_eq!(page.next, None, "everything fits one page");
    ids(&page)
}

fn filter(change: impl FnOnce(&mut JobFilter)) -> JobFilter {
    let mut filter = JobFilter::default();
    change(&mut filter);
    filter
}

fn newest_first(mut ids: Vec<JobId>) -> Vec<JobId> {
    ids.sort();
    ids.reverse();
    ids
}

fn target(name: &str) -> JobPayload {
    JobPayload::new(name, "run", &JsonText::from_stored("[]")).expect("the names are valid")
}

fn in_queue(queue: &str) -> NewJob {
    job_with(|new| new.spec.queue = named(queue))
}

pub async fn an_empty_filter_lists_every_job_newest_first(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    assert_eq!(found(&reader, &JobFilter::default()).await, []);
    let (oldest, middle, newest) = (job(), job(), job());
    let expected = [newest.spec.id, middle.spec.id, oldest.spec.id];
    for new in [middle, newest, oldest] {
        writer.insert(new).await;
        fx.advance(SECOND);
    }

    let all = page(&reader, &JobFilter::default(), None, 10).await;

    assert_eq!(ids(&all), expected, "by id, not by the time of storing");
    for listed in &all.jobs {
        assert_eq!(*listed, reader.job(listed.spec.id).await, "jobs are listed as they are read");
    }
}

pub async fn each_field_restricts_by_its_value(fx: Fixture) {
    let node = fx.node("a").await;
    let start = fx.now();
    let plain = node.insert(job()).await;
    fx.advance(SECOND);
    let queued = node.insert(in_queue("mail")).await;
    let other_queue = node.insert(in_queue("Mail")).await;
    fx.advance(SECOND);
    let typed = node.insert(job_with(|new| new.spec.job_type = JobType::Callback)).await;
    let aimed = node.insert(job_with(|new| new.spec.payload = target("billing.Pay"))).await;
    let refund = JobPayload::new("tck.Till", "refund", &JsonText::from_stored("[]")).expect("valid names");
    let method = node.insert(job_with(|new| new.spec.payload = refund)).await;
    let keyed = node.insert(holding("order-1")).await;
    let tagged = node.insert(job_with(|new| new.spec.tags = vec![named("eu"), named("vip")])).await;
    let half_tagged = node.insert(job_with(|new| new.spec.tags = vec![named("eu")])).await;
    let called = node.insert(job_with(|new| new.spec.caller_principal = Some("ann".into()))).await;
    let everything =
        vec![plain, queued, other_queue, typed, aimed, method, keyed, tagged, half_tagged, called];
    let but = |without: &[JobId]| everything.iter().copied().filter(|id| !without.contains(id)).collect();

    for (restricted, expected) in [
        (filter(|it| it.queue = Some(named("mail"))), vec![queued]),
        (filter(|it| it.queue = Some(named("mai"))), vec![]),
        (filter(|it| it.queue = Some(QueueName::default())), but(&[queued, other_queue])),
        (filter(|it| it.types = vec![JobType::Callback]), vec![typed]),
        (filter(|it| it.types = vec![JobType::Callback, JobType::Single]), everything.clone()),
        (filter(|it| it.types = vec![JobType::ChainStep]), vec![]),
        (filter(|it| it.target = Some(named("billing.Pay"))), vec![aimed]),
        (filter(|it| it.target = Some(named("billing"))), vec![]),
        (filter(|it| it.method = Some(named("refund"))), vec![method]),
        (filter(|it| it.method = Some(named("ref"))), vec![]),
        (filter(|it| it.business_key = Some(named("order-1"))), vec![keyed]),
        (filter(|it| it.tags = vec![named("eu")]), vec![tagged, half_tagged]),
        (filter(|it| it.tags = vec![named("eu"), named("vip")]), vec![tagged]),
        (filter(|it| it.tags = vec![named("eu"), named("us")]), vec![]),
        (filter(|it| it.caller_principal = Some("ann".into())), vec![called]),
        (filter(|it| it.caller_principal = Some("an".into())), vec![]),
        (filter(|it| it.created_from = Some(start)), everything.clone()),
        (filter(|it| it.created_from = Some(start + SECOND)), but(&[plain])),
        (filter(|it| it.created_until = Some(start)), vec![]),
        (filter(|it| it.created_until = Some(start + SECOND)), vec![plain]),
        (filter(|it| it.statuses = vec![JobStatus::Pending]), everything.clone()),
        (filter(|it| it.statuses = vec![JobStatus::Running]), vec![]),
    ] {
        assert_eq!(found(&node, &restricted).await, newest_first(expected), "{restricted:?}");
    }
}

pub async fn jobs_are_found_by_when_they_ended(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let mut moments = vec![fx.now()];
    for life in Life::LIVE.into_iter().chain(Life::ENDED) {
        fx.advance(SECOND);
        life.reach(&node, job()).await;
        moments.push(fx.now());
    }
    fx.advance(SECOND);
    let failed = filter(|it| it.statuses = vec![JobStatus::Failed]);
    let retried = found(&node, &failed).await[0];
    node.store.retry(&[retried.into()]).await.expect("retry answers");

    let all = page(&reader, &JobFilter::default(), None, 1_000).await.jobs;
    let ended = |wanted: &dyn Fn(Timestamp) -> bool| -> Vec<JobId> {
        let ended = |job: &&Job| job.ending.as_ref().is_some_and(|ending| wanted(ending.terminated_at));
        all.iter().filter(ended).map(|job| job.spec.id).collect()
    };
    assert!(ended(&|_| true).len() >= Life::ENDED.len() - 1);
    for moment in moments {
        let from = filter(|it| it.ended_from = Some(moment));
        assert_eq!(found(&reader, &from).await, ended(&|at| at >= moment), "{from:?}");
        let until = filter(|it| it.ended_until = Some(moment));
        assert_eq!(found(&reader, &until).await, ended(&|at| at < moment), "{until:?}");
    }
}

pub async fn dead_letters_are_found_by_their_fingerprint(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let fail = async |message: &str| {
        let claim = node.running(job()).await;
        node.end(&claim, End::DeadLetter { error: error(message), reason: DeadReason::Exhausted }).await;
        claim.id
    };
    let alike = [fail("no answer after 31 ms").await, fail("no answer after 7 ms").await];
    let other = fail("refused").await;
    let [paused, given_up, retried] = [
        fail("no answer after 1 ms").await,
        fail("no answer after 2 ms").await,
        fail("no answer after 3 ms").await,
    ];
    node.store.pause(&[paused.into(), given_up.into()]).await.expect("pause answers");
    node.store.cancel(&[given_up.into()], &text("enough")).await.expect("cancel answers");
    node.store.retry(&[retried.into()]).await.expect("retry answers");
    // It fails in the same way, but is retried.
    let claim = node.running(job()).await;
    node.end(&claim, End::Retry { delay: SECOND, error: error("no answer after 4 ms") }).await;

    let by = |message| filter(|it| it.fingerprint = Some(error(message).fingerprint));
    let slow = by("no answer after 9 ms");
    assert_eq!(found(&reader, &slow).await, newest_first(vec![alike[0], alike[1], paused, given_up]));
    let mut failed = slow.clone();
    failed.statuses = vec![JobStatus::Failed];
    assert_eq!(found(&reader, &failed).await, newest_first(alike.to_vec()));
    assert_eq!(found(&reader, &by("refused")).await, [other]);
    assert_eq!(found(&reader, &by("lost")).await, []);
}

pub async fn fields_restrict_together(fx: Fixture) {
    let node = fx.node("a").await;
    let alike = |queue: &str, tag: &str| {
        job_with(|new| {
            new.spec.queue = named(queue);
            new.spec.tags = vec![named(tag)];
            new.spec.caller_principal = Some("ann".into());
        })
    };
    let wanted = Life::Failed.reach(&node, alike("mail", "eu")).await;
    for (queue, tag, life) in [
        ("mail", "us", Life::Failed),
        ("post", "eu", Life::Failed),
        ("mail", "eu", Life::Pending),
        ("mail", "eu", Life::Succeeded),
    ] {
        life.reach(&node, alike(queue, tag)).await;
    }
    let narrow = filter(|it| {
        it.statuses = vec![JobStatus::Failed, JobStatus::Canceled];
        it.types = vec![JobType::Single];
        it.queue = Some(named("mail"));
        it.tags = vec![named("eu")];
        it.caller_principal = Some("ann".into());
        it.created_from = Some(fx.now());
    });

    assert_eq!(found(&node, &narrow).await, [wanted]);
}

pub async fn jobs_are_found_by_the_state_that_readers_see(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    // Some states can be reached only with another job, which waits in the default queue.
    let mut reached = Vec::new();
    for life in Life::LIVE.into_iter().chain(Life::ENDED) {
        reached.push((life, life.reach(&node, in_queue("seen")).await));
    }
    for status in JobStatus::ALL {
        let restricted = filter(|it| {
            it.queue = Some(named("seen"));
            it.statuses = vec![status];
        });
        let expected = reached.iter().filter(|(life, _)| life.status() == status).map(|(_, id)| *id);
        assert_eq!(found(&reader, &restricted).await, newest_first(expected.collect()), "{status}");
    }
}

pub async fn values_are_never_taken_for_patterns(fx: Fixture) {
    let node = fx.node("a").await;
    let values = [
        "a",
        "A",
        "a ",
        "\u{e0}",
        "%",
        "_",
        "a%",
        "*",
        ".*",
        "^a$",
        "a|b",
        "\\",
        "\\%",
        "'",
        "''",
        "' OR '1'='1",
        "\"",
        "`",
        "$ne",
        "$a",
        "{\"$gt\":\"\"}",
        "{\"$regex\":\".*\"}",
        "null",
        "[]",
        ":queue",
        "?",
        "$1",
    ];
    let mut jobs = Vec::new();
    for value in values {
        let new = job_with(|new| {
            new.spec.queue = named(value);
            new.spec.payload = target(value);
            new.spec.tags = vec![named(value)];
            new.spec.business_key = Some(named(value));
            new.spec.caller_principal = Some(value.to_owned());
        });
        jobs.push((value, node.insert(new).await));
    }
    for (value, id) in jobs {
        for exact in [
            filter(|it| it.queue = Some(named(value))),
            filter(|it| it.target = Some(named(value))),
            filter(|it| it.tags = vec![named(value)]),
            filter(|it| it.business_key = Some(named(value))),
            filter(|it| it.caller_principal = Some(value.to_owned())),
        ] {
            assert_eq!(found(&node, &exact).await, [id], "{exact:?}");
        }
    }
}

/// Reads page after page to the end.
async fn walk(peer: &Peer, filter: &JobFilter, limit: usize) -> (Vec<JobId>, Vec<JobId>) {
    let (mut readable, mut unreadable, mut after) = (Vec::new(), Vec::new(), None);
    for _ in 0..1_000 {
        let page = page(peer, filter, after, limit).await;
        assert!(page.jobs.len() + page.unreadable.len() <= limit, "at most {limit} rows");
        readable.extend(ids(&page));
        unreadable.extend(&page.unreadable);
        match page.next {
            Some(next) => after = Some(next),
            None => return (readable, unreadable),
        }
    }
    panic!("the pages never end");
}

pub async fn pages_show_every_job_once(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let jobs: Vec<_> = (0..12).map(|_| in_queue("mail")).collect();
    let expected = newest_first(jobs.iter().map(|new| new.spec.id).collect());
    for new in jobs {
        writer.insert(new).await;
        writer.insert(job()).await;
    }
    let mail = filter(|it| it.queue = Some(named("mail")));
    for limit in [1, 5, 6, 11, 12, 13] {
        assert_eq!(walk(&reader, &mail, limit).await, (expected.clone(), vec![]), "pages of {limit}");
    }
    let last = page(&reader, &mail, Some(expected[5]), 6).await;
    assert_eq!((ids(&last), last.next), (expected[6..].to_vec(), None), "a full last page is the last");
}

pub async fn pages_are_not_disturbed_by_what_happens_meanwhile(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let pending = filter(|it| it.statuses = vec![JobStatus::Pending]);
    let mut stored = Vec::new();
    for _ in 0..12 {
        stored.push(node.insert(job()).await);
    }
    stored.reverse();

    let first = page(&node, &pending, None, 4).await;
    assert_eq!(ids(&first), stored[..4]);
    for _ in 0..3 {
        other.insert(job()).await;
    }
    // Deletes a job that was listed, the one that the next page starts after, and one that was not listed yet.
    for gone in [stored[1], stored[3], stored[6]] {
        let claim = other.take(gone).await;
        other.end(&claim, End::Succeeded { result: None }).await;
        assert_eq!(other.store.delete(&[gone]).await.expect("delete answers"), 1);
    }
    let second = page(&node, &pending, first.next, 4).await;
    assert_eq!(ids(&second), [stored[4], stored[5], stored[7], stored[8]]);
    other.insert(job()).await;
    let third = page(&node, &pending, second.next, 4).await;
    assert_eq!((ids(&third), third.next), (stored[9..].to_vec(), None));
}

pub async fn pages_read_while_others_write_show_every_job_once(fx: Fixture) {
    let (node, writers) = (fx.node("a").await, connections(&fx, 2).await);
    let mut stored = Vec::new();
    for _ in 0..15 {
        stored.push(node.insert(job()).await);
    }
    let expected = newest_first(stored);

    let seen = fx
        .race(3, |i| {
            let (reader, writer) = (node.clone(), writers.get(i).map(Arc::clone));
            async move {
                let Some(writer) = writer else {
                    return walk(&reader, &JobFilter::default(), 2).await.0;
                };
                for _ in 0..15 {
                    let inserted = writer.insert(&[Submission::single(job())]).await;
                    assert_eq!(inserted.expect("insert answers"), [Inserted::New]);
                }
                Vec::new()
            }
        })
        .await
        .remove(2);

    let old: Vec<_> = seen.iter().copied().filter(|id| expected.contains(id)).collect();
    assert_eq!(old, expected, "what was there before is seen once");
    assert!(seen.is_sorted_by(|newer, older| newer > older), "nothing is seen twice: {seen:?}");
}

pub async fn an_unreadable_row_is_named_and_hides_no_other(fx: Fixture) {
    let node = fx.node("a").await;
    let mut stored = Vec::new();
    for _ in 0..7 {
        stored.push(node.insert(job()).await);
    }
    spoil(&fx, stored[2], Spoil::UnknownBackoff).await;
    spoil(&fx, stored[5], Spoil::UnknownType).await;
    let readable = newest_first([0, 1, 3, 4, 6].map(|at: usize| stored[at]).to_vec());
    let unreadable = vec![stored[5], stored[2]];

    for limit in [1, 2, 3, 7, 100] {
        let (jobs, named) = walk(&node, &JobFilter::default(), limit).await;
        assert_eq!((jobs, newest_first(named)), (readable.clone(), unreadable.clone()), "pages of {limit}");
    }
}

pub async fn a_story_tells_everything_about_one_job(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let jobs = vec![job(), job(), job(), job()];
    let [parent, id, low, high] = [0, 1, 2, 3].map(|at: usize| jobs[at].spec.id);
    let mut late = Edge::new(id, low, Condition::Failure);
    late.priority = 2;
    let edges =
        vec![Edge::new(parent, id, Condition::Success), late, Edge::new(id, high, Condition::Success)];
    assert_eq!(node.submit(linked(jobs, edges)).await, Inserted::New);
    let done = node.take(parent).await;
    let mut outcome = ratchet_api::Outcome::new(done.id, done.fence, End::Succeeded { result: None });
    outcome.edges_seen = 1;
    node.commit(outcome).await;
    let first = node.take(id).await;
    node.end(&first, End::Retry { delay: Duration::ZERO, error: error("once more") }).await;
    let second = node.take(id).await;
    let mut outcome = ratchet_api::Outcome::new(id, second.fence, dead("for good"));
    outcome.edges_seen = 2;
    node.commit(outcome).await;
    let line = |job, fence, message| NewLogLine { job, fence, level: LogLevel::Info, message: text(message) };
    let lines =
        [line(id, first.fence, "one"), line(parent, done.fence, "not mine"), line(id, second.fence, "two")];
    node.store.append_logs(&lines).await.expect("append_logs answers");
    node.store.record_alerts(&[alert(id, "for good")]).await.expect("record_alerts answers");

    let story = reader.store.job_story(id).await.expect("job_story answers").expect("the job exists");

    let store = &reader.store;
    assert_eq!(story.job, reader.job(id).await);
    assert_eq!(story.job.status, JobStatus::Failed);
    assert_eq!(story.executions, store.executions(id).await.expect("executions answers"));
    assert_eq!(story.executions.iter().map(|row| row.fence).collect::<Vec<_>>(), [first.fence, second.fence]);
    assert_eq!(story.logs, store.logs(id, None, 100).await.expect("logs answers"));
    assert_eq!(story.logs.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(story.parents, store.edges_to(&[id]).await.expect("edges_to answers"));
    assert_eq!(story.parents.iter().map(|edge| edge.parent).collect::<Vec<_>>(), [parent]);
    assert_eq!(story.dependents, store.edges_from(&[id]).await.expect("edges_from answers"));
    assert_eq!(story.dependents.iter().map(|edge| edge.child).collect::<Vec<_>>(), [high, low]);
    assert_eq!(story.alerts, store.alerts(id).await.expect("alerts answers"));
    assert_eq!(story.alerts.len(), 1);
}

fn dead(message: &str) -> End {
    End::DeadLetter { error: error(message), reason: DeadReason::Exhausted }
}

fn alert(job: JobId, message: &str) -> NewDlqAlert {
    let fingerprint = Fingerprint::of("tck.Service", "TestError", message);
    NewDlqAlert { job, error_hash: "0f".repeat(32), fingerprint, window: Duration::from_hours(1) }
}

pub async fn a_job_that_does_not_exist_has_no_story(fx: Fixture) {
    let node = fx.node("a").await;
    let deleted = Life::Succeeded.reach(&node, job()).await;
    assert_eq!(node.store.delete(&[deleted]).await.expect("delete answers"), 1);
    for unknown in [JobId::generate(), deleted] {
        assert_eq!(node.store.job_story(unknown).await.expect("job_story answers"), None);
    }
}
