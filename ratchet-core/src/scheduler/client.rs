//! The client, which submits and controls jobs from any process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{InvocationError, NodeIdentityProvider as _};
use ratchet_api::store::{CancelVerdict, JobStore, PauseVerdict, ResumeVerdict, RetryVerdict, Target};
use ratchet_api::{
    ControlError, Due, EventHeader, Inserted, InvalidSubmission, Job, JobEvent, JobEventKind, JobFailure,
    JobId, JobPayload, JobPriority, JobStatus, NewJob, Owner, Sanitized, Submission, SubmitError, Timestamp,
};

use tokio::sync::Notify;

use super::enqueue::Enqueue;
use crate::coalesce::Coalescer;
use crate::defaults::DefaultNodeIdentity;
use crate::engine::{Node, Plugs};
use crate::handle::Origin;
use crate::maintenance::Maintenance;
use crate::notifier::Notifier;
use crate::poller::alarm::Alarm;
use crate::registry::Registry;
use crate::{Call, JobContext, JobHandle, TraceParent};

/// The most submissions in one call to the store.
const MAX_BATCH: usize = 1_000;
/// The time limit for the last wakeups.
const CLOSING: Duration = Duration::from_secs(3);

/// The client of a store, which submits and controls jobs. Cloning it is cheap.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    parts: Parts,
    inserts: Coalescer<Submission, Inserted>,
    notifier: Notifier,
}

/// The parts of a client.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) options: RatchetOptions,
    pub(crate) plugs: Arc<Plugs>,
    /// The methods of this process, whose aliases tell which names mean the same.
    pub(crate) registry: Arc<Registry>,
    /// Stops the body of a job if it runs in this process, and returns whether it does.
    pub(crate) stop: Arc<dyn Fn(JobId) -> bool + Send + Sync>,
    /// Notified when there may be work for this process.
    pub(crate) bell: Arc<Notify>,
    /// Rings when a job becomes due that this process submitted.
    pub(crate) alarm: Arc<Alarm>,
    /// Whether a node runs in this process whose coordinator it shares.
    pub(crate) of_node: bool,
}

impl Client {
    pub(crate) fn new(parts: Parts) -> Self {
        let inserts =
            Coalescer::new(MAX_BATCH, 2, Arc::clone(&parts.store), |store, submissions| async move {
                store.insert(&submissions).await
            });
        let notifier = Notifier::new(Arc::clone(&parts.plugs.cluster), parts.plugs.metrics.clone());
        Self(Arc::new(Inner { parts, inserts, notifier }))
    }

    /// The client of a node that runs jobs itself.
    pub(crate) fn of_node(node: &Node) -> Self {
        let running = node.running.clone();
        Self::new(Parts {
            store: Arc::clone(&node.store),
            options: node.options.clone(),
            plugs: Arc::clone(&node.plugs),
            registry: Arc::clone(&node.registry),
            stop: Arc::new(move |job: JobId| running.stop(job)),
            bell: Arc::clone(&node.bell),
            alarm: Arc::clone(&node.alarm),
            of_node: true,
        })
    }

    /// Describes a job that makes this call.
    pub fn enqueue<R>(&self, call: impl Into<Call<R>>) -> Enqueue<R> {
        Enqueue::new(self.clone(), &call.into())
    }

    /// Describes a job that takes the place of one that has not started, which is canceled: for debouncing.
    pub fn replace<R>(&self, old: JobId, call: impl Into<Call<R>>) -> Enqueue<R> {
        self.enqueue(call).replacing(old)
    }

    /// Sends the wakeups that are still pending, and releases the connection for them. A process that only submits and
    /// controls jobs calls it before it ends, since nothing else waits for a wakeup; a lost one delays its job until
    /// the next poll. The client of a node is closed by [`Scheduler::stop`](crate::Scheduler::stop), and not by this.
    pub async fn close(&self) {
        let Parts { plugs, of_node, .. } = &self.0.parts;
        let told = async {
            self.0.notifier.flush().await;
            if !of_node {
                plugs.cluster.shutdown().await;
            }
        };
        if tokio::time::timeout(CLOSING, told).await.is_err() {
            tracing::debug!("a wakeup may not have been sent");
        }
    }

    /// The store of the jobs.
    pub fn store(&self) -> &dyn JobStore {
        &*self.0.parts.store
    }

