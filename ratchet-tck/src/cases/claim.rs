//! Claims: the jobs that can be claimed, the nodes that can claim them, and the content of a claim.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::collections::BTreeSet;
use std::time::Duration;

use ratchet_api::store::{ClaimRequest, NewRecurring, SavedRecurring};
use ratchet_api::{
    BusinessKey, Condition, DeadReason, Due, Edge, Effect, End, Fence, HandBackReason, JobClaim, JobId,
    JobPriority, JobSpec, JobStatus, JobType, Outcome, Owner, QueueLimit, QueueName, Recurrence, Submission,
    Verdict,
};

use crate::case::cases;
use crate::fixture::{error, job, job_with, payload, text};
use crate::{Fixture, Peer};

cases! { "claim";
    a_due_job_is_claimed_once: ["claim.due", "claim.disjoint"] [39 181];
    only_pending_due_and_unblocked_jobs_are_claimed: ["claim.due", "recurring.created"] [23 31 39];
    a_job_becomes_due_at_its_very_millisecond: ["claim.due"] [23];
    a_released_child_is_claimed: ["claim.due"] [];
    a_claimed_job_is_running_for_its_owner: ["claim.owned"] [26 46];
    a_claim_carries_the_fields_of_its_row: ["claim.owned"] [48];
    each_claim_of_a_job_has_a_higher_fence: ["claim.owned", "commit.fence_raised"] [172];
    nodes_that_claim_at_once_get_disjoint_jobs: ["claim.disjoint"] [45 181];
    no_queue_gives_more_than_its_limit: ["claim.limit"] [44];
    a_full_queue_does_not_use_up_the_limit_of_another: ["claim.limit"] [];
    only_the_queues_asked_for_are_looked_at: ["claim.queue"] [];
    a_paused_queue_gives_nothing_and_hinders_no_other: ["claim.queue", "queue_pause.cluster"] [];
    a_claim_for_no_queue_takes_nothing: ["claim.queue", "claim.limit"] [];
    an_owner_without_a_running_lease_claims_nothing: ["claim.lease"] [];
    an_expired_job_is_claimed_and_marked: ["claim.expired"] [];
    claiming_needs_only_the_claim_store: ["claim.owned"] [49 170];
    pick_up_takes_the_named_jobs_and_no_other: ["pick_up.same_rules"] [];
    pick_up_takes_nothing_that_a_claim_would_not: ["pick_up.same_rules"] [23 31];
    pick_up_needs_a_running_lease: ["pick_up.same_rules"] [];
    pick_up_looks_past_the_pause_of_a_queue: ["pick_up.same_rules"] [];
    pick_up_marks_an_expired_job: ["pick_up.same_rules"] [];
    owned_lists_exactly_the_running_jobs_of_an_owner: ["owned.all"] [26];
    owned_finds_the_claims_whose_reply_was_lost: ["owned.all"] [];
    commit_and_claim_can_take_what_its_commit_released: ["commit_and_claim.both"] [];
    commit_and_claim_can_take_back_what_it_handed_back: ["commit_and_claim.both"] [];
    commit_and_claim_claims_whatever_became_of_the_outcomes: ["commit_and_claim.both", "commit.isolated"] [];
    commit_and_claim_without_a_lease_commits_and_claims_nothing:
        ["commit_and_claim.both", "commit.fenced", "claim.lease"] [];
}

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a valid queue name")
}

fn ids(claims: &[JobClaim]) -> BTreeSet<JobId> {
    claims.iter().map(|claim| claim.id).collect()
}

async fn claim_of(peer: &Peer, limits: &[(&str, usize)]) -> Vec<JobClaim> {
    let queues = limits.iter().map(|(name, limit)| QueueLimit { queue: queue(name), limit: *limit });
    let request = ClaimRequest::of_queues(peer.owner.clone(), queues.collect());
    peer.store.claim(&request).await.expect("claim answers")
}

async fn pick_up(peer: &Peer, jobs: &[JobId]) -> Vec<JobClaim> {
    peer.store.pick_up(&peer.owner, jobs).await.expect("pick-up answers")
}

