//! Edges and batches in submissions.

use std::sync::Arc;

use ratchet_api::store::Closed;
use ratchet_api::{
    BatchId, BatchProgress, Condition, Edge, EdgeState, End, Inserted, JobId, JobStatus, Needs, Outcome,
    Refusal, Submission, Verdict,
};

use super::super::keys::lives::{Life, cancel, connections, linked, named, race_inserts};
use super::{after, batch_id, batch_of, ids, in_batch, progress, stored_batch, succeed};
use crate::Fixture;
use crate::fixture::{job, job_with};

pub(super) async fn a_job_waits_for_as_many_parents_as_it_needs(fx: Fixture) {
    let node = fx.node("a").await;
    for (needs, blocked_by) in [
        (Needs::All, 3),
        (Needs::AtLeast(3), 3),
        (Needs::AtLeast(2), 2),
        (Needs::AtLeast(1), 1),
        (Needs::AtLeast(0), 0),
    ] {
        let jobs = vec![job(), job(), job(), job_with(|new| new.needs = needs)];
        let [one, two, three, child] = ids(&linked(jobs.clone(), vec![]))[..] else { panic!("four jobs") };
        let edges = [two, one, three].map(|parent| Edge::new(parent, child, Condition::Success));

        assert_eq!(node.submit(linked(jobs, edges.to_vec())).await, Inserted::New);

        let waiting = node.job(child).await;
        assert_eq!(waiting.status, JobStatus::Pending);
        assert_eq!((waiting.blocked_by, waiting.open_parents), (blocked_by, 3), "{needs:?}");
        assert_eq!(waiting.depends_on, Some(two), "the parent of its first edge");
        for parent in [one, two, three] {
            let parent = node.job(parent).await;
            assert_eq!((parent.edge_count, parent.blocked_by, parent.depends_on), (1, 0, None));
        }
        let taken = node.store.pick_up(&node.owner, &[child]).await.expect("pick_up answers");
        assert_eq!(taken.len(), usize::from(blocked_by == 0), "{needs:?}");
    }
}

pub(super) async fn a_new_edge_is_open_whatever_it_says(fx: Fixture) {
    let node = fx.node("a").await;
    let outside = node.insert(job()).await;
    let jobs = vec![job(), job()];
    let (parent, child) = (jobs[0].spec.id, jobs[1].spec.id);
    let mut edges = vec![
        Edge::new(parent, child, Condition::Success),
        Edge::new(outside, child, Condition::Custom("vip".into())),
    ];
    edges[0].state = EdgeState::Satisfied;
    edges[1].state = EdgeState::Refused;
    edges[1].if_ended = Some(EdgeState::Satisfied);

    assert_eq!(node.submit(linked(jobs, edges)).await, Inserted::New);

    let stored = node.store.edges_to(&[child]).await.expect("edges_to answers");
    assert_eq!(stored.iter().map(|edge| edge.state).collect::<Vec<_>>(), [EdgeState::Open; 2]);
    let waiting = node.job(child).await;
    assert_eq!((waiting.status, waiting.blocked_by, waiting.open_parents), (JobStatus::Pending, 2, 2));
}

pub(super) async fn an_edge_from_a_live_job_raises_its_edge_count_and_nothing_else(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    // A job that is being canceled or is a paused dead letter already decides edges, though it holds its key.
    let decided = [Life::CancelRequested, Life::PausedFromFailed];
    for life in Life::LIVE.into_iter().filter(|life| !decided.contains(life)) {
        let parent = life.reach(&node, job()).await;
        let before = node.job(parent).await;
        for edges in 1..=2 {
            let child = job();
            let child_id = child.spec.id;

            assert_eq!(other.submit(after(parent, child)).await, Inserted::New, "{life:?}");

            let mut expected = before.clone();
            expected.edge_count += edges;
            assert_eq!(node.job(parent).await, expected, "{life:?}");
            let waiting = node.job(child_id).await;
            assert_eq!((waiting.blocked_by, waiting.open_parents), (1, 1), "{life:?}");
            assert_eq!(waiting.depends_on, Some(parent), "{life:?}");
        }
    }
}

