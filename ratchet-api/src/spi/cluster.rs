use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::{JobPriority, StoreResult};

/// The subject of a wakeup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WakeupKind {
    /// There may be new work: nodes poll.
    NewWork,
    /// A cancel of a running job was requested: nodes that run jobs beat, and the reply names the jobs.
    CancelRequested,
}

impl WakeupKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::NewWork, Self::CancelRequested];
}

/// A callback for wakeups from other nodes.
pub type WakeupListener = Arc<dyn Fn(WakeupKind) + Send + Sync>;

/// Sends wakeups to other nodes: about new work, and about canceled jobs that run there. Incubating.
///
/// A wakeup is only a hint: a lost one costs a poll delay or a beat, never a job, so any best-effort pub/sub will do.
/// It carries no data but its kind and the priority. The default is the coordinator of the store
/// ([`StoreInfo::coordinator`](crate::store::StoreInfo::coordinator)); without one, no other node is notified. Wakeups
/// within a node do not pass through it: the engine delivers them itself. The engine makes one call at a time, and the
/// next one as soon as that has returned: a coordinator that returns when its notice is sent has one notice in flight,
/// however many jobs are submitted. `ratchet-tck` has a suite for implementations.
#[async_trait]
pub trait ClusterCoordinator: Send + Sync + 'static {
    /// Tells the other nodes that work of this priority was committed.
    ///
    /// # Contract
    /// - `cluster.best_effort`: returns without waiting for the other nodes; a lost notice is no error.
    /// - `cluster.coalesced`: calls that are made while a notice is in flight may be sent as one. Notices of different
    ///   kinds are never merged.
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()>;

    /// Tells the other nodes that a cancel was requested for a job that one of them runs; best effort and coalesced,
    /// like [`notify_new_work`](Self::notify_new_work).
    ///
    /// # Contract
    /// - `cluster.cancel`: delivered as [`WakeupKind::CancelRequested`]; it does not announce work.
    async fn notify_cancel_requested(&self) -> StoreResult<()>;

    /// Registers a listener that is called for every notice from another node. It must return at once and never panic.
    ///
    /// # Contract
    /// - `cluster.delivered`: a notice sent after this returned is delivered to every registered listener of every
    ///   other node that is connected, with its kind.
    /// - `cluster.gap`: after a gap in which notices may have been lost, the listener is called once for each kind.
    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()>;

    /// Stops listening and releases connections. Pending notices are sent first, if possible.
    ///
    /// # Contract
    /// - `cluster.shutdown`: no listener is called afterwards. A coordinator that is dropped releases its listeners
    ///   too.
    async fn shutdown(&self) {}
}

/// The listeners of one node, for coordinators: after [`close`](Self::close) none is called and none is added.
#[derive(Default)]
pub struct WakeupListeners(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    listeners: Vec<WakeupListener>,
    closed: bool,
}

impl WakeupListeners {
    /// Adds a listener; `false` after [`close`](Self::close).
    pub fn add(&self, listener: WakeupListener) -> bool {
        let mut registered = self.registered();
        if !registered.closed {
            registered.listeners.push(listener);
        }
        !registered.closed
    }

    /// Calls every listener with each kind.
    pub fn call(&self, kinds: impl IntoIterator<Item = WakeupKind>) {
        // Under the lock, so that none is called once `close` has returned.
        let registered = self.registered();
        for kind in kinds {
            registered.listeners.iter().for_each(|listener| listener(kind));
        }
    }

    /// Releases the listeners; none is called or added afterwards.
    pub fn close(&self) {
        *self.registered() = Registered { listeners: Vec::new(), closed: true };
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.registered().closed
    }

    /// Whether there are no listeners.
    pub fn is_empty(&self) -> bool {
        self.registered().listeners.is_empty()
    }

    fn registered(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for WakeupListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Registered { listeners, closed } = &*self.registered();
        f.debug_struct("WakeupListeners")
            .field("listeners", &listeners.len())
            .field("closed", closed)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_called_until_they_are_closed() {
        let listeners = WakeupListeners::default();
        let calls: Arc<Mutex<Vec<WakeupKind>>> = Arc::default();
        let listener = || -> WakeupListener {
            let calls = Arc::clone(&calls);
            Arc::new(move |kind| calls.lock().expect("nobody panics").push(kind))
        };
        assert!(listeners.is_empty() && listeners.add(listener()) && listeners.add(listener()));
        listeners.call(WakeupKind::ALL);
        let [work, cancel] = WakeupKind::ALL;
        assert_eq!(*calls.lock().expect("nobody panics"), [work, work, cancel, cancel]);
        listeners.close();
        assert!(listeners.is_closed() && !listeners.add(listener()));
        listeners.call(WakeupKind::ALL);
        assert_eq!(calls.lock().expect("nobody panics").len(), 4);
        assert_eq!(Arc::strong_count(&calls), 1, "they are released");
    }
}
