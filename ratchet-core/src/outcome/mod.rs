//! From what an attempt came to, to one outcome with everything that follows from it. Pure.

mod edges;

use std::time::Duration;

use ratchet_api::{
    DeadReason, Edge, Effect, End, ErrorRecord, HandBackReason, Job, JobClaim, JobPayload, JobStatus,
    JobType, JsonText, NewJob, Outcome, Run, Sanitized, Submission,
};

use crate::context::JobCause;

/// What an attempt came to.
#[derive(Clone, Debug)]
pub(crate) enum Conclusion {
    /// The body returned.
    Succeeded { result: Option<JsonText>, submissions: Vec<Submission> },
    /// It failed, and will be tried again.
    Retry { delay: Duration, error: ErrorRecord },
    /// It failed for good.
    Dead { error: ErrorRecord, reason: DeadReason },
    /// It goes back with nothing consumed.
    HandBack { delay: Duration, reason: HandBackReason },
    /// It was called off.
    Canceled { reason: Sanitized },
}

/// The outcome of an attempt of a job that was loaded, with its edges as they are known now.
pub(crate) fn of(
    claim: &JobClaim,
    job: &Job,
    edges: &[Edge],
    conclusion: &Conclusion,
    run: Option<Run>,
) -> Outcome {
    let mut outcome = bare(claim, conclusion, run);
    outcome.edges_seen = u32::try_from(edges.len()).unwrap_or(u32::MAX);
    match conclusion {
        Conclusion::Succeeded { result, submissions } => {
            outcome.effects = edges::decide(edges, JobStatus::Succeeded, result.as_ref());
            outcome
                .effects
                .extend(submissions.iter().cloned().map(|submission| Effect::Submit(Box::new(submission))));
            let cause = || JobCause::of(job, JobStatus::Succeeded, None, result.as_ref());
            outcome.effects.extend(callback(job, job.spec.on_success.as_ref(), cause));
        }
        Conclusion::Dead { error, .. } => {
            outcome.effects = edges::decide(edges, JobStatus::Failed, None);
            let cause = || JobCause::of(job, JobStatus::Failed, Some(error.message.as_str()), None);
            outcome.effects.extend(callback(job, job.spec.on_failure.as_ref(), cause));
        }
        Conclusion::Retry { .. } | Conclusion::HandBack { .. } | Conclusion::Canceled { .. } => {}
    }
    outcome
}

/// The outcome of an attempt whose job could not be loaded: nothing follows from it but what the store knows.
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
fn callback(job: &Job, payload: Option<&JobPayload>, cause: impl FnOnce() -> JobCause) -> Option<Effect> {
    let mut callback = NewJob::new(payload?.clone());
    let spec = &mut callback.spec;
    spec.job_type = JobType::Callback;
    spec.queue = job.spec.queue.clone();
    spec.priority = job.spec.priority;
    spec.caller_principal.clone_from(&job.spec.caller_principal);
    spec.trace_context.clone_from(&job.spec.trace_context);
    spec.params = JsonText::of(&cause()).ok();
    Some(Effect::Submit(Box::new(Submission::single(callback))))
}