async fn fill(peer: &Peer, name: &str, count: usize) -> BTreeSet<JobId> {
    let mut stored = BTreeSet::new();
    for _ in 0..count {
        stored.insert(peer.insert(job_with(|new| new.spec.queue = queue(name))).await);
    }
    stored
}

fn released() -> End {
    End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }
}

/// Stores a job and one that waits for its success.
async fn chain(peer: &Peer) -> (JobId, JobId) {
    let (parent, child) = (job(), job());
    let (parent_id, child_id) = (parent.spec.id, child.spec.id);
    let mut submission = Submission::single(parent);
    submission.jobs.push(child);
    submission.edges.push(Edge::new(parent_id, child_id, Condition::Success));
    peer.store.insert(&[submission]).await.expect("insert answers");
    (parent_id, child_id)
}

/// Stores a job in every situation in which nobody may claim it; returns each with the situation's name.
async fn untouchables(fx: &Fixture, node: &Peer) -> Vec<(&'static str, JobId)> {
    let store = &node.store;
    let future = node.insert(job_with(|new| new.due = Due::After(SECOND))).await;

    let paused = node.insert(job()).await;
    store.pause(&[paused.into()]).await.expect("pause answers");
    let failed = node.running(job()).await;
    node.end(&failed, End::DeadLetter { error: error("broken"), reason: DeadReason::Exhausted }).await;
    let paused_dead = node.running(job()).await;
    node.end(&paused_dead, End::DeadLetter { error: error("broken"), reason: DeadReason::Exhausted }).await;
    store.pause(&[paused_dead.id.into()]).await.expect("pause answers");

    let succeeded = node.running(job()).await;
    node.end(&succeeded, End::Succeeded { result: None }).await;
    let canceled = node.insert(job()).await;
    store.cancel(&[canceled.into()], &text("not needed")).await.expect("cancel answers");

    let other = fx.node("other").await;
    let running = other.running(job()).await;
    let called_off = other.running(job()).await;
    store.cancel(&[called_off.id.into()], &text("not needed")).await.expect("cancel answers");
    let (parent, blocked) = chain(node).await;
    other.take(parent).await;

    let key = BusinessKey::new("nightly").expect("a valid key");
    let recurrence = Recurrence::new("0 0 2 * * *", "UTC", Some(fx.now()));
    let saved = store.save_recurring(&NewRecurring::new(key, JobSpec::new(payload()), recurrence)).await;
    let Ok(SavedRecurring::Created(master)) = saved else { panic!("the schedule is new: {saved:?}") };

    vec![
        ("not due yet", future),
        ("paused", paused),
        ("dead letter", failed.id),
        ("paused dead letter", paused_dead.id),
        ("succeeded", succeeded.id),
        ("canceled", canceled),
        ("running", running.id),
        ("running, asked to be canceled", called_off.id),
        ("parent that runs", parent),
        ("blocked", blocked),
        ("recurring master", master),
    ]
}

pub async fn a_due_job_is_claimed_once(fx: Fixture) {
    let (first, second) = (fx.node("first").await, fx.node("second").await);
    let id = first.insert(job()).await;
    assert_eq!(ids(&first.claim(10).await), BTreeSet::from([id]));
    assert_eq!(first.claim(10).await, [], "the same node again");
    assert_eq!(second.claim(10).await, [], "another node");
}

pub async fn only_pending_due_and_unblocked_jobs_are_claimed(fx: Fixture) {
    let node = fx.node("node").await;
    let untouchable = untouchables(&fx, &node).await;
    let due = node.insert(job()).await;
    let claimed = ids(&node.claim(100).await);
    for (situation, id) in untouchable {
        assert!(!claimed.contains(&id), "{situation}");
    }
    assert_eq!(claimed, BTreeSet::from([due]));
}

pub async fn a_job_becomes_due_at_its_very_millisecond(fx: Fixture) {
    let node = fx.node("node").await;
    let after = node.insert(job_with(|new| new.due = Due::After(SECOND))).await;
    let at = node.insert(job_with(|new| new.due = Due::At(fx.now() + SECOND))).await;
    fx.advance(SECOND - MILLI);
    assert_eq!(node.claim(10).await, [], "one millisecond too early");
    fx.advance(MILLI);
    assert_eq!(ids(&node.claim(10).await), BTreeSet::from([after, at]));
}

