//! One attempt: from a claim to a recorded outcome.

mod decide;
mod gates;
mod invoke;
pub(crate) mod record;
mod unknown;
mod unstored;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use ratchet_api::spi::GateRejection;
use ratchet_api::store::Loaded;
use ratchet_api::{
    DeadReason, HandBackReason, Job, JobClaim, JobEventKind, JobFailure, JobSpec, JobStatus, JsonText,
    NewDlqAlert, Recorded, Submission, Verdict,
};
use tokio::time::Instant;
use tracing::Instrument as _;
use tracing::field::{Empty, display};

use crate::context::Opening;
use crate::coordinator::slots::{Place, Slot};
use crate::engine::{Engine, retry_while_leased};
use crate::outcome::{Conclusion, Edges};
use crate::panics::PanicReport;
use crate::running::Running;
use crate::{JobContext, TraceContext};
use decide::{Decision, RetryTerms, decide};
pub(crate) use invoke::panicked;
use invoke::{Ended, Invocation};
use record::Recording;
pub(crate) use unknown::UnknownTargets;
use unstored::unstored;

/// One attempt at a claimed job.
pub(crate) struct Attempt {
    pub(crate) engine: Arc<Engine>,
    pub(crate) claim: JobClaim,
    pub(crate) loaded: Loaded,
    /// Kept until the outcome is recorded.
    pub(crate) place: Place,
    pub(crate) running: Running,
}

/// Why a body does not run, or how it failed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Back with nothing consumed.
    HandBack { delay: Duration, reason: HandBackReason },
    /// A failure: the retry rules decide.
    Failed(JobFailure),
    /// A failure without a second chance.
    Dead(JobFailure, DeadReason),
    /// Called off, for this reason.
    Canceled(&'static str),
    /// Somebody else's by now: nothing is written.
    Lost,
}

/// A job as it was loaded, with the edges that lead from it.
struct Subject {
    job: Arc<Job>,
    edges: Edges,
}

/// A body that returned.
struct Done {
    result: Option<JsonText>,
    /// Why the result is not kept.
    unkept: Option<JobFailure>,
    submissions: Vec<Submission>,
}

impl Attempt {
    /// Runs it. Every log line of it carries the job and the node.
    pub(crate) async fn run(self, slot: Slot) {
        // Of the gravest level: a filter that drops lesser lines must not take the ids from those that are left.
        let span = tracing::error_span!(
            "job",
            job = %self.claim.id,
            node = %self.engine.owner,
            trace_id = Empty,
            span_id = Empty,
            parent_span_id = Empty,
        );
        let Self { engine, claim, loaded, place, running } = self;
        let attempt = async {
            running.turn().await;
            let subject = match subject(&engine, loaded, &running) {
                Ok(subject) => subject,
                Err(stop) => return settle_unrun(&engine, &claim, stop).await,
            };
            let attempt = attempt(&engine, &claim, &subject, slot, &place, &running);
            // Bodies are guarded; what is left are plug points, and bodies that panic when they are dropped.
            if let Err(panic) = AssertUnwindSafe(attempt).catch_unwind().await {
                let (failure, reason) = (panicked(&*panic), DeadReason::DoNotRetry);
                bury_as(&engine, &claim, &subject, &failure, reason, Some(&place)).await;
            }
        };
        let report = PanicReport { job: claim.id, sanitizer: Arc::clone(&engine.plugs.sanitizer) };
        report.scope(attempt.instrument(span)).await;
    }
}

async fn attempt(
    engine: &Arc<Engine>,
    claim: &JobClaim,
    subject: &Subject,
    slot: Slot,
    place: &Place,
    running: &Running,
) {
    let started = Instant::now();
    let steps = steps(engine, claim, subject, &running.token, Arc::new(slot)).await;
    let run = Some(started.elapsed()).filter(|_| ran(&steps)).map(|ran_for| (started, ran_for));
    let Some(conclusion) = conclude(engine, claim, subject, steps) else { return };
    let (job, edges) = (Some(&*subject.job), subject.edges.clone());
    record(engine, Recording { claim, job, edges, conclusion, run, place: Some(place) }).await;
}

/// Whether a body was begun.
fn ran(steps: &Result<Done, Stop>) -> bool {
    matches!(steps, Ok(_) | Err(Stop::Failed(_)))
}

