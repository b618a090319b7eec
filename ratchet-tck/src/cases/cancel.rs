//! Canceling jobs, with everything that waits for them.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::time::Duration;

use ratchet_api::store::{CancelVerdict, Loaded, Permit, PermitRequest, Target};
use ratchet_api::{
    BatchId, Beat, Condition, Due, Edge, Effect, Inserted, JobId, JobStatus, Needs, NewBatch, ResourceLimit,
    ResourceName, Submission, Verdict,
};

use super::commit::{business_key, dead, keyed, ran, recorded, succeeded};
use super::effects::{chain, find_all, finish, join, on_success, set, store, waits};
use super::retry::{assert_alike, places};
use crate::case::cases;
use crate::fixture::{Fixture, Peer, job, job_with, text};

cases! { "cancel";
    a_waiting_job_is_canceled_at_once: ["cancel.waiting"] [24 34 35];
    a_canceled_job_frees_its_key: ["cancel.waiting"] [18];
    a_running_job_stays_with_its_owner_and_reads_as_canceled: ["cancel.running", "find.canceled_early"] [35 74];
    a_canceled_running_job_keeps_key_and_permit_until_it_ends: ["cancel.running"] [184];
    an_ended_job_cannot_be_canceled: ["cancel.once"] [35];
    a_second_cancel_changes_nothing: ["cancel.once"] [35];
    every_target_gets_its_own_answer: ["cancel.once", "cancel.waiting"] [];
    many_are_canceled_as_they_would_be_one_by_one: ["cancel.many", "cancel.cascade", "cancel.batch"] [36];
    a_cancel_reaches_every_depth_nearest_first: ["cancel.cascade"] [36];
    a_cancel_reaches_every_branch_nearest_first: ["cancel.cascade"] [36];
    a_join_behind_several_canceled_branches_is_canceled_once: ["cancel.cascade", "cancel.batch", "commit.refuse"] [36];
    a_cancel_spares_what_can_still_get_what_it_needs: ["cancel.cascade"] [];
    canceling_a_running_job_cancels_its_dependents_at_once: ["cancel.cascade", "commit.cancel_wins"] [36 81];
    a_running_dependent_is_left_alone: ["cancel.cascade"] [];
    a_stale_cancel_does_nothing: ["cancel.stale"] [38];
    a_cancel_races_with_a_claim: ["cancel.waiting", "cancel.running"] [38];
    a_cancel_races_with_an_outcome: ["cancel.once", "commit.cancel_wins"] [38 81];
    of_two_cancels_at_once_one_counts: ["cancel.once"] [38];
}

pub async fn a_waiting_job_is_canceled_at_once(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let ready = node.insert(job()).await;
    let scheduled = node.insert(job_with(|job| job.due = Due::After(Duration::from_secs(60)))).await;
    let blocked = chain(&node, 2).await[1];
    let paused = node.insert(job()).await;
    let dead_letter = node.running(job()).await;
    node.end(&dead_letter, dead("boom")).await;
    node.store.pause(&[paused.into(), dead_letter.id.into()]).await.expect("pause answers");
    fx.advance(Duration::from_secs(5));
    for id in [ready, scheduled, blocked, paused, dead_letter.id] {
        let before = node.job(id).await;
        assert_eq!(cancel(&node, id).await, CancelVerdict::Canceled { dependents: vec![] });
        let read = other.job(id).await;
        assert_eq!((read.status, read.fence), (JobStatus::Canceled, before.fence.next()));
        assert_eq!(read.cancel_reason.as_deref(), Some("stop it"));
        assert_eq!(read.ending.expect("it has ended").terminated_at, fx.now());
        assert_eq!((read.paused_from, read.picked_by), (None, None));
    }
    fx.advance(Duration::from_secs(3600));
    let claimed: Vec<_> = other.claim(10).await.iter().map(|claim| claim.id).collect();
    assert_eq!(claimed.len(), 1, "only the parent of the blocked one is left, not {claimed:?}");
}

