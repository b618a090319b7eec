//! Parked jobs: which claims take them, when, and in which order.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::collections::BTreeSet;
use std::time::Duration;

use ratchet_api::store::{CancelVerdict, ClaimRequest, Permit, PermitRequest};
use ratchet_api::{
    Beat, Due, End, JobClaim, JobId, JobPayload, JobPriority, JobStatus, JsonText, NewJob, ParkedOn,
    QueueLimit, QueueName, ResourceLimit, ResourceName,
};

use super::keys::lives::named;
use crate::case::cases;
use crate::fixture::{job, job_with, text};
use crate::{Fixture, Peer};

cases! { "parked";
    a_parked_job_waits_with_nothing_consumed: ["commit.park", "commit.keeps_due", "commit.history", "claim.parked"] [76];
    a_job_is_pulled_by_a_node_that_lists_its_method: ["claim.parked"] [];
    a_job_is_pulled_while_its_resource_has_a_free_permit: ["claim.parked", "claim.parked_room"] [76 120];
    those_that_lack_the_same_hide_nobody: ["claim.parked_alike", "claim.parked", "claim.order"] [];
    a_resource_that_nobody_configured_keeps_its_jobs_waiting: ["claim.parked"] [];
    a_raised_limit_frees_parked_jobs: ["claim.parked"] [];
    parked_jobs_take_their_place_in_the_order: ["claim.parked", "claim.order", "claim.limit"] [];
    queues_share_the_free_permits_of_a_resource: ["claim.parked_room"] [];
    a_parked_job_that_expired_is_taken_by_anybody: ["claim.parked", "claim.expired"] [];
    a_parked_job_is_paused_and_canceled_like_any_other: ["claim.parked", "cancel.waiting"] [];
    due_work_is_what_this_owner_could_pull: ["beat.due"] [];
    parked_jobs_are_counted_apart: ["query.health"] [];
    what_jobs_are_parked_on_is_listed: ["query.parkings"] [];
    jobs_that_are_parked_on_one_thing_can_be_taken: ["pick_up.parked"] [];
    a_parked_job_can_be_picked_up_by_its_id: ["pick_up.same_rules"] [];
    a_commit_that_frees_a_permit_pulls_in_the_same_call: ["commit_and_claim.both", "claim.parked"] [];
    concurrent_calls_pull_no_job_twice: ["claim.disjoint", "claim.parked"] [];
}

const SECOND: Duration = Duration::from_secs(1);
/// The full name of the method that [`job`] calls.
const RUN: &str = "tck.Service.run";

fn method(name: &str) -> ParkedOn {
    ParkedOn::Method(name.to_owned())
}

fn smtp() -> ResourceName {
    ResourceName::new("smtp").expect("a valid name")
}

fn on_smtp() -> ParkedOn {
    ParkedOn::Resource(smtp())
}

async fn configure(peer: &Peer, max_concurrent: u32) {
    let limit = ResourceLimit::new(smtp(), max_concurrent);
    peer.store.configure_resource(&limit).await.expect("the resource is configured");
}

async fn acquire(peer: &Peer, claim: &JobClaim) {
    let request = PermitRequest { id: claim.id, fence: claim.fence, resource: smtp() };
    let permits = peer.store.acquire(&peer.owner, &[request]).await.expect("acquire answers");
    assert_eq!(permits, [Permit::Granted]);
}

/// Stores a job, claims it and parks it.
async fn park(peer: &Peer, new: NewJob, on: ParkedOn) -> JobId {
    let claim = peer.running(new).await;
    peer.end(&claim, End::Park { on }).await;
    claim.id
}

fn ids(claims: &[JobClaim]) -> Vec<JobId> {
    claims.iter().map(|claim| claim.id).collect()
}

async fn claim_queues(peer: &Peer, queues: &[(&str, usize)]) -> Vec<JobClaim> {
    let queues =
        queues.iter().map(|(name, limit)| QueueLimit { queue: named(name), limit: *limit }).collect();
    peer.store.claim(&ClaimRequest::of_queues(peer.owner.clone(), queues)).await.expect("claim answers")
}

