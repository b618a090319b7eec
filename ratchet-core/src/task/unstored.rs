//! What the store did not take of an outcome that stands: somebody must hear of it.

use ratchet_api::{Inserted, JobClaim, JobEventKind, LogLevel, NewLogLine, Verdict};

use super::record::Taken;
use crate::engine::Engine;
use crate::outcome::Conclusion;

/// A part of an outcome that is not stored.
#[derive(Debug, PartialEq)]
pub(super) struct Unstored {
    text: String,
    level: LogLevel,
    /// Whether it is the callback, which comes after what the body submitted.
    callback: bool,
}

/// What the store did not take of a recorded outcome: its result, what it submits, its callback.
pub(super) fn unstored(Taken { verdict, conclusion, callback_refused }: &Taken) -> Vec<Unstored> {
    let Verdict::Recorded(recorded) = verdict else { return Vec::new() };
    let (by_body, unkept) = match conclusion {
        Conclusion::Succeeded { submissions, unkept, .. } => (submissions.len(), unkept.as_ref()),
        _ => (0, None),
    };
    let unkept = unkept.map(|failure| Unstored {
        text: format!("the result is not kept: {}", failure.message()),
        level: LogLevel::Warn,
        callback: false,
    });
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
    unkept.into_iter().chain(submitted).chain(refused).collect()
}

/// Logs it here and with the job, and publishes it if it is a callback.
pub(super) async fn tell(engine: &Engine, claim: &JobClaim, unstored: Vec<Unstored>) {
    let mut lines = Vec::new();
    for Unstored { text, level, callback } in unstored {
        let message = engine.journal.sanitized(&text);
        match level {
            LogLevel::Error => tracing::error!("{message}"),
            LogLevel::Warn => tracing::warn!("{message}"),
            _ => tracing::info!("{message}"),
        }
        if callback {
            engine.publish(claim, JobEventKind::CallbackFailed { error: message.to_string() });
        }
        lines.push(NewLogLine { job: claim.id, fence: claim.fence, level, message });
    }
    engine.journal.append(claim.id, lines).await;
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
        let unkept = Some(JobFailure::new("TooLarge", "it is too large"));
        let conclusion = Conclusion::Succeeded { result: None, unkept, submissions };
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
        let kept = ("the result is not kept: it is too large", LogLevel::Warn, false);
        assert_eq!(told, [kept, (&*key, LogLevel::Info, false), (&*refused, LogLevel::Error, true)]);
        taken.callback_refused =
            Some(Sanitized::new(&DefaultErrorSanitizer::default(), &JobFailure::new("", "no")));
        assert_eq!(unstored(&taken).len(), 4);
        taken.verdict = Verdict::LeaseLost;
        assert_eq!(unstored(&taken), []);
    }
}
