//! Permits: how many jobs use a resource at once.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{Permit, PermitRequest};
use ratchet_api::{
    DeadReason, End, Fence, HandBackReason, JobClaim, JobId, Outcome, ParkedOn, ResourceLimit, ResourceName,
    ResourceUse, Verdict,
};

use crate::case::cases;
use crate::fixture::{error, job, text};
use crate::{Fixture, Peer};

cases! { "permit";
    no_more_jobs_than_the_limit_hold_a_permit: ["permit.capacity", "permit.listed"] [120 121];
    one_call_grants_no_more_than_the_limit: ["permit.capacity"] [];
    under_a_race_no_more_jobs_than_the_limit_get_a_permit: ["permit.capacity"] [];
    asking_again_is_granted_and_counts_once: ["permit.idempotent"] [];
    only_the_present_claim_of_a_running_job_gets_a_permit: ["permit.fenced"] [];
    a_resource_that_nobody_configured_is_unknown: ["permit.unknown"] [];
    each_request_has_an_answer_of_its_own: ["permit.fenced", "permit.unknown"] [];
    a_permit_is_freed_at_every_way_out_of_running: ["commit.releases", "permit.listed"] [84 120];
    an_outcome_that_is_not_recorded_frees_no_permit: ["permit.listed", "commit.fenced"] [];
    a_cancel_frees_the_permit_only_with_the_outcome: ["cancel.running", "commit.releases"] [];
    a_job_holds_permits_of_several_resources: ["permit.capacity", "commit.releases"] [];
    lowering_the_limit_takes_no_permit_away: ["permit.configure"] [];
    the_newest_limit_and_delay_hold: ["permit.configure"] [76];
    a_limit_of_zero_grants_nothing: ["permit.configure"] [];
    resources_are_listed_by_name_with_their_holders: ["permit.listed"] [121];
}

const SECOND: Duration = Duration::from_secs(1);

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a valid resource name")
}

async fn configure(peer: &Peer, name: &str, max_concurrent: u32) {
    let limit = ResourceLimit::new(resource(name), max_concurrent);
    peer.store.configure_resource(&limit).await.expect("the resource is configured");
}

fn request(claim: &JobClaim, name: &str) -> PermitRequest {
    PermitRequest { id: claim.id, fence: claim.fence, resource: resource(name) }
}

async fn acquire(peer: &Peer, requests: &[PermitRequest]) -> Vec<Permit> {
    let permits = peer.store.acquire(&peer.owner, requests).await.expect("acquire answers");
    assert_eq!(permits.len(), requests.len(), "one answer for each");
    permits
}

/// Requests a permit of `gateway`.
async fn ask(peer: &Peer, claim: &JobClaim) -> Permit {
    acquire(peer, &[request(claim, "gateway")]).await[0]
}

fn full() -> Permit {
    Permit::Full { retry_in: Duration::from_secs(5) }
}

async fn running(peer: &Peer, count: usize) -> Vec<JobClaim> {
    let mut claims = Vec::new();
    for _ in 0..count {
        claims.push(peer.running(job()).await);
    }
    claims
}

/// Returns the holders of permits of the only resource, sorted.
async fn holders(peer: &Peer) -> Vec<JobId> {
    let uses = peer.store.resources().await.expect("resources answers");
    let [ResourceUse { holders, .. }] = uses.as_slice() else { panic!("one resource: {uses:?}") };
    let mut holders = holders.clone();
    holders.sort();
    holders
}

fn done() -> End {
    End::Succeeded { result: None }
}

pub async fn no_more_jobs_than_the_limit_hold_a_permit(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    configure(&node, "gateway", 2).await;
    let (own, foreign) = (running(&node, 2).await, running(&other, 1).await);
    assert_eq!(ask(&node, &own[0]).await, Permit::Granted);
    assert_eq!(ask(&other, &foreign[0]).await, Permit::Granted);
    assert_eq!(ask(&node, &own[1]).await, full());
    assert_eq!(holders(&node).await, {
        let mut expected = [own[0].id, foreign[0].id];
        expected.sort();
        expected
    });
    other.end(&foreign[0], done()).await;
    assert_eq!(ask(&node, &own[1]).await, Permit::Granted);
}

pub async fn one_call_grants_no_more_than_the_limit(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 2).await;
    let claims = running(&node, 4).await;
    let requests: Vec<_> = claims.iter().map(|claim| request(claim, "gateway")).collect();
    let permits = acquire(&node, &requests).await;
    assert_eq!(permits.iter().filter(|permit| **permit == Permit::Granted).count(), 2, "{permits:?}");
    assert_eq!(permits.iter().filter(|permit| **permit == full()).count(), 2, "{permits:?}");
    let granted: Vec<_> = claims
        .iter()
        .zip(&permits)
        .filter(|(_, permit)| **permit == Permit::Granted)
        .map(|(c, _)| c.id)
        .collect();
    assert_eq!(holders(&node).await, granted, "ids grow, so they are sorted");
}

