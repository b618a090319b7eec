//! The outcome of an attempt: decided, recorded, announced.

use ratchet_api::store::Loaded;
use ratchet_api::{DeadReason, HandBackReason, JobClaim, JobFailure, JobSpec};

use super::announce::{announce, publish};
use super::attempt::{Done, Stop, Subject, subject};
use super::decide::{Decision, RetryTerms, decide};
use super::offer::Recording;
use super::unstored::{self, unstored};
use crate::coordinator::load;
use crate::coordinator::slots::SlotTicket;
use crate::engine::Engine;
use crate::outcome::{About, Conclusion, Edges};
use crate::running::Running;

/// The conclusion of an attempt; `None` if the fence is lost.
pub(super) fn conclude(
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

/// The conclusion of a failed attempt.
pub(super) fn failed(engine: &Engine, claim: &JobClaim, spec: &JobSpec, failure: &JobFailure) -> Conclusion {
    let chance = engine.node.options.retry.jitter.then(rand::random);
    let terms = RetryTerms { max_retries: spec.max_retries, backoff: spec.backoff, chance };
    let error = engine.node.error_record(spec.payload.target().as_str(), failure);
    if let Some(reason) = failure.retry_advice().never() {
        tracing::warn!(reason = %engine.node.journal.sanitized(reason), "the error forbids a retry");
    }
    match decide(failure, claim.attempts + 1, terms, &*engine.node.execution.retry) {
        Decision::Retry(delay) => Conclusion::Retry { delay, error },
        Decision::Dead(reason) => Conclusion::Dead { error, reason },
        Decision::Snooze(delay) => Conclusion::HandBack { delay, reason: HandBackReason::Snoozed },
    }
}

/// The conclusion of an attempt that was stopped; `None` if the fence is lost.
fn early(engine: &Engine, claim: &JobClaim, target: &str, stop: Stop) -> Option<Conclusion> {
    match stop {
        // A suspect keeps waiting apart from other jobs.
        Stop::Park { look_in, .. } if engine.node.running.suspect(claim.id).is_some() => {
            let delay = look_in.unwrap_or(engine.node.options.retry.permit_delay);
            Some(Conclusion::HandBack { delay, reason: HandBackReason::Released })
        }
        Stop::HandBack { delay, reason } => Some(Conclusion::HandBack { delay, reason }),
        Stop::Park { on, look_in } => {
            engine.node.parkings.tell(&on);
            if let Some(look_in) = look_in {
                engine.node.alarm.set(look_in);
            }
            Some(Conclusion::Park { on })
        }
        Stop::Crashed(failure) => {
            Some(Conclusion::Crashed { error: engine.node.error_record(target, &failure) })
        }
        Stop::Dead(failure, reason) => {
            Some(Conclusion::Dead { error: engine.node.error_record(target, &failure), reason })
        }
        Stop::Failed(failure) => {
            let error = engine.node.error_record(target, &failure);
            Some(Conclusion::Dead { error, reason: DeadReason::DoNotRetry })
        }
        Stop::Corrupt { problem, .. } => {
            let error = engine.node.error_record(target, &JobFailure::new("CorruptRow", problem));
            Some(Conclusion::Dead { error, reason: DeadReason::DoNotRetry })
        }
        Stop::Canceled(reason) => {
            Some(Conclusion::Canceled { reason: engine.node.journal.sanitized(reason) })
        }
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
    record(engine, Recording { about, edges, conclusion, run: None, ticket: None }).await;
}

/// Dead-letters a job that is not run here, with all consequences.
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

pub(super) async fn bury_as(
    engine: &Engine,
    claim: &JobClaim,
    subject: &Subject,
    failure: &JobFailure,
    reason: DeadReason,
    ticket: Option<&SlotTicket>,
) {
    let error = engine.node.error_record(subject.job.spec.payload.target().as_str(), failure);
    let (about, edges) = (subject.about(claim), subject.edges.clone());
    let conclusion = Conclusion::Dead { error, reason };
    record(engine, Recording { about, edges, conclusion, run: None, ticket }).await;
}

/// Dead-letters a job whose claim says that its row cannot be read.
pub(crate) async fn bury_corrupt(engine: &Engine, claim: &JobClaim, problem: &str) {
    tracing::error!(problem = %engine.node.journal.sanitized(problem), "job dead-lettered: its row cannot be read");
    let on_failure = match load(engine, std::slice::from_ref(claim)).await.pop() {
        Some(Loaded::Corrupt { on_failure, .. }) => on_failure,
        _ => None,
    };
    settle_unrun(engine, claim, Stop::Corrupt { problem: problem.to_owned(), on_failure }).await;
}

/// Records a conclusion, and announces what was recorded.
pub(super) async fn record(engine: &Engine, recording: Recording<'_>) {
    let (about, ran_for) = (recording.about, recording.run.map(|(_, ran_for)| ran_for));
    let held_permit = about.job.is_some_and(|job| job.spec.resource.is_some());
    let Some(taken) = recording.offer(engine).await else { return };
    engine.node.plugs.metrics.attempted(about, &taken.conclusion, &taken.verdict, ran_for);
    if held_permit && taken.verdict.is_settled() && !matches!(taken.conclusion, Conclusion::Park { .. }) {
        // Its permit is free: jobs that are parked on it may go on.
        engine.node.client().wake_up(about.claim.priority);
    }
    announce(engine, about, &taken.conclusion, &taken.verdict).await;
    let unstored = unstored(&taken);
    publish(engine, about, &taken.conclusion, taken.verdict, ran_for);
    unstored::tell(engine, about, unstored).await;
}
