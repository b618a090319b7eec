//! Recovery: which jobs of dead nodes may be taken over, and what a dead node's calls still do.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::collections::BTreeSet;
use std::slice::from_ref;
use std::time::Duration;

use ratchet_api::store::{Loaded, Permit, PermitRequest, ProgressReport};
use ratchet_api::{
    Beat, BusinessKey, Condition, DeadReason, Edge, Effect, End, Execution, ExecutionResult, HandBackReason,
    Inserted, Job, JobClaim, JobId, JobStatus, JsonText, NewJob, Outcome, Owner, ResourceLimit, ResourceName,
    ResourceUse, Run, Submission, Verdict,
};

use crate::case::cases;
use crate::fixture::{error, job, job_with, text};
use crate::{Fixture, Peer};

cases! { "recover";
    a_job_of_a_dead_owner_moves_as_it_is: ["recover.moved"] [135 186];
    a_living_owner_is_not_robbed_whatever_the_caller_believes: ["recover.dead_only"] [];
    a_revived_owner_is_not_robbed: ["recover.dead_only", "beat.renews"] [];
    among_many_owners_only_the_dead_are_recovered_from: ["recover.dead_only"] [];
    nothing_moves_to_a_node_without_a_lease: ["recover.alive"] [];
    an_expired_lease_alone_does_not_lose_an_outcome: ["commit.fenced", "recover.disjoint"] [];
    no_outcome_of_a_zombie_changes_anything: ["recover.fences", "commit.fenced"] [172];
    the_effects_of_a_zombie_are_dropped: ["recover.fences", "commit.fenced"] [];
    a_zombie_can_neither_beat_nor_claim_nor_recover: ["recover.fences", "beat.refused", "recover.alive"] [];
    a_zombie_can_neither_read_nor_report_nor_get_a_permit:
        ["recover.fences", "load.fenced", "progress.fenced"] [];
    a_crashed_job_goes_back_through_an_outcome: ["recover.moved", "commit.hand_back", "commit.history"] [136 191];
    a_job_that_crashes_its_nodes_is_dead_lettered: ["recover.moved", "commit.dead_letter"] [];
    a_cancel_request_is_carried_over: ["recover.moved", "commit.cancel_wins"] [];
    key_and_permit_stay_with_a_moved_job: ["recover.moved", "permit.listed"] [];
    jobs_move_in_chunks_of_the_limit: ["recover.moved", "recover.fences", "beat.dead"] [];
    a_recovery_that_moves_nothing_fences_nobody: ["beat.renews", "recover.fences"] [];
    a_second_recoverer_finds_nothing: ["recover.disjoint"] [];
    owned_finds_the_jobs_of_a_recovery_whose_reply_was_lost: ["recover.moved", "owned.all"] [];
    a_recoverer_that_dies_is_recovered_from: ["recover.moved", "recover.fences"] [5];
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const MILLI: Duration = Duration::from_millis(1);

async fn recover(dead: &[Owner], to: &Peer, limit: usize) -> Vec<JobClaim> {
    to.store.recover(dead, &to.owner, limit).await.expect("recover answers")
}

async fn owned(peer: &Peer) -> Vec<JobClaim> {
    peer.store.owned(&peer.owner).await.expect("owned answers")
}

async fn beats(peer: &Peer) -> bool {
    peer.store.beat(&Beat::new(peer.owner.clone(), HOUR)).await.expect("beat answers").accepted
}

async fn history(peer: &Peer, id: JobId) -> Vec<Execution> {
    peer.store.executions(id).await.expect("executions answers")
}

async fn resources(peer: &Peer) -> Vec<ResourceUse> {
    peer.store.resources().await.expect("resources answers")
}

fn ids(claims: &[JobClaim]) -> BTreeSet<JobId> {
    claims.iter().map(|claim| claim.id).collect()
}

fn crashed() -> End {
    End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Crashed }
}

/// Returns every way in which an attempt can end.
fn every_end() -> Vec<End> {
    let dead = |reason| End::DeadLetter { error: error("too late"), reason };
    let back = |reason| End::HandBack { delay: SECOND, reason };
    vec![
        End::Succeeded { result: Some(JsonText::parse("42").expect("valid JSON")) },
        End::Retry { delay: SECOND, error: error("too late") },
        dead(DeadReason::Exhausted),
        dead(DeadReason::Crashed),
        back(HandBackReason::Released),
        back(HandBackReason::Snoozed),
        back(HandBackReason::Crashed),
        End::Canceled { reason: text("too late") },
    ]
}

