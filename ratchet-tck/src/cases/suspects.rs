//! Jobs that may have killed a node: they wait apart from the others.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::{
    Beat, End, HandBackReason, JobClaim, JobId, JobStatus, NewJob, Outcome, ParkedOn, QueueName, Verdict,
};

use super::keys::lives::named;
use crate::case::cases;
use crate::fixture::{job, job_with};
use crate::{Fixture, Peer};

cases! { "suspects";
    a_suspect_is_handed_back_apart_and_no_claim_takes_it: ["commit.suspect", "claim.parked"] [136];
    any_other_hand_back_leaves_no_suspect: ["commit.suspect"] [136];
    suspects_are_picked_up_by_how_often_they_crashed: ["pick_up.parked"] [136];
    suspects_of_a_paused_queue_stay: ["pick_up.parked", "beat.suspects"] [];
    a_beat_tells_whether_suspects_are_due: ["beat.suspects", "beat.due"] [136];
    a_suspect_that_expired_is_taken_by_anybody: ["claim.parked", "claim.expired"] [];
}

const SECOND: Duration = Duration::from_secs(1);
/// The full name of the method that [`job`] calls.
const RUN: &str = "tck.Service.run";

fn suspect(crashes: u32) -> ParkedOn {
    ParkedOn::Suspect { crashes, method: RUN.to_owned() }
}

fn handed_back(claim: &JobClaim, reason: HandBackReason, delay: Duration) -> Outcome {
    Outcome::new(claim.id, claim.fence, End::HandBack { delay, reason })
}

async fn record(peer: &Peer, outcome: Outcome) {
    let verdict = peer.commit(outcome).await;
    assert!(matches!(verdict, Verdict::Recorded(_)), "{verdict:?}");
}

/// Stores a job and records it as crashed `crashes` times, although it is its first crash.
async fn crash(peer: &Peer, new: NewJob, crashes: u32, delay: Duration) -> JobId {
    let claim = peer.running(new).await;
    let mut outcome = handed_back(&claim, HandBackReason::Crashed, delay);
    outcome.suspect = Some(suspect(crashes));
    record(peer, outcome).await;
    claim.id
}

async fn pick_up(peer: &Peer, crashes: u32, limit: usize) -> Vec<JobId> {
    let on = suspect(crashes);
    let claims = peer.store.pick_up_parked(&peer.owner, &QueueName::default(), &on, limit).await;
    claims.expect("it answers").into_iter().map(|claim| claim.id).collect()
}

pub async fn a_suspect_is_handed_back_apart_and_no_claim_takes_it(fx: Fixture) {
    let node = fx.node_that_knows("a", &[RUN]).await;
    let id = node.insert(job()).await;
    fx.advance(SECOND);
    let before = node.job(id).await;
    let claim = node.take(id).await;
    let mut outcome = handed_back(&claim, HandBackReason::Crashed, Duration::ZERO);
    outcome.suspect = Some(suspect(1));

    record(&node, outcome).await;

    let waits = node.job(id).await;
    assert_eq!((waits.status, waits.crash_count, waits.attempts), (JobStatus::Pending, 1, 0));
    assert_eq!((waits.parked_on, waits.scheduled_time), (Some(suspect(1)), before.scheduled_time));
    fx.advance(Duration::from_secs(3_600));
    assert_eq!(node.claim(10).await, [], "whoever knows its method passes it over too");
    let fresh = node.insert(job()).await;
    assert_eq!(node.claim(10).await.iter().map(|claim| claim.id).collect::<Vec<_>>(), [fresh]);
    let claim = node.take(id).await;
    let runs = node.job(id).await;
    assert_eq!((runs.status, runs.parked_on, claim.crash_count), (JobStatus::Running, None, 1));
}

