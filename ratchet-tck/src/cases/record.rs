//! Records beside the jobs: history, logs, tags, edges and alerts.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

mod alerts;

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{
    Comparison, Condition, DeadReason, Edge, EdgeState, Effect, End, Execution, ExecutionResult, Fence,
    HandBackReason, Inserted, JobId, JobStatus, LogLevel, LogLine, NewJob, NewLogLine, Outcome, ResultTest,
    Run, Tag, Verdict,
};
use serde_json::json;

use super::keys::lives::{Life, cancel, connections, linked, named};
use crate::case::cases;
use crate::fixture::{error, job, job_with, text};
use crate::{Fixture, Peer};
use alerts::*;

cases! { "record";
    the_history_of_a_job_has_one_row_for_each_attempt: ["execution.listed"] [85 191];
    a_job_without_attempts_has_no_history: ["execution.listed"] [190];
    log_lines_are_kept_in_order_and_stamped_by_the_store: ["log.appended"] [158];
    log_lines_are_read_page_after_page_and_for_one_job_only: ["log.read"] [158];
    lines_that_are_written_together_are_all_kept: ["log.appended", "log.read"] [158];
    only_old_log_lines_are_purged_and_no_more_than_asked: ["log.purge"] [];
    a_reader_misses_no_line_that_was_written_after_a_purge: ["log.read", "log.purge"] [];
    a_tag_is_added_once_to_any_stored_job: ["tag.added"] [190];
    tags_are_taken_off_and_the_others_stay: ["tag.removed"] [];
    jobs_are_found_by_exactly_their_tag_page_after_page: ["tag.found"] [];
    tags_that_are_added_together_are_all_there_once: ["tag.added", "tag.found"] [];
    edges_are_read_as_they_were_given_in_the_order_of_evaluation: ["edge.from"] [];
    edges_are_read_from_the_child_in_the_order_of_storing: ["edge.to"] [];
    what_is_decided_about_an_edge_is_told_at_both_ends: ["edge.from", "edge.to"] [];
    the_same_error_of_the_same_job_is_recorded_once_in_its_window: ["alert.job_window"] [100 101];
    of_like_errors_one_in_a_window_is_told_and_all_are_counted: ["alert.fingerprint_window"] [];
    alerts_of_one_call_are_answered_in_order: ["alert.job_window", "alert.fingerprint_window"] [];
    every_recorded_alert_is_listed_oldest_first: ["alert.listed"] [100];
    like_errors_that_arrive_together_are_told_once_and_counted_exactly: ["alert.fingerprint_window"] [];
    the_same_alert_from_many_connections_is_recorded_once: ["alert.job_window", "alert.listed"] [101];
}

const SECOND: Duration = Duration::from_secs(1);

async fn executions(peer: &Peer, id: JobId) -> Vec<Execution> {
    peer.store.executions(id).await.expect("executions answers")
}

