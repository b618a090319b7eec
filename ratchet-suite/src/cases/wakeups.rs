//! Who is told about new work.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, WakeupListener};
use ratchet_api::{JobPriority, StoreResult};
use ratchet_core::jobs;
use tokio::sync::Notify;

use super::queues::patient;
use crate::Fixture;

crate::cases! {
    a_submission_wakes_whichever_node_serves_its_queue;
    the_cluster_is_told_of_what_is_due_now_or_critical;
}

/// A line to every node.
#[derive(Clone, Default)]
struct Bus {
    listeners: Arc<Mutex<Vec<WakeupListener>>>,
    told: Arc<Mutex<Vec<JobPriority>>>,
    more: Arc<Notify>,
}

#[async_trait]
impl ClusterCoordinator for Bus {
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()> {
        self.told.lock().expect("nobody panics").push(priority);
        self.more.notify_one();
        self.listeners.lock().expect("nobody panics").iter().for_each(|listener| listener());
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        self.listeners.lock().expect("nobody panics").push(listener);
        Ok(())
    }
}

struct Idle;

#[jobs(target = "test.Idle")]
impl Idle {
    #[job]
    async fn pass(&self) {}
}

// shows: S58 S123 S125
async fn a_submission_wakes_whichever_node_serves_its_queue(fx: Fixture) {
    let bus = Bus::default();
    let (line, other) = (bus.clone(), bus.clone());
    let front = fx.node(|builder| {
        builder.bean(Idle).cluster(line).configure(patient).configure(|options| {
            options.execution.queues.clear();
            options.execution.queue("front");
        })
    });
    let front = front.await;
    let back = fx.node(|builder| builder.bean(Idle).cluster(other).configure(patient)).await;
    // The first may be found by the first look; the others are found by nobody who is not told.
    for _ in 0..3 {
        for queue in ["default", "front"] {
            let job = front.enqueue(Idle::job().pass()).queue(queue).submit().await.expect("stored");
            job.result().await.expect("it runs");
        }
    }
    front.stop().await;
    back.stop().await;
}

// shows: S15
async fn the_cluster_is_told_of_what_is_due_now_or_critical(fx: Fixture) {
    let bus = Bus::default();
    let line = bus.clone();
    let node = fx.node(|builder| builder.bean(Idle).cluster(line).configure(patient)).await;
    let later = Duration::from_secs(3_600);
    let job = || node.enqueue(Idle::job().pass());
    job().delay(later).priority(JobPriority::High).submit().await.expect("stored");
    job().delay(later).priority(JobPriority::Critical).submit().await.expect("stored");
    job().priority(JobPriority::Low).submit().await.expect("stored").result().await.expect("it runs");
    while bus.told.lock().expect("nobody panics").len() < 2 {
        bus.more.notified().await;
    }
    let mut told = bus.told.lock().expect("nobody panics").clone();
    told.sort();
    assert_eq!(told, [JobPriority::Low, JobPriority::Critical]);
    node.stop().await;
}
