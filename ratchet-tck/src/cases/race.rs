//! Races: whoever wins, every contender gets a sensible answer and every invariant holds.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

mod check;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_api::store::{CancelVerdict, Closed, PauseVerdict, Permit, PermitRequest, RetryVerdict};
use ratchet_api::{
    BatchId, Beat, BusinessKey, Condition, DeadReason, Due, Edge, Effect, End, HandBackReason,
    IdempotencyKey, Inserted, Job, JobClaim, JobId, JobStatus, JobType, LockName, Needs, NewBatch, NewJob,
    Outcome, Owner, QueueName, ResourceLimit, ResourceName, Submission, Verdict,
};
use tokio::sync::Barrier;
use tokio::task::yield_now;

use self::check::World;
use crate::case::cases;
use crate::fixture::{error, job, job_with, text};
use crate::{Fixture, Peer};

cases! { "race";
    claims_at_once_are_disjoint_and_complete: ["claim.disjoint", "owned.all"] [45 181];
    a_claim_and_a_pause_agree_who_was_first: ["claim.due", "pause.origin"] [24];
    a_claim_and_a_cancel_agree_who_was_first: ["claim.due", "cancel.waiting", "cancel.running"] [24 35];
    a_cancel_and_an_outcome_agree_who_was_first: ["commit.cancel_wins", "cancel.once"] [35 38 81];
    a_recovery_and_an_outcome_agree_who_was_first: ["recover.disjoint", "recover.fences"] [186];
    a_recovery_and_a_beat_agree_who_was_first: ["recover.dead_only", "beat.renews", "beat.refused"] [];
    recoveries_at_once_are_disjoint_and_complete: ["recover.disjoint"] [186];
    a_cancel_during_a_recovery_is_not_lost: ["recover.moved", "cancel.running"] [];
    a_retry_gets_the_key_only_once_its_holder_is_cancelled: ["retry.key", "cancel.waiting"] [184];
    of_dead_letters_with_one_key_one_is_revived: ["retry.key"] [184];
    a_submit_and_a_retry_agree_who_has_the_key: ["insert.business_key", "retry.key"] [184];
    an_expired_lock_goes_to_one_taker: ["lock.expires", "lock.renew", "lock.exclusive"] [142];
    permits_stay_within_capacity_while_jobs_end: ["permit.capacity", "commit.releases"] [120];
    children_that_end_at_once_are_all_counted: ["batch.counters", "commit.batch"] [89];
    closing_a_batch_and_its_last_child_complete_it_once: ["batch.close", "commit.batch"] [];
    parents_that_end_at_once_release_their_join_once: ["commit.satisfy"] [];
    an_edge_added_while_its_parent_ends_is_decided: ["commit.edges_changed", "insert.edge_outside", "insert.edge_ended"] [];
    an_edge_added_while_its_parent_is_cancelled_is_refused: ["cancel.cascade", "insert.edge_ended"] [36];
    an_outcome_sent_many_times_is_recorded_once: ["commit.once", "commit.history"] [];
    one_idempotency_key_makes_one_job: ["insert.idempotent", "insert.replay"] [12 183];
    one_business_key_lets_one_job_in: ["insert.business_key"] [13 184];
    no_claim_that_starts_after_the_pause_of_a_queue_gets_a_job: ["queue_pause.cluster"] [];
    whatever_happens_at_once_every_job_is_in_one_state: ["find.present"] [26 172];
}

const ROUNDS: usize = 6;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn nodes(fx: &Fixture, count: usize) -> Vec<Peer> {
    let mut nodes = Vec::new();
    for i in 0..count {
        nodes.push(fx.node(&format!("node-{i}")).await);
    }
    nodes
}

/// Runs two futures on tasks that start together.
async fn duel<A, B>(
    one: impl Future<Output = A> + Send + 'static,
    other: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let barrier = Arc::new(Barrier::new(2));
    let ready = Arc::clone(&barrier);
    let one = tokio::spawn(async move {
        ready.wait().await;
        one.await
    });
    let other = tokio::spawn(async move {
        barrier.wait().await;
        other.await
    });
    (one.await.expect("no contender panics"), other.await.expect("no contender panics"))
}

async fn fill(peer: &Peer, count: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(peer.insert(job()).await);
    }
    ids
}

fn key(text: &str) -> BusinessKey {
    BusinessKey::new(text).expect("a valid key")
}

fn keyed(text: &str) -> NewJob {
    job_with(|new| new.spec.business_key = Some(key(text)))
}

fn done() -> End {
    End::Succeeded { result: None }
}

fn dead_letter() -> End {
    End::DeadLetter { error: error("broken"), reason: DeadReason::Exhausted }
}

fn crashed() -> End {
    End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Crashed }
}

