//! Reads of jobs: by their owner just before they run, and by anybody at any time.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{Loaded, ProgressReport};
use ratchet_api::{
    Backoff, Condition, Edge, Effect, End, Fence, HandBackReason, Inserted, JobClaim, JobId, JobPriority,
    JobStatus, JobType, JsonText, Needs, NewJob, Outcome, QueueName, StoreErrorKind, Timestamp, Verdict,
};

use super::keys::lives::{Life, cancel, linked, named};
use crate::case::cases;
use crate::fixture::{call, error, job, job_with, payload};
use crate::{Fixture, Peer, Spoil};

cases! { "load";
    a_claimed_job_is_loaded_in_full: ["load.fenced", "load.whole"] [69];
    a_job_is_loaded_with_all_that_it_has_whatever_else_it_has_not: ["load.whole"] [];
    nobody_but_its_owner_loads_a_job: ["load.fenced"] [26];
    only_the_fence_of_the_present_claim_loads_a_job: ["load.fenced"] [26 172];
    a_job_that_was_claimed_again_is_lost_to_its_first_claim: ["load.fenced"] [26];
    a_recovered_job_is_lost_to_its_dead_owner: ["load.fenced"] [186];
    a_job_that_is_to_be_canceled_says_so: ["load.cancel"] [74];
    answers_come_in_the_order_of_the_questions: ["load.fenced", "load.cancel", "find.present"] [];
    all_edges_come_with_a_job_in_the_order_of_evaluation: ["load.edges"] [];
    an_unreadable_row_is_told_for_itself_alone: ["load.corrupt"] [];
    an_unreadable_row_is_an_error_that_names_it: ["find.corrupt"] [];
    every_change_is_seen_at_once_on_any_connection: ["find.present"] [4 8];
    a_running_job_reads_as_canceled_from_the_moment_it_is_called_off: ["find.canceled_early"] [35];
    jobs_that_do_not_exist_are_told_in_their_place: ["find.present"] [];
}

/// Damages a row; fails if the harness cannot do so, because the case would then prove nothing.
pub(super) async fn spoil(fx: &Fixture, job: JobId, how: Spoil) {
    let spoiled = fx.spoil(job, how).await;
    assert!(spoiled, "this harness cannot damage a row: give its namespaces `Namespace::on_spoil`");
}

async fn load(peer: &Peer, claims: &[JobClaim]) -> Vec<Loaded> {
    let loaded = peer.store.load(&peer.owner, claims).await.expect("load answers");
    assert_eq!(loaded.len(), claims.len(), "one answer for each claim");
    loaded
}

async fn load_one(peer: &Peer, claim: &JobClaim) -> Loaded {
    load(peer, std::slice::from_ref(claim)).await.remove(0)
}

/// Returns the same claim with another fence.
fn under(claim: &JobClaim, fence: Fence) -> JobClaim {
    let mut other = claim.clone();
    other.fence = fence;
    other
}

/// Makes a claim that no store handed out.
fn made_up(fx: &Fixture, id: JobId, fence: Fence) -> JobClaim {
    JobClaim::new(id, fence, QueueName::default(), fx.now(), fx.now())
}

pub async fn a_claimed_job_is_loaded_in_full(fx: Fixture) {
    let (worker, reader) = (fx.node("worker").await, fx.node("reader").await);
    let first = worker.running(job()).await;
    worker.end(&first, End::Retry { delay: Duration::ZERO, error: error("once more") }).await;
    let claim = worker.take(first.id).await;

    let loaded = load_one(&worker, &claim).await;

    let expected = reader.job(claim.id).await;
    assert_eq!((expected.status, expected.attempts), (JobStatus::Running, 1));
    assert_eq!(loaded, Loaded::Job(Box::new(expected), vec![]));
}

pub async fn a_job_is_loaded_with_all_that_it_has_whatever_else_it_has_not(fx: Fixture) {
    let (node, reader) = (fx.node("worker").await, fx.node("reader").await);
    let mut claims = Vec::new();
    for new in jobs_with_one_thing_each(fx.now()) {
        claims.push(node.running(new).await);
    }
    claims.push(reporting(&node).await);
    claims.push(waiting_for_another(&node).await);

    let loaded = load(&node, &claims).await;

    for (claim, loaded) in claims.iter().zip(loaded) {
        let expected = reader.job(claim.id).await;
        assert_eq!(loaded, Loaded::Job(Box::new(expected), vec![]));
    }
}