pub async fn under_a_race_no_more_jobs_than_the_limit_get_a_permit(fx: Fixture) {
    let mut nodes = Vec::new();
    for _ in 0..6 {
        nodes.push(fx.node("node").await);
    }
    configure(&nodes[0], "gateway", 3).await;
    for round in 0..5 {
        let mut claims = Vec::new();
        for node in &nodes {
            claims.push(node.running(job()).await);
        }
        let permits = fx
            .race(nodes.len(), |i| {
                let (node, claim) = (nodes[i].clone(), claims[i].clone());
                async move { ask(&node, &claim).await }
            })
            .await;
        let granted: Vec<_> = claims
            .iter()
            .zip(&permits)
            .filter(|(_, permit)| **permit == Permit::Granted)
            .map(|(c, _)| c.id)
            .collect();
        assert_eq!(granted.len(), 3, "round {round}: {permits:?}");
        assert_eq!(permits.iter().filter(|permit| **permit == full()).count(), 3, "{permits:?}");
        assert_eq!(holders(&nodes[0]).await, granted);
        for (node, claim) in nodes.iter().zip(&claims) {
            node.end(claim, done()).await;
        }
        assert_eq!(holders(&nodes[0]).await, []);
    }
}

pub async fn asking_again_is_granted_and_counts_once(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 2).await;
    let claims = running(&node, 3).await;
    let twice = [request(&claims[0], "gateway"), request(&claims[0], "gateway")];
    assert_eq!(acquire(&node, &twice).await, [Permit::Granted, Permit::Granted]);
    assert_eq!(ask(&node, &claims[0]).await, Permit::Granted);
    assert_eq!(ask(&node, &claims[1]).await, Permit::Granted, "one permit is left");
    assert_eq!(ask(&node, &claims[0]).await, Permit::Granted, "also when every permit is taken");
    assert_eq!(ask(&node, &claims[2]).await, full());
    node.end(&claims[0], done()).await;
    assert_eq!(holders(&node).await, [claims[1].id], "one end frees it whatever the number of requests");
}

pub async fn only_the_present_claim_of_a_running_job_gets_a_permit(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    configure(&node, "gateway", 10).await;
    let held = node.running(job()).await;
    let ended = node.running(job()).await;
    node.end(&ended, done()).await;
    let back = node.running(job()).await;
    node.end(&back, End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }).await;
    let waiting = node.insert(job()).await;
    let at = |id, fence| PermitRequest { id, fence, resource: resource("gateway") };
    for (what, peer, request) in [
        ("an older fence", &node, at(held.id, Fence::FIRST)),
        ("a fence to come", &node, at(held.id, held.fence.next())),
        ("another owner", &other, at(held.id, held.fence)),
        ("an ended job", &node, at(ended.id, ended.fence)),
        ("a job that went back", &node, at(back.id, back.fence)),
        ("a job that went back, by its present fence", &node, at(back.id, back.fence.next())),
        ("a waiting job", &node, at(waiting, Fence::FIRST)),
        ("an unknown job", &node, at(JobId::generate(), Fence::FIRST)),
    ] {
        assert_eq!(acquire(peer, &[request]).await, [Permit::Lost], "{what}");
    }
    assert_eq!(holders(&node).await, []);
}

pub async fn a_resource_that_nobody_configured_is_unknown(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 1).await;
    let claim = node.running(job()).await;
    for name in ["printer", "Gateway", "gateway "] {
        assert_eq!(acquire(&node, &[request(&claim, name)]).await, [Permit::Unknown], "{name:?}");
    }
    assert_eq!(holders(&node).await, []);
}

pub async fn each_request_has_an_answer_of_its_own(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 1).await;
    let claims = running(&node, 4).await;
    let mut stale = request(&claims[2], "gateway");
    stale.fence = stale.fence.next();
    let requests = [
        request(&claims[0], "nowhere"),
        stale,
        request(&claims[1], "gateway"),
        request(&claims[3], "gateway"),
    ];
    let permits = acquire(&node, &requests).await;
    assert_eq!(permits[..2], [Permit::Unknown, Permit::Lost]);
    assert_eq!(permits.iter().filter(|permit| **permit == Permit::Granted).count(), 1, "{permits:?}");
    assert_eq!(permits.iter().filter(|permit| **permit == full()).count(), 1, "{permits:?}");
}

pub async fn a_permit_is_freed_at_every_way_out_of_running(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 1).await;
    let dead = |reason| End::DeadLetter { error: error("broken"), reason };
    let back = |reason| End::HandBack { delay: SECOND, reason };
    let ends = [
        done(),
        End::Retry { delay: SECOND, error: error("busy") },
        dead(DeadReason::Exhausted),
        dead(DeadReason::DoNotRetry),
        dead(DeadReason::PolicyRefused),
        dead(DeadReason::Crashed),
        dead(DeadReason::Denied),
        dead(DeadReason::UnknownTarget),
        back(HandBackReason::Released),
        back(HandBackReason::BreakerOpen),
        End::Park { on: ParkedOn::Resource(resource("gateway")) },
        back(HandBackReason::UnknownTarget),
        back(HandBackReason::Snoozed),
        back(HandBackReason::Crashed),
        End::Canceled { reason: text("expired") },
    ];
    for end in ends {
        let claim = node.running(job()).await;
        assert_eq!(ask(&node, &claim).await, Permit::Granted, "before {end:?}");
        node.end(&claim, end.clone()).await;
        assert_eq!(holders(&node).await, [], "after {end:?}");
    }
}

