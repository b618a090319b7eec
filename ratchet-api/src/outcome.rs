//! Outcomes: how an attempt ended, with all consequences for its job and others.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    BatchProgress, Edge, Fence, Inserted, JobId, JsonText, ParkedOn, Sanitized, Submission, Timestamp,
};

/// The end of one attempt, recorded in one fenced write.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The job.
    pub id: JobId,
    /// The fence of the claim.
    pub fence: Fence,
    /// When the body ran; `None` if it never started.
    pub run: Option<Run>,
    /// How it ended.
    pub end: End,
    /// The details of the crash, for a job that is handed back as [`Crashed`](HandBackReason::Crashed): above all the
    /// node that died with it.
    pub crash: Option<ErrorRecord>,
    /// The parking of a job that is handed back and may have killed a node; see [`ParkedOn::Suspect`].
    pub suspect: Option<ParkedOn>,
    /// Consequences for other jobs, in the same transaction.
    pub effects: Vec<Effect>,
    /// The job's [`edge_count`](crate::Job::edge_count) when `effects` were decided; if it is higher by now, the store
    /// answers [`Verdict::EdgesChanged`] instead.
    pub edges_seen: u32,
}

impl Outcome {
    /// Creates an outcome of a body that never started, without effects.
    pub const fn new(id: JobId, fence: Fence, end: End) -> Self {
        Self { id, fence, run: None, end, crash: None, suspect: None, effects: Vec::new(), edges_seen: 0 }
    }

    /// The error, if there was one.
    pub fn error(&self) -> Option<&ErrorRecord> {
        match &self.end {
            End::Retry { error, .. } | End::DeadLetter { error, .. } => Some(error),
            End::HandBack { reason: HandBackReason::Crashed, .. } => self.crash.as_ref(),
            End::HandBack { .. } | End::Park { .. } | End::Succeeded { .. } | End::Canceled { .. } => None,
        }
    }

    /// The reason why the job is parked from now on, if it is.
    pub fn parked_on(&self) -> Option<&ParkedOn> {
        match &self.end {
            End::Park { on } => Some(on),
            End::HandBack { .. } => self.suspect.as_ref(),
            End::Retry { .. } | End::DeadLetter { .. } | End::Succeeded { .. } | End::Canceled { .. } => None,
        }
    }

    /// Whether a node died with the job once more.
    pub const fn is_crash(&self) -> bool {
        matches!(
            self.end,
            End::HandBack { reason: HandBackReason::Crashed, .. }
                | End::DeadLetter { reason: DeadReason::Crashed, .. }
        )
    }
}

/// The run of a body, in elapsed times because node clocks are not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// How long before this write the body started.
    pub started_ago: Duration,
    /// How long it ran.
    pub ran_for: Duration,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The body returned; `result` is what it returned, if anything.
    Succeeded {
        /// The return value of the body.
        result: Option<JsonText>,
    },
    /// The body failed and is tried again after `delay`. One attempt is consumed.
    Retry {
        /// How long to wait.
        delay: Duration,
        /// The error.
        error: ErrorRecord,
    },
    /// The job failed for good.
    DeadLetter {
        /// The error.
        error: ErrorRecord,
        /// Why it is not tried again. An attempt is consumed unless it was the node that crashed or the job
        /// was not run at all.
        reason: DeadReason,
    },
    /// The job goes back to PENDING unfinished; no attempt is consumed.
    HandBack {
        /// How long to wait.
        delay: Duration,
        /// The reason.
        reason: HandBackReason,
    },
    /// The job is parked until a node or a resource provides what it lacks; no attempt is consumed and its due time is
    /// kept.
    Park {
        /// The reason.
        on: ParkedOn,
    },
    /// The job is canceled.
    Canceled {
        /// The reason, for people.
        reason: Sanitized,
    },
}

impl End {
    /// Whether the job keeps its due time, and with it its place in the queue: it is parked, or goes back without delay
    /// and neither failed nor asked for it. A job that lost its node need not wait behind the jobs that became due
    /// meanwhile.
    pub fn keeps_due(&self) -> bool {
        use HandBackReason::{Crashed, Released};
        match self {
            Self::Park { .. } => true,
            Self::HandBack { delay, reason: Crashed | Released } => delay.is_zero(),
            _ => false,
        }
    }
}

/// A sanitized error, ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// The error class, without the message.
    pub class: Sanitized,
    /// Class and message.
    pub message: Sanitized,
    /// The group of errors that differ only in numbers, ids and quoted text.
    pub fingerprint: Fingerprint,
}

impl ErrorRecord {
    /// Creates a record from a sanitized class and message of an error of `target`.
    pub fn new(target: &str, class: Sanitized, message: Sanitized) -> Self {
        let fingerprint = Fingerprint::of(target, class.as_str(), message.as_str());
        Self { class, message, fingerprint }
    }
}

