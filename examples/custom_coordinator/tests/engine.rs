//! The engine with this coordinator: work that one node submits wakes another.

use std::time::Duration;

use custom_coordinator::{Broker, BrokerCoordinator};
use ratchet_core::{Ratchet, Scheduler, jobs};
use ratchet_store_memory::MemoryStore;

struct Mailer;

#[jobs(target = "shop.Mailer")]
impl Mailer {
    #[job]
    async fn send(&self) {}
}

/// Starts a node that finds nothing within the hour without a wakeup.
async fn node(store: &MemoryStore, broker: &Broker, queue: &'static str) -> Scheduler {
    let hour = Duration::from_secs(3_600);
    Ratchet::builder(store.clone())
        .register(Mailer)
        .allow(["shop."])
        .cluster(BrokerCoordinator::new(broker.clone()))
        .configure(|options| {
            options.polling.min_delay = hour;
            options.polling.max_delay = hour;
            options.polling.burst_delay = hour;
            options.polling.deep_idle_delay = hour;
            options.node.lease = hour;
            options.node.beat = hour / 6;
            options.node.recovery_interval = hour;
            options.execution.queues.clear();
            options.execution.queue(queue);
        })
        .start()
        .await
        .expect("the node starts")
}

#[tokio::test]
async fn work_that_one_node_submits_wakes_another() {
    let (store, broker) = (MemoryStore::new(), Broker::new());
    let front = node(&store, &broker, "front").await;
    let back = node(&store, &broker, "back").await;
    for _ in 0..3 {
        let job = front.enqueue(Mailer::job().send()).queue("back").submit().await.expect("stored");
        job.result().await.expect("it runs on the other node");
    }
    front.stop().await;
    back.stop().await;
}