/// Starts a node whose lease runs out while it runs `new`; returns it with the claim that it believes to hold.
async fn dead_with(fx: &Fixture, new: NewJob) -> (Peer, JobClaim) {
    let node = fx.node_with_lease("dead", SECOND).await;
    let claim = node.running(new).await;
    fx.advance(SECOND);
    (node, claim)
}

/// Starts a node whose job is taken over; returns the node, its old claim, and the claim of its heir.
async fn zombie(fx: &Fixture, heir: &Peer, new: NewJob) -> (Peer, JobClaim, JobClaim) {
    let (node, old) = dead_with(fx, new).await;
    let mut moved = recover(from_ref(&node.owner), heir, 10).await;
    assert_eq!(moved.len(), 1, "its one job moves");
    (node, old, moved.remove(0))
}

pub async fn a_job_of_a_dead_owner_moves_as_it_is(fx: Fixture) {
    let heir = fx.node("heir").await;
    let first = fx.node("first").await;
    let id = first.insert(job_with(|new| new.spec.max_retries = 3)).await;
    let failed = first.take(id).await;
    first.end(&failed, End::Retry { delay: Duration::ZERO, error: error("busy") }).await;
    let dead = fx.node_with_lease("dead", SECOND).await;
    let old = dead.take(id).await;
    let before = heir.job(id).await;
    fx.advance(HOUR);

    let moved = recover(&[dead.owner], &heir, 10).await;
    let after = heir.job(id).await;
    assert_eq!(moved, [JobClaim::of(&after, fx.now())]);
    assert!(moved[0].fence > old.fence, "{} after {}", moved[0].fence, old.fence);
    let mut expected: Job = before;
    expected.picked_by = Some(heir.owner);
    expected.fence = after.fence;
    // Whether a takeover sets `picked_at` anew is left to the store: only reports read it.
    expected.picked_at = after.picked_at;
    assert_eq!(after, expected, "attempts, error, status and all the rest stay");
    assert_eq!((after.status, after.attempts, after.crash_count), (JobStatus::Running, 1, 0));
}

pub async fn a_living_owner_is_not_robbed_whatever_the_caller_believes(fx: Fixture) {
    let heir = fx.node("heir").await;
    let node = fx.node_with_lease("node", Duration::from_millis(400)).await;
    let claim = node.running(job()).await;
    let before = heir.job(claim.id).await;
    for wait in [0, 1, 398] {
        fx.advance(MILLI * wait);
        assert_eq!(recover(from_ref(&node.owner), &heir, 10).await, []);
        assert_eq!(heir.job(claim.id).await, before);
    }
    assert!(beats(&node).await, "an attempt alone fences nobody");
    node.end(&claim, End::Succeeded { result: None }).await;
    let again = fx.node_with_lease("node", Duration::from_millis(400)).await;
    let lost = again.running(job()).await;
    fx.advance(Duration::from_millis(400));
    assert_eq!(ids(&recover(from_ref(&again.owner), &heir, 10).await), BTreeSet::from([lost.id]));
}

pub async fn a_revived_owner_is_not_robbed(fx: Fixture) {
    let heir = fx.node("heir").await;
    let (node, claim) = dead_with(&fx, job()).await;
    let reply = heir.store.beat(&Beat::new(heir.owner.clone(), HOUR)).await.expect("beat answers");
    assert_eq!(reply.dead, from_ref(&node.owner));
    let before = heir.job(claim.id).await;
    assert!(beats(&node).await);
    assert_eq!(recover(&reply.dead, &heir, 10).await, [], "the list is out of date");
    assert_eq!(heir.job(claim.id).await, before);
    node.end(&claim, End::Succeeded { result: None }).await;
}