pub async fn a_released_child_is_claimed(fx: Fixture) {
    let node = fx.node("node").await;
    let (parent, child) = chain(&node).await;
    let claim = node.claim_one().await;
    assert_eq!(claim.id, parent);
    let mut outcome = Outcome::new(parent, claim.fence, End::Succeeded { result: None });
    outcome.effects.push(Effect::Satisfy(child));
    outcome.edges_seen = 1;
    node.commit(outcome).await;
    assert_eq!(node.claim_one().await.id, child);
}

pub async fn a_claimed_job_is_running_for_its_owner(fx: Fixture) {
    let (node, reader) = (fx.node("node").await, fx.node("reader").await);
    let id = node.insert(job_with(|new| new.spec.priority = JobPriority::High)).await;
    let mut expected = reader.job(id).await;
    fx.advance(SECOND);
    let claim = node.claim_one().await;

    assert!(claim.fence > expected.fence, "{} after {}", claim.fence, expected.fence);
    expected.status = JobStatus::Running;
    expected.fence = claim.fence;
    expected.picked_by = Some(node.owner.clone());
    expected.picked_at = Some(fx.now());
    assert_eq!(reader.job(id).await, expected, "nothing else changes");
}

pub async fn a_claim_carries_the_fields_of_its_row(fx: Fixture) {
    let node = fx.node("node").await;
    let id = node
        .insert(job_with(|new| {
            new.spec.queue = queue("mail");
            new.spec.job_type = JobType::Callback;
            new.spec.priority = JobPriority::Low;
            new.spec.max_retries = 7;
            new.spec.timeout = Some(Duration::from_secs(90));
            new.spec.business_key = Some(BusinessKey::new("mail-1").expect("a valid key"));
        }))
        .await;
    let failed = node.take(id).await;
    node.end(&failed, End::Retry { delay: SECOND, error: error("busy") }).await;
    let due = fx.now() + SECOND;
    fx.advance(SECOND);
    let crashed = node.take(id).await;
    node.end(&crashed, End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Crashed }).await;
    fx.advance(SECOND);

    let claims = claim_of(&node, &[("mail", 5)]).await;
    let [claim] = claims.as_slice() else { panic!("one claim: {claims:?}") };
    assert_eq!(*claim, JobClaim::of(&node.job(id).await, fx.now()), "claim and row agree");
    assert_eq!(
        (claim.queue.as_str(), claim.job_type, claim.priority),
        ("mail", JobType::Callback, JobPriority::Low)
    );
    assert_eq!((claim.scheduled_time, claim.picked_at), (due, fx.now()));
    assert_eq!((claim.attempts, claim.crash_count, claim.max_retries), (1, 1, 7));
    assert_eq!(claim.timeout, Some(Duration::from_secs(90)));
    assert_eq!(claim.business_key.as_ref().map(BusinessKey::as_str), Some("mail-1"));
    assert!(!claim.cancel_requested && !claim.expired);
}

pub async fn each_claim_of_a_job_has_a_higher_fence(fx: Fixture) {
    let (first, second) = (fx.node("first").await, fx.node("second").await);
    first.insert(job()).await;
    let mut last = Fence::FIRST;
    for node in [&first, &second, &first, &second] {
        let claim = node.claim_one().await;
        assert!(claim.fence > last, "{} after {last}", claim.fence);
        last = claim.fence;
        node.end(&claim, released()).await;
    }
}

pub async fn nodes_that_claim_at_once_get_disjoint_jobs(fx: Fixture) {
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(fx.node("node").await);
    }
    let stored = fill(&nodes[0], "default", 40).await;
    let taken = fx
        .race(nodes.len(), |i| {
            let node = nodes[i].clone();
            async move { node.claim(10).await }
        })
        .await;
    assert!(taken.iter().all(|claims| claims.len() <= 10));
    let mut claimed: Vec<JobId> = taken.iter().flatten().map(|claim| claim.id).collect();
    claimed.extend(nodes[0].claim(100).await.iter().map(|claim| claim.id));
    assert_eq!(claimed.len(), stored.len(), "no job twice");
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), stored, "no job left out");
}

