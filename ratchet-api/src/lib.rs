//! Vocabulary, store contract and plug points of Ratchet, a persistent, clustered job scheduler.
//!
//! This crate knows no database and no runtime. Start at
//!
//! - [`JobSpec`], [`Job`] and [`JobStatus`]: a job and its life cycle;
//! - [`store`]: the traits of a store and their contract, which `ratchet-tck` tests;
//! - [`Submission`] and [`Outcome`]: jobs that are stored together, and the end of an attempt with its consequences;
//! - [`spi`]: the replaceable parts of the engine.

pub mod options;
pub mod spi;
pub mod store;
pub mod uuid7;

mod advice;
mod backoff;
mod edge;
mod enlist;
mod error;
mod event;
mod failure;
mod id;
mod job;
mod limits;
mod node;
mod outcome;
mod parked;
mod pulse;
mod records;
mod status;
mod submission;
mod text;
mod time;
mod unknown;
mod with_sources;

pub use advice::{IntoFailure, JobError, RetryAdvice, heed};
#[doc(hidden)]
pub use async_trait::async_trait as __async_trait;
pub use backoff::Backoff;
pub use edge::{Comparison, Condition, Edge, EdgeState, ResultTest};
pub use enlist::Enlist;
pub use error::{ControlError, StoreError, StoreErrorKind, StoreResult, SubmitError, why_unreachable};
pub use event::{EventHeader, JobEvent, JobEventKind};
pub use failure::{JobFailure, Sanitized};
pub use id::{BatchId, Fence, InvalidOwner, JobId, Owner};
pub use job::{
    Due, Ending, Job, JobClaim, JobPayload, JobPriority, JobSpec, JobType, Needs, NewJob, call_name,
};
pub use limits::Limits;
pub use node::{Beat, BeatReply, Node, NodeInfo};
pub use outcome::{
    DeadReason, Effect, End, ErrorRecord, Fingerprint, HandBackReason, Outcome, Recorded, Run, Verdict,
};
pub use parked::{ParkedOn, UnknownParking};
pub use pulse::{Death, Pulse, death};
pub use records::{
    Alerted, ArchivedJob, Batch, BatchMetrics, BatchProgress, DlqAlert, Execution, ExecutionResult,
    LockLease, LogLevel, LogLine, NewDlqAlert, NewLogLine, Progress, Recurrence, ResourceLimit, ResourceUse,
};
pub use status::{Cause, JobStatus, TRANSITIONS, Transition};
pub use submission::{
    Fire, Inserted, InvalidSubmission, NewBatch, QueueLimit, Refusal, Submission, check_json,
};
pub use text::{
    BusinessKey, IdempotencyKey, InvalidJson, InvalidName, JsonText, LockName, MethodName, NameProblem,
    OneLine, QueueName, ResourceName, Tag, TargetName, is_deceptive,
};
pub use time::{ManualClock, StoreClock, Timestamp, whole_millis};
pub use unknown::UnknownValue;
pub use with_sources::WithSources;