/// The steps of an attempt, in the order of the specification. The span around them is the first; the outcome, with
/// which the store takes the permit back, and the end of this function, with which the context goes, are the last.
async fn steps(
    engine: &Arc<Engine>,
    claim: &JobClaim,
    subject: &Subject,
    token: &tokio_util::sync::CancellationToken,
    slot: Arc<Slot>,
) -> Result<Done, Stop> {
    let Subject { job, .. } = subject;
    let payload = &job.spec.payload;
    let method = engine.registry.find(payload.target(), payload.method()).cloned();
    let ctx = open(engine, claim, job, token);
    if claim.cancel_requested {
        return Err(Stop::Canceled("cancelled before it started"));
    }
    if claim.expired {
        return Err(Stop::Canceled("it expired before it started"));
    }
    let admission = gates::breaker(engine, method.as_deref())
        .inspect_err(|_| engine.plugs.metrics.gate_rejected(payload.target(), GateRejection::BreakerOpen))?;
    gates::permit(engine, claim, job).await?;
    gates::policy(engine, payload.target())?;
    let (method, bean) = gates::resolve(engine, payload.target(), method)?;
    let call = engine.plugs.resolver.to_invocation(payload);
    let call =
        call.map_err(|error| Stop::Failed(JobFailure::new("UndecodablePayload", error.to_string())))?;
    ctx.complete_cause().await;
    gates::drain(engine)?;

    engine.publish(claim, JobEventKind::Started);
    engine.plugs.metrics.started(payload.target(), claim.picked_at.since(claim.scheduled_time));
    let invocation = Invocation {
        method: &method,
        bean,
        ctx: &ctx,
        args: call.args,
        queue: &claim.queue,
        executor: &*engine.plugs.executor,
        options: &engine.options.timeout,
        timeout: engine.timeout(job),
        token,
        closing: &engine.drain.closing,
        abort: &engine.abort,
        slot,
    };
    let ended = invocation.run().await;
    let unkept = unkept(engine, &ended);
    engine.journal.append(claim.id, ctx.take_lines()).await;
    match ended {
        Ended::Returned(Ok(result)) => {
            admission.report(None);
            let submissions = ctx.take_submissions();
            Ok(Done { result: result.filter(|_| unkept.is_none()), unkept, submissions })
        }
        Ended::Returned(Err(failure)) => {
            let counts = !matches!(failure.retry_advice(), ratchet_api::RetryAdvice::Snooze(_));
            admission.report(Some(&failure).filter(|_| counts));
            Err(Stop::Failed(failure))
        }
        Ended::TimedOut(limit) => {
            let failure = JobFailure::new("Timeout", format!("the job took longer than {limit:?}"));
            admission.report(Some(&failure));
            Err(Stop::Failed(failure))
        }
        // The node stops, and another one may begin anew at once.
        Ended::GivenUp => Err(Stop::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }),
        Ended::Stopped if engine.lease.holds() => Err(Stop::Canceled("cancelled while it ran")),
        Ended::Stopped => Err(Stop::Lost),
    }
}

/// Why a result is not kept, if it is too large: a failure if somebody waits for it. Trying again would do the work twice.
fn unkept(engine: &Engine, ended: &Ended) -> Option<JobFailure> {
    let Ended::Returned(Ok(Some(result))) = ended else { return None };
    let (bytes, most) = (result.as_str().len(), engine.options.limits.result_bytes);
    let text = || format!("the result has {bytes} bytes; `limits.result_bytes` keeps no more than {most}");
    (bytes > most).then(|| JobFailure::new("ResultTooLarge", text()).do_not_retry("the work is done"))
}

/// Reads the jobs that were claimed, and with them whether they were cancelled meanwhile: one call for all.
pub(crate) async fn load(engine: &Engine, claims: &[JobClaim]) -> Vec<Loaded> {
    let loaded = retry_while_leased(engine, "load", || engine.store.load(&engine.owner, claims)).await;
    loaded.unwrap_or_else(|| vec![Loaded::Lost; claims.len()])
}

/// The job to run, unless it was cancelled or lost before.
fn subject(engine: &Engine, loaded: Loaded, running: &Running) -> Result<Subject, Stop> {
    // It may have waited for its slot meanwhile. A node that stops or is fenced tells its bodies so by the same token.
    let cancelled = running.token.is_cancelled() && engine.takes_work();
    match loaded {
        Loaded::Job(..) if cancelled => Err(Stop::Canceled("cancelled before it started")),
        Loaded::Job(job, known) => {
            let edges = Edges { known, count: job.edge_count };
            Ok(Subject { job: Arc::from(job), edges })
        }
        Loaded::CancelRequested => Err(Stop::Canceled("cancelled before it started")),
        Loaded::Lost => Err(Stop::Lost),
        Loaded::Corrupt(problem) => Err(corrupt(&problem)),
    }
}

/// The end of a job whose row cannot be read.
fn corrupt(problem: &str) -> Stop {
    Stop::Dead(JobFailure::new("CorruptRow", problem), DeadReason::DoNotRetry)
}