pub async fn the_history_of_a_job_has_one_row_for_each_attempt(fx: Fixture) {
    let (one, two) = (fx.node("one").await, fx.node("two").await);
    let id = one.insert(job()).await;
    let other = one.running(job()).await;
    one.end(&other, End::Succeeded { result: None }).await;
    let hand_back = |reason| End::HandBack { delay: Duration::ZERO, reason };
    let run = Some(Run { started_ago: 5 * SECOND, ran_for: 3 * SECOND });
    let failure = error("once more");
    let dead = End::DeadLetter { error: error("for good"), reason: DeadReason::Exhausted };
    let succeeded = End::Succeeded { result: None };
    let mut expected = Vec::new();
    for (node, end, run, result, attempt) in [
        (&one, End::Retry { delay: Duration::ZERO, error: failure }, run, Some(ExecutionResult::Failed), 1),
        (&two, hand_back(HandBackReason::Released), None, None, 1),
        (&two, hand_back(HandBackReason::Snoozed), run, Some(ExecutionResult::Snoozed), 1),
        (&one, hand_back(HandBackReason::Crashed), None, Some(ExecutionResult::Crashed), 1),
        (&two, dead, run, Some(ExecutionResult::Failed), 2),
        (&one, succeeded, run, Some(ExecutionResult::Succeeded), 0),
    ] {
        fx.advance(Duration::from_mins(1));
        if result == Some(ExecutionResult::Succeeded) {
            one.store.retry(&[id.into()]).await.expect("retry answers");
        }
        let claim = node.take(id).await;
        fx.advance(7 * SECOND);
        let mut outcome = Outcome::new(id, claim.fence, end.clone());
        outcome.run = run;
        let verdict = node.commit(outcome).await;
        assert!(matches!(verdict, Verdict::Recorded(_)), "{verdict:?}");
        let Some(result) = result else { continue };
        let mut row = Execution::new(id, claim.fence, node.owner.clone(), result, attempt, fx.now());
        row.started_at = run.map(|run| fx.now() - run.started_ago);
        row.duration = run.map(|run| run.ran_for);
        if let End::Retry { error, .. } | End::DeadLetter { error, .. } = end {
            row.error_class = Some(error.class.into());
            row.error = Some(error.message.into());
        }
        expected.push(row);
    }

    assert_eq!(executions(&two, id).await, expected);
    assert_eq!(executions(&two, other.id).await.len(), 1, "each job has its own");
}

pub async fn a_job_without_attempts_has_no_history(fx: Fixture) {
    let node = fx.node("a").await;
    for life in [Life::Pending, Life::Running, Life::Paused, Life::HandedBack, Life::CanceledWaiting] {
        let id = life.reach(&node, job()).await;
        assert_eq!(executions(&node, id).await, [], "{life:?}");
    }
    assert_eq!(executions(&node, JobId::generate()).await, []);
}

fn line(job: JobId, message: &str) -> NewLogLine {
    NewLogLine { job, fence: Fence::FIRST, level: LogLevel::Info, message: text(message) }
}

async fn append(peer: &Peer, lines: &[NewLogLine]) {
    peer.store.append_logs(lines).await.expect("append_logs answers");
}

async fn logs(peer: &Peer, job: JobId, after: Option<u64>, limit: usize) -> Vec<LogLine> {
    let lines = peer.store.logs(job, after, limit).await.expect("logs answers");
    assert!(lines.len() <= limit, "at most {limit} lines");
    let first = after.unwrap_or(0);
    assert!(lines.first().is_none_or(|line| after.is_none() || line.seq > first), "{lines:?}");
    assert!(lines.is_sorted_by(|one, next| one.seq < next.seq), "later lines have higher numbers: {lines:?}");
    lines
}

fn messages(lines: &[LogLine]) -> Vec<&str> {
    lines.iter().map(|line| line.message.as_str()).collect()
}

pub async fn log_lines_are_kept_in_order_and_stamped_by_the_store(fx: Fixture) {
    let (writer, other, reader) = (fx.node("writer").await, fx.node("other").await, fx.node("reader").await);
    let id = writer.insert(job()).await;
    let long = "x".repeat(ratchet_api::Sanitized::MAX_LEN);
    let texts =
        ["z", "a", "", " padded ", "two\nlines\t", "a\0b\u{1b}[0m", "'\"\\%_$ne", "e\u{301}é😀", &long];
    let mut expected = Vec::new();
    for (at, message) in texts.into_iter().enumerate() {
        let new = NewLogLine {
            job: id,
            fence: Fence::from_version(at as i64 + 1),
            level: LogLevel::ALL[at % LogLevel::ALL.len()],
            message: text(message),
        };
        if at % 3 == 0 {
            fx.advance(SECOND);
        }
        append(if at % 2 == 0 { &writer } else { &other }, std::slice::from_ref(&new)).await;
        expected.push((fx.now(), new.fence, new.level, String::from(new.message)));
    }
    let together: Vec<_> = (0..20).rev().map(|n| line(id, &format!("line {n}"))).collect();
    append(&writer, &together).await;
    expected
        .extend(together.into_iter().map(|new| (fx.now(), new.fence, new.level, String::from(new.message))));

    let stored = logs(&reader, id, None, 100).await;

    let stored: Vec<_> =
        stored.into_iter().map(|line| (line.at, line.fence, line.level, line.message)).collect();
    assert_eq!(stored, expected);
    append(&writer, &[]).await;
}

