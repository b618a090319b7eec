use crate::JobEvent;

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
