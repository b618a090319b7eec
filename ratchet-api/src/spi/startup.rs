use std::time::Duration;

use async_trait::async_trait;

use crate::StoreResult;

/// Elects one node for a start-up task. Incubating.
///
/// The default takes a lock in the store. Separate from [`ClusterCoordinator`](super::ClusterCoordinator): that one
/// sends wakeups, this one grants leases.
#[async_trait]
pub trait StartupCoordinator: Send + Sync + 'static {
    /// Takes the lease for `action`; `true` if this node has it now.
    ///
    /// # Contract
    /// - `startup.exclusive`: at most one node gets `true` until the lease runs out or is released.
    async fn try_acquire(&self, action: &str, lease: Duration) -> StoreResult<bool>;

    /// Ends the lease early.
    ///
    /// # Contract
    /// - `startup.release`: nothing happens if this node does not hold it.
    async fn release(&self, action: &str) -> StoreResult<()>;
}