async fn failed(peer: &Peer, new: NewJob) -> JobId {
    let claim = peer.running(new).await;
    peer.end(&claim, dead_letter()).await;
    claim.id
}

async fn cancel(peer: &Peer, id: JobId) -> CancelVerdict {
    peer.store.cancel(&[id.into()], &text("not needed")).await.expect("cancel answers").remove(0)
}

async fn retry(peer: &Peer, id: JobId) -> RetryVerdict {
    peer.store.retry(&[id.into()]).await.expect("retry answers").remove(0)
}

async fn recover(dead: &Owner, to: &Peer, limit: usize) -> Vec<JobClaim> {
    to.store.recover(std::slice::from_ref(dead), &to.owner, limit).await.expect("recover answers")
}

/// Claims until there is nothing left.
async fn drain(peer: &Peer, limit: usize) -> Vec<JobClaim> {
    let mut all = Vec::new();
    loop {
        let claims = peer.claim(limit).await;
        assert!(claims.len() <= limit && all.len() < 1_000, "a claimed job is not claimed again");
        if claims.is_empty() {
            return all;
        }
        all.extend(claims);
    }
}

fn ids<'a>(claims: impl IntoIterator<Item = &'a JobClaim>) -> BTreeSet<JobId> {
    claims.into_iter().map(|claim| claim.id).collect()
}

/// A closed or open batch: its parent and the ids of its children.
async fn batch(peer: &Peer, closed: bool, children: usize) -> (JobId, Vec<JobId>) {
    let mut submission = Submission::single(job_with(|new| new.spec.job_type = JobType::BatchParent));
    submission.batch = Some(NewBatch { closed });
    let parent = submission.jobs[0].spec.id;
    for _ in 0..children {
        submission.jobs.push(job_with(|new| {
            new.spec.job_type = JobType::BatchChild;
            new.spec.batch = Some(BatchId::of(parent));
        }));
    }
    let ids = submission.jobs[1..].iter().map(|child| child.spec.id).collect();
    assert_eq!(peer.submit(submission).await, Inserted::New);
    (parent, ids)
}

fn releases(verdict: &Verdict, id: JobId) -> bool {
    matches!(verdict, Verdict::Recorded(recorded) if recorded.released.contains(&id))
}

pub async fn claims_at_once_are_disjoint_and_complete(fx: Fixture) {
    let nodes = nodes(&fx, 8).await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let stored = fill(&nodes[0], 40).await;
        let taken = fx
            .race(nodes.len(), |i| {
                let node = nodes[i].clone();
                async move { drain(&node, 1 + i % 4).await }
            })
            .await;
        let rest = drain(&nodes[0], 10).await;
        let claims: Vec<_> = taken.into_iter().flatten().chain(rest).collect();
        assert_eq!(claims.len(), stored.len(), "no job twice");
        assert_eq!(ids(&claims), stored.iter().copied().collect(), "no job left out");
        jobs.extend(stored);
        World { nodes: &nodes, jobs: jobs.clone() }.check().await;
    }
}

pub async fn a_claim_and_a_pause_agree_who_was_first(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for _ in 0..ROUNDS {
        let jobs = fill(&nodes[0], 12).await;
        let (claimer, operator) = (nodes[0].clone(), nodes[1].clone());
        let order: Vec<_> = jobs.iter().rev().copied().collect();
        let pause = async move {
            let mut verdicts = Vec::new();
            for id in order {
                let verdict = operator.store.pause(&[id.into()]).await.expect("pause answers").remove(0);
                verdicts.push((id, verdict));
            }
            verdicts
        };
        let (claims, verdicts) = duel(async move { drain(&claimer, 2).await }, pause).await;
        let claimed = ids(&claims);
        for (id, verdict) in verdicts {
            let expected = match claimed.contains(&id) {
                true => (PauseVerdict::NotPausable(JobStatus::Running), JobStatus::Running),
                false => (PauseVerdict::Paused, JobStatus::Paused),
            };
            assert_eq!((verdict, nodes[0].status(id).await), expected);
        }
        World { nodes: &nodes, jobs }.check_and_settle().await;
    }
}

