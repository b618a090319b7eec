//! The engine with this identity: people see the name, and owners differ.

use custom_identity::PodIdentity;
use ratchet_core::store::NodeStore as _;
use ratchet_core::{Ratchet, Scheduler, jobs};
use ratchet_store_memory::MemoryStore;

struct Mailer;

#[jobs(target = "shop.Mailer")]
impl Mailer {
    #[job]
    async fn send(&self) {}
}

async fn start(store: &MemoryStore) -> Scheduler {
    Ratchet::builder(store.clone())
        .register(Mailer)
        .allow(["shop."])
        .identity(PodIdentity::named("eu-west", "billing-3").expect("both are given"))
        .start()
        .await
        .expect("the node starts")
}

#[tokio::test]
async fn a_node_is_listed_by_its_name_and_a_restart_is_another_owner() {
    let store = MemoryStore::new();
    let node = start(&store).await;
    let first = node.owner().clone();
    assert_eq!(store.nodes().await.expect("an answer")[0].info.label, "eu-west/billing-3");
    node.stop().await;
    let node = start(&store).await;
    assert_ne!(node.owner(), first);
    node.stop().await;
}

#[test]
fn a_name_needs_both_parts() {
    assert!(PodIdentity::named("", "billing-3").is_none());
    assert!(PodIdentity::named("eu-west", " ").is_none());
}
