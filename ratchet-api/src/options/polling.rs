use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, millis, mins, secs};

/// How often the poller claims, and how many jobs.
///
/// The delays are those of an adaptive strategy: short after a wakeup, longer while there is little to do. They
/// matter only when the last claim was not full; after a full one the poller claims again at once.
#[derive(Debug, Clone, PartialEq)]
pub struct PollingOptions {
    /// Maximum number of jobs per claim. Default 50: enough to share a round trip, few enough that one node does not
    /// take jobs that others could start sooner. A node whose jobs are fast claims more, also beyond its slots
    /// (prefetch): as many as it runs in a tenth of a second.
    pub batch_size: u32,
    /// Shortest delay in normal mode. Default 2 s.
    pub min_delay: Duration,
    /// Longest delay in normal mode. Default 30 s.
    pub max_delay: Duration,
    /// Delay in burst mode, which a wakeup starts. Default 500 ms.
    pub burst_delay: Duration,
    /// Empty polls in a row that end a burst, and after which the normal delay grows. Default 5.
    pub idle_threshold: u32,
    /// Delay in deep idle. Default 60 s.
    pub deep_idle_delay: Duration,
    /// Time without any job after which deep idle begins. Default 5 min.
    pub deep_idle_after: Duration,
    /// Jobs that may be claimed beyond the slots of their queue, as a share of these, rounded up: they wait on this
    /// node, so that a slot finds its next job at once. Default 0.0: a job that waits on this node cannot start on
    /// another. A queue with a rate limit has no headroom.
    pub claim_headroom_factor: f64,
    /// Pause after a poll that failed. Default 5 s.
    pub error_delay: Duration,
}

impl PollingOptions {
    /// Checks ranges, and that the delays are in order: burst, shortest, longest, deep idle. Each is bounded by
    /// the next one, so a disorder is reported once.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("polling");
        rules.within("batch_size", self.batch_size, 1, 10_000);
        rules.within("burst_delay", self.burst_delay, millis(50), self.min_delay);
        rules.within("min_delay", self.min_delay, millis(50), self.max_delay);
        rules.within("max_delay", self.max_delay, millis(50), self.deep_idle_delay);
        rules.within("deep_idle_delay", self.deep_idle_delay, millis(50), mins(60));
        rules.within("deep_idle_after", self.deep_idle_after, secs(1), mins(24 * 60));
        rules.within("idle_threshold", self.idle_threshold, 1, 1_000);
        rules.within("claim_headroom_factor", self.claim_headroom_factor, 0.0, 1.0);
        rules.within("error_delay", self.error_delay, millis(50), mins(5));
        rules.verdict()
    }
}

impl Default for PollingOptions {
    fn default() -> Self {
        Self {
            batch_size: 50,
            min_delay: secs(2),
            max_delay: secs(30),
            burst_delay: millis(500),
            idle_threshold: 5,
            deep_idle_delay: secs(60),
            deep_idle_after: mins(5),
            claim_headroom_factor: 0.0,
            error_delay: secs(5),
        }
    }
}