/// Ends a job for good whose claim says that its row cannot be read.
pub(crate) async fn bury_corrupt(engine: &Engine, claim: &JobClaim, problem: &str) {
    tracing::error!(problem = %engine.journal.sanitized(problem), "job dead-lettered: its row cannot be read");
    settle_unrun(engine, claim, corrupt(problem)).await;
}

fn open(
    engine: &Arc<Engine>,
    claim: &JobClaim,
    job: &Arc<Job>,
    token: &tokio_util::sync::CancellationToken,
) -> JobContext {
    let ctx = JobContext::open(Opening {
        job: Arc::clone(job),
        node: engine.owner.clone(),
        attempt: claim.attempts + 1,
        timeout: engine.timeout(job),
        cancelled: token.clone(),
        journal: engine.journal.clone(),
        client: engine.client(),
        log_bytes: engine.options.limits.log_bytes,
    });
    if let Some(TraceContext { parent, span }) = ctx.trace_context() {
        let job = tracing::Span::current();
        job.record("trace_id", display(format_args!("{:032x}", span.trace_id())));
        job.record("span_id", display(format_args!("{:016x}", span.span_id())));
        job.record("parent_span_id", display(format_args!("{:016x}", parent.span_id())));
    }
    ctx
}

/// What the attempt came to; nothing if it is not ours to say any more.
fn conclude(
    engine: &Engine,
    claim: &JobClaim,
    subject: &Subject,
    steps: Result<Done, Stop>,
) -> Option<Conclusion> {
    let spec = &subject.job.spec;
    let target = spec.payload.target().as_str();
    let stop = match steps {
        Ok(Done { result, unkept, submissions }) => {
            return Some(Conclusion::Succeeded { result, unkept, submissions });
        }
        Err(stop) => stop,
    };
    let failure = match stop {
        Stop::Failed(failure) => failure,
        other => return early(engine, target, other),
    };
    Some(failed(engine, claim, spec, &failure))
}

/// What a failed attempt leads to.
fn failed(engine: &Engine, claim: &JobClaim, spec: &JobSpec, failure: &JobFailure) -> Conclusion {
    let chance = engine.options.retry.jitter.then(rand::random);
    let terms = RetryTerms { max_retries: spec.max_retries, backoff: spec.backoff, chance };
    let error = engine.error_record(spec.payload.target().as_str(), failure);
    if let Some(reason) = failure.retry_advice().never() {
        tracing::warn!(reason = %engine.journal.sanitized(reason), "the error forbids a retry");
    }
    match decide(failure, claim.attempts + 1, terms, &*engine.plugs.retry) {
        Decision::Retry(delay) => Conclusion::Retry { delay, error },
        Decision::Dead(reason) => Conclusion::Dead { error, reason },
        Decision::Snooze(delay) => Conclusion::HandBack { delay, reason: HandBackReason::Snoozed },
    }
}

/// What an attempt without a body came to.
fn early(engine: &Engine, target: &str, stop: Stop) -> Option<Conclusion> {
    match stop {
        Stop::HandBack { delay, reason } => Some(Conclusion::HandBack { delay, reason }),
        Stop::Dead(failure, reason) => {
            Some(Conclusion::Dead { error: engine.error_record(target, &failure), reason })
        }
        Stop::Failed(failure) => {
            let error = engine.error_record(target, &failure);
            Some(Conclusion::Dead { error, reason: DeadReason::DoNotRetry })
        }
        Stop::Canceled(reason) => Some(Conclusion::Canceled { reason: engine.journal.sanitized(reason) }),
        Stop::Lost => {
            tracing::warn!("the lease of this job is lost; its outcome is not written");
            None
        }
    }
}

/// Settles a job that could not be read, whose attempt broke, or that is not run here.
pub(crate) async fn settle_unrun(engine: &Engine, claim: &JobClaim, stop: Stop) {
    let Some(conclusion) = early(engine, "", stop) else { return };
    let edges = Edges::counted(claim);
    record(engine, Recording { claim, job: None, edges, conclusion, run: None, place: None }).await;
}

/// Ends a job for good that is not run here, with all that follows from that.
pub(crate) async fn bury(
    engine: &Engine,
    running: &Running,
    claim: &JobClaim,
    failure: &JobFailure,
    reason: DeadReason,
) {
    let loaded = load(engine, std::slice::from_ref(claim)).await.pop().unwrap_or(Loaded::Lost);
    let subject = match subject(engine, loaded, running) {
        Ok(subject) => subject,
        Err(stop) => return settle_unrun(engine, claim, stop).await,
    };
    bury_as(engine, claim, &subject, failure, reason, None).await;
}

