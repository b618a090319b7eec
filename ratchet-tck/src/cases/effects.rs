//! The consequences of an outcome for the jobs that wait for it: edges satisfied, refused, and left undecided.

#![expect(missing_docs, reason = "the name of a case says what it shows")]

mod model;

use std::collections::BTreeSet;
use std::time::Duration;

use ratchet_api::{
    Condition, Due, Edge, EdgeState, Effect, End, HandBackReason, Inserted, Job, JobClaim, JobId, JobStatus,
    Needs, NewJob, Outcome, Recorded, Submission,
};

use super::commit::{
    business_key, called_off, commit_all, dead, handed_back, keyed, outcome, ran, recorded, retry, succeeded,
};
use crate::case::cases;
use crate::fixture::{Fixture, Peer, job, job_with};
use model::Model;

cases! { "effects";
    a_satisfied_edge_releases_its_child: ["commit.satisfy"] [89];
    a_released_child_is_not_due_before_its_own_time: ["commit.satisfy"] [23];
    a_chain_runs_step_by_step: ["commit.satisfy", "commit.undecided_edge"] [2 89];
    all_matching_branches_run_and_the_others_are_canceled: ["commit.satisfy", "commit.refuse"] [27 89];
    a_join_waits_for_as_many_parents_as_it_needs: ["commit.satisfy", "commit.refuse"] [];
    a_released_join_does_not_care_about_its_other_parents: ["commit.satisfy", "commit.refuse"] [];
    a_diamond_comes_together_again: ["commit.satisfy"] [];
    parents_that_end_in_one_call_release_their_join_once: ["commit.satisfy"] [];
    parents_that_end_at_once_release_their_join_once: ["commit.satisfy"] [];
    a_failed_step_cancels_every_step_behind_it: ["commit.refuse", "commit.undecided_edge"] [103];
    a_refusal_reaches_every_branch: ["commit.refuse"] [103];
    a_refusal_stops_at_a_join_that_can_still_get_what_it_needs: ["commit.refuse"] [];
    a_canceled_dependent_frees_its_key_and_refuses_its_failure_branch: ["commit.refuse"] [18 34];
    a_paused_child_is_released_and_waits_for_its_resume: ["commit.satisfy", "pause.waits_on"] [31];
    a_paused_child_is_canceled_by_a_refusal: ["commit.refuse", "pause.waits_on"] [];
    an_edge_is_decided_once: ["commit.decided_edge"] [];
    an_effect_on_an_edge_that_does_not_exist_does_nothing: ["commit.decided_edge"] [];
    an_edge_that_was_satisfied_before_a_manual_retry_stays_so: ["commit.decided_edge", "retry.dependents"] [];
    undecided_edges_follow_from_the_end: ["commit.undecided_edge"] [89 103];
    each_parent_of_a_join_decides_its_own_edge: ["commit.undecided_edge", "commit.satisfy"] [89];
    an_answer_for_an_ended_parent_is_not_kept_for_a_live_one: ["commit.undecided_edge"] [];
    edges_stay_open_after_a_retry_and_a_hand_back: ["commit.undecided_edge"] [28];
    random_graphs_end_as_the_model_says: ["commit.satisfy", "commit.refuse", "commit.undecided_edge"] [];
}

pub async fn a_satisfied_edge_releases_its_child(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (parent, child) = (job(), job());
    let edge = Edge::new(parent.spec.id, child.spec.id, Condition::Custom("match".into()));
    let [parent, child] = store(&node, [parent, child], vec![edge]).await;
    fx.advance(Duration::from_secs(3600));
    assert_eq!(waits(&other.job(child).await), (JobStatus::Pending, 1, 1));

    let claim = node.take(parent).await;
    assert_eq!(other.claim(10).await, [], "a blocked job is not claimed");
    let led_to = finish(&node, &claim, succeeded(), vec![Effect::Satisfy(child)]).await;
    assert_eq!((led_to.released, led_to.canceled), (vec![child], vec![]));
    let read = other.job(child).await;
    assert_eq!(waits(&read), (JobStatus::Pending, 0, 0));
    assert_eq!(read.scheduled_time, fx.now(), "its waiting counts from its release");
    assert_eq!(states(&other, parent).await, [EdgeState::Satisfied]);
    assert_eq!(other.claim_one().await.id, child);
}