pub async fn a_canceled_job_frees_its_key(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for (key, pause) in [("pending", false), ("paused", true)] {
        let id = node.insert(keyed(key)).await;
        if pause {
            node.store.pause(&[id.into()]).await.expect("pause answers");
        }
        cancel(&node, id).await;
        let holder = other.store.find_active_by_business_key(&business_key(key)).await;
        assert_eq!(holder.expect("find answers"), None, "{key}");
        assert_eq!(other.submit(Submission::single(keyed(key))).await, Inserted::New, "{key}");
    }
}

pub async fn a_running_job_stays_with_its_owner_and_reads_as_canceled(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(job()).await;
    assert_eq!(cancel(&other, claim.id).await, CancelVerdict::Requested { dependents: vec![] });

    for reader in [&node, &other] {
        let read = reader.job(claim.id).await;
        assert_eq!((read.status, read.picked_by.as_ref()), (JobStatus::Canceled, Some(&node.owner)));
        assert_eq!(read.cancel_reason.as_deref(), Some("stop it"));
        assert_eq!(read.fence, claim.fence, "neither owner nor status changed");
        assert_eq!(read.ending, None, "its body still runs");
    }
    let held = node.store.owned(&node.owner).await.expect("owned answers");
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].id, held[0].fence, held[0].cancel_requested), (claim.id, claim.fence, true));
    let loaded = node.store.load(&node.owner, std::slice::from_ref(&claim)).await.expect("load answers");
    assert_eq!(loaded, [Loaded::CancelRequested]);
    let beat = Beat::new(node.owner.clone(), Fixture::LONG);
    assert_eq!(node.store.beat(&beat).await.expect("beat answers").cancel_requested, [claim.id]);
    assert_eq!(other.claim(1).await, []);
}

pub async fn a_canceled_running_job_keeps_key_and_permit_until_it_ends(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let resource = ResourceName::new("printer").expect("the name is valid");
    node.store.configure_resource(&ResourceLimit::new(resource.clone(), 1)).await.expect("it is configured");
    let claim = node.running(keyed("k")).await;
    let request = PermitRequest { id: claim.id, fence: claim.fence, resource };
    let granted = node.store.acquire(&node.owner, &[request]).await.expect("acquire answers");
    assert_eq!(granted, [Permit::Granted]);
    cancel(&other, claim.id).await;

    let holders = async || other.store.resources().await.expect("resources answer").remove(0).holders;
    assert_eq!(holders().await, [claim.id]);
    let next = keyed("k");
    let taken = other.submit(Submission::single(next.clone())).await;
    assert_eq!(taken, Inserted::KeyTaken { holder: claim.id });
    assert_eq!(node.commit(ran(&claim, succeeded())).await, Verdict::CanceledInstead);
    assert_eq!(holders().await, []);
    assert_eq!(other.submit(Submission::single(next)).await, Inserted::New);
}

pub async fn an_ended_job_cannot_be_canceled(fx: Fixture) {
    let node = fx.node("a").await;
    for (end, status) in [(succeeded(), JobStatus::Succeeded), (dead("boom"), JobStatus::Failed)] {
        let claim = node.running(job()).await;
        node.end(&claim, end).await;
        let before = node.job(claim.id).await;
        assert_eq!(cancel(&node, claim.id).await, CancelVerdict::AlreadyEnded(status));
        assert_eq!(node.job(claim.id).await, before);
    }
}

pub async fn a_second_cancel_changes_nothing(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (waiting, running) = (node.insert(job()).await, node.running(job()).await.id);
    for id in [waiting, running] {
        cancel(&node, id).await;
        let before = node.job(id).await;
        fx.advance(Duration::from_secs(1));
        let again = other.store.cancel(&[id.into()], &text("again")).await.expect("cancel answers");
        assert_eq!(again, [CancelVerdict::AlreadyEnded(JobStatus::Canceled)]);
        assert_eq!(node.job(id).await, before, "also the first reason stays");
    }
}

