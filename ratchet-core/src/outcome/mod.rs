//! From what an attempt came to, to one outcome with everything that follows from it. Pure.

mod edges;

use std::time::Duration;

use ratchet_api::{
    Condition, DeadReason, Edge, EdgeState, Effect, End, ErrorRecord, HandBackReason, Job, JobClaim,
    JobFailure, JobPayload, JobStatus, JobType, JsonText, Limits, NewJob, Outcome, Run, Sanitized,
    Submission,
};

use crate::cause::Ended;

/// What an attempt came to.
#[derive(Clone, Debug)]
pub(crate) enum Conclusion {
    /// The body returned.
    Succeeded {
        result: Option<JsonText>,
        /// Why the result is not kept, if it is not: the failure that this is as soon as somebody waits for it.
        unkept: Option<JobFailure>,
        submissions: Vec<Submission>,
    },
    /// It failed, and will be tried again.
    Retry { delay: Duration, error: ErrorRecord },
    /// It failed for good.
    Dead { error: ErrorRecord, reason: DeadReason },
    /// It goes back with nothing consumed.
    HandBack { delay: Duration, reason: HandBackReason },
    /// It was called off.
    Canceled { reason: Sanitized },
}

/// The edges that lead from a job, as far as they are known, and how many the store had counted then.
#[derive(Clone, Debug)]
pub(crate) struct Edges {
    pub(crate) known: Vec<Edge>,
    pub(crate) count: u32,
}

impl Edges {
    /// Those of a job that was not loaded: counted and not known, so the store decides them by the job's end.
    pub(crate) fn counted(claim: &JobClaim) -> Self {
        Self { known: Vec::new(), count: claim.edge_count }
    }

    /// Whether a job waits for the success of this one, and with it for its result.
    fn lead_from_success(&self) -> bool {
        let waits = |edge: &Edge| edge.state == EdgeState::Open && edge.condition != Condition::Failure;
        self.known.iter().any(waits)
    }
}

/// Whether dependents or a callback need the result of a job.
pub(crate) fn result_is_awaited(job: Option<&Job>, edges: &Edges) -> bool {
    edges.lead_from_success() || job.is_none_or(|job| job.spec.on_success.is_some())
}

/// The outcome of an attempt, with its edges as they are known now. Of a job that could not be loaded no callbacks are known.
pub(crate) fn of(
    claim: &JobClaim,
    job: Option<&Job>,
    edges: &Edges,
    conclusion: &Conclusion,
    run: Option<Run>,
    limits: &Limits,
) -> Outcome {
    let mut outcome = bare(claim, conclusion, run);
    outcome.edges_seen = edges.count;
    match conclusion {
        Conclusion::Succeeded { result, submissions, .. } => {
            outcome.effects = edges::decide(&edges.known, JobStatus::Succeeded, result.as_ref());
            outcome
                .effects
                .extend(submissions.iter().cloned().map(|submission| Effect::Submit(Box::new(submission))));
            outcome.effects.extend(job.and_then(|job| {
                let (status, result) = (JobStatus::Succeeded, result.as_ref());
                callback(job.spec.on_success.as_ref(), Ended { job, status, error: None, result }, limits)
            }));
        }
        Conclusion::Dead { error, .. } => {
            outcome.effects = edges::decide(&edges.known, JobStatus::Failed, None);
            outcome.effects.extend(job.and_then(|job| {
                let (status, error) = (JobStatus::Failed, Some(error.message.as_str()));
                callback(job.spec.on_failure.as_ref(), Ended { job, status, error, result: None }, limits)
            }));
        }
        Conclusion::Retry { .. } | Conclusion::HandBack { .. } | Conclusion::Canceled { .. } => {}
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
        Conclusion::Canceled { reason } => End::Canceled { reason },
    };
    let mut outcome = Outcome::new(claim.id, claim.fence, end);
    outcome.run = run;
    outcome
}

/// A callback is a job like any other, in the queue and with the priority of the job that it follows.
fn callback(payload: Option<&JobPayload>, ended: Ended<'_>, limits: &Limits) -> Option<Effect> {
    let job = ended.job;
    let mut callback = NewJob::new(payload?.clone());
    let spec = &mut callback.spec;
    spec.job_type = JobType::Callback;
    spec.queue = job.spec.queue.clone();
    spec.priority = job.spec.priority;
    spec.caller_principal.clone_from(&job.spec.caller_principal);
    spec.trace_context.clone_from(&job.spec.trace_context);
    spec.params = ended.params(limits);
    Some(Effect::Submit(Box::new(Submission::single(callback))))
}