pub async fn a_released_child_is_not_due_before_its_own_time(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (parent, child) = (job(), job_with(|job| job.due = Due::After(Duration::from_secs(60))));
    let edge = on_success(&parent, &child);
    let due = fx.now() + Duration::from_secs(60);
    let [parent, child] = store(&node, [parent, child], vec![edge]).await;
    fx.advance(Duration::from_secs(10));
    let claim = node.take(parent).await;
    let led_to = finish(&node, &claim, succeeded(), vec![]).await;

    assert_eq!(led_to.released, [child]);
    assert_eq!(other.job(child).await.scheduled_time, due);
    fx.advance(Duration::from_millis(49_999));
    assert_eq!(other.claim(1).await, []);
    fx.advance(Duration::from_millis(1));
    assert_eq!(other.claim_one().await.id, child);
}

pub async fn a_chain_runs_step_by_step(fx: Fixture) {
    let nodes = [fx.node("a").await, fx.node("b").await];
    let steps = chain(&nodes[0], 5).await;
    for (at, step) in steps.iter().enumerate() {
        let node = &nodes[at % 2];
        let claims = node.claim(10).await;
        assert_eq!(claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), [*step], "step {at}");
        let led_to = finish(node, &claims[0], succeeded(), vec![]).await;
        assert_eq!(led_to.released, steps.get(at + 1).copied().into_iter().collect::<Vec<_>>());
    }
    assert_eq!(nodes[0].claim(10).await, []);
}

pub async fn all_matching_branches_run_and_the_others_are_canceled(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (parent, branches) = fan(&node, 4).await;
    let claim = node.take(parent).await;
    let effects = vec![
        Effect::Satisfy(branches[0]),
        Effect::Refuse(branches[1]),
        Effect::Satisfy(branches[2]),
        Effect::Refuse(branches[3]),
    ];
    let led_to = finish(&node, &claim, succeeded(), effects).await;
    assert_eq!(set(&led_to.released), set(&[branches[0], branches[2]]));
    assert_eq!(set(&led_to.canceled), set(&[branches[1], branches[3]]));
    let claimed: Vec<_> = other.claim(10).await.iter().map(|claim| claim.id).collect();
    assert_eq!(set(&claimed), set(&led_to.released));
    for canceled in led_to.canceled {
        let read = other.job(canceled).await;
        assert_eq!(read.status, JobStatus::Canceled);
        assert_eq!(read.ending.expect("it has ended").terminated_at, fx.now());
    }
}

pub async fn a_join_waits_for_as_many_parents_as_it_needs(fx: Fixture) {
    use JobStatus::{Canceled, Pending};
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    // The decisions of the parents, one after the other, and the state of the join after each.
    for (needs, decisions, after) in [
        (Needs::All, "yyy", [(Pending, 2, 2), (Pending, 1, 1), (Pending, 0, 0)].as_slice()),
        (Needs::All, "yn", &[(Pending, 2, 2), (Canceled, 2, 1)]),
        (Needs::All, "n", &[(Canceled, 3, 2)]),
        (Needs::AtLeast(1), "y", &[(Pending, 0, 2)]),
        (Needs::AtLeast(1), "nny", &[(Pending, 1, 2), (Pending, 1, 1), (Pending, 0, 0)]),
        (Needs::AtLeast(1), "nnn", &[(Pending, 1, 2), (Pending, 1, 1), (Canceled, 1, 0)]),
        (Needs::AtLeast(2), "yny", &[(Pending, 1, 2), (Pending, 1, 1), (Pending, 0, 0)]),
        (Needs::AtLeast(2), "ynn", &[(Pending, 1, 2), (Pending, 1, 1), (Canceled, 1, 0)]),
        (Needs::AtLeast(2), "nn", &[(Pending, 2, 2), (Canceled, 2, 1)]),
    ] {
        let (parents, join) = join(&node, 3, needs).await;
        for ((decision, parent), expected) in decisions.chars().zip(parents).zip(after) {
            let (effect, states) = match decision {
                'y' => (Effect::Satisfy(join), &[EdgeState::Satisfied]),
                _ => (Effect::Refuse(join), &[EdgeState::Refused]),
            };
            let claim = node.take(parent).await;
            let led_to = finish(&node, &claim, succeeded(), vec![effect]).await;
            let (read, case) = (other.job(join).await, format!("{needs:?} {decisions}"));
            let released = expected.0 == Pending && expected.1 == 0;
            assert_eq!(read.status, expected.0, "{case}");
            if expected.0 == Pending {
                assert_eq!(waits(&read), *expected, "{case}");
            }
            assert_eq!(led_to.released.contains(&join), released, "{case}");
            assert_eq!(led_to.canceled.contains(&join), expected.0 == Canceled, "{case}");
            assert_eq!(self::states(&other, parent).await, states, "{case}");
        }
    }
}

