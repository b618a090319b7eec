//! The engine of Ratchet: it takes jobs from a store, runs them, and records what became of them.
//!
//! It knows [`ratchet_api`] only, and never names a database. An application needs this crate and one store: what it may
//! name of `ratchet_api` is here as well.
//!
//! - [`Ratchet::builder`] sets up a node, [`Scheduler`] is one that runs, [`Ratchet::client`] only submits;
//! - [`Enqueue`] describes a job, [`JobHandle`] is one that was submitted;
//! - [`JobContext`] is what a body knows; [`JobError`] and [`JobFailure`] are how it fails;
//! - [`Method`] registers a body without a macro;
//! - [`maintenance`]: what becomes of jobs that nobody needs any more;
//! - [`options`]: every number that can be set; [`spi`]: what can be replaced; [`store`]: what can be asked about jobs;
//! - [`defaults`]: what stands at each plug point until you put something else there.

#[doc(hidden)]
pub mod __private;
pub mod defaults;
pub mod maintenance;

mod call;
mod cause;
mod cluster;
mod coalesce;
mod context;
mod coordinator;
mod drain;
mod engine;
mod events;
mod exchange;
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