pub async fn among_many_owners_only_the_dead_are_recovered_from(fx: Fixture) {
    let (heir, alive) = (fx.node("heir").await, fx.node("alive").await);
    let kept = alive.running(job()).await;
    let own = heir.running(job()).await;
    let unnamed = fx.node_with_lease("unnamed", SECOND).await;
    let left_alone = unnamed.running(job()).await;
    let first = fx.node_with_lease("first", SECOND).await;
    let mut lost = BTreeSet::from([first.running(job()).await.id, first.running(job()).await.id]);
    let (second, claim) = dead_with(&fx, job()).await;
    lost.insert(claim.id);
    let waiting = heir.insert(job()).await;

    let named =
        [alive.owner.clone(), first.owner, Owner::incarnate("stranger"), second.owner, heir.owner.clone()];
    assert_eq!(ids(&recover(&named, &heir, 10).await), lost);
    for (claim, owner) in [(kept, &alive.owner), (own, &heir.owner), (left_alone, &unnamed.owner)] {
        let job = heir.job(claim.id).await;
        assert_eq!((job.fence, job.picked_by.as_ref()), (claim.fence, Some(owner)));
    }
    assert_eq!(heir.status(waiting).await, JobStatus::Pending);
    assert_eq!(recover(&[], &heir, 10).await, []);
}

pub async fn nothing_moves_to_a_node_without_a_lease(fx: Fixture) {
    let observer = fx.node("observer").await;
    let late = fx.node_with_lease("late", SECOND).await;
    let (reaped, ..) = zombie(&fx, &observer, job()).await;
    let (dead, claim) = dead_with(&fx, job()).await;
    let stranger = Peer { store: fx.connect().await, owner: Owner::incarnate("stranger") };
    let left = fx.node("left").await;
    left.store.leave(&left.owner).await.expect("leave answers");

    let before = observer.job(claim.id).await;
    for (who, to) in [
        ("never joined", &stranger),
        ("left", &left),
        ("ran out", &late),
        ("reaped", &reaped),
        ("the dead one itself", &dead),
    ] {
        assert_eq!(recover(from_ref(&dead.owner), to, 10).await, [], "{who}");
        assert_eq!(observer.job(claim.id).await, before, "{who}");
    }
    assert!(beats(&dead).await, "nobody took its jobs");
}

pub async fn an_expired_lease_alone_does_not_lose_an_outcome(fx: Fixture) {
    let heir = fx.node("heir").await;
    for end in every_end() {
        let (node, claim) = dead_with(&fx, job()).await;
        fx.advance(HOUR);
        node.end(&claim, end.clone()).await;
        let settled = heir.job(claim.id).await;
        assert_ne!(settled.status, JobStatus::Running, "{end:?}");
        assert_eq!(recover(&[node.owner], &heir, 10).await, [], "{end:?}: nothing is left to recover");
        assert_eq!(heir.job(claim.id).await, settled, "{end:?}");
    }
}

pub async fn no_outcome_of_a_zombie_changes_anything(fx: Fixture) {
    let heir = fx.node("heir").await;
    let key = |n: usize| BusinessKey::new(format!("order-{n}")).expect("a valid key");
    for (n, end) in every_end().into_iter().enumerate() {
        let new = job_with(|new| new.spec.business_key = Some(key(n)));
        let (zombie, old, moved) = zombie(&fx, &heir, new).await;
        let before = heir.job(old.id).await;
        // The second fence is the heir's: knowing it does not help.
        for fence in [old.fence, moved.fence] {
            let mut outcome = Outcome::new(old.id, fence, end.clone());
            outcome.run = Some(Run { started_ago: SECOND, ran_for: MILLI });
            assert_eq!(zombie.commit(outcome).await, Verdict::LeaseLost, "{end:?}");
        }
        assert_eq!(heir.job(old.id).await, before, "{end:?}");
        assert_eq!(history(&heir, old.id).await, [], "{end:?}");
        let holder = heir.store.find_active_by_business_key(&key(n)).await.expect("the key answers");
        assert_eq!(holder, Some(old.id), "{end:?}");

        heir.end(&moved, end.clone()).await;
        let settled = heir.job(old.id).await;
        let late = zombie.commit(Outcome::new(old.id, old.fence, end.clone())).await;
        assert_eq!(late, Verdict::LeaseLost, "{end:?}: also after the heir's outcome");
        assert_eq!(heir.job(old.id).await, settled, "{end:?}");
    }
}