pub async fn a_released_join_does_not_care_about_its_other_parents(fx: Fixture) {
    let node = fx.node("a").await;
    for late in [Effect::Satisfy, Effect::Refuse] {
        for started in [false, true] {
            let (parents, join) = join(&node, 2, Needs::AtLeast(1)).await;
            let (first, second) = (node.take(parents[0]).await, node.take(parents[1]).await);
            finish(&node, &first, succeeded(), vec![Effect::Satisfy(join)]).await;
            let claim = if started { Some(node.take(join).await) } else { None };
            let before = node.job(join).await;

            let led_to = finish(&node, &second, succeeded(), vec![late(join)]).await;
            assert_eq!((led_to.released, led_to.canceled), (vec![], vec![]));
            let after = node.job(join).await;
            assert_eq!((after.status, after.blocked_by), (before.status, 0));
            assert_eq!((after.fence, after.scheduled_time), (before.fence, before.scheduled_time));
            let claim = match claim {
                Some(claim) => claim,
                None => node.take(join).await,
            };
            node.end(&claim, succeeded()).await;
        }
    }
}

pub async fn a_diamond_comes_together_again(fx: Fixture) {
    let node = fx.node("a").await;
    let jobs = [job(), job(), job(), job()];
    let edges = [(0, 1), (0, 2), (1, 3), (2, 3)].map(|(from, to)| on_success(&jobs[from], &jobs[to]));
    let [top, left, right, bottom] = store(&node, jobs, edges.to_vec()).await;
    let first = finish(&node, &node.take(top).await, succeeded(), vec![]).await;
    assert_eq!(set(&first.released), set(&[left, right]));
    let second = finish(&node, &node.take(left).await, succeeded(), vec![]).await;
    assert_eq!(second.released, []);
    let third = finish(&node, &node.take(right).await, succeeded(), vec![]).await;
    assert_eq!(third.released, [bottom]);
}

pub async fn parents_that_end_in_one_call_release_their_join_once(fx: Fixture) {
    let node = fx.node("a").await;
    let (parents, join) = join(&node, 6, Needs::All).await;
    let claims = node.claim(10).await;
    assert_eq!(claims.len(), parents.len());
    let outcomes: Vec<_> = claims.iter().map(|claim| ran(claim, succeeded())).collect();
    let verdicts = commit_all(&node, &outcomes).await;
    let released: Vec<_> = verdicts.into_iter().flat_map(|verdict| recorded(verdict).released).collect();
    assert_eq!(released, [join]);
    assert_eq!(waits(&node.job(join).await), (JobStatus::Pending, 0, 0));
}

pub async fn parents_that_end_at_once_release_their_join_once(fx: Fixture) {
    let node = fx.node("a").await;
    let mut peers = Vec::new();
    for label in ["b", "c", "d", "e"] {
        peers.push(fx.node(label).await);
    }
    for round in 0..5 {
        let (parents, join) = join(&node, 8, Needs::AtLeast(7)).await;
        let mut shares = Vec::new();
        for (peer, pair) in peers.iter().zip(parents.chunks(2)) {
            shares.push([peer.take(pair[0]).await, peer.take(pair[1]).await]);
        }
        let released = fx
            .race(4, |i| {
                let (peer, claims) = (peers[i].clone(), shares[i].clone());
                async move {
                    let mut released = Vec::new();
                    for claim in &claims {
                        released.extend(recorded(peer.commit(ran(claim, succeeded())).await).released);
                    }
                    released
                }
            })
            .await;
        assert_eq!(released.concat(), [join], "round {round}");
        assert_eq!(waits(&node.job(join).await), (JobStatus::Pending, 0, 0), "round {round}");
        node.end(&node.take(join).await, succeeded()).await;
    }
}

