//! The life cycle itself: every operation on a job in every state, against [`TRANSITIONS`].

#![expect(missing_docs, reason = "the name of a case says what it shows")]

use std::collections::HashSet;
use std::time::Duration;

use ratchet_api::store::{CancelVerdict, PauseVerdict, ProgressReport, ResumeVerdict, RetryVerdict, Target};
use ratchet_api::{
    Cause, Condition, Edge, End, Fence, HandBackReason, Inserted, Job, JobId, JobStatus, Outcome, Submission,
    TRANSITIONS, Tag, Transition, Verdict,
};

use super::commit::{called_off, dead, handed_back, retry, succeeded};
use super::effects::{Dice, chain, finish};
use crate::case::cases;
use crate::fixture::{Fixture, Peer, job, text};

cases! { "transition";
    every_operation_in_every_state_does_what_the_table_says:
        ["commit.fenced", "cancel.once", "pause.idempotent", "resume.origin", "retry.revived", "delete.ended"]
        [24 25 34];
    every_drawn_move_can_be_made: ["claim.owned", "commit.fence_raised"] [22 24 30];
    the_fence_rises_exactly_with_owner_or_status: ["commit.fence_raised", "claim.owned", "retry.revived"] [172];
    a_canceled_job_comes_back_only_with_the_parent_that_failed: ["retry.dependents"] [34];
    changes_beside_owner_and_status_leave_the_fence: ["progress.fenced", "insert.edge_outside"] [172];
    a_random_walk_makes_only_drawn_moves: ["commit.fence_raised", "cancel.once", "resume.origin"] [24 25 30];
}

/// A state of a job, as far as transitions are concerned. Some statuses have more than one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Pending,
    Blocked,
    Running,
    /// Running, and a cancel was accepted.
    Stopping,
    Succeeded,
    Failed,
    Canceled,
    Paused,
    /// Paused from FAILED.
    SetAside,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Claim,
    Succeed,
    ScheduleRetry,
    DeadLetter,
    HandBack,
    CallOff,
    Cancel,
    Pause,
    Resume,
    Retry,
    Delete,
}

const STATES: [State; 9] = [
    State::Pending,
    State::Blocked,
    State::Running,
    State::Stopping,
    State::Succeeded,
    State::Failed,
    State::Canceled,
    State::Paused,
    State::SetAside,
];

const OPERATIONS: [Operation; 11] = [
    Operation::Claim,
    Operation::Succeed,
    Operation::ScheduleRetry,
    Operation::DeadLetter,
    Operation::HandBack,
    Operation::CallOff,
    Operation::Cancel,
    Operation::Pause,
    Operation::Resume,
    Operation::Retry,
    Operation::Delete,
];

pub async fn every_operation_in_every_state_does_what_the_table_says(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for state in STATES {
        for operation in OPERATIONS {
            let before = node.job(state.reach(&node).await).await;
            let acted = operation.attempt(&node, &before).await;
            let after = other.find(before.spec.id).await;
            let expected = operation.expected(state);
            let what = format!("{operation:?} of a {state:?} job");
            assert_eq!(acted, expected.is_some(), "{what}");
            match expected {
                None => assert_eq!(after, Some(before), "{what} changes nothing"),
                Some(status) => assert_eq!(after.map(|job| job.status), status, "{what}"),
            }
        }
    }
}

pub async fn every_drawn_move_can_be_made(fx: Fixture) {
    let node = fx.node("a").await;
    let mut made = HashSet::new();
    for state in STATES {
        for operation in OPERATIONS {
            let before = node.job(state.reach(&node).await).await;
            operation.attempt(&node, &before).await;
            let Some(after) = node.find(before.spec.id).await else { continue };
            if let Some(cause) = operation.cause().filter(|_| after.status != before.status) {
                made.insert(Transition { from: before.status, cause, to: after.status });
            }
        }
    }
    let with_its_parent =
        Transition { from: JobStatus::Canceled, cause: Cause::Retry, to: JobStatus::Pending };
    let drawn: HashSet<_> = TRANSITIONS.iter().copied().filter(|move_| *move_ != with_its_parent).collect();
    assert_eq!(made, drawn);
}

pub async fn the_fence_rises_exactly_with_owner_or_status(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    for state in STATES {
        for operation in OPERATIONS {
            let before = node.job(state.reach(&node).await).await;
            operation.attempt(&node, &before).await;
            let Some(after) = other.find(before.spec.id).await else { continue };
            let moved = operation.moves_the_row(state);
            let expected = if moved { before.fence.next() } else { before.fence };
            assert_eq!(after.fence, expected, "{operation:?} of a {state:?} job");
        }
    }
}