pub async fn the_effects_of_a_zombie_are_dropped(fx: Fixture) {
    let heir = fx.node("heir").await;
    let node = fx.node_with_lease("zombie", SECOND).await;
    let mut submission = Submission::single(job());
    let child = job();
    let (parent, child_id) = (submission.jobs[0].spec.id, child.spec.id);
    submission.edges.push(Edge::new(parent, child_id, Condition::Success));
    submission.jobs.push(child);
    assert_eq!(node.submit(submission).await, Inserted::New);
    let old = node.take(parent).await;
    fx.advance(SECOND);
    assert_eq!(recover(from_ref(&node.owner), &heir, 1).await.len(), 1);

    let before = heir.job(child_id).await;
    let callback = job();
    let callback_id = callback.spec.id;
    let mut outcome = Outcome::new(parent, old.fence, End::Succeeded { result: None });
    outcome.effects = vec![Effect::Satisfy(child_id), Effect::Submit(Box::new(Submission::single(callback)))];
    outcome.edges_seen = 1;
    assert_eq!(node.commit(outcome).await, Verdict::LeaseLost);
    assert_eq!(heir.job(child_id).await, before);
    assert_eq!(heir.find(callback_id).await, None);
    assert_eq!(heir.claim(10).await, [], "nothing was released");
}

pub async fn a_zombie_can_neither_beat_nor_claim_nor_recover(fx: Fixture) {
    let heir = fx.node("heir").await;
    let (zombie, old, _) = zombie(&fx, &heir, job()).await;
    let (other, lost) = dead_with(&fx, job()).await;
    let waiting = heir.insert(job()).await;
    for _ in 0..2 {
        assert!(!beats(&zombie).await);
        assert_eq!(zombie.claim(10).await, []);
        assert_eq!(zombie.store.pick_up(&zombie.owner, &[waiting, old.id]).await.expect("it answers"), []);
        assert_eq!(recover(&[other.owner.clone(), heir.owner.clone()], &zombie, 10).await, []);
        assert_eq!(owned(&zombie).await, []);
        fx.advance(HOUR);
    }
    assert_eq!(heir.status(waiting).await, JobStatus::Pending);
    assert_eq!(heir.job(old.id).await.picked_by, Some(heir.owner.clone()));
    assert_eq!(heir.job(lost.id).await.picked_by, Some(other.owner));
}

pub async fn a_zombie_can_neither_read_nor_report_nor_get_a_permit(fx: Fixture) {
    let heir = fx.node("heir").await;
    let resource = ResourceName::new("gateway").expect("a valid name");
    heir.store.configure_resource(&ResourceLimit::new(resource.clone(), 5)).await.expect("it is configured");
    let (zombie, old, _) = zombie(&fx, &heir, job()).await;
    let before = heir.job(old.id).await;

    let loaded = zombie.store.load(&zombie.owner, from_ref(&old)).await.expect("load answers");
    assert_eq!(loaded, [Loaded::Lost]);
    let message = Some(text("nearly"));
    let report = ProgressReport { id: old.id, fence: old.fence, done: 9, total: Some(10), message };
    assert_eq!(zombie.store.report_progress(&[report]).await.expect("progress answers"), [false]);
    let request = PermitRequest { id: old.id, fence: old.fence, resource };
    let permits = zombie.store.acquire(&zombie.owner, &[request]).await.expect("acquire answers");
    assert_eq!(permits, [Permit::Lost]);

    assert_eq!(heir.job(old.id).await, before);
    assert_eq!(resources(&heir).await[0].holders, []);
}

pub async fn a_crashed_job_goes_back_through_an_outcome(fx: Fixture) {
    let heir = fx.node("heir").await;
    let (zombie, old, moved) = zombie(&fx, &heir, job()).await;
    let due = heir.job(old.id).await.scheduled_time;
    let mut outcome = Outcome::new(moved.id, moved.fence, crashed());
    outcome.crash = Some(error("the zombie died with it"));
    let verdict = heir.commit(outcome.clone()).await;
    assert!(matches!(verdict, Verdict::Recorded(_)), "{verdict:?}");
    assert_eq!(heir.commit(outcome).await, Verdict::AlreadyRecorded);

    let back = heir.job(old.id).await;
    assert_eq!((back.status, back.attempts, back.crash_count), (JobStatus::Pending, 0, 1));
    assert_eq!(
        (back.picked_by, back.picked_at, back.scheduled_time),
        (None, None, due),
        "it keeps its place"
    );
    let rows = history(&heir, old.id).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].fence, rows[0].result), (moved.fence, ExecutionResult::Crashed));
    assert_eq!(rows[0].owner, heir.owner, "whoever recorded it");
    assert_eq!(rows[0].error.as_deref(), Some("the zombie died with it"));
    assert_eq!((&back.last_error, rows[0].error_class.as_deref()), (&rows[0].error, Some("TestError")));

    let healthy = fx.node("healthy").await;
    let again = healthy.claim_one().await;
    assert_eq!((again.id, again.crash_count), (old.id, 1), "any healthy node takes it, not {}", zombie.owner);
}

