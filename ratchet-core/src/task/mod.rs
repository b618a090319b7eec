//! One attempt: from a claim to a recorded outcome.

mod announce;
mod decide;
mod gates;
mod invoke;
mod parkings;
pub(crate) mod record;
mod unknown;
mod unstored;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use ratchet_api::store::{Loaded, Permit};
use ratchet_api::{
    DeadReason, HandBackReason, Job, JobClaim, JobEventKind, JobFailure, JobPayload, JobSpec, JobStatus,
    JsonText, Limits, ParkedOn, Recorded, Submission, Verdict,
};
use tokio::time::Instant;
use tracing::Instrument as _;
use tracing::field::{Empty, display};

use crate::context::Opening;
use crate::coordinator::slots::{Place, Slot};
use crate::engine::{Engine, retry_while_leased};
use crate::metrics::labels;
use crate::outcome::{About, Conclusion, Edges};
use crate::panics::PanicReport;
use crate::running::Running;
use crate::{JobContext, TraceContext};
pub use announce::DEFERRED_BY_BREAKER;
pub(crate) use announce::{HandedBack, announce};
use decide::{Decision, RetryTerms, decide};
pub(crate) use gates::permits_ahead;
pub(crate) use invoke::panicked;
use invoke::{Bounds, Ended, Invocation};
pub(crate) use parkings::Parkings;
use record::Recording;
pub(crate) use unknown::UnknownTargets;
use unstored::unstored;

/// Why a body was stopped that had begun.
const WHILE_IT_RAN: &str = "canceled while it ran";

/// One attempt at a claimed job.
pub(crate) struct Attempt {
    pub(crate) engine: Arc<Engine>,
    pub(crate) claim: JobClaim,
    pub(crate) loaded: Loaded,
    /// The answer if a permit was asked for already.
    pub(crate) permit: Option<Permit>,
    /// Kept until the outcome is recorded.
    pub(crate) place: Place,
    pub(crate) running: Running,
}

/// Why a body does not run, or how it failed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Back with nothing consumed.
    HandBack { delay: Duration, reason: HandBackReason },
    /// It waits for what it lacks here, and is looked for after this long at the latest.
    Park { on: ParkedOn, look_in: Option<Duration> },
    /// Back at once, since its node died.
    Crashed(JobFailure),
    /// A failure: the retry rules decide.
    Failed(JobFailure),
    /// A failure without a second chance.
    Dead(JobFailure, DeadReason),
    /// Its row cannot be read, but perhaps whom to tell.
    Corrupt { problem: String, on_failure: Option<JobPayload> },
    /// Called off, for this reason.
    Canceled(&'static str),
    /// Somebody else's by now: nothing is written.
    Lost,
}

/// A job as it was loaded, with the edges that lead from it.
struct Subject {
    job: Arc<Job>,
    edges: Edges,
    /// The answer if a permit was asked for already.
    permit: Option<Permit>,
}

impl Subject {
    fn about<'a>(&'a self, claim: &'a JobClaim) -> About<'a> {
        About { job: Some(&self.job), ..About::claim(claim) }
    }
}

/// A body that returned.
struct Done {
    result: Option<JsonText>,
    /// Why the result is not kept.
    unkept: Option<JobFailure>,
    submissions: Vec<Submission>,
}

impl Attempt {
    /// Runs it. Answers whether its body was begun.
    pub(crate) async fn run(self, slot: Slot) -> bool {
        let span = span(&self.engine, &self.claim);
        // In this order, so that the slot is free when nobody runs any more.
        let Self { engine, claim, loaded, permit, running, place } = self;
        let attempt = async {
            running.turn().await;
            let subject = match subject(&engine, loaded, &running) {
                Ok(subject) => Subject { permit, ..subject },
                Err(stop) => {
                    settle_unrun(&engine, &claim, stop).await;
                    return false;
                }
            };
            let attempt = attempt(&engine, &claim, &subject, slot, &place, &running);
            // Bodies are guarded; what is left are plug points, and bodies that panic when they are dropped.
            match AssertUnwindSafe(attempt).catch_unwind().await {
                Ok(ran) => ran,
                Err(panic) => {
                    let (failure, reason) = (panicked(&*panic), DeadReason::DoNotRetry);
                    bury_as(&engine, &claim, &subject, &failure, reason, Some(&place)).await;
                    true
                }
            }
        };
        let report = PanicReport::of_job(claim.id, Arc::clone(&engine.plugs.sanitizer));
        report.scope(attempt.instrument(span)).await
    }
}