pub async fn a_claim_and_a_cancel_agree_who_was_first(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for _ in 0..ROUNDS {
        let jobs = fill(&nodes[0], 12).await;
        let (claimer, operator) = (nodes[0].clone(), nodes[1].clone());
        let order: Vec<_> = jobs.iter().rev().copied().collect();
        let calls_off = async move {
            let mut verdicts = Vec::new();
            for id in order {
                verdicts.push((id, cancel(&operator, id).await));
            }
            verdicts
        };
        let (claims, verdicts) = duel(async move { drain(&claimer, 2).await }, calls_off).await;
        let claimed = ids(&claims);
        for (id, verdict) in verdicts {
            let dependents = Vec::new();
            let expected = match claimed.contains(&id) {
                true => CancelVerdict::Requested { dependents },
                false => CancelVerdict::Canceled { dependents },
            };
            assert_eq!((verdict, nodes[0].status(id).await), (expected, JobStatus::Canceled));
        }
        World { nodes: &nodes, jobs: jobs.clone() }.check().await;
        for claim in &claims {
            let verdict = nodes[0].commit(Outcome::new(claim.id, claim.fence, done())).await;
            assert_eq!(verdict, Verdict::CanceledInstead);
        }
        World { nodes: &nodes, jobs }.check().await;
    }
}

pub async fn a_cancel_and_an_outcome_agree_who_was_first(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    let retry = End::Retry { delay: SECOND, error: error("busy") };
    for end in [done(), retry, dead_letter(), crashed()].into_iter().cycle().take(4 * ROUNDS) {
        let claim = nodes[0].running(keyed("order")).await;
        let (owner, operator, id) = (nodes[0].clone(), nodes[1].clone(), claim.id);
        let outcome = Outcome::new(id, claim.fence, end.clone());
        let (verdict, canceled) =
            duel(async move { owner.commit(outcome).await }, async move { cancel(&operator, id).await })
                .await;
        let status = nodes[1].status(id).await;
        match (&verdict, &canceled) {
            (Verdict::Recorded(_), CancelVerdict::AlreadyEnded(seen)) => assert_eq!(*seen, status),
            // It went back first and was called off while it waited.
            (Verdict::Recorded(_), CancelVerdict::Canceled { .. })
            | (Verdict::CanceledInstead, CancelVerdict::Requested { .. }) => {
                assert_eq!(status, JobStatus::Canceled);
            }
            _ => panic!("{end:?}: {verdict:?} and {canceled:?}"),
        }
        assert!(status.is_terminal());
        World { nodes: &nodes, jobs: vec![id] }.check().await;
    }
}

/// A node whose lease has run out while it holds jobs.
async fn dying(fx: &Fixture, count: usize) -> (Peer, Vec<JobClaim>) {
    let node = fx.node_with_lease("dying", SECOND).await;
    let mut claims = Vec::new();
    for _ in 0..count {
        claims.push(node.running(job()).await);
    }
    fx.advance(SECOND);
    (node, claims)
}

pub async fn a_recovery_and_an_outcome_agree_who_was_first(fx: Fixture) {
    let heir = fx.node("heir").await;
    for _ in 0..2 * ROUNDS {
        let (node, claims) = dying(&fx, 1).await;
        let claim = &claims[0];
        let (owner, saviour, dead) = (node.clone(), heir.clone(), node.owner.clone());
        let outcome = Outcome::new(claim.id, claim.fence, done());
        let (verdict, moved) =
            duel(
                async move { owner.commit(outcome).await },
                async move { recover(&dead, &saviour, 9).await },
            )
            .await;
        World { nodes: &[heir.clone(), node], jobs: vec![claim.id] }.check().await;
        match (&verdict, moved.as_slice()) {
            (Verdict::Recorded(_), []) => assert_eq!(heir.status(claim.id).await, JobStatus::Succeeded),
            (Verdict::LeaseLost, [moved]) => {
                assert_eq!(heir.status(claim.id).await, JobStatus::Running);
                heir.end(moved, done()).await;
            }
            _ => panic!("{verdict:?} and {moved:?}"),
        }
        let rows = heir.store.executions(claim.id).await.expect("executions answers");
        assert_eq!(rows.len(), 1, "one outcome, whoever recorded it");
    }
}

pub async fn a_recovery_and_a_beat_agree_who_was_first(fx: Fixture) {
    let heir = fx.node("heir").await;
    for _ in 0..2 * ROUNDS {
        let (node, claims) = dying(&fx, 3).await;
        let (owner, saviour, dead) = (node.clone(), heir.clone(), node.owner.clone());
        let beat = Beat::new(owner.owner.clone(), HOUR);
        let (reply, moved) =
            duel(async move { owner.store.beat(&beat).await.expect("beat answers") }, async move {
                recover(&dead, &saviour, 9).await
            })
            .await;
        assert_eq!(moved.len(), if reply.accepted { 0 } else { 3 }, "all or none, as the beat was told");
        let (keeper, held) = if reply.accepted { (&node, &claims) } else { (&heir, &moved) };
        for claim in held {
            keeper.end(claim, done()).await;
        }
        let jobs = claims.iter().map(|claim| claim.id).collect();
        World { nodes: &[heir.clone(), node.clone()], jobs }.check().await;
    }
}