pub async fn a_parked_job_waits_with_nothing_consumed(fx: Fixture) {
    let node = fx.node("a").await;
    let due = fx.now();
    let id = node.insert(job_with(|new| new.spec.max_retries = 3)).await;
    fx.advance(SECOND);
    let before = node.job(id).await;
    let claim = node.take(id).await;
    fx.advance(SECOND);

    node.end(&claim, End::Park { on: method(RUN) }).await;

    let mut parked = node.job(id).await;
    assert_eq!(parked.parked_on, Some(method(RUN)));
    assert!(parked.fence > claim.fence, "what was claimed is claimed no more");
    assert_eq!(parked.scheduled_time, due, "its age stays");
    (parked.parked_on, parked.fence) = (None, before.fence);
    assert_eq!(parked, before, "and nothing else has changed");
    assert_eq!(node.store.executions(id).await.expect("history is read"), []);
    assert_eq!(node.claim(10).await, [], "claims pass it over");
    fx.advance(Duration::from_secs(3_600));
    assert_eq!(node.claim(10).await, [], "time alone does not bring what it lacks");
}

pub async fn a_job_is_pulled_by_a_node_that_lists_its_method(fx: Fixture) {
    let (stranger, knower) = (fx.node_that_knows("a", &["tck.Service.other"]).await, fx.node("b").await);
    let id = park(&stranger, job(), method(RUN)).await;
    assert_eq!(stranger.claim(10).await, []);
    assert_eq!(knower.claim(10).await, [], "it lists nothing");
    let knower = fx.node_that_knows("c", &["tck.Service.other", RUN]).await;

    let claims = knower.claim(10).await;

    assert_eq!(ids(&claims), [id]);
    let job = knower.job(id).await;
    assert_eq!((job.status, job.parked_on), (JobStatus::Running, None));
    knower.end(&claims[0], End::Succeeded { result: None }).await;
    assert_eq!(knower.job(id).await.parked_on, None);
}

pub async fn those_that_lack_the_same_hide_nobody(fx: Fixture) {
    let stranger = fx.node_that_knows("a", &["tck.Service.other"]).await;
    let mut unknown = vec![park(&stranger, job(), method(RUN)).await];
    for _ in 0..5 {
        fx.advance(SECOND);
        unknown.push(stranger.insert(job()).await);
    }
    fx.advance(SECOND);
    let no_args = JsonText::parse("[]").expect("JSON");
    let other = JobPayload::new("tck.Service", "other", &no_args).expect("the names are valid");
    let known = stranger.insert(job_with(|new| new.spec.payload = other)).await;

    let mut seen = BTreeSet::new();
    loop {
        let claims = stranger.claim(2).await;
        assert!(!claims.is_empty(), "the job that this node knows was not claimed");
        if let Some(claim) = claims.iter().find(|claim| claim.id == known) {
            stranger.end(claim, End::Succeeded { result: None }).await;
        }
        for claim in claims.iter().filter(|claim| claim.id != known) {
            assert!(seen.insert(claim.id), "claimed twice by a node that does not know it");
            stranger.end(claim, End::Park { on: method(RUN) }).await;
        }
        if ids(&claims).contains(&known) {
            break;
        }
    }

    assert_eq!(stranger.claim(10).await, []);
    for id in &unknown {
        let job = stranger.job(*id).await;
        assert_eq!((job.status, job.parked_on), (JobStatus::Pending, Some(method(RUN))));
    }
    let knower = fx.node_that_knows("b", &[RUN]).await;
    assert_eq!(ids(&knower.claim(10).await), unknown, "the oldest first");
}

pub async fn a_job_is_pulled_while_its_resource_has_a_free_permit(fx: Fixture) {
    let node = fx.node("a").await;
    configure(&node, 2).await;
    let mut parked = Vec::new();
    for _ in 0..5 {
        parked.push(park(&node, job(), on_smtp()).await);
        fx.advance(SECOND);
    }

    let first = node.claim(10).await;
    assert_eq!(ids(&first), parked[..2], "as many as there are permits, the oldest first");
    acquire(&node, &first[0]).await;
    acquire(&node, &first[1]).await;
    assert_eq!(node.claim(10).await, [], "all permits are taken");

    node.end(&first[0], End::Succeeded { result: None }).await;
    let next = node.claim(10).await;
    assert_eq!(ids(&next), parked[2..3]);
    node.end(&next[0], End::Park { on: on_smtp() }).await;
    assert_eq!(ids(&node.claim(10).await), parked[2..3], "it is still the oldest");
}

