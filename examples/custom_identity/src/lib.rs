//! Node names that show people where a node runs: region, deployment and the ordinal of its pod, as a Kubernetes
//! `StatefulSet` assigns them.
//!
//! A name is for people. Ownership of a job rests on a random incarnation that the engine adds at each start, so a pod
//! that comes back under its old name is never taken for the one that died. The contract of a provider is at
//! [`NodeIdentityProvider`]; the proof is `tests/tck.rs`.

use std::env;

use ratchet_core::spi::NodeIdentityProvider;

/// A node named after its pod, such as `eu-west/billing-3`.
#[derive(Clone, Debug)]
pub struct PodIdentity {
    name: String,
}

impl PodIdentity {
    /// Reads `REGION` and `POD_NAME`, as the deployment sets them; `None` where they are missing.
    ///
    /// They are read once: a name must stay the same for the life of the process.
    pub fn from_env() -> Option<Self> {
        Self::named(&env::var("REGION").ok()?, &env::var("POD_NAME").ok()?)
    }

    /// Creates the identity from a region and a pod name.
    pub fn named(region: &str, pod: &str) -> Option<Self> {
        let is_given = !region.trim().is_empty() && !pod.trim().is_empty();
        is_given.then(|| Self { name: format!("{}/{}", region.trim(), pod.trim()) })
    }
}

impl NodeIdentityProvider for PodIdentity {
    fn node_id(&self) -> String {
        self.name.clone()
    }
}
