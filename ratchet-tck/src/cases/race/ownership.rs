//! Ownership of a job: claim, pause, cancel, outcome and recovery against each other.

use std::collections::BTreeSet;

use ratchet_api::store::{CancelVerdict, PauseVerdict};
use ratchet_api::{Beat, End, JobClaim, JobStatus, Outcome, Owner, Verdict};

use super::check::World;
use super::{HOUR, ROUNDS, SECOND, cancel, crashed, dead_letter, done, drain, duel, fill, ids, keyed, nodes};
use crate::fixture::{error, job};
use crate::{Fixture, Peer};

async fn recover(dead: &Owner, to: &Peer, limit: usize) -> Vec<JobClaim> {
    to.store.recover(std::slice::from_ref(dead), &to.owner, limit).await.expect("recover answers")
}

pub async fn a_claim_and_a_pause_agree_who_was_first(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for round in 0..ROUNDS {
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
        let (claims, verdicts) = duel(round, async move { drain(&claimer, 2).await }, pause).await;
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
    for round in 0..ROUNDS {
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
        let (claims, verdicts) = duel(round, async move { drain(&claimer, 2).await }, calls_off).await;
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
    let ends = [done(), retry, dead_letter(), crashed()];
    for round in 0..4 * ROUNDS {
        // Each end is used twice in turn: once starting first, once starting second.
        let end = &ends[round / 2 % ends.len()];
        let claim = nodes[0].running(keyed("order")).await;
        let (owner, operator, id) = (nodes[0].clone(), nodes[1].clone(), claim.id);
        let outcome = Outcome::new(id, claim.fence, end.clone());
        let (verdict, canceled) =
            duel(
                round,
                async move { owner.commit(outcome).await },
                async move { cancel(&operator, id).await },
            )
            .await;
        let status = nodes[1].status(id).await;
        match (&verdict, &canceled) {
            (Verdict::Recorded(_), CancelVerdict::AlreadyEnded(seen)) => assert_eq!(*seen, status),
            // It was handed back first, and canceled while it waited.
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

/// Starts a node whose lease runs out while it holds jobs.
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
    for round in 0..2 * ROUNDS {
        let (node, claims) = dying(&fx, 1).await;
        let claim = &claims[0];
        let (owner, saviour, dead) = (node.clone(), heir.clone(), node.owner.clone());
        let outcome = Outcome::new(claim.id, claim.fence, done());
        let (verdict, moved) = duel(round, async move { owner.commit(outcome).await }, async move {
            recover(&dead, &saviour, 9).await
        })
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
    for round in 0..2 * ROUNDS {
        let (node, claims) = dying(&fx, 3).await;
        let (owner, saviour, dead) = (node.clone(), heir.clone(), node.owner.clone());
        let beat = Beat::new(owner.owner.clone(), HOUR);
        let (reply, moved) =
            duel(round, async move { owner.store.beat(&beat).await.expect("beat answers") }, async move {
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
    for round in 0..2 * ROUNDS {
        let (node, claims) = dying(&fx, 1).await;
        let (saviour, operator, dead, id) = (heir.clone(), nodes[1].clone(), node.owner, claims[0].id);
        let (moved, verdict) = duel(round, async move { recover(&dead, &saviour, 1).await }, async move {
            cancel(&operator, id).await
        })
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
