//! The methods and resources that this node parked jobs on: logged once each, for it may be thousands of jobs.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratchet_api::{ParkedOn, ResourceName};

/// The most that are remembered: names are data, and made-up names must not fill the memory.
const MAX_REASONS: usize = 1_024;

/// The methods and resources that were logged.
#[derive(Default)]
pub(crate) struct Parkings(Mutex<HashSet<ParkedOn>>);

impl Parkings {
    /// Logs a parked job, if it is the first on this.
    pub(crate) fn tell(&self, on: &ParkedOn) {
        if !self.is_new(on) {
            return;
        }
        match on {
            ParkedOn::Method(method) => {
                tracing::info!(
                    method,
                    "jobs of this method wait for a node that knows it: this one does not"
                );
            }
            ParkedOn::Resource(resource) => {
                tracing::info!(%resource, "jobs wait for a permit of this resource: all are taken");
            }
            _ => {}
        }
    }

    /// Warns of a resource without a configured limit, if it is the first time.
    pub(crate) fn tell_unconfigured(&self, resource: &ResourceName) {
        if self.is_new(&ParkedOn::Resource(resource.clone())) {
            tracing::warn!(%resource, "jobs wait for this resource: no limit is configured for it");
        }
    }

    /// Whether jobs were parked on this.
    pub(crate) fn has_told(&self, on: &ParkedOn) -> bool {
        self.told().contains(on)
    }

    /// Forgets them all.
    pub(crate) fn clear(&self) {
        self.told().clear();
    }

    fn is_new(&self, on: &ParkedOn) -> bool {
        let mut told = self.told();
        if told.len() >= MAX_REASONS && !told.contains(on) {
            told.clear();
        }
        told.insert(on.clone())
    }

    fn told(&self) -> MutexGuard<'_, HashSet<ParkedOn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_names_that_are_made_up_do_not_fill_the_memory() {
        let parkings = Parkings::default();
        let on = |name: usize| ParkedOn::Method(format!("made.up.T{name}"));
        assert!(parkings.is_new(&on(0)));
        assert!(!parkings.is_new(&on(0)));
        (1..3 * MAX_REASONS).for_each(|name| parkings.tell(&on(name)));
        assert!(parkings.told().len() <= MAX_REASONS);
    }
}
