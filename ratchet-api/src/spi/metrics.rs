use std::time::Duration;

use crate::{JobPriority, JobType, MethodName, QueueName, StoreErrorKind, TargetName};

/// The labels of a job in metrics, of bounded cardinality: never an id, a key, a tag or an error text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLabels<'a> {
    /// Its queue.
    pub queue: &'a QueueName,
    /// Its target; `None` if its row was not read: another owner has the job by now, or the row is corrupt.
    pub target: Option<&'a TargetName>,
    /// Its method; `None` like its target.
    pub method: Option<&'a MethodName>,
    /// Its role.
    pub job_type: JobType,
    /// Its priority.
    pub priority: JobPriority,
}

/// The result of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SubmitResult {
    /// A job was created.
    New,
    /// Its idempotency key belongs to an earlier job.
    Duplicate,
    /// A live job holds its business key.
    KeyTaken,
    /// Nothing was stored: a limit, the class policy, a missing parent, or a store error.
    Refused,
}

/// The result of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunResult {
    /// It returned.
    Succeeded,
    /// It failed and is tried again.
    Retried,
    /// It failed for good.
    Dead,
    /// Its job was canceled meanwhile.
    Canceled,
    /// It asked to be called again later.
    Snoozed,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunEnd<'a> {
    /// Its result.
    pub result: RunResult,
    /// The class of its error, if it failed: a type or a variant, never a message.
    pub error_type: Option<&'a str>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// How long it ran.
    pub ran_for: Duration,
}

impl<'a> RunEnd<'a> {
    /// Creates the end of a body.
    pub const fn new(
        result: RunResult,
        error_type: Option<&'a str>,
        attempt: u32,
        ran_for: Duration,
    ) -> Self {
        Self { result, error_type, attempt, ran_for }
    }
}

/// Why a claimed job was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GateRejection {
    /// Its circuit breaker is open.
    BreakerOpen,
    /// Every permit of its resource is taken.
    ResourceFull,
    /// Its target is not allowed.
    Denied,
    /// Its target is unknown here.
    UnknownTarget,
    /// It was canceled, or had expired, before it could start.
    Gone,
}

/// The direction of a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WakeupDirection {
    /// This node notified the others.
    Sent,
    /// Another node notified this one.
    Received,
}

/// Counts and measures what a node does. Every method has an empty default, so a sink takes what it wants.
///
/// Called on hot paths, with borrowed labels: keep a handle for each set of labels, allocate nothing, never block.
/// Calls come after the commit. A panic is caught and logged once.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use ratchet_api::spi::{JobLabels, MetricsSink, RunEnd, RunResult};
///
/// #[derive(Default)]
/// struct DeadLetters(AtomicU64);
///
/// impl MetricsSink for DeadLetters {
///     fn ended(&self, _job: &JobLabels<'_>, end: &RunEnd<'_>) {
///         if end.result == RunResult::Dead {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait MetricsSink: Send + Sync + 'static {
    /// A job was submitted by this process.
    ///
    /// # Contract
    /// - `metrics.submitted`: once for each job of a submission. Inside a transaction of the user it reports the jobs
    ///   that were written, because the engine does not learn whether that transaction commits.
    fn submitted(&self, job: &JobLabels<'_>, result: SubmitResult) {
        let _ = (job, result);
    }

    /// `count` jobs of `queue` were claimed by one call.
    ///
    /// # Contract
    /// - `metrics.claimed`: not called for a queue that gave no job.
    fn claimed(&self, queue: &QueueName, count: usize) {
        let _ = (queue, count);
    }

    /// A body begins: attempt number `attempt`, from 1, of a job that was due for `wait` when it was claimed.
    ///
    /// # Contract
    /// - `metrics.started`: once for each body.
    fn started(&self, job: &JobLabels<'_>, attempt: u32, wait: Duration) {
        let _ = (job, attempt, wait);
    }

    /// A body has ended and its outcome is recorded. The number of calls is the throughput, successes and failures
    /// alike.
    ///
    /// # Contract
    /// - `metrics.ended`: at most once for each body; not for one that was given up with its node, or whose lease was
    ///   lost.
    fn ended(&self, job: &JobLabels<'_>, end: &RunEnd<'_>) {
        let _ = (job, end);
    }

    /// A claimed job was not started, and this is recorded in the store.
    ///
    /// # Contract
    /// - `metrics.gate`: once for each claim that ends so.
    fn gate_rejected(&self, job: &JobLabels<'_>, why: GateRejection) {
        let _ = (job, why);
    }

    /// The circuit breaker of `service` was asked; `open` tells whether it refused the call.
    ///
    /// # Contract
    /// - `metrics.breaker`: for each attempt that asks it.
    fn breaker(&self, service: &str, open: bool) {
        let _ = (service, open);
    }

    /// A call to the store has ended.
    ///
    /// # Contract
    /// - `metrics.store_call`: `operation` is the name of the method; `error` is the kind of its error, if it failed.
    fn store_call(&self, operation: &'static str, took: Duration, error: Option<StoreErrorKind>) {
        let _ = (operation, took, error);
    }

    /// A wakeup between nodes was sent or received.
    ///
    /// # Contract
    /// - `metrics.wakeup`: wakeups within a node are not counted.
    fn wakeup(&self, direction: WakeupDirection) {
        let _ = direction;
    }

    /// This node beat in time. `skew_millis` is how far its clock is ahead of the database's.
    ///
    /// # Contract
    /// - `metrics.beat`: for each beat that the store accepted; the time since the last one is the heartbeat's age.
    fn beat(&self, skew_millis: i64) {
        let _ = skew_millis;
    }

    /// `used` of the `limit` slots of `queue` are in use on this node.
    ///
    /// # Contract
    /// - `metrics.slots`: for each queue with each beat.
    fn slots(&self, queue: &QueueName, used: u32, limit: u32) {
        let _ = (queue, used, limit);
    }

    /// This node lost its lease: its jobs are stopped and run elsewhere.
    ///
    /// # Contract
    /// - `metrics.lease_lost`: once for each life of the node that ends so.
    fn lease_lost(&self) {}

    /// `count` jobs of dead nodes were taken over.
    ///
    /// # Contract
    /// - `metrics.recovered`: by the node that took them.
    fn recovered(&self, count: usize) {
        let _ = count;
    }

    /// An event was missed by `listeners` listeners, because they were too slow.
    ///
    /// # Contract
    /// - `metrics.events_missed`: for each such event.
    fn events_missed(&self, listeners: usize) {
        let _ = listeners;
    }

    /// A maintenance task moved or deleted `rows` rows.
    ///
    /// # Contract
    /// - `metrics.maintained`: once for each run of a task on this node.
    fn maintained(&self, task: &'static str, rows: u64) {
        let _ = (task, rows);
    }
}
