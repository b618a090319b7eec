//! The memory store against the conformance suite.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ratchet_api::store::JobStore;
use ratchet_api::{StoreClock, StoreResult};
use ratchet_store_memory::MemoryStore;
use ratchet_tck::{Namespace, StoreHarness, Suite};

#[derive(Default)]
struct MemoryHarness {
    next: AtomicUsize,
    stores: Mutex<HashMap<String, MemoryStore>>,
}

#[async_trait]
impl StoreHarness for MemoryHarness {
    async fn namespace(&self) -> StoreResult<Namespace> {
        let name = self.next.fetch_add(1, Ordering::SeqCst).to_string();
        let store = MemoryStore::new();
        self.stores.lock().expect("no holder panics").insert(name.clone(), store.clone());
        Ok(Namespace::new(name).on_spoil(move |job, how| {
            store.spoil(job, &format!("{how:?}"));
            async { Ok(()) }
        }))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        Ok(Arc::new(self.stores.lock().expect("no holder panics")[namespace.name()].connect(clock)))
    }
}

fn main() -> ExitCode {
    Suite::new(MemoryHarness::default()).wakeups().main()
}
