use std::time::Duration;

use crate::{JobEvent, JobPriority, QueueName, TargetName};

/// Hears about jobs, after the commit.
///
/// A listener cannot break the engine: a slow one misses events, a panicking one is logged and kept.
pub trait JobEventListener: Send + Sync + 'static {
    /// Something happened.
    ///
    /// # Contract
    /// - `listener.committed`: what it tells of is in the store.
    /// - `listener.ordered`: events of one job on one node arrive in order.
    fn on_event(&self, event: &JobEvent);
}

/// Why a claimed job was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GateRejection {
    /// Its circuit breaker is open.
    BreakerOpen,
    /// Every permit of its resource is taken.
    ResourceFull,
    /// Its target is not allowed.
    Denied,
    /// Its target is unknown here.
    UnknownTarget,
    /// It was cancelled or taken over meanwhile.
    Gone,
}

/// Counts what the engine does. Every method has an empty default, so a sink takes what it wants.
///
/// Called on hot paths: keep handles, allocate nothing, never block.
pub trait MetricsSink: Send + Sync + 'static {
    /// `count` jobs were claimed from `queue` in one call that took `took`.
    fn claimed(&self, queue: &QueueName, count: usize, took: Duration) {
        let _ = (queue, count, took);
    }

    /// A body starts after waiting for `queue_wait`.
    fn started(&self, target: &TargetName, queue_wait: Duration) {
        let _ = (target, queue_wait);
    }

    /// A body returned after `ran_for`.
    fn completed(&self, target: &TargetName, ran_for: Duration) {
        let _ = (target, ran_for);
    }

    /// A body failed after `ran_for`; `dead` if for good.
    fn failed(&self, target: &TargetName, ran_for: Duration, dead: bool) {
        let _ = (target, ran_for, dead);
    }

    /// A claimed job was not started.
    fn gate_rejected(&self, target: &TargetName, why: GateRejection) {
        let _ = (target, why);
    }

    /// A store call ended.
    fn store_call(&self, operation: &'static str, took: Duration, ok: bool) {
        let _ = (operation, took, ok);
    }

    /// A wakeup was sent or received.
    fn wakeup(&self, priority: Option<JobPriority>, sent: bool) {
        let _ = (priority, sent);
    }
}
