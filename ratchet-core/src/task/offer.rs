//! Records the conclusion of an attempt.
//!
//! An outcome is offered to the store until it is recorded or the lease is lost. An error about the store's own state
//! (read-only, a missing grant, a full disk, an outage) is a reason to wait and to offer it again. Only an outcome that
//! is refused for its content, while the store takes other writes, is cut down: see [`Form`].

use std::time::Duration;

use ratchet_api::{
    DeadReason, HandBackReason, JobFailure, Run, Sanitized, StoreError, StoreErrorKind, Verdict,
};
use tokio::time::Instant;

use super::record_outcome::failed;
use super::unstored::tell_unkept;
use crate::commit_claim::Offer;
use crate::coordinator::slots::SlotTicket;
use crate::engine::Engine;
use crate::outcome::{self, About, Callbacks, Conclusion, Edges};
use crate::unrecorded::Waiting;

/// The most bytes of an error text that is offered instead of one that was refused.
const PLAIN_BYTES: usize = 500;

/// How much of a conclusion is offered to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// All of it.
    Whole,
    /// A success without its result, which no dependent or callback needs.
    WithoutResult,
    /// The failure `OutcomeRefused`, in plain ASCII, without what the body submitted.
    AsFailure,
    /// The same failure, without the callback.
    WithoutCallback,
}

impl Form {
    /// The form to offer after this one was refused for its content; `None` if no less can be offered.
    fn next(self, conclusion: &Conclusion, result_is_awaited: bool) -> Option<Self> {
        match (self, conclusion) {
            (
                _,
                Conclusion::HandBack { .. }
                | Conclusion::Park { .. }
                | Conclusion::Crashed { .. }
                | Conclusion::Canceled { .. },
            ) => None,
            (Self::Whole, Conclusion::Succeeded { result: Some(_), .. }) if !result_is_awaited => {
                Some(Self::WithoutResult)
            }
            (Self::Whole | Self::WithoutResult, _) => Some(Self::AsFailure),
            (Self::AsFailure, Conclusion::Dead { .. }) => Some(Self::WithoutCallback),
            (Self::AsFailure | Self::WithoutCallback, _) => None,
        }
    }
}

/// A conclusion on its way into the store.
pub(crate) struct Recording<'a> {
    pub(crate) about: About<'a>,
    pub(crate) edges: Edges,
    pub(crate) conclusion: Conclusion,
    /// When the body began and for how long it ran, if it did.
    pub(crate) run: Option<(Instant, Duration)>,
    /// The place among the claimed jobs, which an outcome that waits leaves to another job.
    pub(crate) ticket: Option<&'a SlotTicket>,
}

/// The part of a recording that the store took.
pub(crate) struct Taken {
    pub(crate) verdict: Verdict,
    pub(crate) conclusion: Conclusion,
    /// Why the callback is not part of it, if there is one.
    pub(crate) callback_refused: Option<Sanitized>,
}

/// An outcome that the store did not take.
struct Trouble {
    waiting: Waiting,
    tries: u32,
    /// The state of other writes when it was first refused for its content.
    refused: Option<Written>,
}

/// The evidence that a store takes writes: outcomes of other jobs, or a heartbeat if there are none.
struct Written {
    outcomes: u64,
    at: std::time::Instant,
}

