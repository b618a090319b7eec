//! The parts of a recorded outcome that the store did not take, which are logged.

use ratchet_api::{Inserted, JobEventKind, JobFailure, LogLevel, NewLogLine, Verdict};

use super::offer::Taken;
use crate::engine::Engine;
use crate::handle::NOT_KEPT;
use crate::outcome::{About, Conclusion};

/// A part of an outcome that is not stored.
#[derive(Debug, PartialEq)]
pub(super) struct Unstored {
    text: String,
    level: LogLevel,
    /// Whether it is the callback, which comes after what the body submitted.
    callback: bool,
}

/// The parts of a recorded outcome that the store did not take: its submissions, its callback.
pub(super) fn unstored(Taken { verdict, conclusion, callback_refused }: &Taken) -> Vec<Unstored> {
    let Verdict::Recorded(recorded) = verdict else { return Vec::new() };
    let by_body = match conclusion {
        Conclusion::Succeeded { submissions, .. } => submissions.len(),
        _ => 0,
    };
    let refused = callback_refused.as_ref().map(|reason| Unstored {
        text: format!("the callback is not stored: {reason}"),
        level: LogLevel::Error,
        callback: true,
    });
    let judge = |(place, answer): (usize, &Inserted)| {
        let callback = place >= by_body;
        let what = if callback { "the callback" } else { "a job that the body enqueued" };
        let (why, level) = match answer {
            Inserted::New => return None,
            Inserted::Existing(id) => (format!("job {id} has its idempotency key"), LogLevel::Info),
            Inserted::KeyTaken { holder } => (format!("job {holder} holds its business key"), LogLevel::Info),
            Inserted::AlreadyFired => ("its schedule has fired for that instant".to_owned(), LogLevel::Info),
            Inserted::Refused(refusal) => (refusal.to_string(), LogLevel::Error),
        };
        Some(Unstored { text: format!("{what} is not stored: {why}"), level, callback })
    };
    let submitted = recorded.submitted.iter().enumerate().filter_map(judge);
    submitted.chain(refused).collect()
}

/// Logs, here and with the job, why a result is not kept. It is logged before the outcome is recorded, so that a reader
/// who sees the end of the job finds it: see [`NOT_KEPT`].
pub(super) async fn tell_unkept(engine: &Engine, about: About<'_>, failure: &JobFailure) {
    let text = format!("{NOT_KEPT}{}", failure.message());
    tell(engine, about, vec![Unstored { text, level: LogLevel::Warn, callback: false }]).await;
}

/// Logs it here and with the job, and publishes it if it is a callback.
pub(super) async fn tell(engine: &Engine, about: About<'_>, unstored: Vec<Unstored>) {
    let claim = about.claim;
    let mut lines = Vec::new();
    for Unstored { text, level, callback } in unstored {
        let message = engine.node.journal.sanitized(&text);
        match level {
            LogLevel::Error => tracing::error!("{message}"),
            LogLevel::Warn => tracing::warn!("{message}"),
            _ => tracing::info!("{message}"),
        }
        if callback {
            engine.publish(about, JobEventKind::CallbackFailed { error: message.to_string() });
        }
        lines.push(NewLogLine { job: claim.id, fence: claim.fence, level, message });
    }
    engine.node.journal.append(lines).await;
}

#[cfg(test)]
mod tests {
    use crate::defaults::DefaultErrorSanitizer;
    use ratchet_api::{
        JobFailure, JobId, JobPayload, JsonText, NewJob, Recorded, Refusal, Sanitized, Submission,
    };

    use super::*;

    #[test]
    fn what_is_not_stored_is_told_and_the_callback_comes_last() {
        let payload = JobPayload::new("a.B", "c", &JsonText::from_stored("[]")).unwrap();
        let submissions = vec![Submission::single(NewJob::new(payload)); 2];
        let conclusion = Conclusion::Succeeded { result: None, unkept: None, submissions };
        let (holder, gone) = (JobId::generate(), JobId::generate());
        let mut recorded = Recorded::default();
        recorded.submitted = vec![
            Inserted::New,
            Inserted::KeyTaken { holder },
            Inserted::Refused(Refusal::UnknownParent(gone)),
        ];
        let mut taken = Taken { verdict: Verdict::Recorded(recorded), conclusion, callback_refused: None };
        let told = unstored(&taken);
        let told: Vec<_> = told.iter().map(|it| (it.text.as_str(), it.level, it.callback)).collect();
        let key = format!("a job that the body enqueued is not stored: job {holder} holds its business key");
        let refused = format!("the callback is not stored: {}", Refusal::UnknownParent(gone));
        assert_eq!(told, [(&*key, LogLevel::Info, false), (&*refused, LogLevel::Error, true)]);
        taken.callback_refused =
            Some(Sanitized::new(&DefaultErrorSanitizer::default(), &JobFailure::new("", "no")));
        assert_eq!(unstored(&taken).len(), 3);
        taken.verdict = Verdict::LeaseLost;
        assert_eq!(unstored(&taken), []);
    }
}
