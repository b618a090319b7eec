use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, days, millis, mins, secs};
use crate::backoff::Backoff;

/// Retry defaults for jobs without retry options, and the delays that consume no attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOptions {
    /// Retries after the first attempt. Default 0: repeating a body is safe only if its author says so.
    pub max_retries: u32,
    /// Delay before a retry. Default none.
    pub backoff: Backoff,
    /// Whether delays are spread by ±10 %. Default true: jobs that failed together would come back together.
    pub jitter: bool,
    /// Delay of a job whose resource has no free permit, unless the resource names its own. Default 5 s.
    pub permit_delay: Duration,
    /// Pause between two tries to record outcomes that the store could not take. Default 1 s. Tries go on
    /// until the store answers or the lease is lost.
    pub drain_interval: Duration,
    /// Time in which a repeated dead-letter alert is counted but not sent. Default 1 h.
    pub alert_window: Duration,
}

impl RetryOptions {
    /// Checks ranges.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("retry");
        rules.within("max_retries", self.max_retries, 0, 1_000_000);
        if let Backoff::Fixed(base) | Backoff::Exponential(base) = self.backoff {
            rules.within("backoff", base, Duration::ZERO, Backoff::MAX_DELAY);
        }
        rules.within("permit_delay", self.permit_delay, millis(10), days(1));
        rules.within("drain_interval", self.drain_interval, millis(10), mins(1));
        rules.within("alert_window", self.alert_window, Duration::ZERO, days(30));
        rules.verdict()
    }
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            max_retries: 0,
            backoff: Backoff::None,
            jitter: true,
            permit_delay: secs(5),
            drain_interval: secs(1),
            alert_window: mins(60),
        }
    }
}
