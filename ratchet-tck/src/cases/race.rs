//! Races: whoever wins, every contender gets a defined answer and every invariant holds.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

mod check;
pub mod effects;
pub mod keys;
pub mod ownership;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet_api::store::{CancelVerdict, RetryVerdict};
use ratchet_api::{
    BusinessKey, DeadReason, End, HandBackReason, JobClaim, JobId, NewJob, Outcome, QueueName,
};
use tokio::sync::Barrier;
use tokio::task::yield_now;

use self::check::World;
use self::effects::*;
use self::keys::*;
use self::ownership::*;
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
    a_retry_gets_the_key_only_once_its_holder_is_canceled: ["retry.key", "cancel.waiting"] [184];
    of_dead_letters_with_one_key_one_is_revived: ["retry.key"] [184];
    a_submit_and_a_retry_agree_who_has_the_key: ["insert.business_key", "retry.key"] [184];
    an_expired_lock_goes_to_one_taker: ["lock.expires", "lock.renew", "lock.exclusive"] [142];
    permits_stay_within_capacity_while_jobs_end: ["permit.capacity", "commit.releases"] [120];
    children_that_end_at_once_are_all_counted: ["batch.counters", "commit.batch"] [89];
    closing_a_batch_and_its_last_child_complete_it_once: ["batch.close", "commit.batch"] [];
    parents_that_end_at_once_release_their_join_once: ["commit.satisfy"] [];
    an_edge_added_while_its_parent_ends_is_decided: ["commit.edges_changed", "insert.edge_outside", "insert.edge_ended"] [];
    an_edge_added_while_its_parent_is_canceled_is_refused: ["cancel.cascade", "insert.edge_ended"] [36];
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

/// Runs two futures on tasks that start together. Rounds differ in which one starts a little earlier.
async fn duel<A, B>(
    round: usize,
    one: impl Future<Output = A> + Send + 'static,
    other: impl Future<Output = B> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let barrier = Arc::new(Barrier::new(2));
    let one = tokio::spawn(late_by(round % 2, Arc::clone(&barrier), one));
    let other = tokio::spawn(late_by(1 - round % 2, barrier, other));
    (one.await.expect("no contender panics"), other.await.expect("no contender panics"))
}

async fn late_by<T>(turns: usize, barrier: Arc<Barrier>, contender: impl Future<Output = T>) -> T {
    barrier.wait().await;
    for _ in 0..turns {
        yield_now().await;
    }
    contender.await
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

async fn cancel(peer: &Peer, id: JobId) -> CancelVerdict {
    peer.store.cancel(&[id.into()], &text("not needed")).await.expect("cancel answers").remove(0)
}

async fn retry(peer: &Peer, id: JobId) -> RetryVerdict {
    peer.store.retry(&[id.into()]).await.expect("retry answers").remove(0)
}

/// Claims until nothing is left.
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
                        // Set before it is checked, so that the others end in any case.
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
                // Each node goes through jobs and operations at a different pace.
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

/// Ends every job that the node holds, in alternating ways.
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
