//! Outages of the store: failing calls are logged when they begin and when they end, not once for each call.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::{JobFailure, Sanitized, StoreError, StoreErrorKind, StoreResult};

/// The state of one kind of call, which is repeated until it succeeds.
#[derive(Clone)]
pub(crate) struct Outage {
    what: &'static str,
    node: Arc<str>,
    sanitizer: Arc<dyn ErrorSanitizer>,
    reasons: Arc<Mutex<Reasons>>,
}

impl Outage {
    /// `what` names the call in log lines.
    pub(crate) fn new(
        what: &'static str,
        node: impl fmt::Display,
        sanitizer: &Arc<dyn ErrorSanitizer>,
    ) -> Self {
        let (node, sanitizer) = (node.to_string().into(), Arc::clone(sanitizer));
        Self { what, node, sanitizer, reasons: Arc::default() }
    }

    /// Takes note of how a call ended.
    pub(crate) fn note<T>(&self, answer: &StoreResult<T>) {
        match answer {
            Ok(_) => self.over(),
            Err(error) => self.failed(error),
        }
    }

    /// Logs why a call failed, unless another failed for the same reason since the last success.
    pub(crate) fn failed(&self, error: &StoreError) {
        let (what, node) = (self.what, &*self.node);
        if self.lock(|reasons| reasons.is_new(error)) {
            let error = Sanitized::new(&*self.sanitizer, &JobFailure::from_error(error));
            tracing::warn!(node, what, %error, "a call to the store failed; it is made again, and this is not logged again");
        }
    }

    /// Ends the outage, because a call succeeded.
    pub(crate) fn over(&self) {
        let (what, node) = (self.what, &*self.node);
        let failures = self.lock(Reasons::clear);
        if failures > 0 {
            tracing::info!(node, what, failures, "the store answers again");
        }
    }

    fn lock<T>(&self, change: impl FnOnce(&mut Reasons) -> T) -> T {
        change(&mut self.reasons.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The reasons why calls failed since the last success.
#[derive(Default)]
pub(crate) struct Reasons {
    failures: u32,
    known: HashSet<(StoreErrorKind, Option<String>)>,
}

impl Reasons {
    /// Counts a failure. Returns whether no call failed like this before, whichever call it was.
    pub(crate) fn is_new(&mut self, error: &StoreError) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.known.insert((error.kind(), error.code().map(str::to_owned)))
    }

    /// Clears them. Returns how many calls had failed.
    pub(crate) fn clear(&mut self) -> u32 {
        self.known.clear();
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_new_once_between_two_successes() {
        let error = |op, code| StoreError::new(StoreErrorKind::Other, op, "refused").with_code(code);
        let mut reasons = Reasons::default();
        let new = [error("commit", "25006"), error("commit_and_claim", "25006"), error("commit", "42501")]
            .map(|error| reasons.is_new(&error));
        assert_eq!(new, [true, false, true], "whichever call it was");
        assert_eq!((reasons.clear(), reasons.clear()), (3, 0));
        assert!(reasons.is_new(&error("commit", "25006")), "it is over, and begins anew");
    }
}
