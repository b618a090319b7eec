//! Parked jobs, and the methods and permits with which an owner may claim them.

use std::collections::BTreeMap;

use ratchet_api::{Job, Owner, ParkedOn, ResourceName, Timestamp};

use crate::state::State;

/// The methods and free permits that one owner has for parked jobs at one moment.
pub(crate) struct Room {
    now: Timestamp,
    methods: Vec<String>,
    /// Free permits.
    permits: BTreeMap<ResourceName, usize>,
}

impl Room {
    pub(crate) fn of(state: &State, owner: &Owner, now: Timestamp) -> Self {
        let in_use = |name: &ResourceName| state.permits.iter().filter(|(of, _)| of == name).count();
        let free = |(name, limit): (&ResourceName, &ratchet_api::ResourceLimit)| {
            (name.clone(), (limit.max_concurrent as usize).saturating_sub(in_use(name)))
        };
        let methods = state.nodes.get(owner).map(|node| node.info.methods.clone());
        Self {
            now,
            methods: methods.unwrap_or_default(),
            permits: state.resources.iter().map(free).collect(),
        }
    }

    /// Whether the owner has everything that this job lacks; a permit is then taken.
    pub(crate) fn take(&mut self, job: &Job) -> bool {
        // An expired job is claimed in order to be ended.
        if job.spec.expires_at.is_some_and(|expires| expires <= self.now) {
            return true;
        }
        match &job.parked_on {
            None => true,
            Some(ParkedOn::Method(name)) => self.methods.contains(name),
            Some(ParkedOn::Resource(name)) => match self.permits.get_mut(name) {
                Some(free) if *free > 0 => {
                    *free -= 1;
                    true
                }
                _ => false,
            },
            Some(_) => false,
        }
    }
}