pub async fn log_lines_are_read_page_after_page_and_for_one_job_only(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let (mine, yours) = (writer.insert(job()).await, writer.insert(job()).await);
    let of_both: Vec<_> = (0..13)
        .flat_map(|n| [line(mine, &format!("mine {n}")), line(yours, &format!("yours {n}"))])
        .collect();
    append(&writer, &of_both).await;
    let expected: Vec<_> = (0..13).map(|n| format!("mine {n}")).collect();

    for limit in [1, 4, 13, 100] {
        let (mut read, mut after) = (Vec::new(), None);
        loop {
            let page = logs(&reader, mine, after, limit).await;
            let Some(last) = page.last() else { break };
            after = Some(last.seq);
            read.extend(page.into_iter().map(|line| line.message));
            assert!(read.len() <= expected.len(), "no line comes twice");
        }
        assert_eq!(read, expected, "pages of {limit}");
    }
    assert_eq!(logs(&reader, JobId::generate(), None, 10).await, []);
}

pub async fn lines_that_are_written_together_are_all_kept(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    let (mine, yours) = (node.insert(job()).await, node.insert(job()).await);

    fx.race(4, |writer| {
        let store = Arc::clone(&stores[writer]);
        async move {
            for call in 0..5 {
                let lines: Vec<_> = (0..3)
                    .flat_map(|n| [mine, yours].map(|job| line(job, &format!("{writer} {call}{n}"))))
                    .collect();
                store.append_logs(&lines).await.expect("append_logs answers under a race");
            }
        }
    })
    .await;

    for id in [mine, yours] {
        let stored = logs(&node, id, None, 1_000).await;
        assert_eq!(stored.len(), 60);
        for writer in 0..4 {
            let own: Vec<_> =
                stored.iter().filter_map(|line| line.message.strip_prefix(&format!("{writer} "))).collect();
            let expected: Vec<_> =
                (0..5).flat_map(|call| (0..3).map(move |n| format!("{call}{n}"))).collect();
            assert_eq!(own, expected, "each writer's lines in its own order");
        }
    }
}

pub async fn only_old_log_lines_are_purged_and_no_more_than_asked(fx: Fixture) {
    let node = fx.node("a").await;
    let (one, two) = (node.insert(job()).await, node.insert(job()).await);
    append(&node, &[line(one, "old 1"), line(two, "old 2"), line(one, "old 3")]).await;
    fx.advance(10 * SECOND);
    append(&node, &[line(one, "young 1"), line(two, "young 2")]).await;
    let purge =
        async |retention, limit| node.store.purge_logs(retention, limit).await.expect("purge_logs answers");

    assert_eq!(purge(10 * SECOND, 100).await, 0, "ten seconds old is not older than ten seconds");
    fx.advance(Duration::from_millis(1));
    assert_eq!(purge(10 * SECOND, 0).await, 0);
    assert_eq!(purge(10 * SECOND, 2).await, 2);
    let left = logs(&node, one, None, 10).await.len() + logs(&node, two, None, 10).await.len();
    assert_eq!(left, 3);
    assert_eq!(purge(10 * SECOND, 100).await, 1);
    assert_eq!(messages(&logs(&node, one, None, 10).await), ["young 1"]);
    assert_eq!(messages(&logs(&node, two, None, 10).await), ["young 2"]);
    assert_eq!(purge(10 * SECOND, 100).await, 0);
}

