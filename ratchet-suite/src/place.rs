//! Empty stores.

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

/// An empty store, and more connections to it.
#[async_trait]
pub trait Place: Send + Sync + 'static {
    /// One more connection.
    async fn connect(&self) -> Arc<dyn JobStore> {
        self.connect_at(StoreClock::Server).await
    }

    /// One more connection, deciding by this clock.
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore>;

    /// Removes it with all that is in it.
    async fn remove(&self) {}
}

/// In memory.
pub fn memory() -> BoxFuture<'static, Box<dyn Place>> {
    Box::pin(async { Box::new(MemoryStore::new()) as Box<dyn Place> })
}

#[async_trait]
impl Place for MemoryStore {
    async fn connect_at(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        Arc::new(Self::connect(self, clock))
    }
}
