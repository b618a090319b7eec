use std::future::Future;
use std::pin::Pin;

use crate::QueueName;

/// One attempt, ready to run.
pub type JobFuture = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Decides where attempts run.
///
/// The default spawns on the current tokio runtime. A custom one can give a queue its own runtime, so that heavy
/// work cannot starve the rest. How many attempts run at once is decided by the queue's slots, not here.
pub trait ExecutorProvider: Send + Sync + 'static {
    /// Starts `attempt` of a job of `queue` without waiting for it.
    ///
    /// # Contract
    /// - `executor.spawn`: the future is polled to its end or dropped; it cleans up after itself either way.
    fn spawn(&self, queue: &QueueName, attempt: JobFuture);

    /// Starts blocking work of a job of `queue` without waiting for it.
    ///
    /// # Contract
    /// - `executor.blocking`: the work may block its thread for any time without holding up any other attempt.
    fn spawn_blocking(&self, queue: &QueueName, work: Box<dyn FnOnce() + Send + 'static>);
}