pub async fn no_queue_gives_more_than_its_limit(fx: Fixture) {
    let node = fx.node("node").await;
    let stored = fill(&node, "default", 5).await;
    let mut claimed = BTreeSet::new();
    for (limit, given) in [(0, 0), (1, 1), (3, 3), (3, 1), (3, 0)] {
        let claims = node.claim(limit).await;
        assert_eq!(claims.len(), given, "a limit of {limit} after {} claims", claimed.len());
        claimed.extend(ids(&claims));
    }
    assert_eq!(claimed, stored);
}

pub async fn a_full_queue_does_not_use_up_the_limit_of_another(fx: Fixture) {
    let node = fx.node("node").await;
    for name in ["a", "b", "c"] {
        fill(&node, name, 4).await;
    }
    let claims = claim_of(&node, &[("a", 3), ("b", 0), ("c", 10)]).await;
    let of = |name: &str| claims.iter().filter(|claim| claim.queue.as_str() == name).count();
    assert_eq!((of("a"), of("b"), of("c")), (3, 0, 4));
}

pub async fn only_the_queues_asked_for_are_looked_at(fx: Fixture) {
    let node = fx.node("node").await;
    let names = ["default", "mail", "Mail", "mail ", "máil"];
    let mut stored = Vec::new();
    for name in names {
        stored.push(fill(&node, name, 1).await);
    }
    assert_eq!(claim_of(&node, &[("nowhere", 10)]).await, []);
    for (name, expected) in names.into_iter().zip(stored).rev() {
        assert_eq!(ids(&claim_of(&node, &[(name, 10)]).await), expected, "{name:?}");
    }
}

pub async fn a_paused_queue_gives_nothing_and_hinders_no_other(fx: Fixture) {
    let node = fx.node("node").await;
    let held = fill(&node, "held", 3).await;
    let open = fill(&node, "open", 3).await;
    node.store.set_queue_paused(&queue("held"), true).await.expect("pause answers");
    assert_eq!(ids(&claim_of(&node, &[("held", 10), ("open", 10)]).await), open);
    node.store.set_queue_paused(&queue("held"), false).await.expect("resume answers");
    assert_eq!(ids(&claim_of(&node, &[("held", 10), ("open", 10)]).await), held);
}

pub async fn a_claim_for_no_queue_takes_nothing(fx: Fixture) {
    let node = fx.node("node").await;
    let id = node.insert(job()).await;
    assert_eq!(claim_of(&node, &[]).await, []);
    assert_eq!(node.status(id).await, JobStatus::Pending);
}

pub async fn an_owner_without_a_running_lease_claims_nothing(fx: Fixture) {
    let lasting = fx.node("lasting").await;
    let id = lasting.insert(job()).await;
    let stranger = Peer { store: fx.connect().await, owner: Owner::incarnate("stranger") };
    let left = fx.node("left").await;
    left.store.leave(&left.owner).await.expect("leave answers");
    let late = fx.node_with_lease("late", SECOND).await;
    fx.advance(SECOND);
    let twin = Peer { store: fx.connect().await, owner: Owner::incarnate("lasting") };
    for (who, node) in
        [("never joined", &stranger), ("left", &left), ("ran out", &late), ("same label", &twin)]
    {
        assert_eq!(node.claim(1).await, [], "{who}");
    }
    assert_eq!(lasting.job(id).await.fence, Fence::FIRST, "nobody touched it");

    late.store.beat(&ratchet_api::Beat::new(late.owner.clone(), SECOND)).await.expect("beat answers");
    assert_eq!(late.claim_one().await.id, id, "a renewed lease counts again");
}

pub async fn an_expired_job_is_claimed_and_marked(fx: Fixture) {
    let node = fx.node("node").await;
    let deadline = fx.now() + SECOND;
    fx.advance(SECOND);
    for (expires_at, expired) in [
        (None, false),
        (Some(deadline + MILLI), false),
        (Some(deadline), true),
        (Some(deadline - MILLI), true),
    ] {
        let id = node.insert(job_with(|new| new.spec.expires_at = expires_at)).await;
        let claim = node.claim_one().await;
        assert_eq!((claim.id, claim.expired), (id, expired), "expires at {expires_at:?}, now {deadline}");
        assert_eq!(node.status(id).await, JobStatus::Running);
    }
}

