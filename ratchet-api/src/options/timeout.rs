use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, days, millis, mins, secs};

/// How long an attempt may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeoutOptions {
    /// Limit for jobs that give none of their own. Default 30 min; zero means no limit.
    pub default_timeout: Duration,
    /// Share of the limit, in percent, after which a warning is logged. Default 80; 100 means no warning.
    pub soft_percent: u8,
    /// Time for a body to notice that it was told to stop, before its attempt is given up. Default 5 s.
    pub cancel_grace: Duration,
    /// How long one `before_start` or `after_start` of a lifecycle hook may take. Default 10 min, since a schema may be
    /// migrated in one. The hooks of a stop have `execution.drain_timeout`, and at least 1 s.
    pub start_hook: Duration,
}

impl TimeoutOptions {
    /// Checks ranges.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("timeout");
        rules.within("default_timeout", self.default_timeout, Duration::ZERO, days(365));
        rules.within("soft_percent", self.soft_percent, 1, 100);
        rules.within("cancel_grace", self.cancel_grace, Duration::ZERO, mins(10));
        rules.within("start_hook", self.start_hook, millis(1), days(1));
        rules.verdict()
    }
}

impl Default for TimeoutOptions {
    fn default() -> Self {
        Self { default_timeout: secs(1_800), soft_percent: 80, cancel_grace: secs(5), start_hook: mins(10) }
    }
}