pub async fn a_failed_step_cancels_every_step_behind_it(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let steps = chain(&node, 51).await;
    let claim = node.take(steps[0]).await;
    let led_to = finish(&node, &claim, dead("boom"), vec![]).await;
    assert_eq!(set(&led_to.canceled), set(&steps[1..]));
    assert_eq!(led_to.canceled.len(), 50, "each is listed once");
    for step in &steps[1..] {
        assert_eq!(other.status(*step).await, JobStatus::Canceled);
    }
    let edges = other.store.edges_from(&steps).await.expect("edges answer");
    assert!(edges.iter().all(|edge| edge.state == EdgeState::Refused));
}

pub async fn a_refusal_reaches_every_branch(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let root = job();
    let (mut jobs, mut edges) = (vec![root.clone()], Vec::new());
    for _ in 0..40 {
        let (branch, leaf) = (job(), job());
        edges.extend([on_success(&root, &branch), on_success(&branch, &leaf)]);
        jobs.extend([branch, leaf]);
    }
    let below: Vec<_> = jobs[1..].iter().map(|job| job.spec.id).collect();
    submit(&node, jobs, edges).await;
    let claim = node.take(root.spec.id).await;
    let led_to = finish(&node, &claim, called_off(), vec![]).await;
    assert_eq!(set(&led_to.canceled), set(&below));
    for read in find_all(&other, &below).await {
        assert_eq!(read.status, JobStatus::Canceled);
    }
}

pub async fn a_refusal_stops_at_a_join_that_can_still_get_what_it_needs(fx: Fixture) {
    let node = fx.node("a").await;
    let (root, middle, other) = (job(), job(), job());
    let any = job_with(|job| job.needs = Needs::AtLeast(1));
    let edges = vec![on_success(&root, &middle), on_success(&middle, &any), on_success(&other, &any)];
    let [root, middle, other, any] = store(&node, [root, middle, other, any], edges).await;
    let led_to = finish(&node, &node.take(root).await, dead("boom"), vec![]).await;
    assert_eq!(led_to.canceled, [middle]);
    assert_eq!(waits(&node.job(any).await), (JobStatus::Pending, 1, 1));
    let led_to = finish(&node, &node.take(other).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [any]);
}

pub async fn a_canceled_dependent_frees_its_key_and_refuses_its_failure_branch(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (root, step, rescue) = (job(), keyed("step"), job());
    let edges = vec![on_success(&root, &step), Edge::new(step.spec.id, rescue.spec.id, Condition::Failure)];
    let [root, step, rescue] = store(&node, [root, step, rescue], edges).await;
    finish(&node, &node.take(root).await, dead("boom"), vec![]).await;
    assert_eq!(other.status(step).await, JobStatus::Canceled);
    assert_eq!(other.status(rescue).await, JobStatus::Canceled, "its parent did not fail, it was canceled");
    let holder = other.store.find_active_by_business_key(&business_key("step")).await;
    assert_eq!(holder.expect("find answers"), None);
    assert_eq!(other.submit(Submission::single(keyed("step"))).await, Inserted::New);
}

pub async fn a_paused_child_is_released_and_waits_for_its_resume(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let steps = chain(&node, 2).await;
    node.store.pause(&[steps[1].into()]).await.expect("pause answers");
    finish(&node, &node.take(steps[0]).await, succeeded(), vec![]).await;
    assert_eq!(waits(&other.job(steps[1]).await), (JobStatus::Paused, 0, 0));
    assert_eq!(other.claim(1).await, []);
    node.store.resume(&[steps[1].into()]).await.expect("resume answers");
    assert_eq!(other.claim_one().await.id, steps[1]);
}

