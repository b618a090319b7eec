//! Job events for listeners. Published after the commit, never before.

use std::time::Duration;

use serde::Serialize;

use crate::{
    BusinessKey, JobId, JobPriority, JobStatus, JobType, MethodName, Owner, QueueName, TargetName, Timestamp,
};

/// The fields that every event has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventHeader {
    /// The job.
    pub job_id: JobId,
    /// Its business key.
    pub business_key: Option<BusinessKey>,
    /// Its role.
    pub job_type: JobType,
    /// Its priority.
    pub priority: JobPriority,
    /// Its queue.
    pub queue: QueueName,
    /// Its target; `None` if its row was not read, because it cannot be read or its node died.
    pub target: Option<TargetName>,
    /// Its method; `None` like its target.
    pub method: Option<MethodName>,
    /// The number of the attempt, from 1; of the next one, if none is running.
    pub attempt: u32,
    /// The node that saw it happen.
    pub node: Option<Owner>,
    /// When that node saw it.
    pub at: Timestamp,
}

/// An event in the life of a job. Error texts are sanitized.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct JobEvent {
    /// The job, the node and the time.
    pub header: EventHeader,
    /// The kind of event.
    pub kind: JobEventKind,
}

impl JobEvent {
    /// Creates an event.
    pub const fn new(header: EventHeader, kind: JobEventKind) -> Self {
        Self { header, kind }
    }
}

/// The kinds of job events.
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
        /// The error.
        error: String,
        /// Failures so far.
        attempt: u32,
    },
    /// It failed and is tried again. Follows `Failed`.
    Retrying {
        /// The error.
        error: String,
        /// Failures so far.
        attempt: u32,
        /// When it is tried again.
        next_scheduled_time: Timestamp,
    },
    /// It failed for good. Follows `Failed`.
    DeadLettered {
        /// The error.
        error: String,
        /// Failures so far.
        attempt: u32,
    },
    /// A cancel of the running job was accepted.
    Canceling,
    /// It was canceled.
    Canceled {
        /// Its status before.
        previous_status: JobStatus,
        /// How long the body ran, if it did.
        execution_time: Option<Duration>,
    },
    /// It was paused.
    Paused,
    /// It was resumed.
    Resumed,
    /// The last child of its batch has ended; the consequences are being decided.
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
    /// The first step of a chain was released.
    ChainStarted,
    /// The last step of a chain has ended.
    ChainCompleted,
    /// A step of a chain failed.
    ChainFailed {
        /// The step that failed.
        parent: JobId,
        /// The error.
        error: String,
    },
    /// A condition held and its branch was released.
    WorkflowBranchTriggered {
        /// The stored name of the condition.
        condition: String,
        /// The job that follows.
        next: JobId,
    },
    /// A callback could not be submitted or failed. The job's own outcome stands.
    CallbackFailed {
        /// The error.
        error: String,
    },
}
