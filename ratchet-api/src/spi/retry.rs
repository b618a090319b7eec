use std::time::Duration;

use crate::JobFailure;

/// Decides whether a failed job is retried, and when.
///
/// Asked after every failure whose error does not forbid it, on the last attempt too; the job's own limit is applied
/// afterwards. The default always says yes.
pub trait RetryPolicy: Send + Sync + 'static {
    /// Whether to retry after failure number `attempt`, counted from 1.
    ///
    /// # Contract
    /// - `retry_policy.asked`: asked once for each failure; `false` sends the job to the dead letters.
    fn should_retry(&self, attempt: u32, failure: &JobFailure) -> bool {
        let _ = (attempt, failure);
        true
    }

    /// The delay before the retry; `None` for the job's own backoff.
    ///
    /// # Contract
    /// - `retry_policy.delay`: an answer wins over the job's own backoff and gets no jitter.
    fn delay(&self, attempt: u32, failure: &JobFailure) -> Option<Duration> {
        let _ = (attempt, failure);
        None
    }
}