pub async fn a_resource_that_nobody_configured_keeps_its_jobs_waiting(fx: Fixture) {
    let node = fx.node_that_knows("a", &[RUN]).await;
    let id = park(&node, job(), on_smtp()).await;
    assert_eq!(node.claim(10).await, []);
    configure(&node, 0).await;
    assert_eq!(node.claim(10).await, [], "a limit of 0 grants nothing");
    configure(&node, 1).await;
    assert_eq!(ids(&node.claim(10).await), [id]);
}

pub async fn a_raised_limit_frees_parked_jobs(fx: Fixture) {
    let node = fx.node("a").await;
    configure(&node, 1).await;
    let holder = node.running(job()).await;
    acquire(&node, &holder).await;
    let (first, second) = (park(&node, job(), on_smtp()).await, park(&node, job(), on_smtp()).await);
    assert_eq!(node.claim(10).await, []);
    configure(&node, 2).await;
    assert_eq!(ids(&node.claim(10).await), [first]);
    configure(&node, 0).await;
    assert_eq!(node.claim(10).await, [], "more holders than permits leave no room");
    configure(&node, 9).await;
    assert_eq!(ids(&node.claim(10).await), [second]);
}

pub async fn parked_jobs_take_their_place_in_the_order(fx: Fixture) {
    use JobPriority::{High, Low, Normal};
    let node = fx.node_that_knows("a", &[RUN, "other.Service.go"]).await;
    configure(&node, 100).await;
    let unknown = || method("nobody.Knows.this");
    let kinds = [None, Some(method(RUN)), Some(method("other.Service.go")), Some(on_smtp()), Some(unknown())];
    let mut expected = Vec::new();
    for round in 0..3 {
        for priority in [Low, High, Normal] {
            for on in &kinds {
                let new = job_with(|new| new.spec.priority = priority);
                let id = match on {
                    None => node.insert(new).await,
                    Some(on) => park(&node, new, on.clone()).await,
                };
                if *on != Some(unknown()) {
                    expected.push((std::cmp::Reverse(priority), round, id));
                }
            }
        }
        fx.advance(SECOND);
    }
    expected.sort();
    let expected: Vec<JobId> = expected.into_iter().map(|(.., id)| id).collect();

    let mut claimed = Vec::new();
    for limit in [1, 2, 7, 100] {
        let claims = node.claim(limit).await;
        assert!(claims.len() <= limit);
        claimed.extend(ids(&claims));
    }

    assert_eq!(claimed, expected);
}

pub async fn queues_share_the_free_permits_of_a_resource(fx: Fixture) {
    let node = fx.node("a").await;
    configure(&node, 3).await;
    let of = |queue: &str| job_with(|new| new.spec.queue = named(queue));
    let mut parked = Vec::new();
    for queue in ["mail", "mail", "fax", "fax", "fax"] {
        parked.push(park(&node, of(queue), on_smtp()).await);
    }

    let claims = claim_queues(&node, &[("mail", 10), ("fax", 10)]).await;

    assert_eq!(ids(&claims), parked[..3], "the queues in the order of the request");
}

pub async fn a_parked_job_that_expired_is_taken_by_anybody(fx: Fixture) {
    let node = fx.node("a").await;
    let expires = |after: Duration| {
        let at = fx.now() + after;
        job_with(|new| new.spec.expires_at = Some(at))
    };
    let soon = park(&node, expires(SECOND), method(RUN)).await;
    let full = park(&node, expires(2 * SECOND), on_smtp()).await;
    park(&node, expires(3 * SECOND), method(RUN)).await;
    assert_eq!(node.claim(10).await, []);
    fx.advance(2 * SECOND);

    let claims = node.claim(10).await;

    assert_eq!(ids(&claims), [soon, full]);
    assert!(claims.iter().all(|claim| claim.expired));
}