pub async fn recoveries_at_once_are_disjoint_and_complete(fx: Fixture) {
    let heirs = nodes(&fx, 4).await;
    for _ in 0..3 {
        let (node, claims) = dying(&fx, 16).await;
        let recovered = fx
            .race(heirs.len(), |i| {
                let (heir, dead) = (heirs[i].clone(), node.owner.clone());
                async move {
                    let mut all = Vec::new();
                    loop {
                        let moved = recover(&dead, &heir, 3).await;
                        assert!(moved.len() <= 3);
                        if moved.is_empty() {
                            return all;
                        }
                        all.extend(moved);
                    }
                }
            })
            .await;
        let mut moved: Vec<_> = recovered.into_iter().flatten().collect();
        moved.extend(recover(&node.owner, &heirs[0], 99).await);
        assert_eq!(moved.len(), claims.len(), "no job twice");
        assert_eq!(ids(&moved), ids(&claims), "no job left out");
        let everyone: Vec<_> = heirs.iter().cloned().chain([node]).collect();
        World { nodes: &everyone, jobs: claims.iter().map(|claim| claim.id).collect() }
            .check_and_settle()
            .await;
    }
}

pub async fn a_cancel_during_a_recovery_is_not_lost(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    let heir = &nodes[0];
    for _ in 0..2 * ROUNDS {
        let (node, claims) = dying(&fx, 1).await;
        let (saviour, operator, dead, id) = (heir.clone(), nodes[1].clone(), node.owner, claims[0].id);
        let (moved, verdict) =
            duel(
                async move { recover(&dead, &saviour, 1).await },
                async move { cancel(&operator, id).await },
            )
            .await;
        assert_eq!(verdict, CancelVerdict::Requested { dependents: Vec::new() });
        assert_eq!(ids(&moved), BTreeSet::from([id]));
        let held = heir.store.owned(&heir.owner).await.expect("owned answers");
        assert_eq!((held[0].id, held[0].cancel_requested), (id, true));
        let outcome = Outcome::new(id, moved[0].fence, crashed());
        assert_eq!(heir.commit(outcome).await, Verdict::CanceledInstead);
        World { nodes: &nodes, jobs: vec![id] }.check().await;
    }
}

pub async fn a_retry_gets_the_key_only_once_its_holder_is_cancelled(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for round in 0..2 * ROUNDS {
        let name = format!("order-{round}");
        let dead = failed(&nodes[0], keyed(&name)).await;
        let holder = nodes[0].insert(keyed(&name)).await;
        let (one, other) = (nodes[0].clone(), nodes[1].clone());
        let (retried, canceled) =
            duel(async move { retry(&one, dead).await }, async move { cancel(&other, holder).await }).await;
        assert_eq!(canceled, CancelVerdict::Canceled { dependents: Vec::new() });
        let status = match retried {
            RetryVerdict::Retried { .. } => JobStatus::Pending,
            RetryVerdict::KeyTaken { holder: named } if named == holder => JobStatus::Failed,
            _ => panic!("{retried:?}"),
        };
        assert_eq!(nodes[0].status(dead).await, status);
        World { nodes: &nodes, jobs: vec![dead, holder] }.check().await;
    }
}

pub async fn of_dead_letters_with_one_key_one_is_revived(fx: Fixture) {
    let nodes = nodes(&fx, 4).await;
    for round in 0..ROUNDS {
        let mut dead = Vec::new();
        for _ in &nodes {
            dead.push(failed(&nodes[0], keyed(&format!("order-{round}"))).await);
        }
        let verdicts = fx
            .race(nodes.len(), |i| {
                let (node, id) = (nodes[i].clone(), dead[i]);
                async move { retry(&node, id).await }
            })
            .await;
        let revived = |verdict: &RetryVerdict| matches!(verdict, RetryVerdict::Retried { .. });
        let winner = dead[verdicts.iter().position(revived).expect("one is revived")];
        for (id, verdict) in dead.iter().zip(&verdicts).filter(|(id, _)| **id != winner) {
            assert_eq!(*verdict, RetryVerdict::KeyTaken { holder: winner }, "{id}");
        }
        World { nodes: &nodes, jobs: dead }.check().await;
    }
}

pub async fn a_submit_and_a_retry_agree_who_has_the_key(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for round in 0..2 * ROUNDS {
        let name = format!("order-{round}");
        let dead = failed(&nodes[0], keyed(&name)).await;
        let new = keyed(&name);
        let fresh = new.spec.id;
        let (one, other) = (nodes[0].clone(), nodes[1].clone());
        let (inserted, retried) =
            duel(async move { one.submit(Submission::single(new)).await }, async move {
                retry(&other, dead).await
            })
            .await;
        let mut jobs = vec![dead];
        match (inserted, retried) {
            (Inserted::New, RetryVerdict::KeyTaken { holder }) if holder == fresh => jobs.push(fresh),
            (Inserted::KeyTaken { holder }, RetryVerdict::Retried { .. }) if holder == dead => {
                assert_eq!(nodes[0].find(fresh).await, None);
            }
            other => panic!("{other:?}"),
        }
        World { nodes: &nodes, jobs }.check().await;
    }
}

