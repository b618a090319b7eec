//! The engine of Ratchet: it claims jobs from a store, runs them, and records their outcomes.
//!
//! It knows [`ratchet_api`] only, and never names a database. An application needs this crate and one store: the parts
//! of `ratchet_api` that it may name are re-exported here.
//!
//! - [`Ratchet::builder`] sets up a node, [`Scheduler`] is one that runs, [`Ratchet::client`] only submits;
//! - [`Enqueue`] describes a job, [`JobHandle`] is one that was submitted;
//! - [`JobContext`] is the context of a body; [`JobError`] and [`JobFailure`] are how it fails;
//! - [`Method`] registers a body without a macro;
//! - [`maintenance`]: archives and deletes old jobs;
//! - [`options`]: every number that can be set; [`spi`]: the replaceable parts; [`store`]: queries about jobs;
//! - [`defaults`]: the default implementation of each plug point.

#[doc(hidden)]
pub mod __private;
pub mod defaults;
pub mod maintenance;

mod call;
mod cause;
mod cluster;
mod coalesce;
mod commit_claim;
mod context;
mod coordinator;
mod drain;
mod engine;
mod events;
mod handle;
mod journal;
mod log;
mod metrics;
mod notifier;
mod outage;
mod outcome;
mod own_thread;
mod panics;
mod poller;
mod registry;
mod running;
mod schedule;
mod scheduler;
mod signal;
mod task;
mod trace;
mod unrecorded;

pub use call::{Call, CallError, JobDefaults};
pub use cause::{CausePart, JobCause};
pub use context::JobContext;
pub use drain::Readiness;
pub use handle::{JobHandle, ResultError};
pub use poller::{AdaptivePolling, PollingMode};
pub use ratchet_api::options::{BreakerProfile, RatchetOptions};
pub use ratchet_api::{
    ArchivedJob, Backoff, BatchId, BusinessKey, ControlError, DeadReason, DlqAlert, Enlist, EventHeader,
    Execution, ExecutionResult, Fingerprint, IdempotencyKey, IntoFailure, InvalidJson, InvalidName,
    InvalidSubmission, Job, JobError, JobEvent, JobEventKind, JobFailure, JobId, JobPayload, JobPriority,
    JobSpec, JobStatus, JobType, JsonText, Limits, LogLevel, LogLine, MethodName, Node, NodeInfo, Owner,
    Progress, QueueLimit, QueueName, Refusal, ResourceLimit, ResourceName, ResourceUse, RetryAdvice,
    Sanitized, StoreError, StoreErrorKind, StoreResult, SubmitError, Tag, TargetName, Timestamp, options,
    spi, store,
};
pub use ratchet_macros::{JobError, job, jobs};
pub use registry::{Arguments, BodyFuture, BodyResult, Method, RegisteredTwice, Registry, TwoProfiles};
pub use scheduler::{
    Bulk, Client, Enqueue, IntoEnqueue, JobFunction, JobTarget, KeyTaken, Ratchet, Scheduler,
    SchedulerBuilder, StartError, Steered, Stepper,
};
pub use signal::shutdown_signal;
pub use task::DEFERRED_BY_BREAKER;
pub use trace::{InvalidTraceParent, TraceContext, TraceParent};