pub async fn a_job_that_crashes_its_nodes_is_dead_lettered(fx: Fixture) {
    let heir = fx.node("heir").await;
    let id = heir.insert(job()).await;
    for crashes in 1..=3 {
        let node = fx.node_with_lease("dead", SECOND).await;
        node.take(id).await;
        fx.advance(SECOND);
        let moved = recover(&[node.owner], &heir, 1).await;
        heir.end(&moved[0], crashed()).await;
        assert_eq!(heir.job(id).await.crash_count, crashes);
    }
    let node = fx.node_with_lease("dead", SECOND).await;
    node.take(id).await;
    fx.advance(SECOND);
    let moved = recover(&[node.owner], &heir, 1).await;
    assert_eq!(moved[0].crash_count, 3);
    let end = End::DeadLetter { error: error("crashed its node"), reason: DeadReason::Crashed };
    heir.end(&moved[0], end).await;
    let dead = heir.job(id).await;
    assert_eq!((dead.status, dead.attempts), (JobStatus::Failed, 0), "a crash consumes no attempt");
    assert_eq!(dead.crash_count, 4, "the last one counts too");
    let results: Vec<_> = history(&heir, id).await.iter().map(|row| row.fence).collect();
    assert_eq!(results.len(), 4, "every crash left a row");
}

pub async fn a_cancel_request_is_carried_over(fx: Fixture) {
    let heir = fx.node("heir").await;
    for cancel_first in [true, false] {
        let node = fx.node_with_lease("dead", SECOND).await;
        let key = BusinessKey::new("order").expect("a valid key");
        let old = node.running(job_with(|new| new.spec.business_key = Some(key.clone()))).await;
        let cancel = || async {
            heir.store.cancel(&[old.id.into()], &text("not needed")).await.expect("cancel answers");
        };
        if cancel_first {
            cancel().await;
        }
        fx.advance(SECOND);
        let moved = recover(&[node.owner], &heir, 1).await;
        assert_eq!(moved[0].cancel_requested, cancel_first);
        if !cancel_first {
            cancel().await;
        }
        assert_eq!(heir.status(old.id).await, JobStatus::Canceled);
        assert!(owned(&heir).await[0].cancel_requested);

        let verdict = heir.commit(Outcome::new(old.id, moved[0].fence, crashed())).await;
        assert_eq!(verdict, Verdict::CanceledInstead);
        let ended = heir.job(old.id).await;
        assert_eq!((ended.status, ended.picked_by), (JobStatus::Canceled, None));
        assert_eq!(ended.cancel_reason.as_deref(), Some("not needed"));
        assert_eq!(heir.store.find_active_by_business_key(&key).await.expect("the key answers"), None);
    }
}

pub async fn key_and_permit_stay_with_a_moved_job(fx: Fixture) {
    let heir = fx.node("heir").await;
    let resource = ResourceName::new("gateway").expect("a valid name");
    heir.store.configure_resource(&ResourceLimit::new(resource.clone(), 1)).await.expect("it is configured");
    let key = BusinessKey::new("order").expect("a valid key");
    let keyed = || job_with(|new| new.spec.business_key = Some(key.clone()));
    let node = fx.node_with_lease("dead", SECOND).await;
    let old = node.running(keyed()).await;
    let request =
        |claim: &JobClaim| PermitRequest { id: claim.id, fence: claim.fence, resource: resource.clone() };
    let acquire = |peer: Peer, claim: JobClaim| {
        let request = request(&claim);
        async move { peer.store.acquire(&peer.owner, &[request]).await.expect("acquire answers")[0] }
    };
    assert_eq!(acquire(node.clone(), old.clone()).await, Permit::Granted);
    fx.advance(SECOND);
    let moved = recover(&[node.owner], &heir, 1).await.remove(0);

    let rival = heir.running(job()).await;
    assert_eq!(heir.submit(Submission::single(keyed())).await, Inserted::KeyTaken { holder: old.id });
    assert_eq!(resources(&heir).await[0].holders, [old.id]);
    assert!(matches!(acquire(heir.clone(), rival.clone()).await, Permit::Full { .. }));
    assert_eq!(acquire(heir.clone(), moved.clone()).await, Permit::Granted, "it holds one already");

    heir.end(&moved, End::DeadLetter { error: error("crashed"), reason: DeadReason::Crashed }).await;
    assert_eq!(acquire(heir.clone(), rival).await, Permit::Granted);
    assert_eq!(heir.submit(Submission::single(keyed())).await, Inserted::New);
}

