//! The whole certification of a store: a harness of two methods, and `main`.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use custom_store::{CustomStore, LockService};
use ratchet_api::store::JobStore;
use ratchet_api::{StoreClock, StoreResult};
use ratchet_store_memory::MemoryStore;
use ratchet_tck::{Namespace, StoreHarness, Suite};

#[derive(Default)]
struct CustomHarness {
    places: Mutex<HashMap<String, (MemoryStore, LockService)>>,
}

#[async_trait]
impl StoreHarness for CustomHarness {
    async fn namespace(&self) -> StoreResult<Namespace> {
        let mut places = self.places.lock().expect("no holder panics");
        let name = format!("place-{}", places.len());
        let place = (MemoryStore::new(), LockService::default());
        let store = place.0.clone();
        places.insert(name.clone(), place);
        Ok(Namespace::new(name).on_spoil(move |job, how| {
            store.spoil(job, &format!("{how:?}"));
            async { Ok(()) }
        }))
    }

    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>> {
        let places = self.places.lock().expect("no holder panics");
        let (jobs, locks) = &places[namespace.name()];
        Ok(Arc::new(CustomStore::new(Arc::new(jobs.connect(clock)), locks.clone())))
    }
}

fn main() -> ExitCode {
    Suite::new(CustomHarness::default()).main()
}
