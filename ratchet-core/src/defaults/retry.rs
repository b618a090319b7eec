use ratchet_api::spi::RetryPolicy;

/// A policy that allows every retry: the job's own limit and backoff decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlwaysRetry;

impl RetryPolicy for AlwaysRetry {}

#[cfg(test)]
mod tests {
    use ratchet_api::JobFailure;

    use super::*;

    // shows: S94
    #[test]
    fn it_says_yes_to_every_attempt_and_leaves_the_delay_to_the_job() {
        let failure = JobFailure::new("Timeout", "late").do_not_retry("checked before the policy is asked");
        for attempt in [1, 2, 1_000, u32::MAX] {
            assert!(AlwaysRetry.should_retry(attempt, &failure));
            assert_eq!(AlwaysRetry.delay(attempt, &failure), None);
        }
    }
}
