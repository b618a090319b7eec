//! `LISTEN` and `NOTIFY` beyond the conformance suite: what goes over the wire, poolers, dead connections.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::harness::cut_wakeups;
use common::node::until;
use common::proxy::Proxy;
use common::{TestDatabase, pooled_url, url};
use ratchet_api::JobPriority;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener};
use ratchet_api::store::StoreInfo as _;
use ratchet_store_postgres::{Namespace, PgNotifyCoordinator, Pooler, PostgresOptions, PostgresStore};
use sqlx::postgres::PgListener;
use tokio::sync::watch;

/// A namespace that needs no tables, since notices have none.
fn namespace() -> Namespace {
    Namespace::schema(format!("wake_{:032x}", rand::random::<u128>())).expect("a plain name")
}

fn channel(namespace: &Namespace) -> &str {
    namespace.schema_name().expect("a schema")
}

/// A listener that counts its calls about new work, and the count.
fn counting() -> (watch::Receiver<usize>, WakeupListener) {
    let (tell, calls) = watch::channel(0);
    let count = move |kind| tell.send_modify(|calls| *calls += usize::from(kind == WakeupKind::NewWork));
    (calls, Arc::new(count))
}

async fn listening(url: &str, namespace: &Namespace) -> (PgNotifyCoordinator, watch::Receiver<usize>) {
    let coordinator = PgNotifyCoordinator::new(url, namespace).expect("a URL");
    let (calls, listener) = counting();
    coordinator.register_wakeup_listener(listener).await.expect("it listens");
    (coordinator, calls)
}

async fn heard(calls: &mut watch::Receiver<usize>, times: usize) {
    let patience = Duration::from_secs(60);
    let heard = tokio::time::timeout(patience, calls.wait_for(|calls| *calls >= times)).await;
    heard.expect("a wakeup").expect("somebody listens");
}

async fn notify(coordinator: &dyn ClusterCoordinator) {
    coordinator.notify_new_work(JobPriority::Normal).await.expect("it is noted");
}

/// The number of wakeup connections of this namespace.
async fn connections(namespace: &Namespace) -> i64 {
    let mut listener = PgListener::connect(&url()).await.expect("the server answers");
    sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1")
        .bind(format!("ratchet-wakeup {}", channel(namespace)))
        .fetch_one(&mut listener)
        .await
        .expect("an answer")
}

#[tokio::test]
async fn installations_in_one_database_do_not_wake_each_other() {
    let (ours, theirs) = (namespace(), namespace());
    let (sender, mut own) = listening(&url(), &ours).await;
    let (peer, mut calls) = listening(&url(), &ours).await;
    let (stranger, strange) = listening(&url(), &theirs).await;
    notify(&sender).await;
    heard(&mut calls, 1).await;
    notify(&peer).await;
    heard(&mut own, 1).await;
    assert_eq!(*strange.borrow(), 0);
    for coordinator in [sender, peer, stranger] {
        coordinator.shutdown().await;
    }
}

// shows: S122
#[tokio::test]
async fn a_node_does_not_wake_itself_over_the_network() {
    let space = namespace();
    let (first, mut calls_of_first) = listening(&url(), &space).await;
    let (second, mut calls_of_second) = listening(&url(), &space).await;
    notify(&first).await;
    heard(&mut calls_of_second, 1).await;
    // Notices arrive in order: that of the second node comes after the echo of the first.
    notify(&second).await;
    heard(&mut calls_of_first, 1).await;
    assert_eq!(*calls_of_first.borrow(), 1);
    first.shutdown().await;
    second.shutdown().await;
}