/// A hash that groups like errors: of the target, the error class and the message with its variable parts masked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// The fingerprint of an error.
    ///
    /// ```
    /// use ratchet_api::Fingerprint;
    ///
    /// let of = |message| Fingerprint::of("billing.Pay", "Timeout", message);
    /// assert_eq!(of("no answer from 'eu-1' after 31 ms"), of("no answer from 'us-9' after 7 ms"));
    /// assert_ne!(of("no answer"), of("refused"));
    /// ```
    pub fn of(target: &str, class: &str, message: &str) -> Self {
        use sha2::{Digest, Sha256};
        let text = [target, class, &masked(message)].join("\0");
        let digest = Sha256::digest(text.as_bytes());
        Self(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads a stored fingerprint.
    pub fn from_stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The stored text: 32 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Replaces quoted text, and words with a digit in them (numbers, ids, UUIDs), by `#`.
fn masked(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut chars = message.chars().peekable();
    while let Some(c) = chars.next() {
        if matches!(c, '\'' | '"' | '`') {
            let mut rest = chars.clone();
            if rest.any(|other| other == c) {
                chars = rest;
                out.push('#');
                continue;
            }
        }
        if !c.is_alphanumeric() {
            out.push(c);
            continue;
        }
        let mut word = String::from(c);
        while let Some(next) = chars.next_if(|next| next.is_alphanumeric() || matches!(next, '-' | '_')) {
            word.push(next);
        }
        out.push_str(if word.contains(|c: char| c.is_numeric()) { "#" } else { &word });
    }
    out
}

/// Why a job went to the dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum DeadReason {
    /// Its retries are used up.
    Exhausted,
    /// The error advises against a retry.
    DoNotRetry,
    /// The retry policy refused another attempt.
    PolicyRefused,
    /// Too many nodes died while they held it.
    Crashed,
    /// Its target is not allowed to run.
    Denied,
    /// No node knew its target for longer than the operator allows.
    UnknownTarget,
}

impl DeadReason {
    /// Whether the body ran and failed, which consumes an attempt.
    pub const fn consumes_attempt(self) -> bool {
        matches!(self, Self::Exhausted | Self::DoNotRetry | Self::PolicyRefused)
    }
}

/// Why a job goes back unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum HandBackReason {
    /// The node stops, or claimed more than it could start.
    Released,
    /// A circuit breaker is open.
    BreakerOpen,
    /// This node lists its method, but cannot resolve its target.
    UnknownTarget,
    /// The body asked to be called again later.
    Snoozed,
    /// Its node died. Raises the crash count.
    Crashed,
}

/// A consequence of an outcome for other jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The edge to this child is satisfied.
    Satisfy(JobId),
    /// The edge to this child is refused.
    Refuse(JobId),
    /// These jobs are submitted: callbacks, and what the body enqueued.
    Submit(Box<Submission>),
}

/// The store's verdict on an outcome.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is recorded, with all its effects.
    Recorded(Recorded),
    /// An earlier write of this very outcome was recorded; only its reply was lost. Nothing was done twice.
    AlreadyRecorded,
    /// A cancel had been requested: CANCELED is recorded instead, and the result and effects are dropped.
    CanceledInstead,
    /// Edges were added meanwhile. Nothing was done: the effects must be decided again, for all of these edges.
    EdgesChanged {
        /// Every edge that leads from the job and is stored.
        edges: Vec<Edge>,
        /// The value of [`edges_seen`](Outcome::edges_seen) for the next try. Edges that were removed with their child
        /// still count.
        edge_count: u32,
    },
    /// The fence is lost: another owner has the job. Nothing was done: drop the result.
    LeaseLost,
}

impl Verdict {
    /// Whether the outcome, or a cancel in its place, is in the store.
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Recorded(_) | Self::AlreadyRecorded | Self::CanceledInstead)
    }
}

/// The consequences of a recorded outcome.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recorded {
    /// When the job is due again, if it is.
    pub next_due: Option<Timestamp>,
    /// The present progress of its batch, if it has one and has ended.
    pub batch: Option<BatchProgress>,
    /// Jobs that no longer wait for any parent.
    pub released: Vec<JobId>,
    /// Jobs that were canceled because they can no longer get what they need.
    pub canceled: Vec<JobId>,
    /// The verdict on each [`Effect::Submit`], in order. A refused one never undoes the outcome.
    pub submitted: Vec<Inserted>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_parts_of_a_message_are_masked() {
        for (message, mask) in [
            ("timeout after 31 ms", "timeout after # ms"),
            ("order 'A-17' of \"x y\"", "order # of #"),
            ("user 018f-aa01_b3 unknown", "user # unknown"),
            ("it's broken", "it's broken"),
            ("h2 pool", "# pool"),
        ] {
            assert_eq!(masked(message), mask);
        }
    }

    #[test]
    fn only_a_body_that_ran_and_failed_consumes_an_attempt() {
        use DeadReason::{Crashed, Denied, DoNotRetry, Exhausted, PolicyRefused, UnknownTarget};
        let ran = [Exhausted, DoNotRetry, PolicyRefused];
        assert_eq!(ran.map(DeadReason::consumes_attempt), [true; 3]);
        let did_not = [Crashed, Denied, UnknownTarget];
        assert_eq!(did_not.map(DeadReason::consumes_attempt), [false; 3]);
    }

    #[test]
    fn an_outcome_is_settled_once_it_or_a_cancel_is_stored() {
        let settled =
            [Verdict::Recorded(Recorded::default()), Verdict::AlreadyRecorded, Verdict::CanceledInstead];
        assert!(settled.iter().all(Verdict::is_settled));
        assert!(
            ![Verdict::EdgesChanged { edges: vec![], edge_count: 1 }, Verdict::LeaseLost]
                .iter()
                .any(Verdict::is_settled)
        );
    }

    #[test]
    fn a_fingerprint_reads_back_as_it_was_stored() {
        let made = Fingerprint::of("billing.Pay", "Timeout", "no answer after 31 ms");
        assert_eq!(made.as_str().len(), 32);
        assert_eq!(Fingerprint::from_stored(made.as_str()), made);
    }
}
