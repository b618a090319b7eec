//! What happened, for those who listen. Published after the commit, never before.

use std::time::Duration;

use serde::Serialize;

use crate::{
    BusinessKey, JobId, JobPriority, JobStatus, JobType, MethodName, Owner, QueueName, TargetName, Timestamp,
};

/// What every event tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventHeader {
    /// Which job.
    pub job_id: JobId,
    /// Its key.
    pub business_key: Option<BusinessKey>,
    /// The part it plays.
    pub job_type: JobType,
    /// How urgent it is.
    pub priority: JobPriority,
    /// Its queue.
    pub queue: QueueName,
    /// Its target; `None` if its row was not read, because it cannot be read or its node died.
    pub target: Option<TargetName>,
    /// Its method; `None` like its target.
    pub method: Option<MethodName>,
    /// Which attempt this is about, from 1; the next one, if none is under way.
    pub attempt: u32,
    /// The node that saw it happen.
    pub node: Option<Owner>,
    /// When that node saw it.
    pub at: Timestamp,
}

/// Something that happened to a job. Error texts are sanitized.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobEvent {
    /// Which job, where and when.
    pub header: EventHeader,
    /// What happened.
    pub kind: JobEventKind,
}

impl JobEvent {
    /// An event.
    pub const fn new(header: EventHeader, kind: JobEventKind) -> Self {
        Self { header, kind }
    }
}

/// What happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobEventKind {
    /// Its body starts.
    Started,
    /// It succeeded.
    Completed {
        /// How long the body ran.
        execution_time: Duration,
    },
    /// It failed: once more, or for good.
    Failed {
        /// What went wrong.
        error: String,
        /// Failures so far.
        attempt: u32,
    },
    /// It failed and is tried again. Follows `Failed`.
    Retrying {
        /// What went wrong.
        error: String,
        /// Failures so far.
        attempt: u32,
        /// When it is tried again.
        next_scheduled_time: Timestamp,
    },
    /// It failed for good. Follows `Failed`.
    DeadLettered {
        /// What went wrong.
        error: String,
        /// Failures so far.
        attempt: u32,
    },
    /// A cancel of the running job was accepted.
    Canceling,
    /// It is canceled.
    Canceled {
        /// Where it was.
        previous_status: JobStatus,
        /// How long the body ran, if it did.
        execution_time: Option<Duration>,
    },
    /// It was set aside.
    Paused,
    /// It was put back.
    Resumed,
    /// The last child of its batch has ended; what follows is being decided.
    BatchCompleting {
        /// Children in all.
        total: u64,
        /// Children that succeeded.
        completed: u64,
        /// Children that failed or were canceled.
        failed: u64,
    },
    /// Its batch is complete.
    BatchCompleted {
        /// Children in all.
        total: u64,
        /// Children that succeeded.
        completed: u64,
        /// Children that failed or were canceled.
        failed: u64,
    },
    /// The first step of a chain is on its way.
    ChainStarted,
    /// The last step of a chain is done.
    ChainCompleted,
    /// A chain broke.
    ChainFailed {
        /// The step that broke it.
        parent: JobId,
        /// What went wrong.
        error: String,
    },
    /// A condition held and this branch is on its way.
    WorkflowBranchTriggered {
        /// The stored name of the condition.
        condition: String,
        /// The job that follows.
        next: JobId,
    },
    /// A callback could not be submitted or failed. The job's own outcome stands.
    CallbackFailed {
        /// What went wrong.
        error: String,
    },
}