pub async fn an_expired_lock_goes_to_one_taker(fx: Fixture) {
    let nodes = nodes(&fx, 8).await;
    let name = LockName::new("purge").expect("a valid lock name");
    for round in 0..ROUNDS {
        let holder = fx.node("holder").await;
        let held = holder.store.try_lock(&name, SECOND, &holder.owner).await.expect("try_lock answers");
        let held = held.expect("the lock is free");
        fx.advance(SECOND);
        let won: Vec<_> = fx
            .race(nodes.len(), |i| {
                let (node, name, held) = (nodes[i].clone(), name.clone(), held.clone());
                async move {
                    if i == 0 {
                        assert!(!node.store.renew_lock(&held, SECOND).await.expect("renew_lock answers"));
                        return None;
                    }
                    node.store.try_lock(&name, SECOND, &node.owner).await.expect("try_lock answers")
                }
            })
            .await
            .into_iter()
            .flatten()
            .collect();
        let [lease] = won.as_slice() else { panic!("one taker in round {round}: {won:?}") };
        assert!(lease.term > held.term);
        assert!(!holder.store.unlock(&held).await.expect("unlock answers"));
        assert!(nodes[0].store.unlock(lease).await.expect("unlock answers"), "it is still held");
    }
}

/// Asks until there is a permit. Whoever holds one gives it back without waiting, so this ends.
async fn granted(node: &Peer, request: PermitRequest) {
    let requests = [request];
    for _ in 0..5_000 {
        match node.store.acquire(&node.owner, &requests).await.expect("acquire answers")[0] {
            Permit::Granted => return,
            Permit::Full { .. } => yield_now().await,
            other => panic!("{other:?}"),
        }
    }
    panic!("permits are not given back");
}

pub async fn permits_stay_within_capacity_while_jobs_end(fx: Fixture) {
    const CAPACITY: usize = 3;
    let nodes = nodes(&fx, 6).await;
    let resource = ResourceName::new("gateway").expect("a valid name");
    let limit = ResourceLimit::new(resource.clone(), CAPACITY as u32);
    nodes[0].store.configure_resource(&limit).await.expect("the resource is configured");
    let using = Arc::new(AtomicUsize::new(0));
    let ended = fx
        .race(nodes.len(), |i| {
            let (node, using, resource) = (nodes[i].clone(), Arc::clone(&using), resource.clone());
            async move {
                let mut ended = Vec::new();
                for _ in 0..5 {
                    let claim = node.running(job()).await;
                    let request =
                        PermitRequest { id: claim.id, fence: claim.fence, resource: resource.clone() };
                    granted(&node, request).await;
                    let users = using.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(users <= CAPACITY, "{users} jobs use it");
                    yield_now().await;
                    using.fetch_sub(1, Ordering::SeqCst);
                    node.end(&claim, if i % 2 == 0 { done() } else { dead_letter() }).await;
                    ended.push(claim.id);
                }
                ended
            }
        })
        .await;
    let uses = nodes[0].store.resources().await.expect("resources answers");
    assert_eq!(uses[0].holders, []);
    World { nodes: &nodes, jobs: ended.into_iter().flatten().collect() }.check().await;
}

pub async fn children_that_end_at_once_are_all_counted(fx: Fixture) {
    let nodes = nodes(&fx, 8).await;
    for round in 0..3 {
        let (parent, children) = batch(&nodes[0], true, 2 * nodes.len()).await;
        let mut claims = Vec::new();
        for (i, child) in children.iter().enumerate() {
            claims.push(nodes[i / 2].take(*child).await);
        }
        let verdicts = fx
            .race(nodes.len(), |i| {
                let (node, pair) = (nodes[i].clone(), [claims[2 * i].clone(), claims[2 * i + 1].clone()]);
                let ends = [done(), if i % 2 == 0 { dead_letter() } else { done() }];
                async move {
                    let [one, other] = pair.map(|claim| (claim.id, claim.fence));
                    let [first, second] = ends;
                    let first = node.commit(Outcome::new(one.0, one.1, first)).await;
                    [first, node.commit(Outcome::new(other.0, other.1, second)).await]
                }
            })
            .await;
        let verdicts: Vec<_> = verdicts.into_iter().flatten().collect();
        let releasing = verdicts.iter().filter(|verdict| releases(verdict, parent)).count();
        assert_eq!(releasing, 1, "round {round}: the last child releases the parent, once: {verdicts:?}");
        let complete = |verdict: &&Verdict| matches!(verdict, Verdict::Recorded(led_to) if led_to.batch.is_some_and(|batch| batch.is_complete()));
        assert_eq!(verdicts.iter().filter(complete).count(), 1, "round {round}: {verdicts:?}");
        let jobs = children.into_iter().chain([parent]).collect();
        World { nodes: &nodes, jobs }.check().await;
        let claim = nodes[0].take(parent).await;
        nodes[0].end(&claim, done()).await;
    }
}