/// The span of an attempt, with which every log line of it carries the job and the node.
pub(crate) fn span(engine: &Engine, claim: &JobClaim) -> tracing::Span {
    // Of the gravest level: a filter that drops lesser lines must not take the ids from those that are left.
    tracing::error_span!(
        "job",
        job = %claim.id,
        node = %engine.owner,
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
    )
}

async fn attempt(
    engine: &Arc<Engine>,
    claim: &JobClaim,
    subject: &Subject,
    slot: Slot,
    place: &Place,
    running: &Running,
) -> bool {
    let started = Instant::now();
    let steps = steps(engine, claim, subject, &running.token, Arc::new(slot)).await;
    let run = Some(started.elapsed()).filter(|_| ran(&steps)).map(|ran_for| (started, ran_for));
    if let Some(conclusion) = conclude(engine, claim, subject, steps) {
        let (about, edges) = (subject.about(claim), subject.edges.clone());
        record(engine, Recording { about, edges, conclusion, run, place: Some(place) }).await;
    }
    run.is_some()
}

/// Whether a body was begun.
fn ran(steps: &Result<Done, Stop>) -> bool {
    matches!(steps, Ok(_) | Err(Stop::Failed(_) | Stop::Canceled(WHILE_IT_RAN)))
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
    let ctx = open(engine, claim, job, token);
    if claim.cancel_requested {
        return Err(Stop::Canceled("canceled before it started"));
    }
    if claim.expired {
        return Err(Stop::Canceled("it expired before it started"));
    }
    // First of all: whoever does not know it has no say in it.
    let method = gates::method(engine, payload)?;
    let admission = gates::breaker(engine, &method)?;
    gates::permit(engine, claim, job, subject.permit).await?;
    gates::policy(engine, payload.target())?;
    let bean = gates::bean(engine, payload, &method)?;
    let call = engine.plugs.resolver.to_invocation(payload);
    let call =
        call.map_err(|error| Stop::Failed(JobFailure::new("UndecodablePayload", error.to_string())))?;
    ctx.complete_cause().await;
    gates::drain(engine)?;

    let about = subject.about(claim);
    engine.publish(about, JobEventKind::Started);
    let waited = claim.picked_at.since(claim.scheduled_time);
    engine.plugs.metrics.tell(|sink| sink.started(&labels(about), claim.attempts + 1, waited));
    let bounds = Bounds {
        ctx: &ctx,
        options: &engine.options.timeout,
        timeout: engine.timeout(job),
        token,
        closing: &engine.drain.closing,
        abort: &engine.abort,
        lease: &engine.lease,
    };
    let invocation = Invocation {
        method: &method,
        bean,
        args: call.args,
        queue: &claim.queue,
        executor: &*engine.plugs.executor,
        slot,
        holds_permit: job.spec.resource.is_some(),
        bounds,
    };
    let ended = invocation.run().await;
    let unkept = unkept(&engine.limits(), &ended);
    engine.journal.append(ctx.take_lines()).await;
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
        Ended::Stopped if engine.lease.holds() => Err(Stop::Canceled(WHILE_IT_RAN)),
        Ended::Stopped => Err(Stop::Lost),
    }
}

/// Why a result is not kept, if it is too large or too deep: a failure if somebody waits for it. Trying again would do
/// the work twice.
fn unkept(limits: &Limits, ended: &Ended) -> Option<JobFailure> {
    let Ended::Returned(Ok(Some(result))) = ended else { return None };
    let (bytes, max_bytes, max_depth) = (result.as_str().len(), limits.result_bytes, limits.json_depth);
    let failure = if bytes > max_bytes {
        let (bytes, most) = (grouped(bytes), grouped(max_bytes));
        JobFailure::new(
            "ResultTooLarge",
            format!("{bytes} bytes, the limit is {most} (`limits.result_bytes`)"),
        )
    } else {
        let depth = Some(result.depth()).filter(|depth| *depth > max_depth)?;
        let (depth, most) = (grouped(depth), grouped(max_depth));
        JobFailure::new("ResultTooDeep", format!("{depth} levels, the limit is {most} (`limits.json_depth`)"))
    };
    Some(failure.do_not_retry("the work is done"))
}