pub async fn a_paused_child_is_canceled_by_a_refusal(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let steps = chain(&node, 3).await;
    node.store.pause(&[steps[1].into()]).await.expect("pause answers");
    let led_to = finish(&node, &node.take(steps[0]).await, dead("boom"), vec![]).await;
    assert_eq!(set(&led_to.canceled), set(&steps[1..]));
    for step in &steps[1..] {
        let read = other.job(*step).await;
        assert_eq!((read.status, read.paused_from), (JobStatus::Canceled, None));
    }
}

pub async fn an_edge_is_decided_once(fx: Fixture) {
    let node = fx.node("a").await;
    for (effects, expected) in [
        ([Effect::Satisfy, Effect::Satisfy, Effect::Refuse], (JobStatus::Pending, 1, 1)),
        ([Effect::Refuse, Effect::Refuse, Effect::Satisfy], (JobStatus::Pending, 2, 2)),
    ] {
        let spare = expected.1 == 2;
        let (parents, join) = join(&node, if spare { 3 } else { 2 }, Needs::AtLeast(2)).await;
        let claim = node.take(parents[0]).await;
        finish(&node, &claim, succeeded(), effects.map(|effect| effect(join)).to_vec()).await;
        assert_eq!(waits(&node.job(join).await), expected);
    }
}

pub async fn an_effect_on_an_edge_that_does_not_exist_does_nothing(fx: Fixture) {
    let node = fx.node("a").await;
    let (stranger, free) = (chain(&node, 2).await, node.insert(job()).await);
    let claim = node.running(job()).await;
    let (before, open) = (node.job(stranger[1]).await, node.job(free).await);
    let effects = vec![
        Effect::Satisfy(stranger[1]),
        Effect::Refuse(stranger[1]),
        Effect::Refuse(free),
        Effect::Satisfy(JobId::generate()),
        Effect::Refuse(JobId::generate()),
        Effect::Refuse(claim.id),
    ];
    let led_to = finish(&node, &claim, succeeded(), effects).await;
    assert_eq!((led_to.released, led_to.canceled), (vec![], vec![]));
    assert_eq!(node.job(stranger[1]).await, before);
    assert_eq!(node.job(free).await, open);
    assert_eq!(node.status(claim.id).await, JobStatus::Succeeded);
}

pub async fn an_edge_that_was_satisfied_before_a_manual_retry_stays_so(fx: Fixture) {
    let node = fx.node("a").await;
    let (step, rescue, next) = (job(), job(), job());
    let edges = vec![Edge::new(step.spec.id, rescue.spec.id, Condition::Failure), on_success(&step, &next)];
    let [step, rescue, next] = store(&node, [step, rescue, next], edges).await;
    finish(&node, &node.take(step).await, dead("boom"), vec![]).await;
    node.end(&node.take(rescue).await, succeeded()).await;
    node.store.retry(&[step.into()]).await.expect("retry answers");
    let ran_before = node.job(rescue).await;

    let effects = vec![Effect::Refuse(rescue), Effect::Satisfy(next)];
    let led_to = finish(&node, &node.take(step).await, succeeded(), effects).await;
    assert_eq!((led_to.released, led_to.canceled), (vec![next], vec![]));
    assert_eq!(node.job(rescue).await, ran_before);
    assert_eq!(states(&node, step).await, [EdgeState::Satisfied, EdgeState::Satisfied]);
}

pub async fn an_answer_for_an_ended_parent_is_not_kept_for_a_live_one(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let (parent, child) = (job(), job());
    let mut edge = Edge::new(parent.spec.id, child.spec.id, Condition::Custom("match".into()));
    edge.if_ended = Some(EdgeState::Satisfied);
    let [parent, child] = store(&node, [parent, child], vec![edge]).await;
    let claim = node.take(parent).await;
    finish(&node, &claim, succeeded(), vec![]).await;
    assert_eq!(other.status(child).await, JobStatus::Canceled);
}

