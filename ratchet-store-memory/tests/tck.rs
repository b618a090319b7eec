//! The memory store against the conformance suite.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use ratchet_api::store::{JobStore, StoreInfo};
use ratchet_api::{StoreClock, StoreResult};
use ratchet_store_memory::MemoryStore;
use ratchet_tck::{Namespace, StoreHarness, Suite};

#[derive(Default)]
struct MemoryHarness {
    next: AtomicUsize,
    stores: Mutex<HashMap<String, Arc<OnceLock<MemoryStore>>>>,
}

#[async_trait]
impl StoreHarness for MemoryHarness {
    async fn namespace(&self) -> StoreResult<Namespace> {
        let name = self.next.fetch_add(1, Ordering::SeqCst).to_string();
        let store = Arc::new(OnceLock::<MemoryStore>::new());
        self.stores.lock().expect("no holder panics").insert(name.clone(), Arc::clone(&store));
        Ok(Namespace::new(name).on_spoil(move |job, how| {
            store.get().expect("a job was stored").spoil(job, &format!("{how:?}"));
            async { Ok(()) }
        }))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        let stores = self.stores.lock().expect("no holder panics");
        let store = &stores[namespace.name()];
        Ok(Arc::new(match store.get() {
            Some(first) => first.connect(clock),
            None => store.get_or_init(|| MemoryStore::with_clock(clock)).clone(),
        }))
    }
}

fn main() -> ExitCode {
    assert_eq!(MemoryStore::new().name(), "memory");
    Suite::new(MemoryHarness::default()).wakeups().main()
}
