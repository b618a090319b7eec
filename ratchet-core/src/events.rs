//! Events, told to whoever listens, after the commit that they are about.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use ratchet_api::JobEvent;
use ratchet_api::spi::JobEventListener;

/// Who listens.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<RwLock<Vec<Arc<dyn JobEventListener>>>>);

impl Events {
    pub(crate) fn add(&self, listener: Arc<dyn JobEventListener>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Removes a listener; answers whether it was there.
    pub(crate) fn remove(&self, listener: &Arc<dyn JobEventListener>) -> bool {
        let mut listeners = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = listeners.len();
        listeners.retain(|other| !Arc::ptr_eq(other, listener));
        listeners.len() < before
    }

    /// Tells everyone. A listener that panics is not heard of by the others, nor by the engine.
    pub(crate) fn publish(&self, event: &JobEvent) {
        let listeners = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners {
            if catch_unwind(AssertUnwindSafe(|| listener.on_event(event))).is_err() {
                tracing::error!(job = %event.header.job_id, "a listener panicked");
            }
        }
    }
}