pub async fn undecided_edges_follow_from_the_end(fx: Fixture) {
    use EdgeState::{Refused, Satisfied};
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for (end, decided) in [
        (succeeded(), [Satisfied, Refused, Refused, Refused]),
        (dead("boom"), [Refused, Satisfied, Refused, Refused]),
        (called_off(), [Refused, Refused, Refused, Refused]),
    ] {
        let parent = job();
        let children = [job(), job(), job(), job()];
        let conditions = [
            Condition::Success,
            Condition::Failure,
            Condition::Custom("unheard of".into()),
            Condition::BatchSuccess,
        ];
        let ids: Vec<_> = children.iter().map(|child| child.spec.id).collect();
        let edges = ids.iter().zip(conditions).map(|(id, when)| Edge::new(parent.spec.id, *id, when));
        let parent_id = parent.spec.id;
        let edges = edges.collect();
        submit(&node, [vec![parent], children.to_vec()].concat(), edges).await;
        let led_to = finish(&node, &node.take(parent_id).await, end.clone(), vec![]).await;

        assert_eq!(states(&other, parent_id).await, decided, "{end:?}");
        for (id, state) in ids.iter().zip(decided) {
            let listed = (led_to.released.contains(id), led_to.canceled.contains(id));
            assert_eq!(listed, (state == Satisfied, state == Refused), "{end:?}");
        }
    }
}

pub async fn each_parent_of_a_join_decides_its_own_edge(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for failing_first in [true, false] {
        let (works, fails, join) = (job(), job(), job());
        let mut edges =
            vec![Edge::new(fails.spec.id, join.spec.id, Condition::Failure), on_success(&works, &join)];
        if !failing_first {
            edges.reverse();
        }
        let [works, fails, join] = store(&node, [works, fails, join], edges).await;
        let led_to = finish(&node, &node.take(works).await, succeeded(), vec![]).await;
        assert_eq!((led_to.released, led_to.canceled), (vec![], vec![]), "first: {failing_first}");
        assert_eq!(states(&other, works).await, [EdgeState::Satisfied], "first: {failing_first}");
        assert_eq!(states(&other, fails).await, [EdgeState::Open], "first: {failing_first}");
        assert_eq!(waits(&other.job(join).await), (JobStatus::Pending, 1, 1), "first: {failing_first}");
        let led_to = finish(&node, &node.take(fails).await, dead("boom"), vec![]).await;
        assert_eq!(led_to.released, [join], "first: {failing_first}");
    }
}

pub async fn edges_stay_open_after_a_retry_and_a_hand_back(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let steps = chain(&node, 3).await;
    let before = find_all(&other, &steps[1..]).await;
    for end in [
        retry(Duration::ZERO),
        handed_back(HandBackReason::Released),
        handed_back(HandBackReason::Snoozed),
        handed_back(HandBackReason::Crashed),
    ] {
        let claim = node.take(steps[0]).await;
        let led_to = finish(&node, &claim, end.clone(), vec![]).await;
        assert_eq!((led_to.released, led_to.canceled), (vec![], vec![]), "{end:?}");
        assert_eq!(states(&other, steps[0]).await, [EdgeState::Open], "{end:?}");
        assert_eq!(find_all(&other, &steps[1..]).await, before, "{end:?}");
        fx.advance(Duration::from_secs(10));
    }
    let led_to = finish(&node, &node.take(steps[0]).await, succeeded(), vec![]).await;
    assert_eq!(led_to.released, [steps[1]]);
}

pub async fn random_graphs_end_as_the_model_says(fx: Fixture) {
    let node = fx.node("a").await;
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let (mut model, submission) = Model::random(&mut dice, 10);
        assert_eq!(node.submit(submission).await, Inserted::New);
        while let Some(at) = model.pick_claimable(&mut dice) {
            let claim = node.take(model.jobs[at].id).await;
            let (end, effects) = model.random_end(at, &mut dice);
            let expected = model.end(at, &end, &effects);
            let led_to = finish(&node, &claim, end, effects).await;

            assert_eq!(set(&led_to.released), set(&expected.released), "seed {seed}");
            assert_eq!(set(&led_to.canceled), set(&expected.canceled), "seed {seed}");
            let stored = find_all(&node, &model.ids()).await;
            for (modelled, read) in model.jobs.iter().zip(stored) {
                assert_eq!(read.status, modelled.status, "seed {seed}");
                if modelled.status == JobStatus::Pending {
                    let needs = (read.blocked_by, read.open_parents);
                    assert_eq!(needs, (modelled.blocked, modelled.open), "seed {seed}");
                }
            }
        }
        assert!(model.jobs.iter().all(|job| job.status != JobStatus::Pending), "seed {seed}: nothing hangs");
    }
}