pub(super) async fn an_edge_from_an_unknown_job_is_refused(fx: Fixture) {
    let node = fx.node("a").await;
    let deleted = Life::Succeeded.reach(&node, job()).await;
    assert_eq!(node.store.delete(&[deleted]).await.expect("delete answers"), 1);
    for parent in [JobId::generate(), deleted] {
        let child = job();
        let child_id = child.spec.id;

        assert_eq!(
            node.submit(after(parent, child)).await,
            Inserted::Refused(Refusal::UnknownParent(parent))
        );

        assert_eq!(node.find(child_id).await, None);
        assert_eq!(node.store.edges_from(&[parent]).await.expect("edges_from answers"), []);
    }
}

pub(super) async fn edges_that_arrive_together_are_all_counted(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    for round in 1..=5 {
        let parent = Life::Running.reach(&node, job()).await;
        let submissions: Vec<_> = (0..4).map(|_| after(parent, job())).collect();

        let inserted = race_inserts(&fx, &stores, &submissions).await;

        assert_eq!(inserted, vec![Inserted::New; 4], "round {round}");
        assert_eq!(node.job(parent).await.edge_count, 4, "round {round}");
        let edges = node.store.edges_from(&[parent]).await.expect("edges_from answers");
        assert_eq!(edges.len(), 4, "round {round}");
    }
}

pub(super) async fn an_edge_from_an_ended_job_is_decided_at_once(fx: Fixture) {
    use EdgeState::{Refused, Satisfied};
    use Life::{CanceledWaiting, Failed, PausedFromFailed, Succeeded};
    let node = fx.node("a").await;
    let custom = || Condition::Custom("vip".into());
    for (life, condition, if_ended, decided) in [
        (Succeeded, Condition::Success, None, Some(Satisfied)),
        (Succeeded, Condition::Success, Some(Refused), Some(Satisfied)),
        (Failed, Condition::Success, None, Some(Refused)),
        (Failed, Condition::Failure, None, Some(Satisfied)),
        (Succeeded, Condition::Failure, None, Some(Refused)),
        (CanceledWaiting, Condition::Success, None, Some(Refused)),
        (CanceledWaiting, Condition::Failure, None, Some(Refused)),
        (CanceledWaiting, custom(), Some(Satisfied), Some(Refused)),
        (Succeeded, custom(), Some(Satisfied), Some(Satisfied)),
        (Succeeded, custom(), Some(Refused), Some(Refused)),
        (Failed, Condition::BatchFailureCount(3), Some(Satisfied), Some(Satisfied)),
        (PausedFromFailed, Condition::Failure, None, Some(Satisfied)),
        (PausedFromFailed, Condition::Success, None, Some(Refused)),
        (PausedFromFailed, custom(), None, None),
        (Succeeded, custom(), None, None),
        (Failed, Condition::BatchSuccess, None, None),
    ] {
        let row = format!("{life:?} {condition:?} {if_ended:?}");
        let parent = life.reach(&node, job()).await;
        let child = job();
        let child_id = child.spec.id;
        let mut edge = Edge::new(parent, child_id, condition);
        edge.if_ended = if_ended;

        let inserted = node.submit(linked(vec![child], vec![edge])).await;

        let Some(decided) = decided else {
            assert_eq!(inserted, Inserted::Refused(Refusal::ParentEnded(parent)), "{row}");
            assert_eq!(node.find(child_id).await, None, "{row}");
            continue;
        };
        assert_eq!(inserted, Inserted::New, "{row}");
        let edges = node.store.edges_to(&[child_id]).await.expect("edges_to answers");
        assert_eq!(edges.iter().map(|edge| edge.state).collect::<Vec<_>>(), [decided], "{row}");
        let stored = node.job(child_id).await;
        if decided == Satisfied {
            assert_eq!((stored.status, stored.blocked_by), (JobStatus::Pending, 0), "{row}");
            node.take(child_id).await;
        } else {
            assert_eq!(stored.status, JobStatus::Canceled, "{row}");
            let ending = stored.ending.expect("a canceled job has ended");
            assert_eq!((ending.terminated_at, ending.started_at), (fx.now(), None), "{row}");
        }
    }
}