impl Recording<'_> {
    /// Offers it until the store has recorded it; `None` if the lease was lost before. Also returns the conclusion that
    /// was recorded in the end.
    pub(crate) async fn offer(mut self, engine: &Engine) -> Option<Taken> {
        let (mut form, mut trouble, mut callback_refused) = (Form::Whole, None::<Trouble>, None);
        let mut told_in = None;
        loop {
            self.fail_those_who_wait(engine);
            if let Conclusion::Succeeded { unkept: Some(failure), .. } = &self.conclusion
                && told_in.replace(form) != Some(form)
            {
                tell_unkept(engine, self.about, failure).await;
            }
            let alone = trouble.as_ref().is_some_and(|trouble| trouble.refused.is_some());
            let error = match engine
                .commit_claim
                .commit(Offer { outcome: self.outcome(engine, form), alone })
                .await
            {
                Ok(Verdict::EdgesChanged { edges: known, edge_count: count }) => {
                    self.edges = Edges { known, count };
                    continue;
                }
                Ok(verdict) => {
                    return Some(Taken { verdict, conclusion: self.conclusion, callback_refused });
                }
                Err(error) => error,
            };
            if !engine.lease.holds() {
                tracing::warn!(
                    "the lease of this node is lost; the outcome of the job is not written, and it runs again"
                );
                return None;
            }
            let trouble = trouble.get_or_insert_with(|| {
                self.ticket.inspect(|ticket| ticket.set_aside());
                Trouble::new(engine)
            });
            trouble.waiting.because(&error, || reason(engine, &error));
            match form.next(&self.conclusion, self.result_is_awaited()) {
                Some(next) if trouble.is_its_own_fault(&error, engine) => {
                    let reason = reason(engine, &error);
                    tracing::error!(%reason, next = ?next, "the store refuses the outcome for its content; it is reduced");
                    self.conclusion = reduced(engine, &self, next, &reason);
                    form = next;
                    let has_callback = self.about.on_failure().is_some();
                    callback_refused = Some(reason).filter(|_| form == Form::WithoutCallback && has_callback);
                }
                _ => trouble.pause(engine).await,
            }
        }
    }

    fn outcome(&self, engine: &Engine, form: Form) -> ratchet_api::Outcome {
        let run = self.run.map(|(started, ran_for)| Run { started_ago: started.elapsed(), ran_for });
        let limits = engine.limits();
        let callbacks =
            Callbacks { limits: &limits, retry: &engine.node.options.retry, registry: &engine.node.registry };
        let callbacks = Some(callbacks).filter(|_| form != Form::WithoutCallback);
        let mut outcome = outcome::of(self.about, &self.edges, &self.conclusion, run, callbacks);
        // A job that snoozed has run without killing its node.
        if !matches!(self.conclusion, Conclusion::HandBack { reason: HandBackReason::Snoozed, .. }) {
            outcome.suspect = engine.node.running.suspect(self.about.claim.id);
        }
        outcome
    }

    /// Whether dependents or a callback need the result.
    fn result_is_awaited(&self) -> bool {
        self.about.result_is_awaited(&self.edges)
    }

    /// Makes a success whose result is not kept a failure, if dependents or a callback need the result.
    fn fail_those_who_wait(&mut self, engine: &Engine) {
        if let (Conclusion::Succeeded { unkept: Some(failure), .. }, Some(job)) =
            (&self.conclusion, self.about.job)
            && self.result_is_awaited()
        {
            self.conclusion = failed(engine, self.about.claim, &job.spec, failure);
        }
    }
}

impl Trouble {
    fn new(engine: &Engine) -> Self {
        Self { waiting: engine.node.unrecorded.wait(), tries: 0, refused: None }
    }

    /// Whether the outcome is at fault, and not a store that takes no writes: it was refused for its content, and
    /// something else was written since the first time.
    fn is_its_own_fault(&mut self, error: &StoreError, engine: &Engine) -> bool {
        if error.kind() != StoreErrorKind::RefusedContent {
            return false;
        }
        match &self.refused {
            Some(then) => {
                engine.commit_claim.recorded() > then.outcomes || engine.lease.was_renewed_after(then.at)
            }
            None => {
                let outcomes = engine.commit_claim.recorded();
                self.refused = Some(Written { outcomes, at: std::time::Instant::now() });
                false
            }
        }
    }

    /// Waits before the next try: longer each time, up to `drain_interval`.
    async fn pause(&mut self, engine: &Engine) {
        let pause = pause(engine.node.options.retry.drain_interval, self.tries, rand::random());
        self.tries = self.tries.saturating_add(1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = engine.lease.lost() => {}
        }
    }
}

/// The pause before the next try: an eighth of `longest` at first, twice as long each time, at random between half of
/// it and all of it.
fn pause(longest: Duration, tries: u32, chance: f64) -> Duration {
    let full = (longest / 8).saturating_mul(2_u32.saturating_pow(tries)).min(longest);
    full / 2 + (full / 2).mul_f64(chance)
}

/// Why the store did not take an outcome, with the database's code and message, fit to be logged and stored.
fn reason(engine: &Engine, error: &StoreError) -> Sanitized {
    Sanitized::new(&*engine.node.plugs.sanitizer, &JobFailure::from_error(error))
}

