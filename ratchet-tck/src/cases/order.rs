//! The order of claims, compared with a plain sort by the formula.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::cmp::Reverse;
use std::time::Duration;

use ratchet_api::store::ClaimRequest;
use ratchet_api::{
    Condition, Due, Edge, End, HandBackReason, Inserted, JobId, JobPriority, NewJob, QueueLimit, QueueName,
    Run, Submission, Timestamp,
};

use super::commit::{outcome, recorded};
use crate::case::cases;
use crate::fixture::{job, job_with};
use crate::{Fixture, Peer};

cases! { "order";
    a_large_mixed_set_comes_in_exactly_the_order_of_the_formula: ["claim.order"] [40 41 43];
    a_limit_takes_the_first_of_the_whole_order: ["claim.order", "claim.limit"] [40 44];
    repeated_claims_drain_a_queue_in_order: ["claim.order"] [40];
    the_order_follows_the_clock_between_claims: ["claim.order"] [41];
    queues_answer_in_the_order_of_the_request: ["claim.order", "claim.queue"] [];
    old_low_priority_work_overtakes_fresh_urgent_work: ["claim.order"] [42];
    a_step_is_gained_at_the_full_interval_and_not_a_millisecond_before: ["claim.order"] [41];
    equal_priorities_go_by_due_time_and_then_by_id: ["claim.order"] [43];
    without_a_boost_only_the_priority_counts: ["claim.order"] [40];
    a_wait_of_half_a_century_still_sorts: ["claim.order"] [41];
    a_job_that_went_back_waits_from_its_new_due_time: ["claim.order", "commit.hand_back"] [];
    a_job_that_lost_its_node_keeps_its_place: ["claim.order", "commit.keeps_due"] [];
    rows_that_cannot_be_claimed_stand_in_nobodys_way: ["claim.order", "claim.due"] [39];
}

const QUARTER: Duration = Duration::from_secs(15 * 60);
const MILLI: Duration = Duration::from_millis(1);

/// The fields that decide a job's position.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: JobId,
    priority: JobPriority,
    due: Timestamp,
}

/// Sorts claimable jobs by the formula, best first: the reference.
fn sorted(jobs: &[Waiting], now: Timestamp, boost: Option<Duration>) -> Vec<JobId> {
    let mut due: Vec<_> = jobs.iter().filter(|job| job.due <= now).collect();
    due.sort_by_key(|job| (Reverse(job.priority.boosted(now.since(job.due), boost)), job.due, job.id));
    due.iter().map(|job| job.id).collect()
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a valid queue name")
}

fn waiting_job(name: &str, priority: JobPriority, due: Timestamp) -> (Waiting, NewJob) {
    let new = job_with(|new| {
        new.spec.queue = queue(name);
        new.spec.priority = priority;
        new.due = Due::At(due);
    });
    (Waiting { id: new.spec.id, priority, due }, new)
}

/// Stores jobs of all priorities whose ages are whole intervals (many ties), a millisecond off them, or random.
async fn mixed(peer: &Peer, name: &str, count: usize, now: Timestamp, seed: u64) -> Vec<Waiting> {
    let mut numbers = Numbers(seed);
    let (mut facts, mut jobs): (Vec<_>, Vec<_>) = (0..count)
        .map(|_| {
            let priority = JobPriority::ALL[numbers.below(5) as usize];
            let steps = QUARTER * numbers.below(7) as u32;
            let due = match numbers.below(8) {
                0 => now + steps + MILLI,
                1 => now - steps,
                2 => now - steps - MILLI,
                3 => now - (steps + QUARTER - MILLI),
                _ => now - Duration::from_millis(numbers.below(7 * 900_000)),
            };
            waiting_job(name, priority, due)
        })
        .unzip();
    // Neither the order of ids nor that of the inserts may decide instead of the formula.
    numbers.shuffle(&mut jobs);
    store_all(peer, jobs).await;
    numbers.shuffle(&mut facts);
    facts
}

