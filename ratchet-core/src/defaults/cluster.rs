use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener};
use ratchet_api::{JobPriority, StoreResult};

/// A coordinator that notifies no other node: they find new work by polling. Listeners in this process are notified at
/// once.
pub struct NoOpClusterCoordinator {
    /// `None` once it is shut down.
    listeners: Mutex<Option<Vec<WakeupListener>>>,
}

impl NoOpClusterCoordinator {
    /// A coordinator without listeners.
    pub fn new() -> Self {
        Self { listeners: Mutex::new(Some(Vec::new())) }
    }

    fn listeners(&self) -> MutexGuard<'_, Option<Vec<WakeupListener>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the listeners under the lock, so that none is called once a shutdown has returned.
    fn tell(&self, kind: WakeupKind) {
        self.listeners().iter().flatten().for_each(|listener| listener(kind));
    }
}

#[async_trait]
impl ClusterCoordinator for NoOpClusterCoordinator {
    async fn notify_new_work(&self, _priority: JobPriority) -> StoreResult<()> {
        self.tell(WakeupKind::NewWork);
        Ok(())
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.tell(WakeupKind::CancelRequested);
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        if let Some(listeners) = self.listeners().as_mut() {
            listeners.push(listener);
        }
        Ok(())
    }

    async fn shutdown(&self) {
        *self.listeners() = None;
    }
}

impl Default for NoOpClusterCoordinator {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for NoOpClusterCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listeners = self.listeners().as_ref().map(Vec::len);
        f.debug_struct("NoOpClusterCoordinator").field("listeners", &listeners).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counting() -> (Arc<AtomicUsize>, WakeupListener) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        (calls, Arc::new(move |_| _ = counted.fetch_add(1, Ordering::SeqCst)))
    }

    // shows: S122 S124
    #[tokio::test]
    async fn every_local_listener_is_told_of_every_priority() {
        let coordinator = NoOpClusterCoordinator::default();
        let (first, second) = (counting(), counting());
        coordinator.register_wakeup_listener(first.1).await.unwrap();
        coordinator.notify_new_work(JobPriority::Normal).await.unwrap();
        coordinator.register_wakeup_listener(second.1).await.unwrap();
        for priority in JobPriority::ALL {
            coordinator.notify_new_work(priority).await.unwrap();
        }
        coordinator.notify_cancel_requested().await.unwrap();
        assert_eq!((first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)), (7, 6));
    }

    #[tokio::test]
    async fn nobody_is_told_after_shutdown() {
        let coordinator = NoOpClusterCoordinator::new();
        let (before, after) = (counting(), counting());
        coordinator.register_wakeup_listener(before.1).await.unwrap();
        coordinator.shutdown().await;
        coordinator.register_wakeup_listener(after.1).await.unwrap();
        coordinator.notify_new_work(JobPriority::Critical).await.unwrap();
        assert_eq!((before.0.load(Ordering::SeqCst), after.0.load(Ordering::SeqCst)), (0, 0));
    }
}