/// The conclusion that is offered in this form instead.
fn reduced(engine: &Engine, recording: &Recording<'_>, form: Form, reason: &Sanitized) -> Conclusion {
    let message = |error: &str| plain(&format!("the store refused the outcome ({reason}){error}"));
    let target = recording.about.job.map_or("", |job| job.spec.payload.target().as_str());
    let refused =
        |error: &str| engine.node.error_record(target, &JobFailure::new("OutcomeRefused", message(error)));
    match recording.conclusion.clone() {
        Conclusion::Succeeded { submissions, .. } if form == Form::WithoutResult => {
            let unkept = Some(JobFailure::new("OutcomeRefused", message("")));
            Conclusion::Succeeded { result: None, unkept, submissions }
        }
        Conclusion::Succeeded { .. } => {
            let failure = JobFailure::new("OutcomeRefused", message(""));
            match recording.about.job {
                Some(job) => failed(engine, recording.about.claim, &job.spec, &failure),
                None => Conclusion::Dead { error: refused(""), reason: DeadReason::DoNotRetry },
            }
        }
        Conclusion::Retry { delay, error } if form == Form::AsFailure => {
            Conclusion::Retry { delay, error: refused(&format!("; the job had failed: {}", error.message)) }
        }
        Conclusion::Dead { error, reason } if form == Form::AsFailure => {
            let error = refused(&format!("; the job had failed: {}", error.message));
            Conclusion::Dead { error, reason }
        }
        other => other,
    }
}

/// A text that every database can hold: printable ASCII, and not much of it.
fn plain(text: &str) -> String {
    let plain = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
    text.chars().map(plain).take(PLAIN_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use ratchet_api::{ErrorRecord, JsonText};

    use super::*;
    use crate::defaults::DefaultErrorSanitizer;

    fn text() -> Sanitized {
        Sanitized::new(&DefaultErrorSanitizer::default(), &JobFailure::new("", "words"))
    }

    fn error() -> ErrorRecord {
        ErrorRecord::new("", text(), text())
    }

    #[test]
    fn less_is_offered_step_by_step() {
        use Form::{AsFailure, Whole, WithoutCallback, WithoutResult};
        let result = Some(JsonText::of(&1).unwrap());
        let rich = Conclusion::Succeeded { result, unkept: None, submissions: Vec::new() };
        let poor = Conclusion::Succeeded { result: None, unkept: None, submissions: Vec::new() };
        let retry = Conclusion::Retry { delay: Duration::ZERO, error: error() };
        let dead = Conclusion::Dead { error: error(), reason: DeadReason::Exhausted };
        let back = Conclusion::HandBack { delay: Duration::ZERO, reason: HandBackReason::Released };
        let off = Conclusion::Canceled { reason: text() };
        assert_eq!(Whole.next(&rich, false), Some(WithoutResult));
        assert_eq!(Whole.next(&rich, true), Some(AsFailure), "somebody waits for the result");
        assert_eq!(Whole.next(&poor, false), Some(AsFailure));
        assert_eq!(WithoutResult.next(&poor, false), Some(AsFailure));
        for failure in [&retry, &dead] {
            assert_eq!(Whole.next(failure, false), Some(AsFailure));
        }
        assert_eq!(AsFailure.next(&dead, false), Some(WithoutCallback));
        assert_eq!(AsFailure.next(&retry, false), None, "a retry tells no callback");
        assert_eq!(WithoutCallback.next(&dead, false), None);
        for unrun in [&back, &off] {
            assert_eq!(Whole.next(unrun, false), None, "it has no content of the body's");
        }
    }

    #[test]
    fn tries_are_further_and_further_apart_up_to_a_bound() {
        let (second, ms) = (Duration::from_secs(1), Duration::from_millis);
        let pauses: Vec<_> = [0, 1, 2, 3, 4, 1_000].map(|tries| pause(second, tries, 1.0)).into();
        assert_eq!(pauses, [ms(125), ms(250), ms(500), second, second, second]);
        assert_eq!(pause(second, 0, 0.0), ms(125) / 2);
    }

    #[test]
    fn plain_text_is_short_printable_ascii() {
        assert_eq!(plain("caf\u{e9} \u{2026}\n"), "caf? ??");
        assert_eq!(plain(&"x".repeat(PLAIN_BYTES + 1)).len(), PLAIN_BYTES);
    }
}