pub async fn a_reader_misses_no_line_that_was_written_after_a_purge(fx: Fixture) {
    let node = fx.node("a").await;
    let id = node.insert(job()).await;
    append(&node, &[line(id, "one"), line(id, "two"), line(id, "three")]).await;
    let seen = logs(&node, id, None, 10).await.last().map(|line| line.seq);
    fx.advance(10 * SECOND);
    assert_eq!(node.store.purge_logs(SECOND, 100).await.expect("purge_logs answers"), 3);

    append(&node, &[line(id, "four")]).await;

    assert_eq!(messages(&logs(&node, id, seen, 10).await), ["four"]);
}

async fn tags(peer: &Peer, id: JobId) -> Vec<Tag> {
    let mut tags = peer.job(id).await.spec.tags;
    tags.sort();
    tags
}

fn labels<const N: usize>(texts: [&str; N]) -> Vec<Tag> {
    let mut tags: Vec<Tag> = texts.map(named).to_vec();
    tags.sort();
    tags
}

fn tagged<const N: usize>(texts: [&str; N]) -> NewJob {
    job_with(|new| new.spec.tags = labels(texts))
}

async fn by_tag(peer: &Peer, tag: &str, after: Option<JobId>, limit: usize) -> Vec<JobId> {
    let found = peer.store.jobs_by_tag(&named(tag), after, limit).await.expect("jobs_by_tag answers");
    assert!(found.len() <= limit, "at most {limit} jobs");
    found
}

pub async fn a_tag_is_added_once_to_any_stored_job(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    for life in [Life::Pending, Life::Running, Life::Paused, Life::Succeeded, Life::Failed] {
        let id = life.reach(&node, tagged(["eu"])).await;
        let before = node.job(id).await;
        for new in
            [labels(["eu", "vip"]), labels(["vip", "VIP"]), vec![named("twice"), named("twice")], vec![]]
        {
            assert!(node.store.add_tags(id, &new).await.expect("add_tags answers"), "{life:?}");
        }

        assert_eq!(tags(&reader, id).await, labels(["eu", "vip", "VIP", "twice"]), "{life:?}");
        let mut after = reader.job(id).await;
        after.spec.tags = before.spec.tags.clone();
        assert_eq!(after, before, "{life:?}: nothing else changes");
        for tag in ["eu", "vip", "VIP", "twice"] {
            let found = by_tag(&reader, tag, None, 100).await;
            assert_eq!(found.iter().filter(|found| **found == id).count(), 1, "{life:?} {tag}");
        }
    }
    let unknown = JobId::generate();
    assert!(!node.store.add_tags(unknown, &labels(["eu"])).await.expect("add_tags answers"));
    assert!(!by_tag(&node, "eu", None, 100).await.contains(&unknown));
}

pub async fn tags_are_taken_off_and_the_others_stay(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let other = node.insert(tagged(["eu", "vip"])).await;
    for life in [Life::Pending, Life::Running, Life::Succeeded] {
        let id = life.reach(&node, tagged(["eu", "vip", "Vip", "slow"])).await;

        let gone = labels(["vip", "slow", "never had"]);
        assert!(node.store.remove_tags(id, &gone).await.expect("remove_tags answers"), "{life:?}");

        assert_eq!(tags(&reader, id).await, labels(["eu", "Vip"]), "{life:?}");
        assert!(!by_tag(&reader, "vip", None, 100).await.contains(&id), "{life:?}");
        assert!(by_tag(&reader, "eu", None, 100).await.contains(&id), "{life:?}");
    }
    assert_eq!(tags(&reader, other).await, labels(["eu", "vip"]), "other jobs keep theirs");
    let unknown = JobId::generate();
    assert!(!node.store.remove_tags(unknown, &labels(["eu"])).await.expect("remove_tags answers"));
}

