//! The engine of Ratchet: it takes jobs from a store, runs them, and records what became of them.
//!
//! It knows [`ratchet_api`] only, and never names a database.
//!
//! - [`Ratchet::builder`] sets up a node, [`Scheduler`] is one that runs, [`Ratchet::client`] only submits;
//! - [`Enqueue`] describes a job, [`JobHandle`] is one that was submitted;
//! - [`JobContext`] is what a body knows; [`JobError`] and [`JobFailure`] are how it fails;
//! - [`Method`] registers a body without a macro;
//! - [`maintenance`]: what becomes of jobs that nobody needs any more;
//! - [`defaults`]: what stands at each plug point until you put something else there.

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
mod failure;
mod handle;
mod journal;
mod log;
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

#[doc(hidden)]
pub use failure::__private;

pub use call::{Call, CallError, JobDefaults};
pub use cause::{CausePart, JobCause};
pub use context::JobContext;
pub use drain::Readiness;
pub use failure::{IntoFailure, JobError};
pub use handle::{JobHandle, ResultError};
pub use poller::{AdaptivePolling, PollingMode};
pub use ratchet_api::options::BreakerProfile;
pub use ratchet_api::{
    Backoff, InvalidName, JobFailure, JobId, JobPriority, JobStatus, RetryAdvice, Timestamp,
};
pub use ratchet_macros::{JobError, job, jobs};
pub use registry::{Arguments, BodyFuture, BodyResult, Method, RegisteredTwice, Registry, TwoProfiles};
pub use scheduler::{
    Bulk, Client, Enqueue, IntoEnqueue, JobFunction, JobTarget, KeyTaken, Ratchet, Scheduler,
    SchedulerBuilder, StartError, Steered, Stepper,
};
pub use signal::shutdown_signal;
pub use trace::{InvalidTraceParent, TraceContext, TraceParent};
