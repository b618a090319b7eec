//! Jobs at every stage of life, and other set-up that several areas share.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::store::{JobStore, NewRecurring, SavedRecurring};
use ratchet_api::{
    Condition, DeadReason, Due, Edge, End, HandBackReason, Inserted, InvalidName, JobId, JobSpec, JobStatus,
    NewJob, Outcome, Recurrence, Submission, Verdict,
};

use crate::fixture::{error, job, job_with, payload, text};
use crate::{Fixture, Peer};

/// Parses a name or key.
pub(in crate::cases) fn named<T: TryFrom<String, Error = InvalidName>>(text: &str) -> T {
    T::try_from(text.to_owned()).expect("the name is valid")
}

/// Makes a job with this business key.
pub(in crate::cases) fn holding(key: &str) -> NewJob {
    job_with(|new| new.spec.business_key = Some(named(key)))
}

/// Makes a job with this idempotency key.
pub(in crate::cases) fn once(key: &str) -> NewJob {
    job_with(|new| new.spec.idempotency_key = Some(named(key)))
}

/// Makes one submission of jobs and edges.
pub(in crate::cases) fn linked(jobs: Vec<NewJob>, edges: Vec<Edge>) -> Submission {
    let mut submission = Submission::default();
    submission.jobs = jobs;
    submission.edges = edges;
    submission
}

/// Makes a submission of one job that replaces another.
pub(in crate::cases) fn replacing(old: JobId, new: NewJob) -> Submission {
    let mut submission = Submission::single(new);
    submission.supersedes = Some(old);
    submission
}

/// Stores a schedule that must be new; it fires next after an hour.
pub(in crate::cases) async fn schedule(fx: &Fixture, peer: &Peer, key: &str) -> JobId {
    let recurrence = Recurrence::new("0 0 * * * *", "UTC", Some(fx.now() + Duration::from_hours(1)));
    let new = NewRecurring::new(named(key), JobSpec::new(payload()), recurrence);
    match peer.store.save_recurring(&new).await.expect("save_recurring answers") {
        SavedRecurring::Created(id) => id,
        other => panic!("the schedule is new: {other:?}"),
    }
}

/// Opens `count` connections.
pub(in crate::cases) async fn connections(fx: &Fixture, count: usize) -> Vec<Arc<dyn JobStore>> {
    join_all((0..count).map(|_| fx.connect())).await
}

/// Makes one call of each list at the same time, each on a connection of its own.
pub(in crate::cases) async fn race_calls(
    fx: &Fixture,
    stores: &[Arc<dyn JobStore>],
    calls: &[Vec<Submission>],
) -> Vec<Vec<Inserted>> {
    fx.race(calls.len(), |i| {
        let (store, call) = (Arc::clone(&stores[i]), calls[i].clone());
        async move { store.insert(&call).await.expect("insert answers under a race") }
    })
    .await
}

/// Makes one call of each submission at the same time, each on a connection of its own.
pub(in crate::cases) async fn race_inserts(
    fx: &Fixture,
    stores: &[Arc<dyn JobStore>],
    submissions: &[Submission],
) -> Vec<Inserted> {
    let calls: Vec<_> = submissions.iter().map(|one| vec![one.clone()]).collect();
    race_calls(fx, stores, &calls).await.into_iter().flatten().collect()
}

/// A stage of life; [`reach`](Self::reach) brings a job there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cases) enum Life {
    Pending,
    Scheduled,
    Blocked,
    Running,
    CancelRequested,
    Retrying,
    HandedBack,
    Paused,
    PausedFromFailed,
    Succeeded,
    Failed,
    ResumedToFailed,
    CanceledWaiting,
    CanceledPaused,
    CanceledByOutcome,
    CanceledInstead,
    CanceledWithParent,
    CanceledAtInsert,
    Superseded,
}

impl Life {
    /// The stages in which a job has not ended.
    pub(in crate::cases) const LIVE: [Self; 9] = [
        Self::Pending,
        Self::Scheduled,
        Self::Blocked,
        Self::Running,
        Self::CancelRequested,
        Self::Retrying,
        Self::HandedBack,
        Self::Paused,
        Self::PausedFromFailed,
    ];