pub async fn closing_a_batch_and_its_last_child_complete_it_once(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for _ in 0..2 * ROUNDS {
        let (parent, children) = batch(&nodes[0], false, 1).await;
        let claim = nodes[0].take(children[0]).await;
        let (worker, closer) = (nodes[0].clone(), nodes[1].clone());
        let (verdict, closed) = duel(
            async move { worker.commit(Outcome::new(claim.id, claim.fence, done())).await },
            async move { closer.store.close_batch(BatchId::of(parent)).await.expect("close_batch answers") },
        )
        .await;
        let Closed::Closed(progress) = closed else { panic!("closed once: {closed:?}") };
        assert_ne!(
            progress.is_complete(),
            releases(&verdict, parent),
            "one of the two: {progress:?}, {verdict:?}"
        );
        World { nodes: &nodes, jobs: vec![parent, children[0]] }.check().await;
        let claims = drain(&nodes[1], 5).await;
        assert_eq!(ids(&claims), BTreeSet::from([parent]), "the parent runs once");
        nodes[1].end(&claims[0], done()).await;
    }
}

pub async fn parents_that_end_at_once_release_their_join_once(fx: Fixture) {
    let nodes = nodes(&fx, 4).await;
    let needs = [Needs::All, Needs::AtLeast(1), Needs::AtLeast(3)];
    for needs in needs.into_iter().cycle().take(3 * 3) {
        let mut submission = Submission::default();
        let join = job_with(|new| new.needs = needs);
        let join_id = join.spec.id;
        for _ in &nodes {
            let parent = job();
            submission.edges.push(Edge::new(parent.spec.id, join_id, Condition::Success));
            submission.jobs.push(parent);
        }
        submission.jobs.push(join);
        let jobs: Vec<_> = submission.jobs.iter().map(|new| new.spec.id).collect();
        assert_eq!(nodes[0].submit(submission).await, Inserted::New);
        let mut claims = Vec::new();
        for (node, id) in nodes.iter().zip(&jobs) {
            claims.push(node.take(*id).await);
        }
        let verdicts = fx
            .race(nodes.len(), |i| {
                let (node, claim) = (nodes[i].clone(), claims[i].clone());
                let mut outcome = Outcome::new(claim.id, claim.fence, done());
                outcome.effects.push(Effect::Satisfy(join_id));
                outcome.edges_seen = 1;
                async move { node.commit(outcome).await }
            })
            .await;
        let releasing = verdicts.iter().filter(|verdict| releases(verdict, join_id)).count();
        assert_eq!(releasing, 1, "{needs:?}: {verdicts:?}");
        let joined: Job = nodes[0].job(join_id).await;
        assert_eq!((joined.blocked_by, joined.open_parents), (0, 0), "{needs:?}");
        World { nodes: &nodes, jobs }.check().await;
        let claims = drain(&nodes[0], 5).await;
        assert_eq!(ids(&claims), BTreeSet::from([join_id]), "it runs once");
        nodes[0].end(&claims[0], done()).await;
    }
}

/// A submission of one job that follows the success of a stored one.
fn follower(parent: JobId) -> (JobId, Submission) {
    let mut submission = Submission::single(job());
    let child = submission.jobs[0].spec.id;
    submission.edges.push(Edge::new(parent, child, Condition::Success));
    (child, submission)
}

pub async fn an_edge_added_while_its_parent_ends_is_decided(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for _ in 0..2 * ROUNDS {
        let claim = nodes[0].running(job()).await;
        let (child, submission) = follower(claim.id);
        let (worker, submitter) = (nodes[0].clone(), nodes[1].clone());
        let outcome = Outcome::new(claim.id, claim.fence, done());
        let again = outcome.clone();
        let (verdict, inserted) =
            duel(
                async move { worker.commit(outcome).await },
                async move { submitter.submit(submission).await },
            )
            .await;
        assert_eq!(inserted, Inserted::New);
        match verdict {
            Verdict::Recorded(recorded) => assert_eq!(recorded.released, [], "it did not know the edge"),
            Verdict::EdgesChanged(edges) => {
                assert_eq!(edges.iter().map(|edge| edge.child).collect::<Vec<_>>(), [child]);
                assert_eq!(nodes[1].status(claim.id).await, JobStatus::Running, "nothing was done");
                assert!(releases(&nodes[0].commit(with_edge(again, child)).await, child));
            }
            other => panic!("{other:?}"),
        }
        World { nodes: &nodes, jobs: vec![claim.id, child] }.check().await;
        let claims = drain(&nodes[1], 5).await;
        assert_eq!(ids(&claims), BTreeSet::from([child]), "the child is not lost");
        nodes[1].end(&claims[0], done()).await;
    }
}