pub(super) async fn a_job_that_can_still_get_what_it_needs_waits_on(fx: Fixture) {
    let node = fx.node("a").await;
    let succeeded = Life::Succeeded.reach(&node, job()).await;
    let failed = Life::Failed.reach(&node, job()).await;
    let (live, other) = (node.insert(job()).await, node.insert(job()).await);
    for (parents, needs, status, blocked_by) in [
        (vec![failed, live], Needs::AtLeast(1), JobStatus::Pending, 1),
        (vec![failed, succeeded], Needs::AtLeast(1), JobStatus::Pending, 0),
        (vec![succeeded, live], Needs::All, JobStatus::Pending, 1),
        (vec![succeeded, failed, live, other], Needs::AtLeast(2), JobStatus::Pending, 1),
        (vec![succeeded, failed, live, other], Needs::AtLeast(3), JobStatus::Pending, 2),
        (vec![failed, live, other], Needs::All, JobStatus::Canceled, 0),
        (vec![succeeded, failed, live, other], Needs::AtLeast(4), JobStatus::Canceled, 0),
    ] {
        let child = job_with(|new| new.needs = needs);
        let child_id = child.spec.id;
        let edges = parents.iter().map(|parent| Edge::new(*parent, child_id, Condition::Success));
        let edges: Vec<_> = edges.collect();

        assert_eq!(node.submit(linked(vec![child], edges)).await, Inserted::New);

        let row = format!("{needs:?} of {parents:?}");
        let stored = node.job(child_id).await;
        assert_eq!(stored.status, status, "{row}");
        if status == JobStatus::Pending {
            assert_eq!(stored.blocked_by, blocked_by, "{row}");
            let open = parents.iter().filter(|parent| [live, other].contains(parent)).count();
            assert_eq!(stored.open_parents as usize, open, "{row}");
        }
    }
}

pub(super) async fn a_job_that_cannot_get_what_it_needs_is_canceled_with_its_dependents(fx: Fixture) {
    let node = fx.node("a").await;
    let failed = Life::Failed.reach(&node, job()).await;
    let mut jobs = vec![job(), job(), job(), job(), job()];
    jobs[0].spec.business_key = Some(named("freed"));
    jobs[3].needs = Needs::AtLeast(1);
    let mut submission = linked(jobs, vec![]);
    let [first, second, third, any, alone] = ids(&submission)[..] else { panic!("five jobs") };
    let live = node.insert(job()).await;
    let edge = |parent, child| Edge::new(parent, child, Condition::Success);
    let refused = Edge::new(second, third, Condition::Failure);
    submission.edges =
        vec![edge(failed, first), edge(first, second), refused, edge(third, any), edge(live, any)];

    assert_eq!(node.submit(submission).await, Inserted::New);

    for id in [first, second, third] {
        assert_eq!(node.status(id).await, JobStatus::Canceled);
        let edges = node.store.edges_from(&[id]).await.expect("edges_from answers");
        assert!(edges.iter().all(|edge| edge.state == EdgeState::Refused), "{edges:?}");
    }
    let waiting = node.job(any).await;
    assert_eq!((waiting.status, waiting.blocked_by, waiting.open_parents), (JobStatus::Pending, 1, 1));
    assert_eq!(node.status(alone).await, JobStatus::Pending);
    let holder = node.store.find_active_by_business_key(&named("freed")).await;
    assert_eq!(holder.expect("find_active_by_business_key answers"), None);
    let claimable: Vec<_> = node.claim(10).await.into_iter().map(|claim| claim.id).collect();
    assert_eq!(claimable, [alone, live], "nothing that was canceled can be claimed");
}

