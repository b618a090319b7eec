//! Log lines and alerts about recorded outcomes: failed attempts, jobs that are handed back, dead letters.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use ratchet_api::{
    Alerted, HandBackReason, Job, JobId, LogLevel, NewDlqAlert, NewLogLine, OneLine, Recorded, Timestamp,
    Verdict,
};
use tracing::field::display;

use crate::engine::Engine;
use crate::outcome::{About, Conclusion};

/// The line of a job's log that says that a circuit breaker made it wait.
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

/// The call of a job; blank if the job could not be read.
struct CallName<'a>(Option<&'a Job>);

impl fmt::Display for CallName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |job| OneLine(&job.spec.payload.call_name()).fmt(f))
    }
}

/// Logs a recorded outcome, and stores the alert of a dead letter. A success and a cancellation are no lines.
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
            tracing::warn!(crashes, error = %error.message, "job requeued: its owner is gone");
        }
        Conclusion::Dead { .. } if matches!(verdict, Verdict::Recorded(_)) => {
            dead_letter(engine, about, conclusion).await;
        }
        // What a job was parked on is told where that is decided.
        Conclusion::Dead { .. }
        | Conclusion::Succeeded { .. }
        | Conclusion::Canceled { .. }
        | Conclusion::Park { .. } => {}
    }
}

/// A failed attempt that another one follows.
fn retried(about: About<'_>, conclusion: &Conclusion, next_due: Option<Timestamp>) {
    let Conclusion::Retry { error, .. } = conclusion else { return };
    tracing::warn!(
        method = %CallName(about.job),
        attempt = about.claim.attempts + 1,
        max_attempts = about.job.map(|job| job.spec.max_retries.saturating_add(1)),
        class = %error.class,
        error = %error.message,
        next_due = next_due.map(display),
        "attempt failed; the job is retried"
    );
}

/// A job that goes back with no attempt consumed: a line the first time on this node, details after that.
async fn handed_back(engine: &Engine, about: About<'_>, reason: HandBackReason, next_due: Option<Timestamp>) {
    let (method, next_due) = (CallName(about.job), next_due.map(display));
    match reason {
        _ if engine.handed_back.is_first(about.claim.id) => {
            tracing::info!(%method, ?reason, next_due, "job handed back");
            if reason == HandBackReason::BreakerOpen {
                // With the job, too: nothing else in the store tells why it waits.
                let (job, fence, level) = (about.claim.id, about.claim.fence, LogLevel::Info);
                let message = engine.journal.sanitized(DEFERRED_BY_BREAKER);
                engine.journal.append(vec![NewLogLine { job, fence, level, message }]).await;
            }
        }
        _ => tracing::debug!(%method, ?reason, next_due, "job handed back again"),
    }
}

/// Tells those who look after dead letters. A store that does not take the alert changes nothing about the job.
async fn dead_letter(engine: &Engine, about: About<'_>, conclusion: &Conclusion) {
    let Conclusion::Dead { error, reason } = conclusion else { return };
    let alert = NewDlqAlert {
        job: about.claim.id,
        error_hash: error_hash(error.message.as_str()),
        fingerprint: error.fingerprint.clone(),
        window: engine.options.retry.alert_window,
    };
    let alerted = engine.store.record_alerts(&[alert]).await.map(|alerted| alerted.first().copied());
    let (method, class, error) = (CallName(about.job), &error.class, &error.message);
    match alerted {
        Ok(Some(Alerted { notify: false, count, .. })) => {
            tracing::warn!(%method, ?reason, %class, %error, count, "dead letter like others of late");
        }
        Ok(_) => tracing::error!(%method, ?reason, %class, %error, "dead letter"),
        Err(trouble) => {
            tracing::error!(%method, ?reason, %class, %error, "dead letter");
            tracing::warn!(%trouble, "the alert is not stored");
        }
    }
}

/// The first 8 bytes of the SHA-256 of a text.
fn error_hash(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
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