/// The same outcome, decided again with its one edge in view.
fn with_edge(mut outcome: Outcome, child: JobId) -> Outcome {
    outcome.effects.push(Effect::Satisfy(child));
    outcome.edges_seen = 1;
    outcome
}

pub async fn an_edge_added_while_its_parent_is_cancelled_is_refused(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for _ in 0..2 * ROUNDS {
        let parent = nodes[0].insert(job()).await;
        let (child, submission) = follower(parent);
        let (operator, submitter) = (nodes[0].clone(), nodes[1].clone());
        let (verdict, inserted) = duel(async move { cancel(&operator, parent).await }, async move {
            submitter.submit(submission).await
        })
        .await;
        let CancelVerdict::Canceled { dependents } = verdict else { panic!("it waited: {verdict:?}") };
        assert!(dependents.is_empty() || dependents == [child], "{dependents:?}");
        assert_eq!(inserted, Inserted::New);
        assert_eq!(nodes[0].status(child).await, JobStatus::Canceled, "it does not wait for ever");
        World { nodes: &nodes, jobs: vec![parent, child] }.check().await;
    }
}

pub async fn an_outcome_sent_many_times_is_recorded_once(fx: Fixture) {
    let connections = nodes(&fx, 4).await;
    let retry = End::Retry { delay: HOUR, error: error("busy") };
    let released = End::HandBack { delay: HOUR, reason: HandBackReason::Released };
    for end in [done(), retry, dead_letter(), crashed(), released.clone()].into_iter().cycle().take(10) {
        let owner = &connections[0];
        let claim = owner.running(keyed("order")).await;
        let callback = job_with(|new| new.due = Due::After(HOUR));
        let mut outcome = Outcome::new(claim.id, claim.fence, end.clone());
        outcome.effects.push(Effect::Submit(Box::new(Submission::single(callback.clone()))));
        let verdicts = fx
            .race(connections.len(), |i| {
                let (connection, outcome) = (connections[i].clone(), outcome.clone());
                // One owner whose first call hangs somewhere while it sends the outcome again.
                let sender = Peer { owner: owner.owner.clone(), ..connection };
                async move { sender.commit(outcome).await }
            })
            .await;
        let recorded = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Recorded(_))).count();
        assert_eq!(recorded, 1, "{end:?}: {verdicts:?}");
        // A hand-back without a run leaves no trace to know it by.
        let twin = if end == released { Verdict::LeaseLost } else { Verdict::AlreadyRecorded };
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == twin).count(), 3, "{end:?}: {verdicts:?}");

        let job = owner.job(claim.id).await;
        assert_eq!(job.fence, claim.fence.next(), "{end:?}");
        assert!(job.attempts <= 1 && job.crash_count <= 1, "{end:?}: {job:?}");
        let rows = owner.store.executions(claim.id).await.expect("executions answers");
        assert_eq!(rows.len(), usize::from(end != released), "{end:?}");
        World { nodes: &connections, jobs: vec![claim.id, callback.spec.id] }.check().await;
        cancel(owner, claim.id).await;
    }
}

pub async fn one_idempotency_key_makes_one_job(fx: Fixture) {
    let nodes = nodes(&fx, 8).await;
    for (round, same_submission) in [true, false].into_iter().cycle().take(ROUNDS).enumerate() {
        let key = IdempotencyKey::new(format!("request-{round}")).expect("a valid key");
        let new = || job_with(|new| new.spec.idempotency_key = Some(key.clone()));
        let shared = new();
        let jobs: Vec<_> =
            nodes.iter().map(|_| if same_submission { shared.clone() } else { new() }).collect();
        let verdicts = fx
            .race(nodes.len(), |i| {
                let (node, submission) = (nodes[i].clone(), Submission::single(jobs[i].clone()));
                async move { node.submit(submission).await }
            })
            .await;
        let at = verdicts.iter().position(|verdict| *verdict == Inserted::New).expect("one is new");
        let winner = jobs[at].spec.id;
        for (i, verdict) in verdicts.iter().enumerate().filter(|(i, _)| *i != at) {
            assert_eq!(*verdict, Inserted::Existing(winner), "contender {i} of round {round}");
        }
        let found = nodes[0].store.find_by_idempotency_key(&key).await.expect("the key answers");
        assert_eq!(found, Some(winner));
        let claims = drain(&nodes[0], 5).await;
        assert_eq!(ids(&claims), BTreeSet::from([winner]));
        World { nodes: &nodes, jobs: vec![winner] }.check_and_settle().await;
    }
}