pub async fn a_canceled_job_comes_back_only_with_the_parent_that_failed(fx: Fixture) {
    let node = fx.node("a").await;
    let steps = chain(&node, 2).await;
    finish(&node, &node.take(steps[0]).await, dead("boom"), vec![]).await;
    let before = node.job(steps[1]).await;
    assert_eq!(before.status, JobStatus::Canceled);
    for operation in OPERATIONS.into_iter().filter(|operation| *operation != Operation::Delete) {
        assert!(!operation.attempt(&node, &before).await, "{operation:?}");
    }
    assert_eq!(node.job(steps[1]).await, before);
    node.store.retry(&[steps[0].into()]).await.expect("retry answers");
    let after = node.job(steps[1]).await;
    assert_eq!((after.status, after.fence), (JobStatus::Pending, before.fence.next()));
}

pub async fn changes_beside_owner_and_status_leave_the_fence(fx: Fixture) {
    let (node, other) = (fx.node("a").await, fx.node("b").await);
    let claim = node.running(job()).await;
    let report = ProgressReport { id: claim.id, fence: claim.fence, done: 1, total: Some(2), message: None };
    assert_eq!(node.store.report_progress(&[report]).await.expect("report answers"), [true]);
    let tag = Tag::new("late").expect("the tag is valid");
    assert!(other.store.add_tags(claim.id, &[tag]).await.expect("tags answer"));
    let child = job();
    let mut follower = Submission::single(child.clone());
    follower.edges = vec![Edge::new(claim.id, child.spec.id, Condition::Success)];
    assert_eq!(other.submit(follower).await, Inserted::New);
    other.store.cancel(&[claim.id.into()], &text("stop")).await.expect("cancel answers");
    assert_eq!(other.job(claim.id).await.fence, claim.fence);
    let verdict = node.commit(Outcome::new(claim.id, claim.fence, succeeded())).await;
    assert_eq!(verdict, Verdict::CanceledInstead, "the claim is still good");
}

pub async fn a_random_walk_makes_only_drawn_moves(fx: Fixture) {
    let nodes = [fx.node("a").await, fx.node("b").await];
    for seed in 0..15 {
        let mut dice = Dice(seed);
        let mut before = nodes[0].job(nodes[0].insert(job()).await).await;
        for step in 0..25 {
            fx.advance(Duration::from_secs(10));
            let operation = OPERATIONS[dice.below(OPERATIONS.len() - 1)];
            let node = &nodes[dice.below(2)];
            operation.attempt(node, &before).await;
            let after = nodes[0].job(before.spec.id).await;
            let walk =
                format!("seed {seed}, step {step}: {operation:?}, {} to {}", before.status, after.status);
            if after.status != before.status {
                let cause = operation.cause().expect("a delete is not part of the walk");
                let drawn = Transition { from: before.status, cause, to: after.status };
                assert!(TRANSITIONS.contains(&drawn), "{walk}");
            }
            // A requested cancel is visible at once, but the row moves only when the body has ended.
            let requested = before.status == JobStatus::Running
                && after.status == JobStatus::Canceled
                && operation == Operation::Cancel;
            let settled = before.picked_by.is_some() && after.picked_by.is_none();
            let moved = (after.status != before.status && !requested) || settled;
            let expected = if moved { before.fence.next() } else { before.fence };
            assert_eq!(after.fence, expected, "{walk}");
            before = after;
        }
    }
}

impl State {
    /// Brings a new job into this state.
    async fn reach(self, node: &Peer) -> JobId {
        let ended = async |end: End| {
            let claim = node.running(job()).await;
            node.end(&claim, end).await;
            claim.id
        };
        let paused = async |id: JobId| {
            let verdict = node.store.pause(&[id.into()]).await.expect("pause answers");
            assert_eq!(verdict, [PauseVerdict::Paused]);
            id
        };
        match self {
            Self::Pending => node.insert(job()).await,
            Self::Blocked => chain(node, 2).await[1],
            Self::Running => node.running(job()).await.id,
            Self::Stopping => {
                let id = node.running(job()).await.id;
                node.store.cancel(&[id.into()], &text("stop")).await.expect("cancel answers");
                id
            }
            Self::Succeeded => ended(succeeded()).await,
            Self::Failed => ended(dead("boom")).await,
            Self::Canceled => ended(called_off()).await,
            Self::Paused => paused(node.insert(job()).await).await,
            Self::SetAside => paused(ended(dead("boom")).await).await,
        }
    }

