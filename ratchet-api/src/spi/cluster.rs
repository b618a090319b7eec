use std::sync::Arc;

use async_trait::async_trait;

use crate::{JobPriority, StoreResult};

/// Called when there may be new work.
pub type WakeupListener = Arc<dyn Fn() + Send + Sync>;

/// Tells other nodes about new work. Incubating.
///
/// A wakeup is only a hint: losing one costs a poll delay, never a job, so any pub/sub will do, best effort. It
/// carries no data but the priority. The default is what the store offers
/// ([`StoreInfo::coordinator`](crate::store::StoreInfo::coordinator)); without that, nobody is told. Wakeups in the same
/// node never come this way: the engine delivers them itself. `ratchet-tck` has a suite for implementations.
#[async_trait]
pub trait ClusterCoordinator: Send + Sync + 'static {
    /// Tells the other nodes that work of this priority was committed.
    ///
    /// # Contract
    /// - `cluster.best_effort`: returns without waiting for the other nodes; a lost notice is no error.
    /// - `cluster.coalesced`: many calls in a short time may be sent as one.
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()>;

    /// Calls `listener` whenever another node has told of work. The listener returns at once and never panics.
    ///
    /// # Contract
    /// - `cluster.delivered`: a notice sent after this returned is delivered to every registered listener of every
    ///   other node that is connected.
    /// - `cluster.gap`: after a gap in which notices may have been lost, the listener is called once.
    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()>;

    /// Stops listening and releases connections.
    ///
    /// # Contract
    /// - `cluster.shutdown`: no listener is called afterwards. A coordinator that is dropped releases its listeners too.
    async fn shutdown(&self) {}
}