    /// The maintenance tasks, to be run now: under the same locks as the nodes run them, and by the ages of this
    /// client's options.
    pub fn maintenance(&self) -> Maintenance {
        let Parts { store, options, .. } = &self.0.parts;
        let owner = Owner::incarnate(&DefaultNodeIdentity::default().node_id());
        Maintenance::new(Arc::clone(store), options.maintenance.clone(), owner)
    }

    /// A handle of a job that was submitted before.
    pub fn job<R>(&self, id: JobId) -> JobHandle<R> {
        JobHandle::new(id, Origin::New, self.clone())
    }

    pub(crate) fn describe<R>(&self, call: &Call<R>) -> Result<NewJob, SubmitError> {
        let mut job = NewJob::new(self.payload(call)?);
        job.spec.caller_principal =
            self.0.parts.plugs.principal.as_ref().and_then(|principal| principal.caller_principal());
        job.spec.trace_context = self.trace_parent().map(|span| span.to_string());
        let applied = call.job_defaults().apply(&self.0.parts.options.retry, &mut job.spec);
        applied.map_err(|error| SubmitError::Invalid(error.into()))?;
        Ok(job)
    }

    /// The stored form of a call, as the [`JobInvocationResolver`](crate::spi::JobInvocationResolver) makes it.
    ///
    /// # Errors
    /// A name that no store takes, or an argument without a JSON form.
    pub fn payload<R>(&self, call: &Call<R>) -> Result<JobPayload, SubmitError> {
        let invocation = call.invocation().map_err(crate::CallError::into_submit_error)?;
        self.0.parts.plugs.resolver.to_payload(&invocation).map_err(|error| match error {
            InvocationError::Name(name) => SubmitError::Invalid(name.into()),
            other => SubmitError::Argument(other.to_string()),
        })
    }

    /// Counts the result of a submission, unless it is stored with the outcome of a body.
    pub(super) fn count(&self, submission: &Submission, inserted: Option<&Inserted>) {
        self.0.parts.plugs.metrics.submitted(submission, inserted);
    }

    /// The span in which something is enqueued: your tracer's, else that of the body that this code runs in.
    fn trace_parent(&self) -> Option<TraceParent> {
        let told = self.0.parts.plugs.trace.as_ref().and_then(|trace| trace.trace_parent());
        let told = told.and_then(|text| text.parse().ok());
        told.or_else(|| JobContext::try_current()?.trace_context().map(|trace| trace.span))
    }

