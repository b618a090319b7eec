//! The decision after a failure. Pure: no clock, no store, no random numbers of its own.

use std::time::Duration;

use ratchet_api::spi::RetryPolicy;
use ratchet_api::{Backoff, DeadReason, JobFailure, RetryAdvice};

/// The next step for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Another attempt after this.
    Retry(Duration),
    /// No further attempt.
    Dead(DeadReason),
    /// It was no failure: another attempt after this, with no attempt consumed.
    Snooze(Duration),
}

/// The retry settings of the job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryTerms {
    pub(crate) max_retries: u32,
    pub(crate) backoff: Backoff,
    /// Between 0 and 1, to spread jobs that failed together; `None` for no jitter.
    pub(crate) chance: Option<f64>,
}

/// Decides after failure number `attempt`, in the order of the specification: the error itself, the policy, which is
/// asked on the last attempt too, and the job's own limit.
pub(crate) fn decide(
    failure: &JobFailure,
    attempt: u32,
    terms: RetryTerms,
    policy: &dyn RetryPolicy,
) -> Decision {
    match failure.retry_advice() {
        RetryAdvice::Snooze(delay) => return Decision::Snooze(*delay),
        RetryAdvice::Never(_) => return Decision::Dead(DeadReason::DoNotRetry),
        RetryAdvice::Usual | RetryAdvice::After(_) => {}
    }
    if !policy.should_retry(attempt, failure) {
        return Decision::Dead(DeadReason::PolicyRefused);
    }
    if attempt > terms.max_retries {
        return Decision::Dead(DeadReason::Exhausted);
    }
    Decision::Retry(delay(failure, attempt, terms, policy))
}

/// The delay of the policy, else of the error, else of the job's own backoff.
fn delay(failure: &JobFailure, attempt: u32, terms: RetryTerms, policy: &dyn RetryPolicy) -> Duration {
    let advised = match failure.retry_advice() {
        RetryAdvice::After(delay) => Some(*delay),
        _ => None,
    };
    policy.delay(attempt, failure).or(advised).unwrap_or_else(|| match terms.chance {
        Some(chance) => terms.backoff.jittered(attempt, chance),
        None => terms.backoff.delay(attempt),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A policy with fixed answers, which counts how often it is asked.
    struct Says(bool, Option<Duration>, AtomicU32);

    impl RetryPolicy for Says {
        fn should_retry(&self, _: u32, _: &JobFailure) -> bool {
            self.2.fetch_add(1, Ordering::Relaxed);
            self.0
        }
        fn delay(&self, _: u32, _: &JobFailure) -> Option<Duration> {
            self.1
        }
    }

    fn says(answer: bool) -> Says {
        Says(answer, None, AtomicU32::new(0))
    }

    fn failure() -> JobFailure {
        JobFailure::new("Timeout", "too slow")
    }

    fn terms(max_retries: u32) -> RetryTerms {
        RetryTerms { max_retries, backoff: Backoff::Exponential(Duration::from_secs(30)), chance: None }
    }

    // shows: S95
    #[test]
    fn n_retries_make_n_and_one_executions() {
        let ends = |max| {
            (1..10).find(|attempt| {
                decide(&failure(), *attempt, terms(max), &says(true)) == Decision::Dead(DeadReason::Exhausted)
            })
        };
        assert_eq!(ends(0), Some(1));
        assert_eq!(ends(3), Some(4));
    }

    // shows: S92
    #[test]
    fn an_error_that_forbids_retries_goes_straight_to_the_dead_letters_and_asks_nobody() {
        let (policy, never) = (says(true), failure().do_not_retry("declined"));
        assert_eq!(decide(&never, 1, terms(5), &policy), Decision::Dead(DeadReason::DoNotRetry));
        assert_eq!(policy.2.load(Ordering::Relaxed), 0);
    }

    // shows: S94
    #[test]
    fn the_policy_is_asked_on_the_last_attempt_too_and_may_refuse() {
        let policy = says(true);
        assert_eq!(decide(&failure(), 1, terms(0), &policy), Decision::Dead(DeadReason::Exhausted));
        assert_eq!(policy.2.load(Ordering::Relaxed), 1);
        assert_eq!(decide(&failure(), 1, terms(5), &says(false)), Decision::Dead(DeadReason::PolicyRefused));
    }

    // shows: S96
    #[test]
    fn the_delay_is_the_policys_else_the_errors_else_the_jobs_own() {
        let secs = Duration::from_secs;
        let after = failure().retry_after(secs(7));
        let firm = Says(true, Some(secs(3)), AtomicU32::new(0));
        assert_eq!(decide(&after, 1, terms(5), &firm), Decision::Retry(secs(3)));
        assert_eq!(decide(&after, 1, terms(5), &says(true)), Decision::Retry(secs(7)));
        assert_eq!(decide(&failure(), 2, terms(5), &says(true)), Decision::Retry(secs(60)));
        let spread = RetryTerms { chance: Some(1.0), ..terms(5) };
        assert_eq!(decide(&failure(), 1, spread, &says(true)), Decision::Retry(secs(33)));
    }

    #[test]
    fn a_snooze_is_no_failure() {
        let snooze = JobFailure::snooze(Duration::from_secs(9));
        assert_eq!(decide(&snooze, 1, terms(0), &says(false)), Decision::Snooze(Duration::from_secs(9)));
    }
}
