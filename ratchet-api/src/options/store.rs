use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, days, mins, secs};

/// Claim order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Waiting time that raises the effective priority of a job by one level. Default 15 min, so that the lowest
    /// priority overtakes a fresh critical job after little more than an hour. Zero switches ageing off.
    pub priority_boost_interval: Duration,
}

impl StoreOptions {
    /// Checks ranges.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("store");
        let interval = self.priority_boost_interval;
        let holds = interval.is_zero() || (secs(1)..=days(365)).contains(&interval);
        rules.ensure(holds, "priority_boost_interval", interval, "0ns (no ageing) or 1s to 31536000s");
        rules.verdict()
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { priority_boost_interval: mins(15) }
    }
}