    /// Whether a submission may be stored at all.
    pub(crate) fn check(&self, submission: &Submission) -> Result<(), SubmitError> {
        submission.validate(&self.0.parts.options.limits.and(&self.0.parts.store.limits()))?;
        for job in &submission.jobs {
            let calls = [Some(&job.spec.payload), job.spec.on_success.as_ref(), job.spec.on_failure.as_ref()];
            for call in calls.into_iter().flatten() {
                if !self.0.parts.plugs.policy.allows(call.target()) {
                    return Err(SubmitError::Denied { target: call.target().to_string() });
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn insert(&self, submission: Submission) -> Result<Inserted, SubmitError> {
        self.check(&submission)?;
        let wakeup = Wakeup::of([&submission]);
        let replaced = match submission.supersedes {
            Some(old) => self.0.parts.store.find(&[old]).await?.pop().flatten(),
            None => None,
        };
        let inserted = self.0.inserts.send(submission).await?;
        if inserted == Inserted::New {
            self.wake(wakeup);
            self.tell_cancel(replaced, &CancelVerdict::Canceled { dependents: Vec::new() });
        }
        Ok(inserted)
    }

    pub(crate) fn wake(&self, wakeup: Wakeup) {
        if let Some(priority) = wakeup.now {
            self.wake_up(priority);
        }
        if let Some(delay) = wakeup.later {
            self.0.parts.alarm.set(delay);
        }
    }

    /// Notifies this node and the others that there may be work. Submitting does it by itself, except inside a
    /// transaction of yours, where [`JobHandle::committed`] does. A hint: no caller waits for it, and a lost one delays
    /// work until the next poll.
    pub fn wake_up(&self, priority: JobPriority) {
        self.0.parts.bell.notify_one();
        self.0.notifier.new_work(priority);
    }

    /// The shortest wait of a job for a permit of a resource that is configured by this client.
    pub(super) fn permit_delay(&self) -> Duration {
        self.0.parts.options.retry.permit_delay
    }

    /// Leaves a submission to the outcome of the body that runs in `ctx`, unless a job has its idempotency key already.
    pub(super) async fn submit_with_outcome<R>(
        &self,
        submission: Submission,
        ctx: &JobContext,
    ) -> Result<JobHandle<R>, SubmitError> {
        let id = submission.id().ok_or(InvalidSubmission::Empty)?;
        let key = submission.jobs.iter().find_map(|job| job.spec.idempotency_key.clone());
        if let Some(key) = &key {
            if let Some((first, call)) = ctx.added_with(key) {
                return self.duplicate(&submission, first, &call, Origin::WithOutcome);
            }
            // An error of the store is no reason to fail here: the commit finds the key.
            if let Ok(Some(first)) = self.0.parts.store.find_by_idempotency_key(key).await {
                return self.handle(&submission, Inserted::Existing(first)).await;
            }
        }
        ctx.add(submission);
        Ok(JobHandle::new(id, Origin::WithOutcome, self.clone()))
    }

    /// The handle of one submission.
    pub(crate) async fn handle<R>(
        &self,
        submission: &Submission,
        inserted: Inserted,
    ) -> Result<JobHandle<R>, SubmitError> {
        let existing = self.existing(std::slice::from_ref(&inserted)).await;
        self.handle_knowing(submission, inserted, &existing)
    }

    /// The jobs that were there already, as far as they can be read: not those that are archived, or stored by a
    /// transaction that is not committed.
    pub(super) async fn existing(&self, inserted: &[Inserted]) -> Vec<Job> {
        let known = |inserted: &Inserted| match inserted {
            Inserted::Existing(id) => Some(*id),
            _ => None,
        };
        let ids: Vec<JobId> = inserted.iter().filter_map(known).collect();
        let mut jobs = Vec::with_capacity(ids.len());
        for ids in ids.chunks(MAX_BATCH) {
            let found = self.0.parts.store.find(ids).await;
            jobs.extend(found.unwrap_or_default().into_iter().flatten());
        }
        jobs
    }

    /// The handle of one submission, where the jobs that were [there already](Self::existing) are known.
    pub(super) fn handle_knowing<R>(
        &self,
        submission: &Submission,
        inserted: Inserted,
        existing: &[Job],
    ) -> Result<JobHandle<R>, SubmitError> {
        let id = submission.id().ok_or(InvalidSubmission::Empty)?;
        match inserted {
            Inserted::New | Inserted::AlreadyFired => Ok(JobHandle::new(id, Origin::New, self.clone())),
            Inserted::Existing(first) => match existing.iter().find(|job| job.spec.id == first) {
                Some(job) => self.duplicate(submission, first, &job.spec.payload, Origin::Duplicate),
                None => Ok(JobHandle::new(first, Origin::Duplicate, self.clone())),
            },
            Inserted::KeyTaken { holder } => {
                let key = submission.jobs.iter().find_map(|job| job.spec.business_key.as_ref());
                Err(SubmitError::KeyTaken { key: key.map(ToString::to_string).unwrap_or_default(), holder })
            }
            Inserted::Refused(refusal) => Err(SubmitError::Refused(refusal)),
        }
    }

    /// The handle of a job that was submitted before with the same idempotency key, if it makes the same call.
    fn duplicate<R>(
        &self,
        submission: &Submission,
        holder: JobId,
        theirs: &JobPayload,
        origin: Origin,
    ) -> Result<JobHandle<R>, SubmitError> {
        let same = |job: &NewJob| self.0.parts.registry.is_same(&job.spec.payload, theirs);
        if submission.jobs.first().is_none_or(same) {
            return Ok(JobHandle::new(holder, origin, self.clone()));
        }
        let key = submission.jobs.iter().find_map(|job| job.spec.idempotency_key.as_ref());
        let key = key.map(ToString::to_string).unwrap_or_default();
        Err(SubmitError::IdempotencyMismatch { key, holder, method: theirs.call_name() })
    }

    /// Cancels a job: at once if it has not started; a running body is told to stop. `false` if it has ended.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn cancel(&self, id: JobId, reason: &str) -> Result<bool, ControlError> {
        let before = self.find(id).await?;
        let verdicts = self.0.parts.store.cancel(&[Target::from(id)], &self.reason(reason)).await?;
        let Some(verdict) = verdicts.first() else { return Ok(false) };
        self.tell_cancel(before, verdict);
        Ok(matches!(verdict, CancelVerdict::Canceled { .. } | CancelVerdict::Requested { .. }))
    }

    /// Publishes a cancellation, and stops the body of a job that was canceled while it ran: here at once, elsewhere by
    /// a wakeup.
    pub(super) fn tell_cancel(&self, before: Option<Job>, verdict: &CancelVerdict) {
        match verdict {
            CancelVerdict::Requested { .. } => {
                let running = before.as_ref().map(|job| job.spec.id);
                self.tell(before, |_| JobEventKind::Canceling);
                // Afterwards, since its end is published as soon as it has ended.
                if !running.is_some_and(&*self.0.parts.stop) {
                    self.0.notifier.cancel_requested();
                }
            }
            CancelVerdict::Canceled { .. } => {
                let ended =
                    |job: &Job| JobEventKind::Canceled { previous_status: job.status, execution_time: None };
                self.tell(before, ended);
            }
            CancelVerdict::AlreadyEnded(_) | CancelVerdict::Stale(_) | CancelVerdict::Unknown => {}
        }
    }

    /// The reason of a cancellation, without secrets.
    pub(super) fn reason(&self, text: &str) -> Sanitized {
        Sanitized::new(&*self.0.parts.plugs.sanitizer, &JobFailure::new("", text))
    }

    /// Pauses a job that has not started, or has failed. `true` also if it was paused before.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn pause(&self, id: JobId) -> Result<bool, ControlError> {
        let verdict = self.0.parts.store.pause(&[Target::from(id)]).await?.into_iter().next();
        if matches!(verdict, Some(PauseVerdict::Paused)) {
            let job = self.find(id).await?;
            self.tell(job, |_| JobEventKind::Paused);
        }
        Ok(matches!(verdict, Some(PauseVerdict::Paused | PauseVerdict::AlreadyPaused)))
    }

    /// Resumes a paused job, in the state that it had before. `false` if it was not paused.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resume(&self, id: JobId) -> Result<bool, ControlError> {
        let verdict = self.0.parts.store.resume(&[Target::from(id)]).await?.into_iter().next();
        let Some(ResumeVerdict::Resumed(status)) = verdict else { return Ok(false) };
        if status == JobStatus::Pending {
            self.wake_up(JobPriority::Normal);
        }
        let job = self.find(id).await?;
        self.tell(job, |_| JobEventKind::Resumed);
        Ok(true)
    }

    /// Runs a job again that has failed for good, as if it had never been tried. `false` if it has not failed.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn retry(&self, id: JobId) -> Result<bool, ControlError> {
        let verdict = self.0.parts.store.retry(&[Target::from(id)]).await?.into_iter().next();
        let retried = matches!(verdict, Some(RetryVerdict::Retried { .. }));
        if retried {
            self.wake_up(JobPriority::Normal);
        }
        Ok(retried)
    }

