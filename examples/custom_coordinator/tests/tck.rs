//! The whole certification of a coordinator: a harness of two methods, and `main`.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use custom_coordinator::{Broker, BrokerCoordinator};
use ratchet_core::StoreResult;
use ratchet_core::spi::ClusterCoordinator;
use ratchet_tck::Namespace;
use ratchet_tck::coordinator::{CoordinatorHarness, CoordinatorSuite};

#[derive(Default)]
struct BrokerHarness {
    brokers: Mutex<HashMap<String, Broker>>,
}

#[async_trait]
impl CoordinatorHarness for BrokerHarness {
    async fn cluster(&self) -> StoreResult<Namespace> {
        let mut brokers = self.brokers.lock().expect("no holder panics");
        let (name, broker) = (format!("cluster-{}", brokers.len()), Broker::new());
        brokers.insert(name.clone(), broker.clone());
        Ok(Namespace::new(name).on_interrupt(move || {
            broker.restart();
            async { Ok(()) }
        }))
    }

    async fn node(&self, cluster: &Namespace) -> StoreResult<Arc<dyn ClusterCoordinator>> {
        let brokers = self.brokers.lock().expect("no holder panics");
        Ok(Arc::new(BrokerCoordinator::new(brokers[cluster.name()].clone())))
    }
}

fn main() -> ExitCode {
    CoordinatorSuite::new(BrokerHarness::default()).main()
}