pub async fn claiming_needs_only_the_claim_store(fx: Fixture) {
    let node = fx.node("node").await;
    let id = node.insert(job()).await;
    let narrow = node.claims();
    let request = ClaimRequest::new(node.owner.clone(), 1);
    let claims = narrow.claim(&request).await.expect("claim answers");
    assert_eq!(ids(&claims), BTreeSet::from([id]));
    let outcome = Outcome::new(id, claims[0].fence, End::Succeeded { result: None });
    narrow.commit(&node.owner, &[outcome]).await.expect("commit answers");
    assert_eq!(node.status(id).await, JobStatus::Succeeded);
}

pub async fn pick_up_takes_the_named_jobs_and_no_other(fx: Fixture) {
    let node = fx.node("node").await;
    let bystanders = fill(&node, "default", 3).await;
    let named: Vec<_> =
        fill(&node, "default", 1).await.union(&fill(&node, "mail", 2).await).copied().collect();
    // A name given twice is still one job.
    let asked: Vec<_> = named.iter().chain(&named[..1]).copied().chain([JobId::generate()]).collect();

    let claims = pick_up(&node, &asked).await;
    assert_eq!(claims.len(), named.len());
    for claim in &claims {
        assert!(named.contains(&claim.id));
        let stored = node.job(claim.id).await;
        assert_eq!(*claim, JobClaim::of(&stored, fx.now()));
        assert_eq!((stored.status, stored.picked_by.as_ref()), (JobStatus::Running, Some(&node.owner)));
        assert!(claim.fence > Fence::FIRST);
    }
    for id in bystanders {
        assert_eq!(node.status(id).await, JobStatus::Pending);
    }
}

pub async fn pick_up_takes_nothing_that_a_claim_would_not(fx: Fixture) {
    let node = fx.node("node").await;
    for (situation, id) in untouchables(&fx, &node).await {
        let before = node.job(id).await;
        assert_eq!(pick_up(&node, &[id]).await, [], "{situation}");
        assert_eq!(node.job(id).await, before, "{situation}");
    }
}

pub async fn pick_up_needs_a_running_lease(fx: Fixture) {
    let node = fx.node_with_lease("node", SECOND).await;
    let id = node.insert(job()).await;
    fx.advance(SECOND);
    assert_eq!(pick_up(&node, &[id]).await, []);
    let stranger = Peer { store: fx.connect().await, owner: Owner::incarnate("stranger") };
    assert_eq!(pick_up(&stranger, &[id]).await, []);
    assert_eq!(node.job(id).await.fence, Fence::FIRST);
}

pub async fn pick_up_looks_past_the_pause_of_a_queue(fx: Fixture) {
    let node = fx.node("node").await;
    let id = node.insert(job()).await;
    node.store.set_queue_paused(&QueueName::default(), true).await.expect("pause answers");
    assert_eq!(node.claim(1).await, []);
    assert_eq!(ids(&pick_up(&node, &[id]).await), BTreeSet::from([id]));
}

pub async fn pick_up_marks_an_expired_job(fx: Fixture) {
    let node = fx.node("node").await;
    let id = node.insert(job_with(|new| new.spec.expires_at = Some(fx.now()))).await;
    assert!(node.take(id).await.expired);
}

pub async fn owned_lists_exactly_the_running_jobs_of_an_owner(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    let mut held = Vec::new();
    for name in ["b", "default", "a"] {
        held.push(node.running(job_with(|new| new.spec.queue = queue(name))).await);
    }
    let others = other.running(job()).await;
    let back = node.running(job()).await;
    node.end(&back, released()).await;
    let done = node.running(job()).await;
    node.end(&done, End::Succeeded { result: None }).await;
    let mut called_off = node.running(job()).await;
    node.store.cancel(&[called_off.id.into()], &text("stop")).await.expect("cancel answers");
    called_off.cancel_requested = true;
    held.push(called_off);

    held.sort_by_key(|claim| claim.id);
    let reader = fx.connect().await;
    assert_eq!(reader.owned(&node.owner).await.expect("owned answers"), held);
    assert_eq!(reader.owned(&other.owner).await.expect("owned answers"), [others]);
    assert_eq!(reader.owned(&Owner::incarnate("node")).await.expect("owned answers"), []);
}

