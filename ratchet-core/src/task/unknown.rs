//! Targets that this node does not know.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratchet_api::TargetName;

/// The most targets that are counted: their names are data, and made-up names must not fill the memory.
const MAX_TARGETS: usize = 1_024;

/// How often each unknown target was met.
#[derive(Default)]
pub(crate) struct UnknownTargets(Mutex<HashMap<TargetName, u32>>);

impl UnknownTargets {
    /// Counts one more time; returns how often that is.
    pub(crate) fn count(&self, target: &TargetName) -> u32 {
        let mut counts = self.counts();
        if counts.len() >= MAX_TARGETS && !counts.contains_key(target) {
            counts.clear();
        }
        let count = counts.entry(target.clone()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Forgets them all.
    pub(crate) fn clear(&self) {
        self.counts().clear();
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<TargetName, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: impl Into<String>) -> TargetName {
        TargetName::new(name.into()).unwrap()
    }

    // shows: S83
    #[test]
    fn each_target_is_counted_for_itself_until_the_node_stops() {
        let unknown = UnknownTargets::default();
        let counts = ["a.A", "b.B", "a.A"].map(|name| unknown.count(&target(name)));
        assert_eq!(counts, [1, 1, 2]);
        unknown.clear();
        assert_eq!(unknown.count(&target("a.A")), 1);
    }

    #[test]
    fn names_that_are_made_up_do_not_fill_the_memory() {
        let unknown = UnknownTargets::default();
        for number in 0..3 * MAX_TARGETS {
            unknown.count(&target(format!("made.up.T{number}")));
        }
        assert!(unknown.counts().len() <= MAX_TARGETS);
    }
}