pub async fn an_outcome_that_is_not_recorded_frees_no_permit(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    configure(&node, "gateway", 1).await;
    let claim = node.running(job()).await;
    assert_eq!(ask(&node, &claim).await, Permit::Granted);
    for (peer, fence) in [(&node, claim.fence.next()), (&node, Fence::FIRST), (&other, claim.fence)] {
        assert_eq!(peer.commit(Outcome::new(claim.id, fence, done())).await, Verdict::LeaseLost);
    }
    assert_eq!(holders(&node).await, [claim.id]);
}

pub async fn a_cancel_frees_the_permit_only_with_the_outcome(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 1).await;
    let claims = running(&node, 2).await;
    assert_eq!(ask(&node, &claims[0]).await, Permit::Granted);
    node.store.cancel(&[claims[0].id.into()], &text("stop")).await.expect("cancel answers");
    assert_eq!(holders(&node).await, [claims[0].id], "its body still runs");
    assert_eq!(ask(&node, &claims[1]).await, full());

    let verdict = node.commit(Outcome::new(claims[0].id, claims[0].fence, done())).await;
    assert_eq!(verdict, Verdict::CanceledInstead);
    assert_eq!(holders(&node).await, []);
    assert_eq!(ask(&node, &claims[1]).await, Permit::Granted);
}

pub async fn a_job_holds_permits_of_several_resources(fx: Fixture) {
    let node = fx.node("node").await;
    for name in ["gateway", "printer"] {
        configure(&node, name, 1).await;
    }
    let claims = running(&node, 2).await;
    let both = |claim| [request(claim, "gateway"), request(claim, "printer")];
    assert_eq!(acquire(&node, &both(&claims[0])).await, [Permit::Granted, Permit::Granted]);
    assert_eq!(acquire(&node, &both(&claims[1])).await, [full(), full()]);
    node.end(&claims[0], done()).await;
    assert_eq!(acquire(&node, &both(&claims[1])).await, [Permit::Granted, Permit::Granted]);
}

pub async fn lowering_the_limit_takes_no_permit_away(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 3).await;
    let claims = running(&node, 4).await;
    for claim in &claims[..3] {
        assert_eq!(ask(&node, claim).await, Permit::Granted);
    }
    configure(&node, "gateway", 1).await;
    assert_eq!(holders(&node).await, [claims[0].id, claims[1].id, claims[2].id]);
    assert_eq!(ask(&node, &claims[0]).await, Permit::Granted, "who holds one keeps it");
    for claim in &claims[..3] {
        assert_eq!(ask(&node, &claims[3]).await, full());
        node.end(claim, done()).await;
    }
    assert_eq!(ask(&node, &claims[3]).await, Permit::Granted);
}

pub async fn the_newest_limit_and_delay_hold(fx: Fixture) {
    let (node, other) = (fx.node("node").await, fx.node("other").await);
    configure(&node, "gateway", 1).await;
    let claims = running(&node, 3).await;
    assert_eq!(ask(&node, &claims[0]).await, Permit::Granted);
    configure(&other, "gateway", 2).await;
    assert_eq!(ask(&node, &claims[1]).await, Permit::Granted, "raised by another node");

    let mut slower = ResourceLimit::new(resource("gateway"), 2);
    slower.retry_delay = Duration::from_millis(61_001);
    other.store.configure_resource(&slower).await.expect("the resource is configured");
    let retry_in = slower.retry_delay;
    assert_eq!(ask(&node, &claims[2]).await, Permit::Full { retry_in });
    let uses = node.store.resources().await.expect("resources answers");
    assert_eq!(uses.iter().map(|used| &used.limit).collect::<Vec<_>>(), [&slower]);
}

pub async fn a_limit_of_zero_grants_nothing(fx: Fixture) {
    let node = fx.node("node").await;
    configure(&node, "gateway", 0).await;
    let claim = node.running(job()).await;
    assert_eq!(ask(&node, &claim).await, full());
    assert_eq!(holders(&node).await, []);
    configure(&node, "gateway", 1).await;
    assert_eq!(ask(&node, &claim).await, Permit::Granted);
}

pub async fn resources_are_listed_by_name_with_their_holders(fx: Fixture) {
    let (node, reader) = (fx.node("node").await, fx.connect().await);
    assert_eq!(reader.resources().await.expect("resources answers"), []);
    for name in ["printer", "Zebra", "gateway"] {
        configure(&node, name, 2).await;
    }
    let claims = running(&node, 2).await;
    acquire(&node, &[request(&claims[0], "printer"), request(&claims[1], "gateway")]).await;
    let expected = [("Zebra", vec![]), ("gateway", vec![claims[1].id]), ("printer", vec![claims[0].id])]
        .map(|(name, holders)| ResourceUse::new(ResourceLimit::new(resource(name), 2), holders));
    assert_eq!(reader.resources().await.expect("resources answers"), expected, "by their bytes");
}