async fn store_all(peer: &Peer, jobs: Vec<NewJob>) {
    let submissions: Vec<_> = jobs.into_iter().map(Submission::single).collect();
    for chunk in submissions.chunks(100) {
        let inserted = peer.store.insert(chunk).await.expect("insert answers");
        assert!(inserted.iter().all(|verdict| *verdict == Inserted::New), "{inserted:?}");
    }
}

/// Stores jobs in the default queue, in this order.
async fn store_waiting(peer: &Peer, jobs: &[(JobPriority, Timestamp)]) -> Vec<JobId> {
    let (facts, jobs): (Vec<_>, Vec<_>) =
        jobs.iter().map(|(priority, due)| waiting_job("default", *priority, *due)).unzip();
    store_all(peer, jobs).await;
    facts.iter().map(|job| job.id).collect()
}

async fn claim(peer: &Peer, limits: &[(&str, usize)], boost: Option<Duration>) -> Vec<JobId> {
    let queues = limits.iter().map(|(name, limit)| QueueLimit { queue: queue(name), limit: *limit });
    let mut request = ClaimRequest::of_queues(peer.owner.clone(), queues.collect());
    request.boost_interval = boost;
    let claims = peer.store.claim(&request).await.expect("claim answers");
    claims.iter().map(|claim| claim.id).collect()
}

pub async fn a_large_mixed_set_comes_in_exactly_the_order_of_the_formula(fx: Fixture) {
    let node = fx.node("node").await;
    let mut expected = Vec::new();
    for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        let jobs = mixed(&node, name, 100, fx.now(), seed).await;
        expected.extend(sorted(&jobs, fx.now(), Some(QUARTER)));
    }
    assert!(expected.len() > 200, "most of them are due");
    assert_eq!(claim(&node, &[("a", 300), ("b", 300), ("c", 300)], Some(QUARTER)).await, expected);
}

pub async fn a_limit_takes_the_first_of_the_whole_order(fx: Fixture) {
    let node = fx.node("node").await;
    for (name, limit) in [("one", 1), ("seven", 7), ("fifty", 50)] {
        let jobs = mixed(&node, name, 100, fx.now(), limit as u64).await;
        let whole = sorted(&jobs, fx.now(), Some(QUARTER));
        assert_eq!(claim(&node, &[(name, limit)], Some(QUARTER)).await, whole[..limit], "limit {limit}");
    }
}

pub async fn repeated_claims_drain_a_queue_in_order(fx: Fixture) {
    let nodes = [fx.node("first").await, fx.node("second").await];
    let jobs = mixed(&nodes[0], "default", 200, fx.now(), 4).await;
    let mut drained = Vec::new();
    for (node, limit) in nodes.iter().cycle().zip([1, 7, 50].into_iter().cycle()) {
        let ids = claim(node, &[("default", limit)], Some(QUARTER)).await;
        if ids.is_empty() {
            break;
        }
        drained.extend(ids);
    }
    assert_eq!(drained, sorted(&jobs, fx.now(), Some(QUARTER)));
}

pub async fn the_order_follows_the_clock_between_claims(fx: Fixture) {
    let node = fx.node("node").await;
    let mut left = mixed(&node, "default", 120, fx.now(), 5).await;
    for step in [MILLI, QUARTER - MILLI, MILLI, QUARTER / 2, QUARTER * 3] {
        fx.advance(step);
        let expected = sorted(&left, fx.now(), Some(QUARTER));
        let taken = claim(&node, &[("default", 15)], Some(QUARTER)).await;
        assert_eq!(taken, expected[..15], "at {}", fx.now());
        left.retain(|job| !taken.contains(&job.id));
    }
}