pub async fn every_target_gets_its_own_answer(fx: Fixture) {
    let node = fx.node("a").await;
    let (waiting, running, unknown) =
        (node.insert(job()).await, node.running(job()).await.id, JobId::generate());
    let targets = [unknown, running, waiting, running, waiting].map(Target::from);
    let verdicts = node.store.cancel(&targets, &text("stop it")).await.expect("cancel answers");
    assert_eq!(
        verdicts,
        [
            CancelVerdict::Unknown,
            CancelVerdict::Requested { dependents: vec![] },
            CancelVerdict::Canceled { dependents: vec![] },
            CancelVerdict::AlreadyEnded(JobStatus::Canceled),
            CancelVerdict::AlreadyEnded(JobStatus::Canceled),
        ]
    );
    assert_eq!(node.store.cancel(&[], &text("stop it")).await.expect("cancel answers"), []);
}

/// Stores jobs that are related in every way that matters when they are canceled.
async fn relatives(peer: &Peer, name: &str) -> Vec<JobId> {
    let (waiting, running) = (peer.insert(job()).await, peer.running(job()).await.id);
    let holder = peer.insert(keyed(name)).await;
    let paused = peer.insert(job()).await;
    peer.store.pause(&[paused.into()]).await.expect("pause answers");
    let done = peer.running(job()).await;
    peer.end(&done, succeeded()).await;
    let mut ids = vec![waiting, running, holder, paused, done.id];
    ids.extend(chain(peer, 3).await);
    let steps = chain(peer, 2).await;
    peer.take(steps[0]).await;
    ids.extend(steps);
    let (parents, child) = join(peer, 2, Needs::AtLeast(1)).await;
    ids.extend(parents);
    ids.push(child);
    let (batch, children) = super::batch::store(peer, 3, true).await;
    ids.extend(children);
    ids.push(batch.parent());
    ids
}

pub async fn many_are_canceled_as_they_would_be_one_by_one(fx: Fixture) {
    let node = fx.node("a").await;
    let orders = [
        (0..17).collect::<Vec<usize>>(),
        (0..17).rev().collect(),
        vec![0, 0, 1, 1, 6, 5, 7, 9, 8, 10, 13, 14, 15, 16, 13, 2, 3],
        vec![13, 14, 16, 15, 11, 12, 10, 4],
    ];
    for (round, order) in orders.into_iter().enumerate() {
        let (together, alone) =
            (relatives(&node, &format!("{round}a")).await, relatives(&node, &format!("{round}b")).await);
        let targets: Vec<Target> = order.iter().map(|&place| together[place].into()).collect();
        let at_once = node.store.cancel(&targets, &text("stop it")).await.expect("cancel answers");
        let mut one_by_one = Vec::new();
        for place in order {
            one_by_one.push(cancel(&node, alone[place]).await);
        }
        let told = |family: &[JobId], verdicts: &[CancelVerdict]| places(family, &format!("{verdicts:?}"));
        assert_eq!(told(&together, &at_once), told(&alone, &one_by_one), "round {round}");
        assert_alike(&node, &together, &alone).await;
    }
}

pub async fn a_cancel_reaches_every_depth_nearest_first(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let steps = chain(&node, 60).await;
    node.store.pause(&[steps[30].into()]).await.expect("pause answers");
    let verdict = cancel(&node, steps[0]).await;
    assert_eq!(verdict, CancelVerdict::Canceled { dependents: steps[1..].to_vec() });
    for read in find_all(&other, &steps).await {
        assert_eq!(read.status, JobStatus::Canceled);
        assert!(read.ending.is_some());
    }
}

pub async fn a_cancel_reaches_every_branch_nearest_first(fx: Fixture) {
    let node = fx.node("a").await;
    for runs in [false, true] {
        let levels = tree(&node).await;
        let root = levels[0][0];
        if runs {
            node.take(root).await;
        }
        let (CancelVerdict::Canceled { dependents } | CancelVerdict::Requested { dependents }) =
            cancel(&node, root).await
        else {
            panic!("a live job is canceled");
        };
        let mut rest = dependents.as_slice();
        for level in &levels[1..] {
            let (nearest, further) = rest.split_at(level.len().min(rest.len()));
            assert_eq!(set(nearest), set(level), "runs: {runs}");
            rest = further;
        }
        assert_eq!(rest, []);
    }
}

