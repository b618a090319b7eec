use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::{JobPriority, StoreResult};

/// What a wakeup is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WakeupKind {
    /// There may be new work: nodes look for it.
    NewWork,
    /// A job that runs somewhere was asked to be canceled: nodes that run jobs beat, and learn which.
    CancelRequested,
}

impl WakeupKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::NewWork, Self::CancelRequested];
}

/// Called when another node has told something, with what it is about.
pub type WakeupListener = Arc<dyn Fn(WakeupKind) + Send + Sync>;

/// Tells other nodes about new work, and about canceled jobs that run there. Incubating.
///
/// A wakeup is only a hint: losing one costs a poll delay or a beat, never a job, so any pub/sub will do, best effort. It
/// carries no data but its kind and the priority. The default is what the store offers
/// ([`StoreInfo::coordinator`](crate::store::StoreInfo::coordinator)); without that, nobody is told. Wakeups in the same
/// node never come this way: the engine delivers them itself. The engine makes one call at a time, and the next one as soon
/// as that has returned: a coordinator that returns when its notice is sent has one notice in flight, however many jobs are
/// submitted. `ratchet-tck` has a suite for implementations.
#[async_trait]
pub trait ClusterCoordinator: Send + Sync + 'static {
    /// Tells the other nodes that work of this priority was committed.
    ///
    /// # Contract
    /// - `cluster.best_effort`: returns without waiting for the other nodes; a lost notice is no error.
    /// - `cluster.coalesced`: calls that come while a notice is on its way may be sent as one. A kind never takes the
    ///   place of another.
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()>;

    /// Tells the other nodes that a job which one of them runs was asked to be canceled: best effort and coalesced, as
    /// [`notify_new_work`](Self::notify_new_work) is.
    ///
    /// # Contract
    /// - `cluster.cancel`: delivered as [`WakeupKind::CancelRequested`]; it does not say that there is work.
    async fn notify_cancel_requested(&self) -> StoreResult<()>;

    /// Calls `listener` whenever another node has told something. The listener returns at once and never panics.
    ///
    /// # Contract
    /// - `cluster.delivered`: a notice sent after this returned is delivered to every registered listener of every
    ///   other node that is connected, with its kind.
    /// - `cluster.gap`: after a gap in which notices may have been lost, the listener is called once for each kind.
    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()>;

    /// Stops listening and releases connections. What was told before is sent first, if it can be.
    ///
    /// # Contract
    /// - `cluster.shutdown`: no listener is called afterwards. A coordinator that is dropped releases its listeners too.
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
    /// Adds a listener; `false` if they are closed.
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

    /// Releases the listeners.
    pub fn close(&self) {
        *self.registered() = Registered { listeners: Vec::new(), closed: true };
    }

    /// Whether they were closed.
    pub fn is_closed(&self) -> bool {
        self.registered().closed
    }

    /// Whether there is nobody to call.
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