pub async fn a_parked_job_is_paused_and_canceled_like_any_other(fx: Fixture) {
    let node = fx.node("a").await;
    let id = park(&node, job(), method(RUN)).await;
    let before = node.job(id).await;
    node.store.pause(&[id.into()]).await.expect("pause answers");
    assert_eq!(node.status(id).await, JobStatus::Paused);
    let knower = fx.node_that_knows("b", &[RUN]).await;
    assert_eq!(knower.claim(10).await, [], "set aside is set aside");
    node.store.resume(&[id.into()]).await.expect("resume answers");
    let mut after = node.job(id).await;
    assert!(after.fence > before.fence);
    after.fence = before.fence;
    assert_eq!(after, before, "what it lacks is lacking still");
    assert_eq!(node.claim(10).await, []);

    let verdicts = node.store.cancel(&[id.into()], &text("no more")).await.expect("cancel answers");
    assert_eq!(verdicts, [CancelVerdict::Canceled { dependents: vec![] }]);
    let job = node.job(id).await;
    assert_eq!((job.status, job.parked_on), (JobStatus::Canceled, None));
    assert_eq!(knower.claim(10).await, []);
}

pub async fn due_work_is_what_this_owner_could_pull(fx: Fixture) {
    let (stranger, knower) = (fx.node("a").await, fx.node_that_knows("b", &[RUN]).await);
    let due_work = async |peer: &Peer| {
        let beat = Beat::new(peer.owner.clone(), Fixture::LONG);
        peer.store.beat(&beat).await.expect("beat answers").due_work
    };
    let id = park(&stranger, job(), method(RUN)).await;
    assert!(!due_work(&stranger).await);
    assert!(due_work(&knower).await);
    stranger.store.set_queue_paused(&QueueName::default(), true).await.expect("the queue is paused");
    assert!(!due_work(&knower).await);
    stranger.store.set_queue_paused(&QueueName::default(), false).await.expect("the queue goes on");
    let claim = knower.take(id).await;
    assert!(!due_work(&knower).await);

    configure(&stranger, 1).await;
    acquire(&knower, &claim).await;
    park(&stranger, job(), on_smtp()).await;
    assert!(!due_work(&stranger).await, "no permit is free");
    knower.end(&claim, End::Succeeded { result: None }).await;
    assert!(due_work(&stranger).await);
    assert!(due_work(&knower).await);

    let soon = fx.now() + SECOND;
    let expiring = job_with(|new| new.spec.expires_at = Some(soon));
    configure(&stranger, 0).await;
    park(&stranger, expiring, method("nobody.Knows.this")).await;
    assert!(!due_work(&stranger).await);
    fx.advance(SECOND);
    assert!(due_work(&stranger).await, "somebody has to end it");
}

pub async fn parked_jobs_are_counted_apart(fx: Fixture) {
    let node = fx.node("a").await;
    park(&node, job(), method(RUN)).await;
    park(&node, job(), on_smtp()).await;
    fx.advance(SECOND);
    node.insert(job()).await;
    node.insert(job_with(|new| new.due = Due::After(SECOND))).await;

    let health = node.store.queue_health().await.expect("health is told");

    let [(_, health)] = &health[..] else { panic!("one queue: {health:?}") };
    assert_eq!((health.ready, health.parked, health.scheduled), (1, 2, 1));
    assert_eq!(health.ready_by_priority.iter().sum::<u64>(), 1);
    assert_eq!(health.oldest_wait, Some(Duration::ZERO), "of the ready ones");
}

pub async fn what_jobs_are_parked_on_is_listed(fx: Fixture) {
    let node = fx.node("a").await;
    let first = fx.now();
    let of = |queue: &str| job_with(|new| new.spec.queue = named(queue));
    for (queue, on) in [("mail", on_smtp()), ("fax", on_smtp()), ("mail", method(RUN)), ("mail", on_smtp())] {
        park(&node, of(queue), on).await;
        fx.advance(SECOND);
    }
    let paused = park(&node, of("mail"), method("paused.One.run")).await;
    node.store.pause(&[paused.into()]).await.expect("pause answers");
    node.insert(of("mail")).await;

    let told = node.store.parkings().await.expect("parkings are listed");

    let told: Vec<_> = told
        .into_iter()
        .map(|parking| (parking.queue.to_string(), parking.on, parking.jobs, parking.oldest))
        .collect();
    let expected = [
        ("fax".to_owned(), on_smtp(), 1, first + SECOND),
        ("mail".to_owned(), method(RUN), 1, first + 2 * SECOND),
        ("mail".to_owned(), on_smtp(), 2, first),
    ];
    assert_eq!(told, expected);
}