pub async fn a_join_behind_several_canceled_branches_is_canceled_once(fx: Fixture) {
    let node = fx.node("a").await;
    for fails in [false, true] {
        let batch = open_batch(&node).await;
        let join = job_with(|new| new.spec.batch = Some(batch));
        let jobs = [job(), job(), job(), join];
        let ids: [JobId; 4] = std::array::from_fn(|at| jobs[at].spec.id);
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3)];
        let edges = edges.map(|(from, to)| Edge::new(ids[from], ids[to], Condition::Success));
        store(&node, jobs, edges.to_vec()).await;
        let before = node.job(ids[3]).await;
        let canceled = if fails {
            let claim = node.take(ids[0]).await;
            finish(&node, &claim, dead("boom"), vec![]).await.canceled
        } else {
            match cancel(&node, ids[0]).await {
                CancelVerdict::Canceled { dependents } => dependents,
                other => panic!("a waiting job is canceled, not {other:?}"),
            }
        };
        assert_eq!(set(&canceled), set(&ids[1..]));
        assert_eq!(canceled.len(), 3, "each is listed once");
        assert_eq!(node.job(ids[3]).await.fence, before.fence.next());
        let counted = node.store.find_batches(&[batch]).await.expect("find_batches answers");
        assert_eq!(counted[0].as_ref().map(|batch| batch.progress.failed), Some(1));
    }
}

async fn open_batch(node: &Peer) -> BatchId {
    let mut submission = Submission::single(job());
    submission.batch = Some(NewBatch { closed: false });
    let id = submission.id().expect("it has a head");
    assert_eq!(node.submit(submission).await, Inserted::New);
    BatchId::of(id)
}

pub async fn a_cancel_spares_what_can_still_get_what_it_needs(fx: Fixture) {
    let node = fx.node("a").await;
    let (parents, join) = join(&node, 3, Needs::AtLeast(2)).await;
    assert_eq!(cancel(&node, parents[0]).await, CancelVerdict::Canceled { dependents: vec![] });
    assert_eq!(waits(&node.job(join).await), (JobStatus::Pending, 2, 2));
    assert_eq!(cancel(&node, parents[1]).await, CancelVerdict::Canceled { dependents: vec![join] });
    assert_eq!(node.status(parents[2]).await, JobStatus::Pending);
}

pub async fn canceling_a_running_job_cancels_its_dependents_at_once(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let steps = chain(&node, 4).await;
    let claim = node.take(steps[0]).await;
    let verdict = cancel(&other, steps[0]).await;
    assert_eq!(verdict, CancelVerdict::Requested { dependents: steps[1..].to_vec() });
    let before = find_all(&other, &steps[1..]).await;
    assert!(before.iter().all(|job| job.status == JobStatus::Canceled));

    let mut outcome = ran(&claim, succeeded());
    outcome.effects = vec![Effect::Satisfy(steps[1])];
    assert_eq!(node.commit(outcome).await, Verdict::CanceledInstead);
    assert_eq!(find_all(&other, &steps[1..]).await, before);
}

pub async fn a_running_dependent_is_left_alone(fx: Fixture) {
    let node = fx.node("a").await;
    let any = job_with(|job| job.needs = Needs::AtLeast(1));
    let (first, second, last) = (job(), job(), job());
    let edges = vec![on_success(&first, &any), on_success(&second, &any), on_success(&any, &last)];
    let [first, second, any, last] = store(&node, [first, second, any, last], edges).await;
    finish(&node, &node.take(first).await, succeeded(), vec![]).await;
    let claim = node.take(any).await;
    assert_eq!(cancel(&node, second).await, CancelVerdict::Canceled { dependents: vec![] });
    assert_eq!(node.status(any).await, JobStatus::Running);
    let led_to = finish(&node, &claim, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [last]);
}

pub async fn a_stale_cancel_does_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    let waiting = node.insert(job()).await;
    let running = node.running(job()).await.id;
    let paused = node.insert(job()).await;
    node.store.pause(&[paused.into()]).await.expect("pause answers");
    for id in [waiting, running, paused] {
        let before = node.job(id).await;
        let cancel = async |fence| {
            let targets = [Target::from((id, fence))];
            node.store.cancel(&targets, &text("stop it")).await.expect("cancel answers").remove(0)
        };
        assert_eq!(cancel(before.fence.next()).await, CancelVerdict::Stale(before.status));
        assert_eq!(node.job(id).await, before);
        let acted = cancel(before.fence).await;
        assert!(matches!(acted, CancelVerdict::Canceled { .. } | CancelVerdict::Requested { .. }));
    }
}