pub async fn one_business_key_lets_one_job_in(fx: Fixture) {
    let nodes = nodes(&fx, 8).await;
    for round in 0..ROUNDS {
        let jobs: Vec<_> = nodes.iter().map(|_| keyed("order")).collect();
        let verdicts = fx
            .race(nodes.len(), |i| {
                let (node, submission) = (nodes[i].clone(), Submission::single(jobs[i].clone()));
                async move { node.submit(submission).await }
            })
            .await;
        let at = verdicts.iter().position(|verdict| *verdict == Inserted::New).expect("one is new");
        let holder = jobs[at].spec.id;
        for (i, verdict) in verdicts.iter().enumerate().filter(|(i, _)| *i != at) {
            assert_eq!(*verdict, Inserted::KeyTaken { holder }, "contender {i} of round {round}");
        }
        let claims = drain(&nodes[0], 5).await;
        assert_eq!(ids(&claims), BTreeSet::from([holder]));
        World { nodes: &nodes, jobs: vec![holder] }.check_and_settle().await;
    }
}

pub async fn no_claim_that_starts_after_the_pause_of_a_queue_gets_a_job(fx: Fixture) {
    let nodes = nodes(&fx, 4).await;
    for _ in 0..3 {
        let jobs = fill(&nodes[0], 40).await;
        let paused = Arc::new(AtomicBool::new(false));
        let taken = fx
            .race(nodes.len(), |i| {
                let (node, paused) = (nodes[i].clone(), Arc::clone(&paused));
                async move {
                    let mut claims = Vec::new();
                    if i == 0 {
                        yield_now().await;
                        let answer = node.store.set_queue_paused(&QueueName::default(), true).await;
                        // Told before it is looked at, so that the others end in any case.
                        paused.store(true, Ordering::SeqCst);
                        assert!(answer.expect("the queue answers"), "it was not paused");
                    }
                    loop {
                        let late = paused.load(Ordering::SeqCst);
                        let more = node.claim(2).await;
                        if late {
                            assert_eq!(more, [], "the pause had been answered before this claim");
                            return claims;
                        }
                        claims.extend(more);
                        yield_now().await;
                    }
                }
            })
            .await;
        let mut claims: Vec<_> = taken.into_iter().flatten().collect();
        nodes[0].store.set_queue_paused(&QueueName::default(), false).await.expect("the queue answers");
        claims.extend(drain(&nodes[0], 10).await);
        assert_eq!(claims.len(), jobs.len(), "no job twice");
        assert_eq!(ids(&claims), jobs.iter().copied().collect(), "no job left out");
        World { nodes: &nodes, jobs }.check_and_settle().await;
    }
}

pub async fn whatever_happens_at_once_every_job_is_in_one_state(fx: Fixture) {
    let nodes = nodes(&fx, 6).await;
    let mut jobs = Vec::new();
    for i in 0..12 {
        jobs.push(nodes[0].insert(keyed(&format!("order-{i}"))).await);
    }
    let jobs = Arc::new(jobs);
    fx.race(nodes.len(), |i| {
        let (node, jobs) = (nodes[i].clone(), Arc::clone(&jobs));
        async move {
            for step in 0..30 {
                // Every node walks through jobs and deeds at a pace of its own.
                let id = jobs[(step * (2 * i + 1) + i) % jobs.len()];
                let target = [id.into()];
                match (step + i) % 6 {
                    0 | 3 => drop(node.claim(2).await),
                    1 => drop(node.store.pause(&target).await.expect("pause answers")),
                    2 => drop(node.store.resume(&target).await.expect("resume answers")),
                    4 => drop(retry(&node, id).await),
                    _ if step % 4 == 0 => drop(cancel(&node, id).await),
                    _ => end_all(&node, step).await,
                }
            }
        }
    })
    .await;
    World { nodes: &nodes, jobs: jobs.to_vec() }.check_and_settle().await;
}

/// Ends whatever the node holds, in turns.
async fn end_all(node: &Peer, turn: usize) {
    let retry = End::Retry { delay: Duration::ZERO, error: error("busy") };
    let ends = [dead_letter(), retry, crashed(), done()];
    let held = node.store.owned(&node.owner).await.expect("owned answers");
    for (i, claim) in held.iter().enumerate() {
        let end = ends[(turn + i) % ends.len()].clone();
        let verdict = node.commit(Outcome::new(claim.id, claim.fence, end)).await;
        assert!(verdict.is_settled(), "nobody else can end it: {verdict:?}");
    }
}