pub async fn owned_finds_the_claims_whose_reply_was_lost(fx: Fixture) {
    let node = fx.node("node").await;
    for priority in JobPriority::ALL.into_iter().rev() {
        node.insert(job_with(|new| new.spec.priority = priority)).await;
    }
    let mut unseen = node.claim(3).await;
    unseen.sort_by_key(|claim| claim.id);
    let found = node.store.owned(&node.owner).await.expect("owned answers");
    assert_eq!(found, unseen);
    for claim in &found {
        node.end(claim, released()).await;
    }
    assert_eq!(node.store.owned(&node.owner).await.expect("owned answers"), []);
}

async fn commit_and_claim(peer: &Peer, outcomes: &[Outcome], limit: usize) -> (Vec<Verdict>, Vec<JobClaim>) {
    let request = ClaimRequest::new(peer.owner.clone(), limit);
    peer.store.commit_and_claim(&peer.owner, outcomes, &request).await.expect("commit_and_claim answers")
}

pub async fn commit_and_claim_can_take_what_its_commit_released(fx: Fixture) {
    let node = fx.node("node").await;
    let (parent, child) = chain(&node).await;
    let claim = node.take(parent).await;
    let mut outcome = Outcome::new(parent, claim.fence, End::Succeeded { result: None });
    outcome.effects.push(Effect::Satisfy(child));
    outcome.edges_seen = 1;

    let (verdicts, claims) = commit_and_claim(&node, &[outcome], 10).await;
    let [Verdict::Recorded(recorded)] = verdicts.as_slice() else { panic!("recorded: {verdicts:?}") };
    assert_eq!(recorded.released, [child]);
    assert_eq!(claims, [JobClaim::of(&node.job(child).await, fx.now())]);
    assert_eq!(node.status(parent).await, JobStatus::Succeeded);
}

pub async fn commit_and_claim_can_take_back_what_it_handed_back(fx: Fixture) {
    let node = fx.node("node").await;
    let first = node.running(job()).await;
    let (verdicts, claims) =
        commit_and_claim(&node, &[Outcome::new(first.id, first.fence, released())], 1).await;
    assert!(matches!(verdicts.as_slice(), [Verdict::Recorded(_)]), "{verdicts:?}");
    assert_eq!(ids(&claims), BTreeSet::from([first.id]));
    assert!(claims[0].fence > first.fence);
}

pub async fn commit_and_claim_claims_whatever_became_of_the_outcomes(fx: Fixture) {
    let node = fx.node("node").await;
    let (kept, lost) = (node.running(job()).await, node.running(job()).await);
    let waiting = fill(&node, "default", 3).await;
    let done = |claim: &JobClaim, fence| Outcome::new(claim.id, fence, End::Succeeded { result: None });

    let (verdicts, claims) =
        commit_and_claim(&node, &[done(&lost, lost.fence.next()), done(&kept, kept.fence)], 2).await;
    assert!(matches!(verdicts.as_slice(), [Verdict::LeaseLost, Verdict::Recorded(_)]), "{verdicts:?}");
    assert_eq!(claims.len(), 2);
    let (verdicts, more) = commit_and_claim(&node, &[], 2).await;
    assert_eq!(verdicts, []);
    assert_eq!(ids(&claims).union(&ids(&more)).copied().collect::<BTreeSet<_>>(), waiting);
}

pub async fn commit_and_claim_without_a_lease_commits_and_claims_nothing(fx: Fixture) {
    let node = fx.node_with_lease("node", SECOND).await;
    let claim = node.running(job()).await;
    let waiting = node.insert(job()).await;
    fx.advance(SECOND);
    let done = Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
    let (verdicts, claims) = commit_and_claim(&node, &[done], 1).await;
    assert!(matches!(verdicts.as_slice(), [Verdict::Recorded(_)]), "{verdicts:?}");
    assert_eq!(claims, []);
    assert_eq!(node.status(claim.id).await, JobStatus::Succeeded);
    assert_eq!(node.status(waiting).await, JobStatus::Pending);
}
