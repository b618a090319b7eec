//! Announces recorded outcomes: log lines and alerts, events, wakeups.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ratchet_api::{
    Alerted, HandBackReason, Job, JobClaim, JobEventKind, JobId, JobStatus, LogLevel, NewDlqAlert,
    NewLogLine, OneLine, ParkedOn, Recorded, Timestamp, Verdict,
};
use tracing::field::{DisplayValue, display};

use crate::engine::Engine;
use crate::outcome::{About, Conclusion};

/// The line in the log of a job that a circuit breaker made wait.
pub const DEFERRED_BY_BREAKER: &str = "deferred: its circuit breaker is open";

/// The most jobs that are remembered as handed back.
const MAX_HANDED_BACK: usize = 10_000;

/// Jobs that this node has handed back. They are forgotten together when there are too many.
#[derive(Default)]
pub(crate) struct HandedBack(Mutex<HashSet<JobId>>);

impl HandedBack {
    /// Whether this is the first time, as far as is known.
    fn is_first(&self, job: JobId) -> bool {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.len() >= MAX_HANDED_BACK && !jobs.contains(&job) {
            jobs.clear();
        }
        jobs.insert(job)
    }
}

/// The call of a job; `None` if the job was not loaded.
fn method(job: Option<&Job>) -> Option<DisplayValue<String>> {
    job.map(|job| display(OneLine(&job.spec.payload.call_name()).to_string()))
}

/// Logs a recorded outcome, and stores the alert of a dead letter. A success and a cancellation are not logged.
pub(crate) async fn announce(engine: &Engine, about: About<'_>, conclusion: &Conclusion, verdict: &Verdict) {
    let next_due = match verdict {
        Verdict::Recorded(Recorded { next_due, .. }) => *next_due,
        Verdict::AlreadyRecorded => None,
        _ => return,
    };
    match conclusion {
        Conclusion::Retry { .. } => retried(about, conclusion, next_due),
        Conclusion::HandBack { reason, .. } => handed_back(engine, about, *reason, next_due).await,
        Conclusion::Crashed { error } => {
            let crashes = about.claim.crash_count + 1;
            tracing::warn!(method = method(about.job), crashes, error = %error.message, "job requeued: its owner is gone");
        }
        Conclusion::Dead { .. } if matches!(verdict, Verdict::Recorded(_)) => {
            dead_letter(engine, about, conclusion).await;
        }
        // A parked job is logged where that is decided.
        Conclusion::Dead { .. }
        | Conclusion::Succeeded { .. }
        | Conclusion::Canceled { .. }
        | Conclusion::Park { .. } => {}
    }
}

/// Logs a failed attempt that another one follows.
fn retried(about: About<'_>, conclusion: &Conclusion, next_due: Option<Timestamp>) {
    let Conclusion::Retry { error, .. } = conclusion else { return };
    tracing::warn!(
        method = method(about.job),
        attempt = about.claim.attempts + 1,
        max_attempts = about.job.map(|job| job.spec.max_retries.saturating_add(1)),
        class = %error.class,
        error = %error.message,
        next_due = next_due.map(display),
        "attempt failed; the job is retried"
    );
}

/// Logs a job that goes back with no attempt consumed: as info the first time on this node, as debug after that.
async fn handed_back(engine: &Engine, about: About<'_>, reason: HandBackReason, next_due: Option<Timestamp>) {
    let (method, next_due) = (method(about.job), next_due.map(display));
    match reason {
        _ if engine.node.handed_back.is_first(about.claim.id) => {
            tracing::info!(method, ?reason, next_due, "job handed back");
            if reason == HandBackReason::BreakerOpen {
                // In the job's own log, too: nothing else in the store tells why it waits.
                let (job, fence, level) = (about.claim.id, about.claim.fence, LogLevel::Info);
                let message = engine.node.journal.sanitized(DEFERRED_BY_BREAKER);
                engine.node.journal.append(vec![NewLogLine { job, fence, level, message }]).await;
            }
        }
        _ => tracing::debug!(method, ?reason, next_due, "job handed back again"),
    }
}

/// Logs a dead letter, and stores its alert. A store that does not take the alert changes nothing about the job.
async fn dead_letter(engine: &Engine, about: About<'_>, conclusion: &Conclusion) {
    let Conclusion::Dead { error, reason } = conclusion else { return };
    let alert = NewDlqAlert {
        job: about.claim.id,
        error_hash: error_hash(error.message.as_str()),
        fingerprint: error.fingerprint.clone(),
        window: engine.node.options.retry.alert_window,
    };
    let alerted = engine.node.store.record_alerts(&[alert]).await.map(|alerted| alerted.first().copied());
    let (method, class, error) = (method(about.job), &error.class, &error.message);
    match alerted {
        Ok(Some(Alerted { notify: false, count, .. })) => {
            tracing::warn!(method, ?reason, %class, %error, count, "dead letter like others of late");
        }
        Ok(_) => tracing::error!(method, ?reason, %class, %error, "dead letter"),
        Err(trouble) => {
            tracing::error!(method, ?reason, %class, %error, "dead letter");
            tracing::warn!(%trouble, "the alert is not stored");
        }
    }
}

/// The first 8 bytes of the SHA-256 of a text.
fn error_hash(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Publishes what was recorded, and wakes the nodes that may now have work.
pub(super) fn publish(
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
        // Perhaps in queues that only other nodes serve.
        engine.node.client().wake_up(about.claim.priority);
    }
    match conclusion {
        Conclusion::Retry { delay, .. } | Conclusion::HandBack { delay, .. } if engine.takes_work() => {
            engine.node.alarm.set(*delay);
        }
        // This node takes no work, so the job is for the others.
        Conclusion::Retry { delay, .. } | Conclusion::HandBack { delay, .. } if delay.is_zero() => {
            engine.node.client().wake_up(about.claim.priority);
        }
        Conclusion::Retry { .. } | Conclusion::HandBack { .. } => {}
        Conclusion::Crashed { .. } => engine.node.alarm.set(Duration::ZERO),
        // The nodes that know the method found nothing while it was here.
        Conclusion::Park { on: ParkedOn::Method(_) } => engine.node.client().wake_up(about.claim.priority),
        // The permit may have become free while the outcome was on its way.
        Conclusion::Park { .. } => engine.node.bell.notify_one(),
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
    fn a_job_is_new_once_until_too_many_were_handed_back() {
        let (handed_back, job) = (HandedBack::default(), JobId::generate());
        assert!(handed_back.is_first(job));
        assert!(!handed_back.is_first(job));
        for _ in 1..MAX_HANDED_BACK {
            assert!(handed_back.is_first(JobId::generate()));
        }
        assert!(!handed_back.is_first(job), "there is room for so many");
        assert!(handed_back.is_first(JobId::generate()));
        assert!(handed_back.is_first(job), "one more, and all are forgotten");
    }
}
