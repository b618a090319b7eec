//! Makes the conclusion of an attempt one outcome with all its consequences. Pure.

mod edges;

use std::time::Duration;

use ratchet_api::options::RetryOptions;
use ratchet_api::{
    Condition, DeadReason, Edge, EdgeState, Effect, End, ErrorRecord, HandBackReason, Job, JobClaim,
    JobFailure, JobPayload, JobStatus, JobType, JsonText, Limits, NewJob, Outcome, ParkedOn, Run, Sanitized,
    Submission,
};

use crate::JobDefaults;
use crate::cause::Ended;
use crate::registry::Registry;

/// The conclusion of an attempt.
#[derive(Clone, Debug)]
pub(crate) enum Conclusion {
    /// The body returned.
    Succeeded {
        result: Option<JsonText>,
        /// Why the result is not kept, if it is not: the job fails with this if dependents or a callback need the
        /// result.
        unkept: Option<JobFailure>,
        submissions: Vec<Submission>,
    },
    /// It failed, and will be tried again.
    Retry { delay: Duration, error: ErrorRecord },
    /// It failed for good.
    Dead { error: ErrorRecord, reason: DeadReason },
    /// It goes back to PENDING, and no attempt is consumed.
    HandBack { delay: Duration, reason: HandBackReason },
    /// It is parked until it gets what it lacks here, and no attempt is consumed.
    Park { on: ParkedOn },
    /// Its node died, and it goes back to PENDING at once.
    Crashed { error: ErrorRecord },
    /// It was canceled.
    Canceled { reason: Sanitized },
}

/// The edges that lead from a job, as far as they are known, and how many the store had counted then.
#[derive(Clone, Debug)]
pub(crate) struct Edges {
    pub(crate) known: Vec<Edge>,
    pub(crate) count: u32,
}

impl Edges {
    /// The edges of a job that was not loaded: counted and not known, so the store decides them by the job's end.
    pub(crate) fn counted(claim: &JobClaim) -> Self {
        Self { known: Vec::new(), count: claim.edge_count }
    }

    /// Whether a job waits for the success of this one, and with it for its result.
    fn lead_from_success(&self) -> bool {
        let waits = |edge: &Edge| edge.state == EdgeState::Open && edge.condition != Condition::Failure;
        self.known.iter().any(waits)
    }
}

/// The job that an outcome is about, as far as it is known.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) claim: &'a JobClaim,
    /// The job; `None` if it could not be read, or was not.
    pub(crate) job: Option<&'a Job>,
    /// The failure callback of a job that could not be read.
    pub(crate) salvaged: Option<&'a JobPayload>,
}

impl<'a> About<'a> {
    /// A job of which only the claim is known.
    pub(crate) const fn claim(claim: &'a JobClaim) -> Self {
        Self { claim, job: None, salvaged: None }
    }

    pub(crate) fn on_failure(self) -> Option<&'a JobPayload> {
        self.job.and_then(|job| job.spec.on_failure.as_ref()).or(self.salvaged)
    }

    fn on_success(self) -> Option<&'a JobPayload> {
        self.job.and_then(|job| job.spec.on_success.as_ref())
    }

    /// Whether dependents or a callback need its result.
    pub(crate) fn result_is_awaited(self, edges: &Edges) -> bool {
        edges.lead_from_success() || self.job.is_none() || self.on_success().is_some()
    }
}

/// The settings of a callback that its job did not store.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) retry: &'a RetryOptions,
    /// The source of the defaults of its method, if this node knows it.
    pub(crate) registry: &'a Registry,
}

/// The outcome of an attempt, with its edges as they are known now.
pub(crate) fn of(
    about: About<'_>,
    edges: &Edges,
    conclusion: &Conclusion,
    run: Option<Run>,
    callbacks: Option<Callbacks<'_>>,
) -> Outcome {
    let mut outcome = bare(about.claim, conclusion, run);
    outcome.edges_seen = edges.count;
    let ended = |status, error, result| {
        let params = about.job.and_then(|job| job.spec.params.as_ref());
        Ended { job: about.claim.id, params, status, error, result }
    };
    match conclusion {
        Conclusion::Succeeded { result, submissions, .. } => {
            outcome.effects = edges::decide(&edges.known, JobStatus::Succeeded, result.as_ref());
            outcome
                .effects
                .extend(submissions.iter().cloned().map(|submission| Effect::Submit(Box::new(submission))));
            let ended = ended(JobStatus::Succeeded, None, result.as_ref());
            outcome.effects.extend(callback(about, about.on_success(), ended, callbacks));
        }
        Conclusion::Dead { error, .. } => {
            outcome.effects = edges::decide(&edges.known, JobStatus::Failed, None);
            let ended = ended(JobStatus::Failed, Some(error.message.as_str()), None);
            outcome.effects.extend(callback(about, about.on_failure(), ended, callbacks));
        }
        Conclusion::Retry { .. }
        | Conclusion::HandBack { .. }
        | Conclusion::Park { .. }
        | Conclusion::Crashed { .. }
        | Conclusion::Canceled { .. } => {}
    }
    outcome
}

/// The outcome without anything that follows from it.
pub(crate) fn bare(claim: &JobClaim, conclusion: &Conclusion, run: Option<Run>) -> Outcome {
    let end = match conclusion.clone() {
        Conclusion::Succeeded { result, .. } => End::Succeeded { result },
        Conclusion::Retry { delay, error } => End::Retry { delay, error },
        Conclusion::Dead { error, reason } => End::DeadLetter { error, reason },
        Conclusion::HandBack { delay, reason } => End::HandBack { delay, reason },
        Conclusion::Park { on } => End::Park { on },
        Conclusion::Crashed { .. } => {
            End::HandBack { delay: Duration::ZERO, reason: HandBackReason::Crashed }
        }
        Conclusion::Canceled { reason } => End::Canceled { reason },
    };
    let mut outcome = Outcome::new(claim.id, claim.fence, end);
    outcome.run = run;
    if let Conclusion::Crashed { error } = conclusion {
        outcome.crash = Some(error.clone());
    }
    outcome
}

/// Submits a callback: a job like any other, with the defaults of its method, or else in the queue and with the
/// priority of the job that it follows.
fn callback(
    about: About<'_>,
    payload: Option<&JobPayload>,
    ended: Ended<'_>,
    callbacks: Option<Callbacks<'_>>,
) -> Option<Effect> {
    let (payload, Callbacks { limits, retry, registry }) = payload.zip(callbacks)?;
    let mut callback = NewJob::new(payload.clone());
    let spec = &mut callback.spec;
    spec.job_type = JobType::Callback;
    spec.queue = about.claim.queue.clone();
    spec.priority = about.claim.priority;
    if let Some(job) = about.job {
        spec.caller_principal.clone_from(&job.spec.caller_principal);
        spec.trace_context.clone_from(&job.spec.trace_context);
    }
    let unknown = JobDefaults::default();
    let defaults =
        registry.find(payload.target(), payload.method()).map_or(&unknown, |method| &method.defaults);
    if let Err(error) = defaults.apply(retry, spec) {
        tracing::warn!(%error, "a default of the callback's method is left out");
    }
    spec.params = ended.params(limits);
    Some(Effect::Submit(Box::new(Submission::single(callback))))
}
