use std::collections::BTreeMap;
use std::time::Duration;

use super::OptionsError;
use super::rules::{Rules, days, millis, secs};

/// The queues that this node serves, and the treatment of jobs that cannot run here now.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionOptions {
    /// The queues this node serves, by name. Default: only `default`. A node that does not name a queue never
    /// claims from it.
    pub queues: BTreeMap<String, QueueOptions>,
    /// How long running jobs may go on after shutdown was asked for. Default 30 s, the usual time between
    /// SIGTERM and SIGKILL.
    pub drain_timeout: Duration,
    /// Delay of the first hand-back of a job whose method this node lists while it cannot resolve its bean.
    /// Default 1 s.
    pub unknown_target_min_delay: Duration,
    /// Maximum of that delay, which grows per node and target. Default 60 s.
    pub unknown_target_max_delay: Duration,
    /// How long the method of a waiting job may be unknown to every live node before the job is dead-lettered. Default
    /// none: it waits until some node knows the method.
    pub unknown_target_limit: Option<Duration>,
}

/// One queue as this node serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOptions {
    /// Jobs of this queue that run on this node at the same time. Default 50, one full claim.
    pub slots: u32,
    /// The most jobs of this queue that this node starts in any minute, spread evenly over it. Default none. For a
    /// limit across the cluster use a resource.
    pub rate_limit_per_minute: Option<u32>,
}

impl ExecutionOptions {
    /// The queue that jobs go to when they name none.
    pub const DEFAULT_QUEUE: &str = "default";

    /// The settings of a queue, added with defaults if this node did not serve it yet.
    pub fn queue(&mut self, name: impl Into<String>) -> &mut QueueOptions {
        self.queues.entry(name.into()).or_default()
    }

    /// Checks ranges and queue names.
    ///
    /// # Errors
    /// All fields that are out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let mut rules = Rules::new("execution");
        rules.ensure(!self.queues.is_empty(), "queues", &self.queues, "at least one queue");
        for (name, queue) in &self.queues {
            let named = (1..=64).contains(&name.len());
            rules.ensure(named, "queues", name, "names of 1 to 64 bytes");
            rules.within(format!("queues[{name}].slots"), queue.slots, 1, 100_000);
            if let Some(rate) = queue.rate_limit_per_minute {
                rules.within(format!("queues[{name}].rate_limit_per_minute"), rate, 1, u32::MAX);
            }
        }
        rules.within("drain_timeout", self.drain_timeout, Duration::ZERO, days(1));
        let (min, max) = (self.unknown_target_min_delay, self.unknown_target_max_delay);
        rules.within("unknown_target_min_delay", min, millis(100), max);
        rules.within("unknown_target_max_delay", max, millis(100), days(1));
        if let Some(limit) = self.unknown_target_limit {
            rules.within("unknown_target_limit", limit, millis(10), days(365));
        }
        rules.verdict()
    }
}

impl Default for ExecutionOptions {
    fn default() -> Self {
        Self {
            queues: BTreeMap::from([(Self::DEFAULT_QUEUE.to_owned(), QueueOptions::default())]),
            drain_timeout: secs(30),
            unknown_target_min_delay: secs(1),
            unknown_target_max_delay: secs(60),
            unknown_target_limit: None,
        }
    }
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { slots: 50, rate_limit_per_minute: None }
    }
}
