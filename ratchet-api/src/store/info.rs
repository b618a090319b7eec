//! The properties of a store.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

use crate::spi::ClusterCoordinator;
use crate::{Limits, StoreResult, Timestamp};

/// Name, limits and clock of a store.
#[async_trait]
pub trait StoreInfo: Send + Sync + 'static {
    /// The kind of store: `postgres`, `mongodb`, `memory`, …
    fn name(&self) -> &'static str;

    /// Creates a coordinator that notifies the other nodes on the same data by the store's own means; `None` if the
    /// store has none. Each call creates a new one, since each node has its own. The engine uses it unless it is given
    /// another.
    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }

    /// The limits of the store for one submission. The engine keeps to them when it submits jobs itself.
    ///
    /// # Contract
    /// - `info.limits`: a submission within these limits is never refused for its size; one beyond them always is.
    fn limits(&self) -> Limits {
        Limits::MAX
    }

    /// The present time by the store's clock.
    ///
    /// # Contract
    /// - `info.time`: this is the clock by which jobs become due; it goes backwards only if the server's own does.
    async fn database_time(&self) -> StoreResult<Timestamp>;

    /// The concrete store, for an [`Enlist`](crate::Enlist) implementation of the same driver. A wrapper forwards to
    /// the store that it wraps.
    fn as_any(&self) -> &dyn Any;
}
