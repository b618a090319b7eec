//! Empty stores for cases.

#[cfg(feature = "mongodb")]
mod mongo;
#[cfg(feature = "sql")]
mod sql;

#[cfg(feature = "mongodb")]
pub use mongo::{Collections, drop_mongodb, mongodb, mongodb_url};
#[cfg(feature = "sql")]
pub use sql::{File, Schema, postgres, postgres_url, sqlite};

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use ratchet_api::StoreClock;
use ratchet_api::store::JobStore;
use ratchet_store_memory::MemoryStore;

/// An empty store that can be connected to several times.
#[async_trait]
pub trait TestStore: Send + Sync + 'static {
    /// Opens one more connection.
    async fn connect(&self) -> Arc<dyn JobStore> {
        self.connect_at(StoreClock::Server).await
    }

    /// Opens one more connection, which decides by this clock.
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore>;

    /// Removes the store with everything in it.
    async fn remove(&self) {}
}

/// Makes an empty store in memory.
pub fn memory() -> BoxFuture<'static, Box<dyn TestStore>> {
    Box::pin(async { Box::new(MemoryStore::new()) as Box<dyn TestStore> })
}

#[async_trait]
impl TestStore for MemoryStore {
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        Arc::new(Self::connect(self, clock))
    }
}