pub async fn a_cancel_races_with_a_claim(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..20 {
        let id = node.insert(job()).await;
        let answers = fx
            .race(2, |i| {
                let (node, other) = (node.clone(), other.clone());
                async move {
                    match i {
                        0 => (Some(cancel(&node, id).await), Vec::new()),
                        _ => (None, other.claim(1).await),
                    }
                }
            })
            .await;
        let (verdict, claims) = (&answers[0].0, &answers[1].1);
        match verdict.as_ref().expect("the cancel was answered") {
            CancelVerdict::Canceled { .. } => assert_eq!(*claims, [], "round {round}"),
            CancelVerdict::Requested { .. } => {
                assert_eq!(claims.len(), 1, "round {round}");
                assert_eq!(other.commit(ran(&claims[0], succeeded())).await, Verdict::CanceledInstead);
            }
            verdict => panic!("round {round}: {verdict:?}"),
        }
        let read = node.job(id).await;
        assert_eq!((read.status, read.picked_by), (JobStatus::Canceled, None), "round {round}");
    }
}

pub async fn a_cancel_races_with_an_outcome(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..20 {
        let claim = node.running(job()).await;
        let answers = fx
            .race(2, |i| {
                let (node, other, claim) = (node.clone(), other.clone(), claim.clone());
                async move {
                    match i {
                        0 => (Some(cancel(&other, claim.id).await), None),
                        _ => (None, Some(node.commit(ran(&claim, succeeded())).await)),
                    }
                }
            })
            .await;
        let verdict = answers[1].1.clone().expect("the commit was answered");
        match answers[0].0.as_ref().expect("the cancel was answered") {
            CancelVerdict::Requested { .. } => {
                assert_eq!(verdict, Verdict::CanceledInstead, "round {round}");
                assert_eq!(node.status(claim.id).await, JobStatus::Canceled, "round {round}");
            }
            answer => {
                assert_eq!(*answer, CancelVerdict::AlreadyEnded(JobStatus::Succeeded), "round {round}");
                recorded(verdict);
                assert_eq!(node.status(claim.id).await, JobStatus::Succeeded, "round {round}");
            }
        }
    }
}

pub async fn of_two_cancels_at_once_one_counts(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for round in 0..10 {
        let steps = chain(&node, 3).await;
        if round % 2 == 1 {
            node.take(steps[0]).await;
        }
        let verdicts = fx
            .race(2, |i| {
                let peer = [&node, &other][i].clone();
                let id = steps[0];
                async move { cancel(&peer, id).await }
            })
            .await;
        let late = CancelVerdict::AlreadyEnded(JobStatus::Canceled);
        let first = verdicts.iter().find(|verdict| **verdict != late).expect("one of them counts");
        assert!(verdicts.contains(&late), "round {round}: {verdicts:?}");
        let (CancelVerdict::Canceled { dependents } | CancelVerdict::Requested { dependents }) = first else {
            panic!("round {round}: {first:?}");
        };
        assert_eq!(*dependents, steps[1..], "round {round}");
    }
}

/// Stores a root with three levels of two branches each below it; returns the ids of each level.
async fn tree(peer: &Peer) -> Vec<Vec<JobId>> {
    let (mut levels, mut edges) = (vec![vec![job()]], Vec::new());
    for _ in 0..3 {
        let mut next = Vec::new();
        for parent in levels.last().expect("there is a root") {
            for child in [job(), job()] {
                edges.push(Edge::new(parent.spec.id, child.spec.id, Condition::Failure));
                next.push(child);
            }
        }
        levels.push(next);
    }
    super::effects::submit(peer, levels.concat(), edges).await;
    levels.iter().map(|level| level.iter().map(|job| job.spec.id).collect()).collect()
}

async fn cancel(peer: &Peer, id: JobId) -> CancelVerdict {
    let mut verdicts = peer.store.cancel(&[id.into()], &text("stop it")).await.expect("cancel answers");
    assert_eq!(verdicts.len(), 1, "one verdict for one job");
    verdicts.remove(0)
}