// shows: S125
#[tokio::test]
async fn what_is_told_before_the_notice_is_sent_goes_out_with_it() {
    let space = namespace();
    let mut raw = PgListener::connect(&url()).await.expect("the server answers");
    raw.listen(channel(&space)).await.expect("it listens");
    let sender = PgNotifyCoordinator::new(&url(), &space).expect("a URL");
    // On one thread nothing is sent before the test waits for something.
    for text in ["2", "2", "2c", "c"] {
        for _ in 0..1_000 {
            if text.contains('2') {
                notify(&sender).await;
            }
            if text.contains('c') {
                sender.notify_cancel_requested().await.expect("it is noted");
            }
        }
        assert_eq!(
            raw.recv().await.expect("a notice").payload(),
            text,
            "its kind and the priority, nothing else"
        );
    }
    notify(&sender).await;
    // The rest goes out before the connection is closed.
    sender.shutdown().await;
    sqlx::query("SELECT pg_notify($1, 'end')").bind(channel(&space)).execute(&mut raw).await.expect("sent");
    assert_eq!(raw.recv().await.expect("a notice").payload(), "2");
    assert_eq!(raw.recv().await.expect("a notice").payload(), "end", "there was no other");
}

#[tokio::test]
async fn no_connection_stays_behind() {
    let space = namespace();
    let (stopped, mut calls) = listening(&url(), &space).await;
    let (dropped, _) = listening(&url(), &space).await;
    notify(&dropped).await;
    heard(&mut calls, 1).await;
    assert_eq!(connections(&space).await, 2, "one for each node");
    stopped.shutdown().await;
    drop(dropped);
    until(async || connections(&space).await == 0).await;
}

#[tokio::test]
async fn a_process_that_only_submits_connects_when_it_has_something_to_tell() {
    let space = namespace();
    let (node, mut calls) = listening(&url(), &space).await;
    let client = PgNotifyCoordinator::new(&url(), &space).expect("a URL");
    assert_eq!(connections(&space).await, 1);
    notify(&client).await;
    heard(&mut calls, 1).await;
    assert!(!client.is_listening());
    // Notices that are told while there is no connection go out when there is one again.
    cut_wakeups(channel(&space).to_owned()).await.expect("they are cut");
    // The node listens again, and is called because it may have missed something.
    heard(&mut calls, 2).await;
    notify(&client).await;
    heard(&mut calls, 3).await;
    client.shutdown().await;
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_other_end_is_silent_is_given_up_and_the_listener_called() {
    let (space, proxy) = (namespace(), Proxy::to(&url()));
    let (node, mut calls) = listening(&proxy.url, &space).await;
    assert!(node.is_listening());
    proxy.silence();
    // No notice is sent: the listener is called because something may have been lost.
    heard(&mut calls, 1).await;
    assert!(node.is_listening());
    let sender = PgNotifyCoordinator::new(&url(), &space).expect("a URL");
    notify(&sender).await;
    heard(&mut calls, 2).await;
    node.shutdown().await;
}

#[tokio::test]
async fn a_node_behind_a_pooler_in_transaction_mode_tells_others_and_hears_nothing() {
    let place = TestDatabase::new("wake").await;
    let (direct, mut calls) = listening(&url(), &place.namespace()).await;
    let mut options = place.options();
    options.pooler = Pooler::Transaction;
    let store = PostgresStore::lazy(&pooled_url(), options).expect("a URL");
    let pooled = store.coordinator().expect("it can tell");
    let (deaf, listener) = counting();
    pooled.register_wakeup_listener(listener).await.expect("no error: it polls");
    notify(&*pooled).await;
    heard(&mut calls, 1).await;
    notify(&direct).await;
    notify(&*pooled).await;
    heard(&mut calls, 2).await;
    assert_eq!(*deaf.borrow(), 0);
    pooled.shutdown().await;
    direct.shutdown().await;
    place.drop().await;
}

#[tokio::test]
async fn a_pooler_that_nobody_told_of_is_found_out_and_only_hearing_is_lost() {
    let space = namespace();
    let (direct, mut calls) = listening(&url(), &space).await;
    let (pooled, _) = listening(&pooled_url(), &space).await;
    until(async || !pooled.is_listening()).await;
    for told in 1..=3 {
        notify(&pooled).await;
        heard(&mut calls, told).await;
    }
    pooled.shutdown().await;
    direct.shutdown().await;
}

#[tokio::test]
async fn a_store_offers_wakeups_unless_they_are_off() {
    let mut options = PostgresOptions::default();
    let store = PostgresStore::lazy(&url(), options.clone()).expect("a URL");
    assert!(store.coordinator().is_some());
    options.wakeups = false;
    let store = PostgresStore::lazy(&url(), options).expect("a URL");
    assert!(store.coordinator().is_none());
}