pub async fn queues_answer_in_the_order_of_the_request(fx: Fixture) {
    let node = fx.node("node").await;
    let mut stored = Vec::new();
    for (name, priority) in
        [("a", JobPriority::Normal), ("b", JobPriority::Lowest), ("c", JobPriority::Critical)]
    {
        let (facts, new) = waiting_job(name, priority, fx.now());
        store_all(&node, vec![new]).await;
        stored.push(facts.id);
    }
    let claimed = claim(&node, &[("b", 5), ("c", 5), ("a", 5)], Some(QUARTER)).await;
    assert_eq!(claimed, [stored[1], stored[2], stored[0]], "the request decides, not the priority");
}

pub async fn old_low_priority_work_overtakes_fresh_urgent_work(fx: Fixture) {
    let node = fx.node("node").await;
    for (waited, overtakes) in [
        (Duration::ZERO, false),
        (QUARTER * 3, false),
        (QUARTER * 4 - MILLI, false),
        // Level with CRITICAL, and older.
        (QUARTER * 4, true),
        (QUARTER * 5, true),
    ] {
        let jobs = [(JobPriority::Critical, fx.now()), (JobPriority::Lowest, fx.now() - waited)];
        let stored = store_waiting(&node, &jobs).await;
        let (urgent, old) = (stored[0], stored[1]);
        let expected = if overtakes { [old, urgent] } else { [urgent, old] };
        assert_eq!(claim(&node, &[("default", 2)], Some(QUARTER)).await, expected, "waited {waited:?}");
    }
}

pub async fn a_step_is_gained_at_the_full_interval_and_not_a_millisecond_before(fx: Fixture) {
    let node = fx.node("node").await;
    let intervals = [MILLI * 7, Duration::from_millis(999), Duration::from_secs(60), QUARTER];
    for (interval, steps) in
        intervals.into_iter().flat_map(|interval| [1, 2, 3].map(|steps| (interval, steps)))
    {
        // One step above what `early` reaches, so only a gained step puts the older one in front.
        let rival = JobPriority::ALL[steps as usize];
        let (full, early) = (fx.now() - interval * steps, fx.now() - (interval * steps - MILLI));
        let jobs = [(rival, fx.now()), (JobPriority::Lowest, early), (JobPriority::Lowest, full)];
        let stored = store_waiting(&node, &jobs).await;
        assert_eq!(
            claim(&node, &[("default", 3)], Some(interval)).await,
            [stored[2], stored[0], stored[1]],
            "{steps} steps of {interval:?}"
        );
    }
}

pub async fn equal_priorities_go_by_due_time_and_then_by_id(fx: Fixture) {
    let node = fx.node("node").await;
    let now = fx.now();
    // Effective priority 3 in three ways, and ties on each.
    let kinds = [
        (JobPriority::High, now),
        (JobPriority::High, now - MILLI),
        (JobPriority::Normal, now - QUARTER),
        (JobPriority::Low, now - QUARTER * 2),
    ];
    let (facts, mut jobs): (Vec<_>, Vec<_>) = kinds
        .into_iter()
        .cycle()
        .take(20)
        .map(|(priority, due)| waiting_job("default", priority, due))
        .unzip();
    jobs.reverse();
    store_all(&node, jobs).await;

    let mut expected = facts;
    expected.sort_by_key(|job| (job.due, job.id));
    let expected: Vec<_> = expected.iter().map(|job| job.id).collect();
    assert_eq!(claim(&node, &[("default", 20)], Some(QUARTER)).await, expected);
}

pub async fn without_a_boost_only_the_priority_counts(fx: Fixture) {
    let node = fx.node("node").await;
    // An interval that is not a whole millisecond counts as none.
    for (boost, seed) in [(None, 6), (Some(Duration::ZERO), 7), (Some(Duration::from_micros(999)), 8)] {
        let name = format!("boost {boost:?}");
        let jobs = mixed(&node, &name, 60, fx.now(), seed).await;
        let expected = sorted(&jobs, fx.now(), None);
        assert_eq!(claim(&node, &[(name.as_str(), 100)], boost).await, expected, "{boost:?}");
    }
}