    /// Returns the status that readers see.
    fn status(self) -> JobStatus {
        match self {
            Self::Pending | Self::Blocked => JobStatus::Pending,
            Self::Running => JobStatus::Running,
            Self::Succeeded => JobStatus::Succeeded,
            Self::Failed => JobStatus::Failed,
            Self::Stopping | Self::Canceled => JobStatus::Canceled,
            Self::Paused | Self::SetAside => JobStatus::Paused,
        }
    }
}

impl Operation {
    /// Returns the cause of the move; deleting is not a move.
    fn cause(self) -> Option<Cause> {
        Some(match self {
            Self::Claim => Cause::Claim,
            Self::Succeed => Cause::Succeed,
            Self::ScheduleRetry => Cause::ScheduleRetry,
            Self::DeadLetter => Cause::DeadLetter,
            Self::HandBack => Cause::HandBack,
            Self::CallOff | Self::Cancel => Cause::Cancel,
            Self::Pause => Cause::Pause,
            Self::Resume => Cause::Resume,
            Self::Retry => Cause::Retry,
            Self::Delete => return None,
        })
    }

    fn end(self) -> Option<End> {
        Some(match self {
            Self::Succeed => succeeded(),
            Self::ScheduleRetry => retry(Duration::ZERO),
            Self::DeadLetter => dead("boom"),
            Self::HandBack => handed_back(HandBackReason::Released),
            Self::CallOff => called_off(),
            _ => return None,
        })
    }

    /// Returns the status after the operation: `Some(None)` if the job is gone, `None` if the operation is refused.
    fn expected(self, state: State) -> Option<Option<JobStatus>> {
        let gone = |ended: bool| ended.then_some(None);
        match (self, state) {
            (Self::Delete, State::Stopping) => None,
            (Self::Delete, _) => gone(state.status().is_terminal()),
            (Self::Claim, State::Blocked) => None,
            // The cancel wins over every outcome.
            (_, State::Stopping) => self.end().map(|_| Some(JobStatus::Canceled)),
            // It is revived only together with the parent whose failure canceled it.
            (Self::Retry, State::Canceled) => None,
            (Self::CallOff, _) if state != State::Running => None,
            (Self::Resume, State::Paused) => Some(Some(JobStatus::Pending)),
            (Self::Resume, State::SetAside) => Some(Some(JobStatus::Failed)),
            _ => {
                let cause = self.cause()?;
                let drawn = |move_: &&Transition| move_.from == state.status() && move_.cause == cause;
                TRANSITIONS.iter().find(drawn).map(|move_| Some(move_.to))
            }
        }
    }

    /// Whether the owner or the status of the stored row changes. A requested cancel changes neither yet.
    fn moves_the_row(self, state: State) -> bool {
        let requested = self == Self::Cancel && state == State::Running;
        self.expected(state).is_some() && !requested
    }

    /// Tries the operation on the job as it was just read; returns whether the store did something.
    async fn attempt(self, node: &Peer, job: &Job) -> bool {
        let (id, store) = (job.spec.id, &node.store);
        let target = [Target::from(id)];
        if let Some(end) = self.end() {
            return commit(node, id, job.fence, end).await;
        }
        match self {
            Self::Claim => !store.pick_up(&node.owner, &[id]).await.expect("pick-up answers").is_empty(),
            Self::Cancel => {
                let verdicts = store.cancel(&target, &text("stop")).await.expect("cancel answers");
                matches!(verdicts[..], [CancelVerdict::Canceled { .. } | CancelVerdict::Requested { .. }])
            }
            Self::Pause => store.pause(&target).await.expect("pause answers") == [PauseVerdict::Paused],
            Self::Resume => {
                let verdicts = store.resume(&target).await.expect("resume answers");
                matches!(verdicts[..], [ResumeVerdict::Resumed(_)])
            }
            Self::Retry => {
                let verdicts = store.retry(&target).await.expect("retry answers");
                matches!(verdicts[..], [RetryVerdict::Retried { .. }])
            }
            _ => store.delete(&[id]).await.expect("delete answers") == 1,
        }
    }
}

async fn commit(node: &Peer, id: JobId, fence: Fence, end: End) -> bool {
    match node.commit(Outcome::new(id, fence, end)).await {
        Verdict::Recorded(_) | Verdict::CanceledInstead => true,
        Verdict::LeaseLost => false,
        other => panic!("a present fence is held or not, not {other:?}"),
    }
}