fn jobs_with_one_thing_each(now: Timestamp) -> Vec<NewJob> {
    let changes: [&dyn Fn(&mut NewJob); 16] = [
        &|new| new.spec.tags = vec![named("a"), named("b")],
        &|new| new.spec.params = Some(JsonText::from_stored(r#"{"a": 1.0}"#)),
        &|new| new.spec.expires_at = Some(now + Duration::from_hours(1)),
        &|new| new.spec.resource = Some(named("gateway")),
        &|new| new.spec.caller_principal = Some("jane".to_owned()),
        &|new| new.spec.on_success = Some(call("[1]")),
        &|new| new.spec.on_failure = Some(call("[2]")),
        &|new| new.spec.idempotency_key = Some(named("once")),
        &|new| new.spec.business_key = Some(named("alone")),
        &|new| new.spec.trace_context = Some("00-1-2-03".to_owned()),
        &|new| new.spec.timeout = Some(Duration::from_secs(9)),
        &|new| new.spec.backoff = Backoff::Fixed(Duration::from_secs(7)),
        &|new| new.spec.max_retries = 3,
        &|new| new.spec.priority = JobPriority::High,
        &|new| new.spec.queue = named("other"),
        &|new| new.spec.job_type = JobType::Callback,
    ];
    changes.into_iter().map(job_with).collect()
}

/// Claims a job that has reported progress.
async fn reporting(node: &Peer) -> JobClaim {
    let claim = node.running(job()).await;
    let report = ProgressReport { id: claim.id, fence: claim.fence, done: 1, total: Some(2), message: None };
    assert_eq!(node.store.report_progress(&[report]).await.expect("progress answers"), [true]);
    claim
}

/// Claims a job that needed one of its two parents and may still get the other.
async fn waiting_for_another(node: &Peer) -> JobClaim {
    let (one, other) = (job(), job());
    let any = job_with(|new| new.needs = Needs::AtLeast(1));
    let (parent, id) = (one.spec.id, any.spec.id);
    let edges = [parent, other.spec.id].map(|parent| Edge::new(parent, id, Condition::Success));
    assert_eq!(node.submit(linked(vec![one, other, any], edges.into())).await, Inserted::New);
    let claim = node.take(parent).await;
    let mut outcome = Outcome::new(parent, claim.fence, End::Succeeded { result: None });
    outcome.effects = vec![Effect::Satisfy(id)];
    outcome.edges_seen = 1;
    let verdict = node.commit(outcome).await;
    assert!(matches!(verdict, Verdict::Recorded(_)), "{verdict:?}");
    node.take(id).await
}

pub async fn nobody_but_its_owner_loads_a_job(fx: Fixture) {
    let (owner, other) = (fx.node("owner").await, fx.node("other").await);
    let claim = owner.running(job()).await;

    assert_eq!(load_one(&other, &claim).await, Loaded::Lost);

    assert!(matches!(load_one(&owner, &claim).await, Loaded::Job(..)));
}

pub async fn only_the_fence_of_the_present_claim_loads_a_job(fx: Fixture) {
    let node = fx.node("a").await;
    for life in Life::LIVE.into_iter().chain(Life::ENDED) {
        let id = life.reach(&node, job()).await;
        let present = node.job(id).await.fence;
        let wrong = [Fence::from_version(0), Fence::from_version(present.version() - 1), present.next()];
        for fence in wrong {
            let claim = made_up(&fx, id, fence);
            assert_eq!(load_one(&node, &claim).await, Loaded::Lost, "{life:?} under {fence}");
        }
        let loaded = load_one(&node, &made_up(&fx, id, present)).await;
        match life {
            Life::Running => assert!(matches!(loaded, Loaded::Job(..)), "{loaded:?}"),
            Life::CancelRequested => assert_eq!(loaded, Loaded::CancelRequested),
            _ => assert_eq!(loaded, Loaded::Lost, "{life:?} is held by nobody"),
        }
    }
    assert_eq!(load_one(&node, &made_up(&fx, JobId::generate(), Fence::FIRST)).await, Loaded::Lost);
}

pub async fn a_job_that_was_claimed_again_is_lost_to_its_first_claim(fx: Fixture) {
    let (one, two) = (fx.node("one").await, fx.node("two").await);
    let first = one.running(job()).await;
    one.end(&first, End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }).await;
    assert_eq!(load_one(&one, &first).await, Loaded::Lost, "it is held by nobody");
    let second = two.take(first.id).await;

    assert_eq!(load_one(&one, &first).await, Loaded::Lost);
    assert!(matches!(load_one(&two, &second).await, Loaded::Job(..)));
}

pub async fn a_recovered_job_is_lost_to_its_dead_owner(fx: Fixture) {
    let lease = Duration::from_secs(30);
    let (dead, alive) = (fx.node_with_lease("dead", lease).await, fx.node("alive").await);
    let first = dead.running(job()).await;
    fx.advance(lease + lease);
    assert!(matches!(load_one(&dead, &first).await, Loaded::Job(..)), "nobody took it yet");
    let owners = std::slice::from_ref(&dead.owner);
    let moved = alive.store.recover(owners, &alive.owner, 10).await.expect("recover answers");
    let second = moved.first().expect("the job was moved");

    assert_eq!(load_one(&dead, &first).await, Loaded::Lost);
    assert!(matches!(load_one(&alive, second).await, Loaded::Job(..)));
}

pub async fn a_job_that_is_to_be_canceled_says_so(fx: Fixture) {
    let (worker, other) = (fx.node("worker").await, fx.node("other").await);
    let claim = worker.running(job()).await;
    assert!(matches!(load_one(&worker, &claim).await, Loaded::Job(..)));

    cancel(&other, claim.id).await;

    assert_eq!(load_one(&worker, &claim).await, Loaded::CancelRequested);
    assert_eq!(load_one(&worker, &under(&claim, Fence::FIRST)).await, Loaded::Lost, "not under an old fence");
}

pub async fn answers_come_in_the_order_of_the_questions(fx: Fixture) {
    let node = fx.node("a").await;
    let mut claims = Vec::new();
    for _ in 0..4 {
        claims.push(node.running(job()).await);
    }
    cancel(&node, claims[1].id).await;
    let of = |at: usize| claims[at].clone();
    let stranger = made_up(&fx, JobId::generate(), Fence::FIRST);
    let asked = [of(3), of(1), stranger, of(0), of(3), under(&claims[2], Fence::FIRST), of(2)];

    let loaded = load(&node, &asked).await;

    let told: Vec<_> = loaded
        .iter()
        .map(|loaded| match loaded {
            Loaded::Job(job, _) => Some(job.spec.id),
            Loaded::CancelRequested => Some(claims[1].id),
            Loaded::Lost => None,
            Loaded::Corrupt { problem, .. } => panic!("{problem}"),
        })
        .collect();
    let [zero, one, two, three] = [0, 1, 2, 3].map(|at: usize| Some(claims[at].id));
    assert_eq!(told, [three, one, None, zero, three, None, two]);
    assert_eq!(load(&node, &[]).await, []);
}

pub async fn all_edges_come_with_a_job_in_the_order_of_evaluation(fx: Fixture) {
    let (worker, other) = (fx.node("worker").await, fx.node("other").await);
    let jobs: Vec<_> = (0..5).map(|_| job()).collect();
    let ids: Vec<_> = jobs.iter().map(|new| new.spec.id).collect();
    let edge = |child: JobId, priority| {
        let mut edge = Edge::new(ids[0], child, Condition::Custom("vip".into()));
        edge.priority = priority;
        edge
    };
    // Among edges of equal priority the order of insertion counts, which differs from that of the ids.
    let mut edges = vec![edge(ids[3], 5), edge(ids[4], 0), edge(ids[1], 0), edge(ids[2], -7)];
    let between = Edge::new(ids[1], ids[2], Condition::Success);
    edges.push(between.clone());
    assert_eq!(worker.submit(linked(jobs, edges)).await, Inserted::New);
    let claim = worker.take(ids[0]).await;
    let late = job();
    let late_edge = edge(late.spec.id, 0);
    assert_eq!(other.submit(linked(vec![late], vec![late_edge.clone()])).await, Inserted::New);

    let Loaded::Job(loaded, edges) = load_one(&worker, &claim).await else {
        panic!("the job is held");
    };

    let expected = [edge(ids[2], -7), edge(ids[4], 0), edge(ids[1], 0), late_edge, edge(ids[3], 5)];
    assert_eq!(edges, expected, "and not {between:?}, which leads from another job");
    assert_eq!(loaded.edge_count, 5);
}

pub async fn an_unreadable_row_is_told_for_itself_alone(fx: Fixture) {
    let node = fx.node("a").await;
    let told = job_with(|new| new.spec.on_failure = Some(payload()));
    let claims = [node.running(job()).await, node.running(told).await, node.running(job()).await];
    // No claim carries the backoff; a store may read all that a claim does carry from the claim itself.
    spoil(&fx, claims[1].id, Spoil::UnknownBackoff).await;

    let loaded = load(&node, &claims).await;

    let [Loaded::Job(first, _), Loaded::Corrupt { problem, on_failure }, Loaded::Job(last, _)] = &loaded[..]
    else {
        panic!("{loaded:?}");
    };
    assert_eq!((first.spec.id, last.spec.id), (claims[0].id, claims[2].id));
    assert!(!problem.is_empty(), "it is described");
    assert_eq!(*on_failure, Some(payload()), "who is to be told is known");
    assert_eq!(load(&node, &claims).await, loaded, "reading changes nothing");
    let old = under(&claims[1], Fence::FIRST);
    assert_eq!(load_one(&node, &old).await, Loaded::Lost, "fences count first");
}

pub async fn an_unreadable_row_is_an_error_that_names_it(fx: Fixture) {
    let node = fx.node("a").await;
    for how in [Spoil::UnknownType, Spoil::UnknownBackoff] {
        let (good, bad) = (node.insert(job()).await, node.insert(job()).await);
        spoil(&fx, bad, how).await;

        for asked in [vec![bad], vec![good, bad]] {
            let trouble = node.store.find(&asked).await.expect_err("the row cannot be read");
            assert_eq!(trouble.kind(), StoreErrorKind::Corrupt, "{how:?}: {trouble}");
            assert!(trouble.to_string().contains(&bad.to_string()), "{how:?}: {trouble}");
        }
        assert_eq!(node.job(good).await.spec.id, good, "{how:?}");
    }
}

pub async fn every_change_is_seen_at_once_on_any_connection(fx: Fixture) {
    let (writer, reader) = (fx.node("writer").await, fx.node("reader").await);
    for _ in 0..3 {
        let id = writer.insert(job()).await;
        assert_eq!(reader.status(id).await, JobStatus::Pending);
        writer.store.pause(&[id.into()]).await.expect("pause answers");
        assert_eq!(reader.status(id).await, JobStatus::Paused);
        writer.store.resume(&[id.into()]).await.expect("resume answers");
        assert_eq!(reader.status(id).await, JobStatus::Pending);
        let claim = writer.take(id).await;
        let running = reader.job(id).await;
        assert_eq!((running.status, running.fence), (JobStatus::Running, claim.fence));
        assert_eq!(running.picked_by.as_ref(), Some(&writer.owner));
        let result = Some(JsonText::from_stored("[1]"));
        writer.end(&claim, End::Succeeded { result: result.clone() }).await;
        let ended = reader.job(id).await;
        assert_eq!((ended.status, ended.picked_by), (JobStatus::Succeeded, None));
        assert_eq!(ended.ending.expect("it has ended").result, result);
    }
}

pub async fn a_running_job_reads_as_canceled_from_the_moment_it_is_called_off(fx: Fixture) {
    let (worker, other) = (fx.node("worker").await, fx.node("other").await);
    let claim = worker.running(job()).await;
    let before = worker.job(claim.id).await;

    cancel(&other, claim.id).await;

    for peer in [&worker, &other] {
        let read = peer.job(claim.id).await;
        assert_eq!(read.status, JobStatus::Canceled);
        assert_eq!((read.fence, &read.picked_by), (before.fence, &Some(worker.owner.clone())));
        assert_eq!(read.ending, None, "its body has not ended");
    }
}

pub async fn jobs_that_do_not_exist_are_told_in_their_place(fx: Fixture) {
    let node = fx.node("a").await;
    let (one, two) = (node.insert(job()).await, node.insert(job()).await);
    let asked = [JobId::generate(), two, JobId::generate(), one, two];

    let found = node.store.find(&asked).await.expect("find answers");

    let ids: Vec<_> = found.iter().map(|job| job.as_ref().map(|job| job.spec.id)).collect();
    assert_eq!(ids, [None, Some(two), None, Some(one), Some(two)]);
    assert_eq!(node.store.find(&[]).await.expect("find answers"), []);
}
