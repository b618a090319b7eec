use crate::JobEvent;

/// Receives job events, after the commit.
///
/// A listener cannot break the engine: a slow one misses events; a panic is logged and the listener stays registered.
pub trait JobEventListener: Send + Sync + 'static {
    /// Handles an event.
    ///
    /// # Contract
    /// - `listener.committed`: the change that an event reports is in the store.
    /// - `listener.ordered`: events of one job on one node arrive in order.
    fn on_event(&self, event: &JobEvent);
}
