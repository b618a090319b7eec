//! What a store says about itself.

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

    /// Tells the other nodes on the same data about new work, by means that the store has anyway. A new one at each call,
    /// since a node has its own. The engine takes it unless it is given another.
    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }

    /// How much the store takes of one submission. The engine keeps to it when it submits jobs by itself.
    ///
    /// # Contract
    /// - `info.limits`: a submission within these limits is never refused for its size; one beyond them always is.
    fn limits(&self) -> Limits {
        Limits::MOST
    }

    /// The present by the clock that decides.
    ///
    /// # Contract
    /// - `info.time`: the clock by which jobs become due; it goes backwards only if the server's own does.
    async fn database_time(&self) -> StoreResult<Timestamp>;

    /// The concrete store, for an [`Enlist`](crate::Enlist) implementation of the same driver. A wrapper forwards to what it wraps.
    fn as_any(&self) -> &dyn Any;
}