async fn bury_as(
    engine: &Engine,
    claim: &JobClaim,
    Subject { job, edges }: &Subject,
    failure: &JobFailure,
    reason: DeadReason,
    place: Option<&Place>,
) {
    let error = engine.error_record(job.spec.payload.target().as_str(), failure);
    let (edges, conclusion) = (edges.clone(), Conclusion::Dead { error, reason });
    record(engine, Recording { claim, job: Some(job), edges, conclusion, run: None, place }).await;
}

/// Records a conclusion, and tells what was recorded.
async fn record(engine: &Engine, recording: Recording<'_>) {
    let (claim, run) = (recording.claim, recording.run);
    let Some(taken) = recording.offer(engine).await else { return };
    alert(engine, claim, &taken.conclusion, &taken.verdict).await;
    let unstored = unstored(&taken);
    publish(engine, claim, &taken.conclusion, taken.verdict, run.map(|(_, ran_for)| ran_for));
    unstored::tell(engine, claim, unstored).await;
}

/// Records a dead letter for those who look after them. Trouble with that changes nothing about the job.
async fn alert(engine: &Engine, claim: &JobClaim, conclusion: &Conclusion, verdict: &Verdict) {
    let (Conclusion::Dead { error, .. }, Verdict::Recorded(_)) = (conclusion, verdict) else { return };
    let alert = NewDlqAlert {
        job: claim.id,
        error_hash: error_hash(error.message.as_str()),
        fingerprint: error.fingerprint.clone(),
        window: engine.options.retry.alert_window,
    };
    match engine.store.record_alerts(&[alert]).await {
        Ok(answers) if answers.iter().any(|alerted| alerted.notify) => {
            tracing::error!(error = %error.message, "dead letter");
        }
        Ok(_) => tracing::debug!(error = %error.message, "dead letter, like others of late"),
        Err(trouble) => tracing::warn!(%trouble, "the alert is not stored"),
    }
}

/// The first 8 bytes of the SHA-256 of a text.
fn error_hash(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Tells what was recorded, and wakes whoever may now have work.
fn publish(
    engine: &Engine,
    claim: &JobClaim,
    conclusion: &Conclusion,
    verdict: Verdict,
    ran_for: Option<Duration>,
) {
    let recorded = match verdict {
        Verdict::Recorded(recorded) => recorded,
        Verdict::AlreadyRecorded => Recorded::default(),
        Verdict::CanceledInstead => return engine.publish(claim, cancelled(ran_for)),
        Verdict::LeaseLost | Verdict::EdgesChanged { .. } => {
            tracing::warn!("the lease of this job is lost; its outcome is not recorded");
            return;
        }
    };
    if !recorded.released.is_empty() || !recorded.submitted.is_empty() {
        engine.bell.notify_one();
    }
    if let Conclusion::Retry { delay, .. } | Conclusion::HandBack { delay, .. } = conclusion {
        engine.alarm.set(*delay);
    }
    for kind in kinds(claim, conclusion, &recorded, ran_for) {
        engine.publish(claim, kind);
    }
}

fn cancelled(ran_for: Option<Duration>) -> JobEventKind {
    JobEventKind::Cancelled { previous_status: JobStatus::Running, execution_time: ran_for }
}

/// The events of a recorded conclusion, in order: a failure first, then what follows from it.
fn kinds(
    claim: &JobClaim,
    conclusion: &Conclusion,
    recorded: &Recorded,
    ran_for: Option<Duration>,
) -> Vec<JobEventKind> {
    let attempt = match conclusion {
        Conclusion::Dead { reason, .. } if !reason.consumes_attempt() => claim.attempts,
        _ => claim.attempts + 1,
    };
    match conclusion {
        Conclusion::Succeeded { .. } => {
            vec![JobEventKind::Completed { execution_time: ran_for.unwrap_or_default() }]
        }
        Conclusion::Retry { error, .. } => {
            let error = error.message.as_str().to_owned();
            let failed = JobEventKind::Failed { error: error.clone(), attempt };
            match recorded.next_due {
                Some(next_scheduled_time) => {
                    vec![failed, JobEventKind::Retrying { error, attempt, next_scheduled_time }]
                }
                None => vec![failed],
            }
        }
        Conclusion::Dead { error, .. } => {
            let error = error.message.as_str().to_owned();
            vec![
                JobEventKind::Failed { error: error.clone(), attempt },
                JobEventKind::DeadLettered { error, attempt },
            ]
        }
        Conclusion::HandBack { .. } => Vec::new(),
        Conclusion::Canceled { .. } => vec![cancelled(ran_for)],
    }
}