    async fn find(&self, id: JobId) -> Result<Option<Job>, ControlError> {
        Ok(self.0.parts.store.find(&[id]).await?.pop().flatten())
    }

    fn tell(&self, job: Option<Job>, kind: impl FnOnce(&Job) -> JobEventKind) {
        let Some(job) = job else { return };
        let spec = &job.spec;
        let header = || EventHeader {
            job_id: spec.id,
            business_key: spec.business_key.clone(),
            job_type: spec.job_type,
            priority: spec.priority,
            queue: spec.queue.clone(),
            target: Some(spec.payload.target().clone()),
            method: Some(spec.payload.method().clone()),
            attempt: job.attempts + 1,
            node: job.picked_by.clone(),
            at: Timestamp::node_now(),
        };
        let Plugs { events, metrics, .. } = &*self.0.parts.plugs;
        events.publish(metrics, || JobEvent::new(header(), kind(&job)));
    }
}

/// The wakeups that submissions cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakeup {
    /// The highest priority among jobs that are due now, or critical.
    now: Option<JobPriority>,
    /// The time until the first of the others is due.
    later: Option<Duration>,
}

impl Wakeup {
    pub(super) fn of<'a>(submissions: impl IntoIterator<Item = &'a Submission>) -> Self {
        let mut wakeup = Self::default();
        for job in submissions.into_iter().flat_map(|submission| &submission.jobs) {
            let delay = match job.due {
                Due::After(delay) => delay,
                Due::At(instant) => instant.since(Timestamp::node_now()),
            };
            let priority = job.spec.priority;
            if delay.is_zero() || priority == JobPriority::Critical {
                wakeup.now = wakeup.now.max(Some(priority));
            }
            if !delay.is_zero() {
                wakeup.later = Some(wakeup.later.map_or(delay, |later| later.min(delay)));
            }
        }
        wakeup
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("store", &self.0.parts.store.name()).finish_non_exhaustive()
    }
}