pub async fn any_other_hand_back_leaves_no_suspect(fx: Fixture) {
    use HandBackReason::{BreakerOpen, Released, Snoozed, UnknownTarget};
    let node = fx.node("a").await;
    for reason in [Released, BreakerOpen, UnknownTarget, Snoozed] {
        let id = crash(&node, job(), 1, Duration::ZERO).await;
        let again = node.take(id).await;
        let mut outcome = handed_back(&again, reason, Duration::ZERO);
        outcome.suspect = Some(suspect(1));
        record(&node, outcome).await;
        assert_eq!(node.job(id).await.parked_on, Some(suspect(1)), "{reason:?}");
        let again = node.take(id).await;
        record(&node, handed_back(&again, reason, Duration::ZERO)).await;
        assert_eq!(node.job(id).await.parked_on, None, "{reason:?}");
        let claims = node.claim(10).await;
        assert_eq!(claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), [id], "{reason:?}");
        node.end(&claims[0], End::Succeeded { result: None }).await;
    }
}

pub async fn suspects_are_picked_up_by_how_often_they_crashed(fx: Fixture) {
    let node = fx.node("a").await;
    let once = [
        crash(&node, job(), 1, Duration::ZERO).await,
        crash(&node, job(), 1, Duration::ZERO).await,
        crash(&node, job(), 1, Duration::ZERO).await,
    ];
    let often = crash(&node, job(), 12, Duration::ZERO).await;
    crash(&node, job_with(|new| new.spec.queue = named("other")), 1, Duration::ZERO).await;
    let later = crash(&node, job(), 1, 2 * SECOND).await;
    assert_eq!(pick_up(&node, 1, 2).await, once[..2]);
    assert_eq!(pick_up(&node, 1, 10).await, once[2..], "one of them is not due");
    assert_eq!(pick_up(&node, 2, 10).await, []);
    assert_eq!(pick_up(&node, 12, 10).await, [often]);
    fx.advance(2 * SECOND);
    assert_eq!(pick_up(&node, 1, 10).await, [later]);
}

async fn suspects_wait(peer: &Peer) -> (bool, bool) {
    let beat = Beat::new(peer.owner.clone(), Fixture::LONG);
    let reply = peer.store.beat(&beat).await.expect("beat answers");
    (reply.suspects, reply.due_work)
}

pub async fn suspects_of_a_paused_queue_stay(fx: Fixture) {
    let node = fx.node("a").await;
    let id = crash(&node, job(), 1, Duration::ZERO).await;
    node.store.set_queue_paused(&QueueName::default(), true).await.expect("the queue is paused");
    assert_eq!(pick_up(&node, 1, 10).await, []);
    assert_eq!(suspects_wait(&node).await, (false, false));
    node.store.set_queue_paused(&QueueName::default(), false).await.expect("the queue goes on");
    assert_eq!(suspects_wait(&node).await, (true, false));
    assert_eq!(pick_up(&node, 1, 10).await, [id]);
}

pub async fn a_beat_tells_whether_suspects_are_due(fx: Fixture) {
    let node = fx.node_that_knows("a", &[RUN]).await;
    assert_eq!(suspects_wait(&node).await, (false, false));
    let parked = node.running(job()).await;
    node.end(&parked, End::Park { on: ParkedOn::Method("nobody.Knows.this".to_owned()) }).await;
    assert_eq!(suspects_wait(&node).await, (false, false), "it is none");
    let id = crash(&node, job(), 3, SECOND).await;
    assert_eq!(suspects_wait(&node).await, (false, false), "it is not due");
    fx.advance(SECOND);
    assert_eq!(suspects_wait(&node).await, (true, false), "no claim would take it");
    assert_eq!(pick_up(&node, 3, 10).await, [id]);
    assert_eq!(suspects_wait(&node).await, (false, false));
}

pub async fn a_suspect_that_expired_is_taken_by_anybody(fx: Fixture) {
    let node = fx.node("a").await;
    let soon = fx.now() + SECOND;
    let id = crash(&node, job_with(|new| new.spec.expires_at = Some(soon)), 1, Duration::ZERO).await;
    assert_eq!(node.claim(10).await, []);
    fx.advance(SECOND);
    let claims = node.claim(10).await;
    assert_eq!(claims.iter().map(|claim| (claim.id, claim.expired)).collect::<Vec<_>>(), [(id, true)]);
}
