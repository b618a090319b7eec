//! The context of a body: the job that it runs for, and the services around it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ratchet_api::store::ProgressReport;
use ratchet_api::{
    Fence, IdempotencyKey, Job, JobId, JobPayload, JobType, LogLevel, NewLogLine, Owner, Sanitized,
    Submission,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use crate::cause::{JobCause, params_of};
use crate::drain::Draining;
use crate::journal::Journal;
use crate::log::AttemptLog;
use crate::panics::PanicReport;
use crate::{Call, Client, Enqueue, TraceContext};

tokio::task_local! {
    static CURRENT: JobContext;
}

/// The context of a body: the job that it runs for, its attempt and its node. Cloning it is cheap.
#[derive(Clone)]
pub struct JobContext(Arc<Inner>);

struct Inner {
    job: Arc<Job>,
    node: Owner,
    fence: Fence,
    attempt: u32,
    deadline: Option<Instant>,
    canceled: CancellationToken,
    draining: Draining,
    /// Whether the body knows that it should stop.
    noticed: AtomicBool,
    journal: Journal,
    client: Client,
    trace: Option<TraceContext>,
    /// Carries the job and the node to every line that is logged in it.
    span: Span,
    params: OnceLock<BTreeMap<String, Value>>,
    cause: OnceLock<Option<JobCause>>,
    submissions: Mutex<Vec<Submission>>,
    log: Mutex<AttemptLog>,
}

/// The parts from which an attempt opens a context.
pub(crate) struct Opening {
    pub(crate) job: Arc<Job>,
    pub(crate) node: Owner,
    pub(crate) attempt: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) canceled: CancellationToken,
    pub(crate) draining: Draining,
    pub(crate) journal: Journal,
    pub(crate) client: Client,
    /// The most bytes that are kept of its log.
    pub(crate) log_bytes: usize,
}

impl JobContext {
    /// Opens a context, which keeps the current span.
    pub(crate) fn open(opening: Opening) -> Self {
        let Opening { job, node, attempt, timeout, canceled, draining, journal, client, log_bytes } = opening;
        let trace = TraceContext::continued(job.spec.trace_context.as_deref());
        Self(Arc::new(Inner {
            fence: job.fence,
            log: Mutex::new(AttemptLog::new(job.spec.id, job.fence, log_bytes)),
            job,
            node,
            attempt,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            canceled,
            draining,
            noticed: AtomicBool::new(false),
            journal,
            client,
            trace,
            span: Span::current(),
            params: OnceLock::new(),
            cause: OnceLock::new(),
            submissions: Mutex::default(),
        }))
    }

    /// The context of the body that this code runs in. A task that the body spawns is on its own, unless it is spawned
    /// [in its scope](Self::scope).
    ///
    /// # Panics
    /// Outside of a body. [`try_current`](Self::try_current) does not.
    pub fn current() -> Self {
        Self::try_current().expect("JobContext::current is for code that runs inside a job")
    }