pub async fn a_wait_of_half_a_century_still_sorts(fx: Fixture) {
    let node = fx.node("node").await;
    let now = fx.now();
    let jobs = [
        (JobPriority::Critical, now),
        (JobPriority::Lowest, Timestamp::MIN),
        (JobPriority::Lowest, Timestamp::MIN + MILLI),
        (JobPriority::Critical, Timestamp::MIN + MILLI * 6),
    ];
    let stored = store_waiting(&node, &jobs).await;
    let claimed = claim(&node, &[("default", 10)], Some(MILLI)).await;
    assert_eq!(claimed, [stored[1], stored[2], stored[3], stored[0]]);
}

pub async fn a_job_that_went_back_waits_from_its_new_due_time(fx: Fixture) {
    let node = fx.node("node").await;
    let jobs = [(JobPriority::Lowest, fx.now() - QUARTER * 9), (JobPriority::Low, fx.now())];
    let stored = store_waiting(&node, &jobs).await;
    let (old, other) = (stored[0], stored[1]);
    let first = node.claim_one().await;
    assert_eq!(first.id, old);
    node.end(&first, End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Snoozed }).await;
    assert_eq!(claim(&node, &[("default", 2)], Some(QUARTER)).await, [other, old]);
}

pub async fn a_job_that_lost_its_node_keeps_its_place(fx: Fixture) {
    let node = fx.node("node").await;
    for reason in [HandBackReason::Crashed, HandBackReason::Released] {
        for run in [None, Some(Run { started_ago: MILLI * 2, ran_for: MILLI })] {
            let due = fx.now() - MILLI * 5;
            let stored =
                store_waiting(&node, &[(JobPriority::Normal, due), (JobPriority::Normal, due + MILLI)]).await;
            let first = node.claim_one().await;
            assert_eq!(first.id, stored[0], "{reason:?}");
            fx.advance(MILLI * 10);
            let mut back = outcome(&first, End::HandBack { delay: Duration::ZERO, reason });
            back.run = run;
            assert_eq!(recorded(node.commit(back).await).next_due, Some(due), "{reason:?}");
            assert_eq!(node.job(first.id).await.scheduled_time, due, "{reason:?}");
            assert_eq!(claim(&node, &[("default", 2)], None).await, stored, "{reason:?}");
        }
    }
}

pub async fn rows_that_cannot_be_claimed_stand_in_nobodys_way(fx: Fixture) {
    const IN_THE_WAY: usize = 30;
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    let urgent = |due| {
        job_with(|new| {
            new.spec.priority = JobPriority::Critical;
            new.due = due;
        })
    };
    let ancient = Due::At(fx.now() - QUARTER * 20);

    let running: Vec<_> = (0..IN_THE_WAY).map(|_| urgent(ancient)).collect();
    store_all(&node, running).await;
    assert_eq!(other.claim(IN_THE_WAY).await.len(), IN_THE_WAY);
    let paused: Vec<_> = (0..IN_THE_WAY).map(|_| urgent(ancient)).collect();
    let targets: Vec<_> = paused.iter().map(|new| new.spec.id.into()).collect();
    store_all(&node, paused).await;
    node.store.pause(&targets).await.expect("pause answers");
    store_all(&node, (0..IN_THE_WAY).map(|_| urgent(Due::After(MILLI))).collect()).await;
    let held_back = job_with(|new| new.due = Due::After(Fixture::LONG));
    let parent = held_back.spec.id;
    let mut submission = Submission::single(held_back);
    for _ in 0..IN_THE_WAY {
        let blocked = urgent(ancient);
        submission.edges.push(Edge::new(parent, blocked.spec.id, Condition::Success));
        submission.jobs.push(blocked);
    }
    assert_eq!(node.submit(submission).await, Inserted::New);

    let due: Vec<_> = (0..5).map(|_| job()).collect();
    let expected: Vec<_> = due.iter().map(|new| new.spec.id).collect();
    store_all(&node, due).await;
    assert_eq!(claim(&node, &[("default", 5)], Some(QUARTER)).await, expected);
}
