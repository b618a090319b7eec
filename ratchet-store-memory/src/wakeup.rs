//! Wakeups between the nodes of one process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener};
use ratchet_api::{JobPriority, StoreResult};

/// The listeners of all nodes, each with the number of its node.
#[derive(Default)]
pub(crate) struct Wakeups {
    nodes: AtomicU64,
    listeners: Mutex<Vec<(u64, WakeupListener)>>,
}

impl Wakeups {
    fn listeners(&self) -> MutexGuard<'_, Vec<(u64, WakeupListener)>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The coordinator of one node: it calls the other nodes on the same data.
pub(crate) struct MemoryCoordinator {
    wakeups: Arc<Wakeups>,
    node: u64,
    /// Whether it is shut down.
    closed: Mutex<bool>,
}

impl MemoryCoordinator {
    pub(crate) fn new(wakeups: Arc<Wakeups>) -> Self {
        let node = wakeups.nodes.fetch_add(1, Ordering::Relaxed);
        Self { wakeups, node, closed: Mutex::new(false) }
    }

    fn closed(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the others under the lock, so that none is called once its shutdown has returned.
    fn tell(&self, kind: WakeupKind) {
        let listeners = self.wakeups.listeners();
        let others = listeners.iter().filter(|(node, _)| *node != self.node);
        others.for_each(|(_, listener)| listener(kind));
    }
}

#[async_trait]
impl ClusterCoordinator for MemoryCoordinator {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        self.tell(WakeupKind::NewWork);
        Ok(())
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.tell(WakeupKind::CancelRequested);
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        let closed = self.closed();
        if !*closed {
            self.wakeups.listeners().push((self.node, listener));
        }
        Ok(())
    }

    async fn shutdown(&self) {
        *self.closed() = true;
        self.wakeups.listeners().retain(|(node, _)| *node != self.node);
    }
}

impl Drop for MemoryCoordinator {
    fn drop(&mut self) {
        self.wakeups.listeners().retain(|(node, _)| *node != self.node);
    }
}