pub async fn jobs_that_are_parked_on_one_thing_can_be_taken(fx: Fixture) {
    let (node, gone) = (fx.node("a").await, fx.node_with_lease("gone", SECOND).await);
    let queue = QueueName::default();
    let mut parked = Vec::new();
    for _ in 0..3 {
        parked.push(park(&node, job(), method(RUN)).await);
    }
    park(&node, job(), on_smtp()).await;
    park(&node, job_with(|new| new.spec.queue = named("other")), method(RUN)).await;
    node.insert(job()).await;
    fx.advance(2 * SECOND);
    let late = gone.store.pick_up_parked(&gone.owner, &queue, &method(RUN), 10).await.expect("it answers");
    assert_eq!(late, [], "its lease is over");

    let first = node.store.pick_up_parked(&node.owner, &queue, &method(RUN), 2).await.expect("it answers");
    let rest = node.store.pick_up_parked(&node.owner, &queue, &method(RUN), 10).await.expect("it answers");

    assert_eq!((ids(&first), ids(&rest)), (parked[..2].to_vec(), parked[2..].to_vec()));
    assert_eq!(node.job(parked[0]).await.parked_on, None);
    node.end(&first[0], End::Succeeded { result: None }).await;
}

pub async fn a_parked_job_can_be_picked_up_by_its_id(fx: Fixture) {
    let node = fx.node("a").await;
    let id = park(&node, job(), method(RUN)).await;
    let claim = node.take(id).await;
    assert_eq!(node.job(id).await.parked_on, None);
    node.end(&claim, End::Park { on: on_smtp() }).await;
    assert_eq!(node.job(id).await.parked_on, Some(on_smtp()), "the newest reason counts");
}

pub async fn a_commit_that_frees_a_permit_pulls_in_the_same_call(fx: Fixture) {
    let node = fx.node("a").await;
    configure(&node, 1).await;
    let holder = node.running(job()).await;
    acquire(&node, &holder).await;
    let waiting = park(&node, job(), on_smtp()).await;
    let done = ratchet_api::Outcome::new(holder.id, holder.fence, End::Succeeded { result: None });
    let request = ClaimRequest::new(node.owner.clone(), 10);

    let (_, claims) =
        node.claims().commit_and_claim(&node.owner, &[done], &request).await.expect("it answers");

    assert_eq!(ids(&claims), [waiting]);
}

pub async fn concurrent_calls_pull_no_job_twice(fx: Fixture) {
    let first = fx.node_that_knows("0", &[RUN]).await;
    let mut all = BTreeSet::new();
    for place in 0..60 {
        all.insert(match place % 3 {
            0 => first.insert(job()).await,
            1 => park(&first, job(), method(RUN)).await,
            _ => park(&first, job(), on_smtp()).await,
        });
    }
    configure(&first, 1_000).await;
    let mut peers = Vec::new();
    for label in ["1", "2", "3", "4"] {
        peers.push(fx.node_that_knows(label, &[RUN]).await);
    }
    let requests: Vec<_> =
        peers.iter().map(|peer| (peer.claims(), ClaimRequest::new(peer.owner.clone(), 7))).collect();

    let claimed = fx
        .race(4, |place| {
            let (store, request) = requests[place].clone();
            async move {
                let mut claimed = Vec::new();
                loop {
                    let claims = store.claim(&request).await.expect("claim answers");
                    if claims.is_empty() {
                        return claimed;
                    }
                    claimed.extend(ids(&claims));
                }
            }
        })
        .await;

    // A claim that meets only jobs that others are claiming may return early; one more call finds the rest.
    let mut claimed = claimed.concat();
    claimed.extend(ids(&first.claim(100).await));
    assert_eq!(claimed.len(), 60, "none is taken twice");
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), all);
}