/// A number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let comma = |place: usize| place > 0 && (digits.len() - place).is_multiple_of(3);
    let parts = digits.char_indices().flat_map(|(place, digit)| [comma(place).then_some(','), Some(digit)]);
    parts.flatten().collect()
}

/// Reads the jobs that were claimed, and with them whether they were canceled meanwhile: one call for all.
pub(crate) async fn load(engine: &Engine, claims: &[JobClaim]) -> Vec<Loaded> {
    let loaded = retry_while_leased(engine, "load", || engine.store.load(&engine.owner, claims)).await;
    loaded.unwrap_or_else(|| vec![Loaded::Lost; claims.len()])
}

/// The job to run, unless it was canceled or lost before.
fn subject(engine: &Engine, loaded: Loaded, running: &Running) -> Result<Subject, Stop> {
    // It may have waited for its slot meanwhile. A node that stops or is fenced tells its bodies so by the same token.
    let canceled = running.token.is_cancelled() && engine.takes_work();
    match loaded {
        Loaded::Job(..) if canceled => Err(Stop::Canceled("canceled before it started")),
        Loaded::Job(job, known) => {
            let edges = Edges { known, count: job.edge_count };
            Ok(Subject { job: Arc::from(job), edges, permit: None })
        }
        Loaded::CancelRequested => Err(Stop::Canceled("canceled before it started")),
        Loaded::Lost => Err(Stop::Lost),
        Loaded::Corrupt { problem, on_failure } => Err(Stop::Corrupt { problem, on_failure }),
    }
}