pub async fn jobs_are_found_by_exactly_their_tag_page_after_page(fx: Fixture) {
    let node = fx.node("a").await;
    let alike = ["vip", "VIP", "vip ", "v\u{ed}p", "vi%", "v_p", "vip2", "\u{ff56}ip"];
    let mut expected = vec![Vec::new(); alike.len()];
    for round in 0..5 {
        for (at, tag) in alike.iter().enumerate() {
            let life = if round % 2 == 0 { Life::Pending } else { Life::Succeeded };
            expected[at].push(life.reach(&node, tagged([tag, "all"])).await);
        }
    }
    for (at, tag) in alike.iter().enumerate() {
        for limit in [1, 2, 5, 100] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = by_tag(&node, tag, after, limit).await;
                let Some(last) = page.last() else { break };
                after = Some(*last);
                found.extend(page);
                assert!(found.len() <= expected[at].len(), "{tag:?}: no job comes twice");
            }
            assert_eq!(found, expected[at], "{tag:?} in pages of {limit}, lowest first");
        }
    }
    let mut everyone = expected.concat();
    everyone.sort();
    assert_eq!(by_tag(&node, "all", None, 1_000).await, everyone);
    assert_eq!(by_tag(&node, "none", None, 10).await, []);
}

pub async fn tags_that_are_added_together_are_all_there_once(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    for round in 0..5 {
        let id = node.insert(tagged(["first"])).await;

        let added = fx
            .race(4, |i| {
                let store = Arc::clone(&stores[i]);
                async move {
                    let mut tags = vec![named("shared"), named(&format!("own {i}")), named("first")];
                    if i % 2 == 1 {
                        tags.reverse();
                    }
                    store.add_tags(id, &tags).await.expect("add_tags answers under a race")
                }
            })
            .await;

        assert_eq!(added, [true; 4], "round {round}");
        let all = labels(["first", "shared", "own 0", "own 1", "own 2", "own 3"]);
        assert_eq!(tags(&node, id).await, all, "round {round}");
    }
    assert_eq!(by_tag(&node, "shared", None, 100).await.len(), 5);
}

/// Returns every kind of condition, with values that are easily distorted by storing.
fn conditions() -> Vec<Condition> {
    let test =
        |pointer: &str, op, value| Condition::ResultValue(ResultTest { pointer: pointer.into(), op, value });
    vec![
        Condition::Success,
        Condition::Failure,
        test("", Comparison::Eq, json!(null)),
        test("/a~1b/0/%_'\"\\", Comparison::Ne, json!({ "b": [1, 2.5, "é"], "a": { "$ne": 1 } })),
        test("/total", Comparison::Lt, json!(9_007_199_254_740_993_i64)),
        test("/total", Comparison::Le, json!(u64::MAX)),
        test("/total", Comparison::Gt, json!(-0.1)),
        test("/total", Comparison::Ge, json!("10 ")),
        Condition::Custom("vip ✓ '\"\\".into()),
        Condition::BatchSuccess,
        Condition::BatchFailure,
        Condition::BatchSuccessRate(0.0),
        Condition::BatchSuccessRate(0.1 + 0.2),
        Condition::BatchSuccessRate(1.0),
        Condition::BatchFailureCount(0),
        Condition::BatchFailureCount(3_000_000_000),
        Condition::BatchCustom("enough".into()),
    ]
}

async fn edges_from(peer: &Peer, parents: &[JobId]) -> Vec<Edge> {
    peer.store.edges_from(parents).await.expect("edges_from answers")
}

async fn edges_to(peer: &Peer, children: &[JobId]) -> Vec<Edge> {
    peer.store.edges_to(children).await.expect("edges_to answers")
}

/// Makes an edge from `parent` to `child` with this evaluation priority.
fn edge(parent: JobId, child: JobId, priority: i32) -> Edge {
    let mut edge = Edge::new(parent, child, Condition::Success);
    edge.priority = priority;
    edge
}

