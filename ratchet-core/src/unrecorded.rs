//! Outcomes that wait because the store did not take them yet: how many there are, and a log line for each reason.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratchet_api::{Sanitized, StoreError};

use crate::outage::Reasons;

/// The outcomes of a node that wait to be recorded.
#[derive(Clone, Default)]
pub(crate) struct Unrecorded(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    waiting: usize,
    /// The reasons that were logged since the first of them began to wait.
    logged: Reasons,
}

/// One outcome that waits. It counts until this is dropped.
pub(crate) struct Waiting(Unrecorded);

impl Unrecorded {
    /// Counts one more outcome that waits.
    pub(crate) fn wait(&self) -> Waiting {
        self.lock().waiting += 1;
        Waiting(self.clone())
    }

    /// Whether any outcome waits.
    pub(crate) fn any(&self) -> bool {
        self.lock().waiting > 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Logs why, unless that was logged since the first outcome began to wait.
    pub(crate) fn because(&self, error: &StoreError, text: impl FnOnce() -> Sanitized) {
        if self.0.lock().logged.is_new(error) {
            let reason = text();
            tracing::error!(
                code = error.code(), %reason,
                "outcomes wait: the store does not record them; they are offered again while the lease holds"
            );
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            state.logged.clear();
            drop(state);
            tracing::info!("no outcome waits to be recorded any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_api::{JobFailure, StoreErrorKind};

    use super::*;
    use crate::defaults::DefaultErrorSanitizer;

    #[test]
    fn a_reason_is_said_once_until_nothing_waits_any_more() {
        let said = std::cell::Cell::new(0);
        let text = || {
            said.set(said.get() + 1);
            Sanitized::new(&DefaultErrorSanitizer::default(), &JobFailure::new("", "words"))
        };
        let unrecorded = Unrecorded::default();
        let read_only = StoreError::new(StoreErrorKind::Other, "commit", "refused").with_code("25006");
        let no_grant = StoreError::new(StoreErrorKind::Other, "commit", "refused").with_code("42501");
        let (one, other) = (unrecorded.wait(), unrecorded.wait());
        one.because(&read_only, text);
        other.because(&read_only, text);
        let likewise =
            StoreError::new(StoreErrorKind::Other, "commit_and_claim", "refused").with_code("25006");
        other.because(&likewise, text);
        assert_eq!(said.get(), 1, "whichever call it was");
        one.because(&no_grant, text);
        assert_eq!(said.get(), 2);
        drop(one);
        assert!(unrecorded.any());
        other.because(&read_only, text);
        assert_eq!(said.get(), 2);
        drop(other);
        assert!(!unrecorded.any());
        unrecorded.wait().because(&read_only, text);
        assert_eq!(said.get(), 3);
    }
}
