//! The limits of resources: those that a node is started with, and those that are set while nodes run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::JobStore;
use ratchet_api::{JobPriority, ResourceLimit, ResourceName, StoreError, StoreResult};

use super::Client;

/// The resource limits that a node was given.
pub(super) struct Resources {
    pub(super) store: Arc<dyn JobStore>,
    pub(super) limits: BTreeMap<ResourceName, u32>,
    pub(super) retry_delay: Duration,
    /// The label of the node.
    pub(super) node: String,
}

impl Resources {
    /// Writes them. They hold for the whole cluster, so the last node that starts wins over those before it and over what an
    /// operator set; a node that changes nothing writes nothing. Returns whether jobs that waited for a permit may run
    /// now.
    pub(super) async fn write(self) -> StoreResult<bool> {
        let Self { store, limits, retry_delay, node } = self;
        if limits.is_empty() {
            return Ok(false);
        }
        let (known, mut raised) = (store.resources().await?, false);
        for (resource, limit) in limits {
            let before = known.iter().map(|used| &used.limit).find(|known| known.name == resource);
            let was = before.map(|before| before.max_concurrent);
            match was {
                Some(before) if before == limit => continue,
                Some(before) => tracing::warn!(
                    node, %resource, before, limit,
                    "the limit of a resource differed; it is now the one that this node was started with, for all nodes"
                ),
                None => {}
            }
            store.configure_resource(&limited(before, &resource, limit, retry_delay)).await?;
            raised |= is_raised(was, limit);
        }
        Ok(raised)
    }
}

impl Client {
    /// Sets how many jobs may use a resource at once, in the whole cluster; running jobs go on. Wakes the nodes if that
    /// lets waiting jobs run. Returns the previous limit.
    ///
    /// ```
    /// # async fn example(client: ratchet_core::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// client.set_resource(&ratchet_core::ResourceName::new("printer")?, 2).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the store fails.
    pub async fn set_resource(&self, name: &ResourceName, limit: u32) -> Result<Option<u32>, StoreError> {
        let known = self.store().resources().await?;
        let before = known.iter().map(|used| &used.limit).find(|known| known.name == *name);
        let was = before.map(|before| before.max_concurrent);
        self.store().configure_resource(&limited(before, name, limit, self.permit_delay())).await?;
        if is_raised(was, limit) {
            self.wake_up(JobPriority::Normal);
        }
        Ok(was)
    }
}

/// A resource with this limit, otherwise as it was.
fn limited(
    before: Option<&ResourceLimit>,
    name: &ResourceName,
    limit: u32,
    retry_delay: Duration,
) -> ResourceLimit {
    let mut wanted = before.cloned().unwrap_or_else(|| {
        let mut new = ResourceLimit::new(name.clone(), limit);
        new.retry_delay = retry_delay;
        new
    });
    wanted.max_concurrent = limit;
    wanted
}

fn is_raised(was: Option<u32>, limit: u32) -> bool {
    was.is_none_or(|was| was < limit)
}