    /// The stages in which a job has ended.
    pub(in crate::cases) const ENDED: [Self; 10] = [
        Self::Succeeded,
        Self::Failed,
        Self::ResumedToFailed,
        Self::CanceledWaiting,
        Self::CanceledPaused,
        Self::CanceledByOutcome,
        Self::CanceledInstead,
        Self::CanceledWithParent,
        Self::CanceledAtInsert,
        Self::Superseded,
    ];

    /// Returns the status that a reader sees at this stage.
    pub(in crate::cases) const fn status(self) -> JobStatus {
        match self {
            Self::Pending | Self::Scheduled | Self::Blocked | Self::Retrying | Self::HandedBack => {
                JobStatus::Pending
            }
            Self::Running => JobStatus::Running,
            Self::Paused | Self::PausedFromFailed => JobStatus::Paused,
            Self::Succeeded => JobStatus::Succeeded,
            Self::Failed | Self::ResumedToFailed => JobStatus::Failed,
            _ => JobStatus::Canceled,
        }
    }

    /// Stores `new` and brings it to this stage. That may need another job, which is stored too.
    pub(in crate::cases) async fn reach(self, peer: &Peer, mut new: NewJob) -> JobId {
        let id = new.spec.id;
        match self {
            Self::Pending => {
                peer.insert(new).await;
            }
            Self::Scheduled => {
                new.due = Due::After(Duration::from_hours(1));
                peer.insert(new).await;
            }
            Self::Blocked | Self::CanceledWithParent => {
                let parent = job();
                let parent_id = parent.spec.id;
                let edge = Edge::new(parent_id, id, Condition::Success);
                assert_eq!(peer.submit(linked(vec![parent, new], vec![edge])).await, Inserted::New);
                if self == Self::CanceledWithParent {
                    cancel(peer, parent_id).await;
                }
            }
            Self::CanceledAtInsert => {
                let parent = fail(peer, job()).await;
                let edge = Edge::new(parent, id, Condition::Success);
                assert_eq!(peer.submit(linked(vec![new], vec![edge])).await, Inserted::New);
            }
            Self::CanceledWaiting => {
                peer.insert(new).await;
                cancel(peer, id).await;
            }
            Self::Running => {
                peer.running(new).await;
            }
            Self::CancelRequested | Self::CanceledInstead => {
                let claim = peer.running(new).await;
                cancel(peer, id).await;
                if self == Self::CanceledInstead {
                    let outcome = Outcome::new(id, claim.fence, End::Succeeded { result: None });
                    assert_eq!(peer.commit(outcome).await, Verdict::CanceledInstead);
                }
            }
            Self::Retrying => {
                let end = End::Retry { delay: Duration::ZERO, error: error("not yet") };
                run_to(peer, new, end).await;
            }
            Self::HandedBack => {
                let end = End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
                run_to(peer, new, end).await;
            }
            Self::Succeeded => run_to(peer, new, End::Succeeded { result: None }).await,
            Self::CanceledByOutcome => run_to(peer, new, End::Canceled { reason: text("expired") }).await,
            Self::Failed => {
                fail(peer, new).await;
            }
            Self::Paused | Self::CanceledPaused => {
                peer.insert(new).await;
                pause(peer, id).await;
                if self == Self::CanceledPaused {
                    cancel(peer, id).await;
                }
            }
            Self::PausedFromFailed | Self::ResumedToFailed => {
                fail(peer, new).await;
                pause(peer, id).await;
                if self == Self::ResumedToFailed {
                    peer.store.resume(&[id.into()]).await.expect("resume answers");
                }
            }
            Self::Superseded => {
                peer.insert(new).await;
                assert_eq!(peer.submit(replacing(id, job())).await, Inserted::New);
            }
        }
        assert_eq!(peer.status(id).await, self.status(), "the way to {self:?}");
        id
    }
}

async fn run_to(peer: &Peer, new: NewJob, end: End) {
    let claim = peer.running(new).await;
    peer.end(&claim, end).await;
}

async fn fail(peer: &Peer, new: NewJob) -> JobId {
    let id = new.spec.id;
    run_to(peer, new, End::DeadLetter { error: error("for good"), reason: DeadReason::Exhausted }).await;
    id
}

pub(in crate::cases) async fn cancel(peer: &Peer, id: JobId) {
    peer.store.cancel(&[id.into()], &text("called off")).await.expect("cancel answers");
}

pub(in crate::cases) async fn pause(peer: &Peer, id: JobId) {
    peer.store.pause(&[id.into()]).await.expect("pause answers");
}