pub(super) async fn a_batch_child_canceled_at_insert_counts_as_failed(fx: Fixture) {
    let node = fx.node("a").await;
    let failed = Life::Failed.reach(&node, job()).await;
    let mut submission = batch_of(vec![job()], true);
    let [parent, child] = ids(&submission)[..] else { panic!("two jobs") };
    submission.edges = vec![Edge::new(failed, child, Condition::Success)];

    assert_eq!(node.submit(submission.clone()).await, Inserted::New);

    assert_eq!(node.status(child).await, JobStatus::Canceled);
    let progress = progress(&node, batch_id(&submission)).await;
    assert_eq!((progress.total, progress.completed, progress.failed), (1, 0, 1));
    node.take(parent).await;
}

/// The edge may be refused at once or with the parent's outcome; either way it is refused.
pub(super) async fn an_edge_from_a_job_that_is_being_canceled_never_lets_its_child_run(fx: Fixture) {
    let node = fx.node("a").await;
    let claim = node.running(job()).await;
    cancel(&node, claim.id).await;
    let child = job();
    let child_id = child.spec.id;

    assert_eq!(node.submit(after(claim.id, child)).await, Inserted::New);

    assert_eq!(node.claim(10).await, []);
    let outcome = Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
    assert_eq!(node.commit(outcome).await, Verdict::CanceledInstead);
    assert_eq!(node.status(child_id).await, JobStatus::Canceled);
}

pub(super) async fn an_edge_added_while_its_parent_ends_is_never_forgotten(fx: Fixture) {
    let (worker, submitter) = (fx.node("worker").await, fx.node("submitter").await);
    for round in 0..10 {
        let claim = worker.running(job()).await;
        let child = job();
        let child_id = child.spec.id;
        let submission = after(claim.id, child);

        let answers = fx
            .race(2, |i| {
                let (peer, claim) = (if i == 0 { worker.clone() } else { submitter.clone() }, claim.clone());
                let submission = (i == 1).then(|| submission.clone());
                async move {
                    match submission {
                        Some(submission) => Some(peer.submit(submission).await),
                        None => {
                            succeed(&peer, claim.id, claim.fence).await;
                            None
                        }
                    }
                }
            })
            .await;

        assert_eq!(answers[1], Some(Inserted::New), "round {round}");
        assert_eq!(worker.job(child_id).await.blocked_by, 0, "round {round}");
        worker.take(child_id).await;
    }
}

pub(super) async fn a_batch_parent_waits_for_its_children_which_are_counted(fx: Fixture) {
    let (node, reader) = (fx.node("a").await, fx.node("b").await);
    let mut submission = batch_of(vec![job(), job()], true);
    submission.jobs.push(job());
    let [parent, one, two, guest] = ids(&submission)[..] else { panic!("four jobs") };

    assert_eq!(node.submit(submission.clone()).await, Inserted::New);

    let stored = stored_batch(&reader, batch_id(&submission)).await;
    assert_eq!(stored.progress, BatchProgress::new(2, true), "the guest is no child");
    assert_eq!((stored.created_at, stored.completed_at), (fx.now(), None));
    assert_eq!(reader.status(parent).await, JobStatus::Pending);
    let mut claims = node.claim(10).await;
    assert_eq!(claims.iter().map(|claim| claim.id).collect::<Vec<_>>(), [one, two, guest]);
    claims.truncate(2);
    for claim in &claims {
        assert_eq!(node.claim(10).await, [], "the parent is blocked");
        succeed(&node, claim.id, claim.fence).await;
    }
    assert_eq!(node.claim_one().await.id, parent);
}

