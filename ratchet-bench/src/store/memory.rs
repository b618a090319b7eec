//! The memory store: no server, no probe.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use ratchet_api::StoreClock;
use ratchet_api::store::JobStore;
use ratchet_store_memory::MemoryStore;

use super::{Bench, TestDatabase};

pub(super) struct Memory;

#[async_trait]
impl Bench for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    /// No: this is the reference model, written to be read, and it sorts.
    fn claims_stay_fast(&self) -> bool {
        false
    }

    async fn place(&self) -> Result<Box<dyn TestDatabase>> {
        Ok(Box::new(MemoryPlace(MemoryStore::new())))
    }
}

struct MemoryPlace(MemoryStore);

#[async_trait]
impl TestDatabase for MemoryPlace {
    async fn connect(&self, clock: StoreClock, _connections: usize) -> Result<Arc<dyn JobStore>> {
        Ok(Arc::new(self.0.connect(clock)))
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