pub async fn edges_are_read_as_they_were_given_in_the_order_of_evaluation(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let (one, two, stranger) =
        (writer.insert(job()).await, writer.insert(job()).await, writer.insert(job()).await);
    let mut given = Vec::new();
    for (at, condition) in conditions().into_iter().enumerate() {
        let child = job();
        let mut new = Edge::new(if at % 3 == 0 { two } else { one }, child.spec.id, condition);
        new.priority = [0, i32::MAX, -1, 0, i32::MIN][at % 5];
        new.if_ended = [None, Some(EdgeState::Satisfied), Some(EdgeState::Refused)][at % 3];
        let unrelated = edge(stranger, child.spec.id, 0);
        let submission = linked(vec![child], vec![new.clone(), unrelated]);
        assert_eq!(writer.submit(submission).await, Inserted::New);
        // The field concerns only the moment of the insert.
        new.if_ended = None;
        given.push(new);
    }
    given.sort_by_key(|edge| edge.priority);

    assert_eq!(edges_from(&reader, &[one, two]).await, given);
    let of_two: Vec<_> = given.iter().filter(|edge| edge.parent == two).cloned().collect();
    assert_eq!(edges_from(&reader, &[two, JobId::generate()]).await, of_two);
    assert_eq!(edges_from(&reader, &[]).await, []);
}

pub async fn edges_are_read_from_the_child_in_the_order_of_storing(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    let jobs: Vec<_> = (0..6).map(|_| job()).collect();
    let ids: Vec<_> = jobs.iter().map(|new| new.spec.id).collect();
    let to_last = [edge(ids[3], ids[5], 9), edge(ids[0], ids[5], 0), edge(ids[4], ids[5], -3)];
    let to_middle = [edge(ids[2], ids[3], 0), edge(ids[1], ids[3], 0)];
    let given = [
        to_last[0].clone(),
        to_middle[0].clone(),
        to_last[1].clone(),
        to_middle[1].clone(),
        to_last[2].clone(),
    ];
    assert_eq!(writer.submit(linked(jobs, given.to_vec())).await, Inserted::New);

    assert_eq!(edges_to(&reader, &[ids[5]]).await, to_last);
    assert_eq!(edges_to(&reader, &[ids[3], ids[5]]).await, given);
    assert_eq!(edges_to(&reader, &[ids[0], JobId::generate()]).await, []);
    assert_eq!(edges_to(&reader, &[]).await, []);
}

pub async fn what_is_decided_about_an_edge_is_told_at_both_ends(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let jobs: Vec<_> = (0..4).map(|_| job()).collect();
    let [parent, satisfied, refused, plain] = [0, 1, 2, 3].map(|at: usize| jobs[at].spec.id);
    let custom = || Condition::Custom("vip".into());
    let edges = vec![
        Edge::new(parent, satisfied, custom()),
        Edge::new(parent, refused, custom()),
        Edge::new(parent, plain, Condition::Failure),
    ];
    assert_eq!(node.submit(linked(jobs, edges.clone())).await, Inserted::New);
    assert_eq!(edges_from(&reader, &[parent]).await, edges, "open at first");
    let claim = node.take(parent).await;
    let mut outcome = Outcome::new(parent, claim.fence, End::Succeeded { result: None });
    outcome.edges_seen = 3;
    outcome.effects = vec![Effect::Refuse(refused), Effect::Satisfy(satisfied)];
    let verdict = node.commit(outcome).await;
    assert!(matches!(verdict, Verdict::Recorded(_)), "{verdict:?}");

    let mut decided = edges;
    decided[0].state = EdgeState::Satisfied;
    decided[1].state = EdgeState::Refused;
    decided[2].state = EdgeState::Refused;
    assert_eq!(edges_from(&reader, &[parent]).await, decided);
    assert_eq!(edges_to(&reader, &[satisfied, refused, plain]).await, decided);

    let (waiting, follower) = (node.insert(job()).await, job());
    let open = edge(waiting, follower.spec.id, 0);
    let follower_id = follower.spec.id;
    assert_eq!(node.submit(linked(vec![follower], vec![open.clone()])).await, Inserted::New);
    cancel(&node, waiting).await;
    assert_eq!(
        edges_to(&reader, &[follower_id]).await.first().map(|edge| edge.state),
        Some(EdgeState::Refused)
    );
    assert_eq!(reader.status(follower_id).await, JobStatus::Canceled);
}
