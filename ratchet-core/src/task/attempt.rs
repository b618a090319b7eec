//! The steps of an attempt: load, gates, body.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use ratchet_api::store::{Loaded, Permit};
use ratchet_api::{
    DeadReason, HandBackReason, Job, JobClaim, JobEventKind, JobFailure, JobPayload, JsonText, Limits,
    ParkedOn, Submission,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use tracing::field::{Empty, display};

use super::gates;
use super::invoke::{Bounds, Ended, Invocation, panicked};
use super::offer::Recording;
use super::record_outcome::{bury_as, conclude, record, settle_unrun};
use crate::context::Opening;
use crate::coordinator::slots::{Slot, SlotTicket};
use crate::engine::Engine;
use crate::metrics::labels;
use crate::outcome::{About, Edges};
use crate::panics::PanicReport;
use crate::running::Running;
use crate::{JobContext, TraceContext};

/// The reason of a cancellation that stopped a body which had begun.
const WHILE_IT_RAN: &str = "canceled while it ran";

/// One attempt at a claimed job.
pub(crate) struct Attempt {
    pub(crate) engine: Arc<Engine>,
    pub(crate) claim: JobClaim,
    pub(crate) loaded: Loaded,
    /// The answer to an early request for a permit, if there was one.
    pub(crate) permit: Option<Permit>,
    /// Kept until the outcome is recorded.
    pub(crate) ticket: SlotTicket,
    pub(crate) running: Running,
}

/// The reason why a body does not run, or its failure.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The job goes back to PENDING; no attempt is consumed.
    HandBack { delay: Duration, reason: HandBackReason },
    /// It is parked until it gets what it lacks here, and polled for after `look_in` at the latest.
    Park { on: ParkedOn, look_in: Option<Duration> },
    /// It goes back to PENDING at once, since its node died.
    Crashed(JobFailure),
    /// A failure: the retry rules decide.
    Failed(JobFailure),
    /// A failure that is not retried.
    Dead(JobFailure, DeadReason),
    /// Its row cannot be read, but perhaps its failure callback.
    Corrupt { problem: String, on_failure: Option<JobPayload> },
    /// Canceled, for this reason.
    Canceled(&'static str),
    /// The fence is lost: another owner has the job, so nothing is written.
    Lost,
}

/// A job as it was loaded, with the edges that lead from it.
pub(super) struct Subject {
    pub(super) job: Arc<Job>,
    pub(super) edges: Edges,
    /// The answer to an early request for a permit, if there was one.
    permit: Option<Permit>,
}

impl Subject {
    pub(super) fn about<'a>(&'a self, claim: &'a JobClaim) -> About<'a> {
        About { job: Some(&self.job), ..About::claim(claim) }
    }
}

/// A body that returned.
pub(super) struct Done {
    pub(super) result: Option<JsonText>,
    /// Why the result is not kept.
    pub(super) unkept: Option<JobFailure>,
    pub(super) submissions: Vec<Submission>,
}

impl Attempt {
    /// Runs it. Returns whether its body was begun.
    pub(crate) async fn run(self, slot: Slot) -> bool {
        let span = span(&self.engine, &self.claim);
        // Dropped in reverse order, so that the place is free by the time that the attempt no longer counts as running.
        let Self { engine, claim, loaded, permit, running, ticket } = self;
        let attempt = async {
            running.turn().await;
            let subject = match subject(&engine, loaded, &running) {
                Ok(subject) => Subject { permit, ..subject },
                Err(stop) => {
                    settle_unrun(&engine, &claim, stop).await;
                    return false;
                }
            };
            let attempt = attempt(&engine, &claim, &subject, slot, &ticket, &running);
            // Panics of bodies are caught already; this catches those of plug points, and of bodies as they are
            // dropped.
            match AssertUnwindSafe(attempt).catch_unwind().await {
                Ok(ran) => ran,
                Err(panic) => {
                    let (failure, reason) = (panicked(&*panic), DeadReason::DoNotRetry);
                    bury_as(&engine, &claim, &subject, &failure, reason, Some(&ticket)).await;
                    true
                }
            }
        };
        let report = PanicReport::of_job(claim.id, Arc::clone(&engine.node.plugs.sanitizer));
        report.scope(attempt.instrument(span)).await
    }
}

/// The span of an attempt, with which every log line of it carries the job and the node.
pub(crate) fn span(engine: &Engine, claim: &JobClaim) -> tracing::Span {
    // At the highest level: a filter that drops lower ones must not take the ids from the lines that are left.
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
    ticket: &SlotTicket,
    running: &Running,
) -> bool {
    let started = Instant::now();
    let steps = steps(engine, claim, subject, &running.token, Arc::new(slot)).await;
    let run = Some(started.elapsed()).filter(|_| ran(&steps)).map(|ran_for| (started, ran_for));
    if let Some(conclusion) = conclude(engine, claim, subject, steps) {
        let (about, edges) = (subject.about(claim), subject.edges.clone());
        record(engine, Recording { about, edges, conclusion, run, ticket: Some(ticket) }).await;
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
    token: &CancellationToken,
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
    // First of all: a node that does not know the method must not decide about the job.
    let method = gates::method(engine, payload)?;
    let admission = gates::breaker(engine, &method)?;
    gates::permit(engine, claim, job, subject.permit).await?;
    gates::policy(engine, payload.target())?;
    let bean = gates::bean(engine, payload, &method)?;
    let call = engine.node.plugs.resolver.to_invocation(payload);
    let call =
        call.map_err(|error| Stop::Failed(JobFailure::new("UndecodablePayload", error.to_string())))?;
    ctx.complete_cause().await;
    gates::drain(engine)?;

    let about = subject.about(claim);
    engine.publish(about, JobEventKind::Started);
    let waited = claim.picked_at.since(claim.scheduled_time);
    engine.node.plugs.metrics.tell(|sink| sink.started(&labels(about), claim.attempts + 1, waited));
    let bounds = Bounds {
        ctx: &ctx,
        options: &engine.node.options.timeout,
        timeout: engine.node.timeout(job),
        token,
        closing: &engine.node.drain.closing,
        abort: &engine.node.abort,
        lease: &engine.lease,
    };
    let invocation = Invocation {
        method: &method,
        bean,
        args: call.args,
        queue: &claim.queue,
        executor: &*engine.node.execution.executor,
        slot,
        holds_permit: job.spec.resource.is_some(),
        bounds,
    };
    let ended = invocation.run().await;
    let unkept = unkept(&engine.limits(), &ended);
    engine.node.journal.append(ctx.take_lines()).await;
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
        // The node stops, and another one may begin the job anew at once.
        Ended::GivenUp => Err(Stop::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released }),
        Ended::Stopped if engine.lease.holds() => Err(Stop::Canceled(WHILE_IT_RAN)),
        Ended::Stopped => Err(Stop::Lost),
    }
}

/// Why a result is not kept, if it is too large or too deep: a failure if dependents or a callback need it. A retry
/// would do the work twice.
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

/// The job to run, unless it was canceled or lost before.
pub(super) fn subject(engine: &Engine, loaded: Loaded, running: &Running) -> Result<Subject, Stop> {
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

fn open(engine: &Arc<Engine>, claim: &JobClaim, job: &Arc<Job>, token: &CancellationToken) -> JobContext {
    let ctx = JobContext::open(Opening {
        job: Arc::clone(job),
        node: engine.owner.clone(),
        attempt: claim.attempts + 1,
        timeout: engine.node.timeout(job),
        canceled: token.clone(),
        draining: engine.node.drain.watch(),
        journal: engine.node.journal.clone(),
        client: engine.node.client(),
        log_bytes: engine.node.options.limits.log_bytes,
    });
    if let Some(TraceContext { parent, span }) = ctx.trace_context() {
        let job = tracing::Span::current();
        job.record("trace_id", display(format_args!("{:032x}", span.trace_id())));
        job.record("span_id", display(format_args!("{:016x}", span.span_id())));
        job.record("parent_span_id", display(format_args!("{:016x}", parent.span_id())));
    }
    ctx
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
