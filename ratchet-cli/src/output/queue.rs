//! Output of queues.

use std::fmt;

use ratchet_api::store::QueueHealth;
use ratchet_api::{JobPriority, QueueName, whole_millis};
use serde::Serialize;

use super::{Table, span};

/// The health of every queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Queue>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Queue {
    name: QueueName,
    paused: bool,
    ready: u64,
    parked: u64,
    scheduled: u64,
    blocked: u64,
    running: u64,
    set_aside: u64,
    pub(crate) failed: u64,
    oldest_wait_ms: Option<i64>,
    ready_by_priority: ByPriority,
    #[serde(skip)]
    oldest_wait: String,
}

/// Ready jobs of each priority.
#[derive(Clone, Debug, Serialize)]
struct ByPriority {
    lowest: u64,
    low: u64,
    normal: u64,
    high: u64,
    critical: u64,
}

impl Queues {
    pub(crate) fn of(health: Vec<(QueueName, QueueHealth)>) -> Self {
        Self { queues: health.into_iter().map(|(name, health)| Queue::of(name, &health)).collect() }
    }
}

impl Queue {
    fn of(name: QueueName, health: &QueueHealth) -> Self {
        let ready = |priority: JobPriority| health.ready_by_priority[priority as usize];
        Self {
            name,
            paused: health.paused,
            ready: health.ready,
            parked: health.parked,
            scheduled: health.scheduled,
            blocked: health.blocked,
            running: health.running,
            set_aside: health.set_aside,
            failed: health.failed,
            oldest_wait_ms: health.oldest_wait.map(whole_millis),
            ready_by_priority: ByPriority {
                lowest: ready(JobPriority::Lowest),
                low: ready(JobPriority::Low),
                normal: ready(JobPriority::Normal),
                high: ready(JobPriority::High),
                critical: ready(JobPriority::Critical),
            },
            oldest_wait: health.oldest_wait.map(span).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.queues.is_empty() {
            return writeln!(f, "No queue has a job.");
        }
        let mut table = Table::new([
            "QUEUE",
            "CLAIMS",
            "READY",
            "PARKED",
            "SCHEDULED",
            "BLOCKED",
            "RUNNING",
            "PAUSED JOBS",
            "FAILED",
            "OLDEST WAIT",
        ]);
        for queue in &self.queues {
            table.row([
                queue.name.to_string(),
                if queue.paused { "paused" } else { "open" }.to_owned(),
                queue.ready.to_string(),
                queue.parked.to_string(),
                queue.scheduled.to_string(),
                queue.blocked.to_string(),
                queue.running.to_string(),
                queue.set_aside.to_string(),
                queue.failed.to_string(),
                queue.oldest_wait.clone(),
            ]);
        }
        write!(f, "{table}")
    }
}

/// The result of a pause or resume of a queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Switched {
    pub(crate) queue: QueueName,
    pub(crate) paused: bool,
    /// Whether the state of the queue changed.
    pub(crate) changed: bool,
}

impl fmt::Display for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.paused { "paused" } else { "open" };
        let when = if self.changed { "is now" } else { "was already" };
        writeln!(f, "Queue {} {when} {state}.", self.queue)
    }
}