/// Ends a job for good whose claim says that its row cannot be read.
pub(crate) async fn bury_corrupt(engine: &Engine, claim: &JobClaim, problem: &str) {
    tracing::error!(problem = %engine.journal.sanitized(problem), "job dead-lettered: its row cannot be read");
    let on_failure = match load(engine, std::slice::from_ref(claim)).await.pop() {
        Some(Loaded::Corrupt { on_failure, .. }) => on_failure,
        _ => None,
    };
    settle_unrun(engine, claim, Stop::Corrupt { problem: problem.to_owned(), on_failure }).await;
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
        canceled: token.clone(),
        draining: engine.drain.watch(),
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
        other => return early(engine, claim, target, other),
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
fn early(engine: &Engine, claim: &JobClaim, target: &str, stop: Stop) -> Option<Conclusion> {
    match stop {
        // It keeps waiting apart from others.
        Stop::Park { look_in, .. } if engine.running.suspect(claim.id).is_some() => {
            let delay = look_in.unwrap_or(engine.options.retry.permit_delay);
            Some(Conclusion::HandBack { delay, reason: HandBackReason::Released })
        }
        Stop::HandBack { delay, reason } => Some(Conclusion::HandBack { delay, reason }),
        Stop::Park { on, look_in } => {
            engine.parkings.tell(&on);
            if let Some(look_in) = look_in {
                engine.alarm.set(look_in);
            }
            Some(Conclusion::Park { on })
        }
        Stop::Crashed(failure) => Some(Conclusion::Crashed { error: engine.error_record(target, &failure) }),
        Stop::Dead(failure, reason) => {
            Some(Conclusion::Dead { error: engine.error_record(target, &failure), reason })
        }
        Stop::Failed(failure) => {
            let error = engine.error_record(target, &failure);
            Some(Conclusion::Dead { error, reason: DeadReason::DoNotRetry })
        }
        Stop::Corrupt { problem, .. } => {
            let error = engine.error_record(target, &JobFailure::new("CorruptRow", problem));
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
    let salvaged = match &stop {
        Stop::Corrupt { on_failure, .. } => on_failure.clone(),
        _ => None,
    };
    let Some(conclusion) = early(engine, claim, "", stop) else { return };
    let about = About { salvaged: salvaged.as_ref(), ..About::claim(claim) };
    let edges = Edges::counted(claim);
    record(engine, Recording { about, edges, conclusion, run: None, place: None }).await;
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
    subject: &Subject,
    failure: &JobFailure,
    reason: DeadReason,
    place: Option<&Place>,
) {
    let error = engine.error_record(subject.job.spec.payload.target().as_str(), failure);
    let (about, edges) = (subject.about(claim), subject.edges.clone());
    let conclusion = Conclusion::Dead { error, reason };
    record(engine, Recording { about, edges, conclusion, run: None, place }).await;
}

/// Records a conclusion, and tells what was recorded.
async fn record(engine: &Engine, recording: Recording<'_>) {
    let (about, ran_for) = (recording.about, recording.run.map(|(_, ran_for)| ran_for));
    let held_permit = about.job.is_some_and(|job| job.spec.resource.is_some());
    let Some(taken) = recording.offer(engine).await else { return };
    engine.plugs.metrics.attempted(about, &taken.conclusion, &taken.verdict, ran_for);
    if held_permit && taken.verdict.is_settled() && !matches!(taken.conclusion, Conclusion::Park { .. }) {
        // Its permit is free: whoever has a job parked on that may go on.
        engine.client().wake_up(about.claim.priority);
    }
    announce(engine, about, &taken.conclusion, &taken.verdict).await;
    let unstored = unstored(&taken);
    publish(engine, about, &taken.conclusion, taken.verdict, ran_for);
    unstored::tell(engine, about, unstored).await;
}

/// Tells what was recorded, and wakes whoever may now have work.
fn publish(
    engine: &Engine,
    about: About<'_>,
    conclusion: &Conclusion,
    verdict: Verdict,
    ran_for: Option<Duration>,
) {
    let recorded = match verdict {
        Verdict::Recorded(recorded) => recorded,
        Verdict::AlreadyRecorded => Recorded::default(),
        Verdict::CanceledInstead => return engine.publish(about, canceled(ran_for)),
        Verdict::LeaseLost | Verdict::EdgesChanged { .. } => {
            tracing::warn!("the lease of this job is lost; its outcome is not recorded");
            return;
        }
    };
    if !recorded.released.is_empty() || !recorded.submitted.is_empty() {
        // Perhaps in queues that only others serve.
        engine.client().wake_up(about.claim.priority);
    }
    match conclusion {
        Conclusion::Retry { delay, .. } | Conclusion::HandBack { delay, .. } if engine.takes_work() => {
            engine.alarm.set(*delay);
        }
        // It is for the others.
        Conclusion::Retry { delay, .. } | Conclusion::HandBack { delay, .. } if delay.is_zero() => {
            engine.client().wake_up(about.claim.priority);
        }
        Conclusion::Retry { .. } | Conclusion::HandBack { .. } => {}
        Conclusion::Crashed { .. } => engine.alarm.set(Duration::ZERO),
        // The nodes that know the method found nothing while it was here.
        Conclusion::Park { on: ParkedOn::Method(_) } => engine.client().wake_up(about.claim.priority),
        // What it lacks may have come while it was on its way.
        Conclusion::Park { .. } => engine.bell.notify_one(),
        Conclusion::Succeeded { .. } | Conclusion::Dead { .. } | Conclusion::Canceled { .. } => {}
    }
    for kind in kinds(about.claim, conclusion, &recorded, ran_for) {
        engine.publish(about, kind);
    }
}

fn canceled(ran_for: Option<Duration>) -> JobEventKind {
    JobEventKind::Canceled { previous_status: JobStatus::Running, execution_time: ran_for }
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
        Conclusion::HandBack { .. } | Conclusion::Park { .. } | Conclusion::Crashed { .. } => Vec::new(),
        Conclusion::Canceled { .. } => vec![canceled(ran_for)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!(
            [0, 65, 999, 1_000, 70_002, 1_234_567].map(grouped),
            ["0", "65", "999", "1,000", "70,002", "1,234,567"]
        );
    }
}