    /// The context of the body that this code runs in, if it runs in one.
    pub fn try_current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Makes a future part of this body, wherever it runs: [`current`](Self::current) finds this context there, and what
    /// it logs carries the job and the node.
    ///
    /// ```
    /// use ratchet_core::{JobContext, JobFailure};
    ///
    /// async fn body(ctx: &JobContext) -> Result<(), JobFailure> {
    ///     let part = tokio::spawn(ctx.scope(async { JobContext::current().info("on another task") }));
    ///     Ok(part.await?)
    /// }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), future).instrument(self.0.span.clone())
    }

    /// Makes blocking code part of this body, on whatever thread this is called; see [`scope`](Self::scope).
    pub fn scope_blocking<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.span.in_scope(|| CURRENT.sync_scope(self.clone(), work))
    }

    /// The job.
    pub fn job_id(&self) -> JobId {
        self.0.job.spec.id
    }

    /// The number of this attempt: 1, and 1 more for each failure before. A crash or a hand-back does not count.
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// A number that grows with every owner of the job: give it to systems that can refuse an older one.
    pub fn fence(&self) -> Fence {
        self.0.fence
    }

    /// The node that runs it.
    pub fn node(&self) -> &Owner {
        &self.0.node
    }

    /// The distributed trace that this attempt continues, if the job was enqueued in one.
    pub fn trace_context(&self) -> Option<&TraceContext> {
        self.0.trace.as_ref()
    }

    /// A param, decoded; `None` if there is none or it is of another type.
    pub fn param<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.params().get(name).and_then(|value| T::deserialize(value).ok())
    }

    /// Every param. A callback has those of the job that it follows.
    pub fn params(&self) -> &BTreeMap<String, Value> {
        self.0.params.get_or_init(|| match self.cause() {
            Some(cause) => cause.params.clone(),
            None => params_of(self.0.job.spec.params.as_ref()),
        })
    }

    /// The job that a callback follows; `None` for every other job. It is whole as long as that job is there as it ended;
    /// see [`JobCause::cut`].
    pub fn cause(&self) -> Option<&JobCause> {
        self.0.cause.get_or_init(|| self.carried_cause()).as_ref()
    }

    /// As much of the cause as the callback carries.
    fn carried_cause(&self) -> Option<JobCause> {
        let spec = &self.0.job.spec;
        spec.params.as_ref().filter(|_| spec.job_type == JobType::Callback)?.decode().ok()
    }

    /// Reads what the callback could not carry from the job that it follows. A part that cannot be read stays marked.
    pub(crate) async fn complete_cause(&self) {
        let Some(mut cause) = self.carried_cause().filter(|cause| !cause.cut.is_empty()) else { return };
        match self.0.client.store().find(&[cause.job_id]).await {
            Ok(found) => found.iter().flatten().for_each(|job| cause.complete(job)),
            Err(error) => tracing::warn!(%error, "the job that this callback follows cannot be read"),
        }
        // It cannot be set yet: only the body asks for it, and it has not begun.
        let _ = self.0.cause.set(Some(cause));
    }

    /// Completes when the body should stop: its job was canceled, its time is up, its node loses its lease, or its node
    /// stops and will not wait much longer. The result of a body that has noticed this does not count; in the last case
    /// the job goes back to PENDING, and no attempt is consumed.
    pub async fn canceled(&self) {
        self.0.canceled.cancelled().await;
        self.0.noticed.store(true, Ordering::Relaxed);
    }

    /// Whether the body should stop; for loops that block. See [`canceled`](Self::canceled).
    pub fn is_canceled(&self) -> bool {
        let canceled = self.0.canceled.is_cancelled();
        self.0.noticed.fetch_or(canceled, Ordering::Relaxed);
        canceled
    }

    /// Completes as soon as the node begins to stop: nothing new starts, and this body may go on until shortly before the
    /// end of `drain_timeout`, when [`canceled`](Self::canceled) completes. For bodies that are long and can be
    /// interrupted: store how far you are, and [snooze](crate::JobFailure::snooze). The body's result counts as usual.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use ratchet_core::{JobContext, JobFailure};
    ///
    /// # async fn next_part() -> Result<bool, std::io::Error> { Ok(false) }
    /// async fn import(ctx: &JobContext) -> Result<(), JobFailure> {
    ///     while next_part().await? {
    ///         if ctx.is_draining() {
    ///             return Err(JobFailure::snooze(Duration::ZERO)); // another node goes on
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn draining(&self) {
        self.0.draining.clone().begun().await;
    }

    /// Whether the node has begun to stop. See [`draining`](Self::draining).
    pub fn is_draining(&self) -> bool {
        self.0.draining.has_begun()
    }

    /// Whether the body knows that it should stop.
    pub(crate) fn noticed(&self) -> bool {
        self.0.noticed.load(Ordering::Relaxed)
    }

    /// How much time is left; `None` without a limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Reports how far the body is. Readers see the latest report; a store error is logged and is no failure. Secrets
    /// in the message are redacted, and of a long one 4 KiB are kept.
    pub async fn progress(
        &self,
        done: u64,
        total: impl Into<Option<u64>>,
        message: impl Into<Option<String>>,
    ) {
        let message = message.into().map(|message: String| self.0.journal.sanitized(&message));
        let report =
            ProgressReport { id: self.job_id(), fence: self.fence(), done, total: total.into(), message };
        self.0.journal.report(report).await;
    }

    /// Adds a line to the job's log, which is kept with the job and shown to its readers, and emits it as an event of
    /// `tracing` of the same level. Secrets are redacted.
    pub fn log(&self, level: LogLevel, message: impl AsRef<str>) {
        let message = self.0.journal.sanitized(message.as_ref());
        self.0.span.in_scope(|| emit(level, &message));
        lock(&self.0.log).push(level, message);
    }

    /// A log line of level trace.
    pub fn trace(&self, message: impl AsRef<str>) {
        self.log(LogLevel::Trace, message);
    }

    /// A log line of level debug.
    pub fn debug(&self, message: impl AsRef<str>) {
        self.log(LogLevel::Debug, message);
    }

    /// A log line of level info.
    pub fn info(&self, message: impl AsRef<str>) {
        self.log(LogLevel::Info, message);
    }

    /// A log line of level warn.
    pub fn warn(&self, message: impl AsRef<str>) {
        self.log(LogLevel::Warn, message);
    }

    /// A log line of level error.
    pub fn error(&self, message: impl AsRef<str>) {
        self.log(LogLevel::Error, message);
    }

    /// Describes a job that is stored together with the outcome of this one, if it succeeds: both, or none. The id that
    /// [`submit`](Enqueue::submit) hands out exists after that commit, not before. A key that is taken by then is no
    /// failure; that job is not stored.
    pub fn enqueue<R>(&self, call: impl Into<Call<R>>) -> Enqueue<R> {
        self.0.client.enqueue(call).within(self.clone())
    }

    /// The client, which submits and controls other jobs at once.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The report to make if this body panics.
    pub(crate) fn panic_report(&self) -> PanicReport {
        PanicReport::of_job(self.job_id(), Arc::clone(self.0.journal.sanitizer()))
    }

    /// Adds a submission that is stored together with the outcome, if that is a success.
    pub(crate) fn add(&self, submission: Submission) {
        lock(&self.0.submissions).push(submission);
    }

    /// The job with this key that the body added before, and its call.
    pub(crate) fn added_with(&self, key: &IdempotencyKey) -> Option<(JobId, JobPayload)> {
        let submissions = lock(&self.0.submissions);
        let mut jobs = submissions.iter().flat_map(|submission| &submission.jobs);
        let job = jobs.find(|job| job.spec.idempotency_key.as_ref() == Some(key))?;
        Some((job.spec.id, job.spec.payload.clone()))
    }

    pub(crate) fn take_submissions(&self) -> Vec<Submission> {
        std::mem::take(&mut lock(&self.0.submissions))
    }

    pub(crate) fn take_lines(&self) -> Vec<NewLogLine> {
        let (lines, dropped) = lock(&self.0.log).take();
        if dropped > 0 {
            tracing::warn!(dropped, "the job logs more than is kept");
        }
        lines
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("job_id", &self.job_id())
            .field("attempt", &self.attempt())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

fn emit(level: LogLevel, message: &Sanitized) {
    match level {
        LogLevel::Trace => tracing::trace!("{message}"),
        LogLevel::Debug => tracing::debug!("{message}"),
        LogLevel::Info => tracing::info!("{message}"),
        LogLevel::Warn => tracing::warn!("{message}"),
        LogLevel::Error => tracing::error!("{message}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
