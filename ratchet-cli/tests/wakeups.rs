//! Changes by the program reach running nodes before their next poll.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod program;
mod shop;

use std::sync::Arc;
use std::time::Duration;

use program::said;
use ratchet_core::{JobContext, JobHandle, JobStatus, QueueName, Ratchet, Scheduler, jobs};
use shop::Shop;
use tokio::sync::Notify;

shop::on_every_store! {
    running_nodes_know_at_once_what_a_command_has_changed
}

#[derive(Clone, Default)]
struct Till {
    entered: Arc<Notify>,
}

#[jobs(target = "shop.Till")]
impl Till {
    #[job(resource = "printer")]
    async fn print(&self) {}

    #[job]
    async fn sell(&self) {}

    #[job]
    async fn wait(&self, ctx: &JobContext) {
        self.entered.notify_one();
        ctx.canceled().await;
    }
}

/// A node whose next poll is an hour away.
async fn node(shop: &Shop, till: &Till) -> Scheduler {
    let hour = Duration::from_secs(3_600);
    Ratchet::builder_shared(shop.place.open().await)
        .register(till.clone())
        .allow(["shop."])
        .configure(|options| {
            options.polling.min_delay = hour;
            options.polling.max_delay = hour;
            options.polling.burst_delay = hour;
            options.polling.deep_idle_delay = hour;
            options.node.lease = hour;
            options.node.beat = hour / 6;
            options.node.recovery_interval = hour;
            options.retry.permit_delay = hour;
        })
        .start()
        .await
        .unwrap()
}

async fn ended(job: &JobHandle<()>) -> JobStatus {
    job.ended().await.unwrap().status
}

async fn running_nodes_know_at_once_what_a_command_has_changed(shop: &Shop) {
    if shop.store.coordinator().is_none() {
        return;
    }
    let till = Till::default();
    let node = node(shop, &till).await;

    let running = node.enqueue(Till::job().wait()).submit().await.unwrap();
    till.entered.notified().await;
    said(shop, &["jobs", "cancel", &running.id().to_string()]);
    while running.job().await.unwrap().unwrap().picked_by.is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ended(&running).await, JobStatus::Canceled);

    let waits = node.enqueue(Till::job().print()).submit().await.unwrap();
    while waits.job().await.unwrap().unwrap().parked_on.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    said(shop, &["resources", "set", "printer", "1"]);
    assert_eq!(ended(&waits).await, JobStatus::Succeeded);

    node.client().store().set_queue_paused(&QueueName::new("default").unwrap(), true).await.unwrap();
    let waits = node.enqueue(Till::job().sell()).submit().await.unwrap();
    said(shop, &["queues", "resume", "default"]);
    assert_eq!(ended(&waits).await, JobStatus::Succeeded);
    node.stop().await;
}
