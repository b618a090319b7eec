use std::sync::Arc;

use async_trait::async_trait;

use crate::{JobPriority, StoreResult};

/// Called when there may be new work.
pub type WakeupListener = Arc<dyn Fn() + Send + Sync>;

/// Tells other nodes about new work. Incubating.
///
/// A wakeup is only a hint: losing one costs a poll delay, never a job, so any pub/sub will do, best effort. It
/// carries no data but the priority. The default tells nobody; local wakeups are delivered by the engine itself.
#[async_trait]
pub trait ClusterCoordinator: Send + Sync + 'static {
    /// New work of this priority was committed. Returns without waiting for the other nodes; many calls in a short time
    /// may be sent as one.
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()>;

    /// From now on calls `listener` for every notice of another node, and once after each gap in which notices may have
    /// been lost. The listener returns at once and never panics.
    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()>;

    /// Stops listening and releases connections. No listener is called afterwards.
    async fn shutdown(&self) {}
}
