//! Limited things: keys, locks and permits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratchet_api::store::{CancelVerdict, Permit, PermitRequest, RetryVerdict};
use ratchet_api::{
    IdempotencyKey, Inserted, JobId, JobStatus, LockName, NewJob, ResourceLimit, ResourceName, Submission,
};
use tokio::task::yield_now;

use super::check::World;
use super::{ROUNDS, SECOND, cancel, dead_letter, done, drain, duel, ids, keyed, nodes, retry};
use crate::fixture::{job, job_with};
use crate::{Fixture, Peer};

async fn failed(peer: &Peer, new: NewJob) -> JobId {
    let claim = peer.running(new).await;
    peer.end(&claim, dead_letter()).await;
    claim.id
}

pub async fn a_retry_gets_the_key_only_once_its_holder_is_canceled(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for round in 0..2 * ROUNDS {
        let name = format!("order-{round}");
        let dead = failed(&nodes[0], keyed(&name)).await;
        let holder = nodes[0].insert(keyed(&name)).await;
        let (one, other) = (nodes[0].clone(), nodes[1].clone());
        let (retried, canceled) =
            duel(round, async move { retry(&one, dead).await }, async move { cancel(&other, holder).await })
                .await;
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
            duel(round, async move { one.submit(Submission::single(new)).await }, async move {
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

/// Requests a permit until it is granted. Every holder gives its permit back without waiting, so this ends.
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