/// A small generator (SplitMix64): the same seed, the same graph, on every store.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// Returns a number from 0 to `end - 1`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// Commits like an engine that has seen every edge; the outcome must be recorded.
pub(super) async fn finish(peer: &Peer, claim: &JobClaim, end: End, effects: Vec<Effect>) -> Recorded {
    let mut outcome: Outcome = outcome(claim, end);
    outcome.effects = effects;
    recorded(peer.commit(outcome).await)
}

/// Makes an edge by which `child` runs if `parent` succeeds.
pub(super) fn on_success(parent: &NewJob, child: &NewJob) -> Edge {
    Edge::new(parent.spec.id, child.spec.id, Condition::Success)
}

pub(super) async fn submit(peer: &Peer, jobs: Vec<NewJob>, edges: Vec<Edge>) {
    let mut submission = Submission::default();
    submission.jobs = jobs;
    submission.edges = edges;
    assert_eq!(peer.submit(submission).await, Inserted::New);
}

/// Stores jobs with edges between them; returns their ids.
pub(super) async fn store<const N: usize>(peer: &Peer, jobs: [NewJob; N], edges: Vec<Edge>) -> [JobId; N] {
    let ids = std::array::from_fn(|i| jobs[i].spec.id);
    submit(peer, jobs.into(), edges).await;
    ids
}

/// Stores jobs each of which follows the success of the one before.
pub(super) async fn chain(peer: &Peer, length: usize) -> Vec<JobId> {
    let jobs: Vec<_> = (0..length).map(|_| job()).collect();
    let edges = jobs.windows(2).map(|pair| on_success(&pair[0], &pair[1])).collect();
    let ids = jobs.iter().map(|job| job.spec.id).collect();
    submit(peer, jobs, edges).await;
    ids
}

/// Stores a job with `width` branches, whose edges it decides.
async fn fan(peer: &Peer, width: usize) -> (JobId, Vec<JobId>) {
    let (parent, branches) = (job(), (0..width).map(|_| job()).collect::<Vec<_>>());
    let condition = || Condition::Custom("match".into());
    let edge = |branch: &NewJob| Edge::new(parent.spec.id, branch.spec.id, condition());
    let edges = branches.iter().map(edge).collect();
    let ids = branches.iter().map(|branch| branch.spec.id).collect();
    let parent_id = parent.spec.id;
    submit(peer, [vec![parent], branches].concat(), edges).await;
    (parent_id, ids)
}

/// Stores `parents` jobs and one that waits for them.
pub(super) async fn join(peer: &Peer, parents: usize, needs: Needs) -> (Vec<JobId>, JobId) {
    let parents: Vec<_> = (0..parents).map(|_| job()).collect();
    let child = job_with(|job| job.needs = needs);
    let edges = parents.iter().map(|parent| on_success(parent, &child)).collect();
    let ids = parents.iter().map(|parent| parent.spec.id).collect();
    let child_id = child.spec.id;
    submit(peer, [parents, vec![child]].concat(), edges).await;
    (ids, child_id)
}

/// Returns the states of the edges that lead from a job.
pub(super) async fn states(peer: &Peer, parent: JobId) -> Vec<EdgeState> {
    let edges = peer.store.edges_from(&[parent]).await.expect("edges answer");
    edges.into_iter().map(|edge| edge.state).collect()
}

pub(super) async fn find_all(peer: &Peer, ids: &[JobId]) -> Vec<Job> {
    let found = peer.store.find(ids).await.expect("find answers");
    found.into_iter().map(|job| job.expect("the job exists")).collect()
}

/// Returns a job's status, and how many parents it still needs and has.
pub(super) fn waits(job: &Job) -> (JobStatus, u32, u32) {
    (job.status, job.blocked_by, job.open_parents)
}

pub(super) fn set(ids: &[JobId]) -> BTreeSet<JobId> {
    ids.iter().copied().collect()
}
