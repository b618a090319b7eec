use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, days, millis, mins, secs};

/// How recurring schedules are fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecurringOptions {
    /// Maximum number of schedules that are fired in one go. Default 20.
    pub batch_limit: u32,
    /// Shortest time between two polls for due schedules. Default 1 s.
    pub min_poll: Duration,
    /// Longest time between two polls; in between, the earliest next fire decides. Default 60 s.
    pub max_poll: Duration,
    /// How long after its start a node cancels no schedule that it does not know. Default 60 s: in a rolling deployment
    /// their declaration may just have been removed, or not have arrived here yet.
    pub startup_grace: Duration,
    /// How long a declaration must have been gone before its schedule is canceled. Default zero.
    pub convergence_window: Duration,
    /// Maximum number of missed occurrences that the catch-up policy fires, the first included. Default 11.
    pub max_catch_up: u32,
    /// How long the lock of the firing node outlives a crash. Default 5 min. The lock only saves work: what
    /// prevents a second fire is a unique row per schedule and instant.
    pub lock_ttl: Duration,
}

impl RecurringOptions {
    /// Checks ranges.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("recurring");
        rules.within("batch_limit", self.batch_limit, 1, 10_000);
        rules.within("min_poll", self.min_poll, millis(50), self.max_poll);
        rules.within("max_poll", self.max_poll, millis(50), mins(60));
        rules.within("startup_grace", self.startup_grace, Duration::ZERO, days(1));
        rules.within("convergence_window", self.convergence_window, Duration::ZERO, days(30));
        rules.within("max_catch_up", self.max_catch_up, 1, 10_000);
        rules.within("lock_ttl", self.lock_ttl, secs(1), days(1));
        rules.verdict()
    }
}

impl Default for RecurringOptions {
    fn default() -> Self {
        Self {
            batch_limit: 20,
            min_poll: secs(1),
            max_poll: secs(60),
            startup_grace: secs(60),
            convergence_window: Duration::ZERO,
            max_catch_up: 11,
            lock_ttl: mins(5),
        }
    }
}