pub async fn jobs_move_in_chunks_of_the_limit(fx: Fixture) {
    let (heir, observer) = (fx.node("heir").await, fx.node("observer").await);
    let node = fx.node_with_lease("dead", SECOND).await;
    let mut held = BTreeSet::new();
    for _ in 0..10 {
        held.insert(node.running(job()).await.id);
    }
    fx.advance(SECOND);
    let mut moved = BTreeSet::new();
    for chunk in [4, 4, 2] {
        let named = observer.store.beat(&Beat::new(observer.owner.clone(), HOUR)).await.expect("it answers");
        assert_eq!(named.dead, from_ref(&node.owner), "it still holds jobs");
        let claims = recover(&named.dead, &heir, 4).await;
        assert_eq!(claims.len(), chunk);
        moved.extend(ids(&claims));
        assert!(!beats(&node).await, "fenced from the first chunk on");
        assert_eq!(node.claim(1).await, []);
    }
    assert_eq!(moved, held);
    assert_eq!(recover(from_ref(&node.owner), &heir, 4).await, []);
    assert_eq!(ids(&owned(&heir).await), held);
}

pub async fn a_recovery_that_moves_nothing_fences_nobody(fx: Fixture) {
    let heir = fx.node("heir").await;
    let idle = fx.node_with_lease("idle", SECOND).await;
    let (finished, claim) = dead_with(&fx, job()).await;
    finished.end(&claim, End::Succeeded { result: None }).await;
    let (untouched, _) = dead_with(&fx, job()).await;
    for (who, node, limit) in [
        ("it held nothing", &idle, 10),
        ("its last outcome was recorded in time", &finished, 10),
        ("no job was asked for", &untouched, 0),
    ] {
        assert_eq!(recover(from_ref(&node.owner), &heir, limit).await, [], "{who}");
        assert!(beats(node).await, "{who}, so nobody took its jobs");
        node.running(job()).await;
    }
}

pub async fn a_second_recoverer_finds_nothing(fx: Fixture) {
    let (first, second) = (fx.node("first").await, fx.node("second").await);
    let (dead, old) = dead_with(&fx, job()).await;
    let moved = recover(from_ref(&dead.owner), &first, 10).await;
    assert_eq!(ids(&moved), BTreeSet::from([old.id]));
    let before = first.job(old.id).await;
    assert_eq!(recover(&[dead.owner, first.owner.clone()], &second, 10).await, []);
    assert_eq!(second.job(old.id).await, before);
    first.end(&moved[0], crashed()).await;
}

pub async fn owned_finds_the_jobs_of_a_recovery_whose_reply_was_lost(fx: Fixture) {
    let heir = fx.node("heir").await;
    let node = fx.node_with_lease("dead", SECOND).await;
    for _ in 0..3 {
        node.running(job()).await;
    }
    fx.advance(SECOND);
    let mut unseen = recover(from_ref(&node.owner), &heir, 10).await;
    assert_eq!(recover(from_ref(&node.owner), &heir, 10).await, [], "asking again does not find them");
    unseen.sort_by_key(|claim| claim.id);
    let found = owned(&heir).await;
    assert_eq!(found, unseen);
    for claim in &found {
        heir.end(claim, crashed()).await;
    }
}

pub async fn a_recoverer_that_dies_is_recovered_from(fx: Fixture) {
    let last = fx.node("last").await;
    let (first, old) = dead_with(&fx, job()).await;
    let second = fx.node_with_lease("second", SECOND).await;
    let moved = recover(from_ref(&first.owner), &second, 1).await.remove(0);
    fx.advance(SECOND);
    let inherited = recover(from_ref(&second.owner), &last, 1).await.remove(0);
    assert!(old.fence < moved.fence && moved.fence < inherited.fence);

    let before = last.job(old.id).await;
    for (who, claim) in [(&first, &old), (&second, &moved)] {
        let outcome = Outcome::new(claim.id, claim.fence, crashed());
        assert_eq!(who.commit(outcome).await, Verdict::LeaseLost);
        assert!(!beats(who).await);
    }
    assert_eq!(last.job(old.id).await, before);
    last.end(&inherited, crashed()).await;
    assert_eq!(last.job(old.id).await.crash_count, 1);
}
