use std::time::Duration;

use crate::JobFailure;

/// Has a say in whether a failed job is tried again.
///
/// Asked after every failure whose error does not forbid it, on the last attempt too; the job's own limit comes
/// after. The default always says yes.
pub trait RetryPolicy: Send + Sync + 'static {
    /// Whether to try again after failure number `attempt`, counted from 1.
    ///
    /// # Contract
    /// - `retry_policy.asked`: asked once for each failure; `false` sends the job to the dead letters.
    fn should_retry(&self, attempt: u32, failure: &JobFailure) -> bool {
        let _ = (attempt, failure);
        true
    }

    /// How long to wait; `None` for the job's own backoff.
    ///
    /// # Contract
    /// - `retry_policy.delay`: an answer wins over the job's own backoff and gets no jitter.
    fn delay(&self, attempt: u32, failure: &JobFailure) -> Option<Duration> {
        let _ = (attempt, failure);
        None
    }
}