pub(super) async fn a_batch_without_children_is_complete_unless_it_is_open(fx: Fixture) {
    let node = fx.node("a").await;
    let (closed, open) = (batch_of(vec![], true), batch_of(vec![], false));

    let inserted = node.store.insert(&[closed.clone(), open.clone()]).await.expect("insert answers");

    assert_eq!(inserted, [Inserted::New, Inserted::New]);
    let stored = stored_batch(&node, batch_id(&closed)).await;
    assert_eq!((stored.progress, stored.completed_at), (BatchProgress::new(0, true), Some(fx.now())));
    let stored = stored_batch(&node, batch_id(&open)).await;
    assert_eq!((stored.progress, stored.completed_at), (BatchProgress::new(0, false), None));
    let claimed: Vec<_> = node.claim(10).await.into_iter().map(|claim| claim.id).collect();
    assert_eq!(claimed, ids(&closed), "only the parent of the complete batch");
}

pub(super) async fn only_an_open_batch_takes_more_children(fx: Fixture) {
    let node = fx.node("a").await;
    let (open, closed) = (batch_of(vec![job()], false), batch_of(vec![job()], true));
    let (open_id, closed_id) = (batch_id(&open), batch_id(&closed));
    for submission in [&open, &closed] {
        assert_eq!(node.submit(submission.clone()).await, Inserted::New);
    }
    let single = node.insert(job()).await;
    let first = node.take(ids(&open)[1]).await;
    succeed(&node, first.id, first.fence).await;
    let add = |batch| Submission::single(in_batch(batch, job()));

    let late = add(open_id);
    assert_eq!(node.submit(late.clone()).await, Inserted::New, "also after every child has ended");
    let mut expected = BatchProgress::new(2, false);
    expected.completed = 1;
    assert_eq!(progress(&node, open_id).await, expected);
    assert_eq!(node.job(ids(&late)[0]).await.spec.batch, Some(open_id));

    let refused = |refusal| Inserted::Refused(refusal);
    assert_eq!(node.submit(add(closed_id)).await, refused(Refusal::BatchClosed(closed_id)));
    assert_eq!(progress(&node, closed_id).await, BatchProgress::new(1, true));
    for unknown in [BatchId::of(JobId::generate()), BatchId::of(single)] {
        assert_eq!(node.submit(add(unknown)).await, refused(Refusal::UnknownBatch(unknown)));
    }
    node.store.close_batch(open_id).await.expect("close_batch answers");
    assert_eq!(node.submit(add(open_id)).await, refused(Refusal::BatchClosed(open_id)));
}

pub(super) async fn children_that_arrive_together_are_all_counted_until_the_batch_closes(fx: Fixture) {
    let stores = connections(&fx, 4).await;
    let node = fx.node("a").await;
    for round in 0..6 {
        let open = batch_of(vec![], false);
        let id = batch_id(&open);
        assert_eq!(node.submit(open).await, Inserted::New);

        let answers = fx
            .race(4, |i| {
                let store = Arc::clone(&stores[i]);
                let children = vec![
                    Submission::single(in_batch(id, job())),
                    linked(vec![in_batch(id, job()), in_batch(id, job())], vec![]),
                ];
                async move {
                    if i == 3 {
                        let closed = store.close_batch(id).await.expect("close_batch answers under a race");
                        assert!(matches!(closed, Closed::Closed(_)), "{closed:?}");
                        return Vec::new();
                    }
                    store.insert(&children).await.expect("insert answers under a race")
                }
            })
            .await;

        let mut total = 0;
        for added in answers.into_iter().filter(|added| !added.is_empty()) {
            for (answer, children) in added.into_iter().zip([1, 2]) {
                match answer {
                    Inserted::New => total += children,
                    other => assert_eq!(other, Inserted::Refused(Refusal::BatchClosed(id)), "round {round}"),
                }
            }
        }
        assert_eq!(progress(&node, id).await, BatchProgress::new(total, true), "round {round}");
    }
}
