//! Consequences of outcomes: batches, joins, edges, and outcomes sent twice.

use std::collections::BTreeSet;

use ratchet_api::store::{CancelVerdict, Closed};
use ratchet_api::{
    BatchId, Condition, Due, Edge, Effect, End, HandBackReason, Inserted, Job, JobId, JobStatus, JobType,
    Needs, NewBatch, Outcome, Submission, Verdict,
};

use super::check::World;
use super::{HOUR, ROUNDS, cancel, crashed, dead_letter, done, drain, duel, ids, keyed, nodes};
use crate::fixture::{error, job, job_with};
use crate::{Fixture, Peer};

/// Stores a closed or open batch; returns its parent and the ids of its children.
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
    for round in 0..2 * ROUNDS {
        let (parent, children) = batch(&nodes[0], false, 1).await;
        let claim = nodes[0].take(children[0]).await;
        let (worker, closer) = (nodes[0].clone(), nodes[1].clone());
        let (verdict, closed) = duel(
            round,
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

/// Makes a submission of one job that follows the success of a stored one.
fn follower(parent: JobId) -> (JobId, Submission) {
    let mut submission = Submission::single(job());
    let child = submission.jobs[0].spec.id;
    submission.edges.push(Edge::new(parent, child, Condition::Success));
    (child, submission)
}

pub async fn an_edge_added_while_its_parent_ends_is_decided(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for round in 0..2 * ROUNDS {
        let claim = nodes[0].running(job()).await;
        let (child, submission) = follower(claim.id);
        let (worker, submitter) = (nodes[0].clone(), nodes[1].clone());
        let outcome = Outcome::new(claim.id, claim.fence, done());
        let again = outcome.clone();
        let (verdict, inserted) = duel(round, async move { worker.commit(outcome).await }, async move {
            submitter.submit(submission).await
        })
        .await;
        assert_eq!(inserted, Inserted::New);
        match verdict {
            Verdict::Recorded(recorded) => assert_eq!(recorded.released, [], "it did not know the edge"),
            Verdict::EdgesChanged { edges, edge_count } => {
                assert_eq!(edge_count, 1);
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

/// Returns the same outcome with a decision about its one edge.
fn with_edge(mut outcome: Outcome, child: JobId) -> Outcome {
    outcome.effects.push(Effect::Satisfy(child));
    outcome.edges_seen = 1;
    outcome
}

pub async fn an_edge_added_while_its_parent_is_canceled_is_refused(fx: Fixture) {
    let nodes = nodes(&fx, 2).await;
    for round in 0..2 * ROUNDS {
        let parent = nodes[0].insert(job()).await;
        let (child, submission) = follower(parent);
        let (operator, submitter) = (nodes[0].clone(), nodes[1].clone());
        let (verdict, inserted) = duel(round, async move { cancel(&operator, parent).await }, async move {
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
                // The owner's first call is delayed, and it sends the outcome again meanwhile.
                let sender = Peer { owner: owner.owner.clone(), ..connection };
                async move { sender.commit(outcome).await }
            })
            .await;
        let recorded = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Recorded(_))).count();
        assert_eq!(recorded, 1, "{end:?}: {verdicts:?}");
        // A hand-back without a run leaves no history row, so a repetition cannot be recognised.
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
