//! Wakeups beyond the conformance suite: cursors, elections, and servers or users that lack something.

mod own_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::TryStreamExt as _;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use own_server::{OwnServer, login, url, user};
use ratchet_api::JobPriority;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind};
use ratchet_api::store::StoreInfo as _;
use ratchet_store_mongodb::{MongoOptions, MongoStore};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(90);

/// A database of its own, dropped at the end of a test that passed.
struct TestDatabase {
    database: Database,
}

impl TestDatabase {
    async fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ratchet_wake_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        Self { database: Client::with_uri_str(url()).await.expect("a URL").database(&name) }
    }

    fn options(&self) -> MongoOptions {
        MongoOptions::default().database(self.database.name())
    }

    async fn store(&self) -> MongoStore {
        MongoStore::connect(&url(), self.options()).await.expect("the store opens")
    }

    async fn listening(&self) -> Listening {
        Listening::on(&self.store().await).await
    }

    /// The number of cursors that follow the notices.
    async fn followers(&self) -> usize {
        let here = doc! { "ns": format!("{}.scheduler_wakeup", self.database.name()) };
        let pipeline = [
            doc! { "$currentOp": { "allUsers": true, "idleCursors": true } },
            doc! { "$match": here },
            doc! { "$match": { "cursor.cursorId": { "$exists": true } } },
        ];
        let admin = self.database.client().database("admin");
        let found: Vec<Document> =
            admin.aggregate(pipeline).await.expect("an answer").try_collect().await.expect("an answer");
        found.len()
    }

    async fn has_followers(&self, count: usize) {
        let reached = async {
            while self.followers().await != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("so many follow");
    }

    async fn close(self) {
        self.database.drop().await.expect("the database goes");
    }
}

/// A node that counts its wakeups of each kind.
struct Listening {
    coordinator: Arc<dyn ClusterCoordinator>,
    calls: watch::Receiver<[usize; 2]>,
}

impl Listening {
    async fn on(store: &MongoStore) -> Self {
        let coordinator = store.coordinator().expect("the store has wakeups");
        let (tell, calls) = watch::channel([0, 0]);
        let count = move |kind| {
            let at = WakeupKind::ALL.iter().position(|known| *known == kind).expect("a kind");
            tell.send_modify(|calls| calls[at] += 1);
        };
        coordinator.register_wakeup_listener(Arc::new(count)).await.expect("it listens");
        Self { coordinator, calls }
    }

    fn calls(&self) -> [usize; 2] {
        *self.calls.borrow()
    }

    async fn heard(&mut self, work: usize, cancel: usize) {
        let heard = self.calls.wait_for(|calls| calls[0] >= work && calls[1] >= cancel);
        let heard = tokio::time::timeout(PATIENCE, heard).await.expect("a wakeup");
        heard.expect("somebody listens");
    }

    async fn stop(self) {
        self.coordinator.shutdown().await;
    }
}

async fn notify(coordinator: &dyn ClusterCoordinator) {
    coordinator.notify_new_work(JobPriority::Normal).await.expect("no error");
}

// shows: S122
#[tokio::test]
async fn a_node_does_not_wake_itself() {
    let place = TestDatabase::new().await;
    let (mut first, mut second) = (place.listening().await, place.listening().await);
    notify(&*first.coordinator).await;
    second.heard(1, 0).await;
    // Notices arrive in order: if the first node heard its own, it would do so before that of the second.
    notify(&*second.coordinator).await;
    first.heard(1, 0).await;
    assert_eq!((first.calls(), second.calls()), ([1, 0], [1, 0]));
    first.stop().await;
    second.stop().await;
    place.close().await;
}

#[tokio::test]
async fn what_was_told_before_is_not_heard() {
    let place = TestDatabase::new().await;
    let sender = place.store().await.coordinator().expect("the store has wakeups");
    for _ in 0..2_000 {
        sender.notify_cancel_requested().await.expect("no error");
    }
    let mut late = place.listening().await;
    notify(&*sender).await;
    late.heard(1, 0).await;
    assert_eq!(late.calls(), [1, 0]);
    late.stop().await;
    place.close().await;
}

#[tokio::test]
async fn installations_in_one_database_do_not_wake_each_other() {
    let place = TestDatabase::new().await;
    let shop = MongoStore::connect(&url(), place.options().prefix("shop_")).await.expect("the store opens");
    let (mut ours, mut theirs) = (place.listening().await, Listening::on(&shop).await);
    notify(&*place.store().await.coordinator().expect("one")).await;
    shop.coordinator().expect("one").notify_cancel_requested().await.expect("no error");
    ours.heard(1, 0).await;
    theirs.heard(0, 1).await;
    assert_eq!((ours.calls(), theirs.calls()), ([1, 0], [0, 1]));
    ours.stop().await;
    theirs.stop().await;
    place.close().await;
}

#[tokio::test]
async fn no_cursor_stays_behind() {
    let place = TestDatabase::new().await;
    let (stopped, dropped) = (place.listening().await, place.listening().await);
    place.has_followers(2).await;
    stopped.stop().await;
    drop(dropped);
    // A waiting cursor finds out with the next notice.
    notify(&*place.store().await.coordinator().expect("one")).await;
    place.has_followers(0).await;
    place.close().await;
}

#[tokio::test]
async fn a_process_that_only_submits_follows_nothing() {
    let place = TestDatabase::new().await;
    let mut node = place.listening().await;
    let client = place.store().await.coordinator().expect("one");
    notify(&*client).await;
    node.heard(1, 0).await;
    assert_eq!(place.followers().await, 1);
    client.shutdown().await;
    node.stop().await;
    place.close().await;
}

#[tokio::test]
async fn a_node_that_listens_leaves_the_store_its_connections() {
    let place = TestDatabase::new().await;
    let mut one = ClientOptions::parse(url()).await.expect("a URL");
    one.max_pool_size = Some(1);
    let store = MongoStore::from_options(one, place.options()).await.expect("the store opens");
    let mut node = Listening::on(&store).await;
    notify(&*store.coordinator().expect("another node")).await;
    node.heard(1, 0).await;
    store.database_time().await.expect("there is a connection");
    node.stop().await;
    place.close().await;
}

#[tokio::test]
async fn a_node_whose_cursor_dies_follows_anew() {
    let place = TestDatabase::new().await;
    let mut node = place.listening().await;
    place.database.collection::<Document>("scheduler_wakeup").delete_many(doc! {}).await.expect("emptied");
    notify(&*place.store().await.coordinator().expect("one")).await;
    // Either the notice arrived, or the listener was called because of the gap.
    node.heard(1, 0).await;
    node.stop().await;
    place.close().await;
}

#[tokio::test]
async fn a_store_offers_wakeups_unless_they_are_off_or_cannot_be() {
    let place = TestDatabase::new().await;
    let offered = async |options: MongoOptions| {
        let store = MongoStore::connect(&url(), options).await.expect("the store opens");
        store.coordinator().is_some()
    };
    assert!(!offered(place.options().wakeups(false)).await);
    assert!(offered(place.options()).await, "whoever made the collections");
    let notices = place.database.collection::<Document>("scheduler_wakeup");
    notices.drop().await.expect("it goes");
    assert!(!offered(place.options()).await);
    place.database.create_collection(notices.name()).await.expect("it is made");
    assert!(!offered(place.options()).await, "it would grow for ever");
    place.close().await;
}

#[tokio::test]
async fn wakeups_go_on_after_a_step_down_and_after_a_crash() {
    let mut server = OwnServer::replica_set(false).await;
    let store = async || {
        let store = MongoStore::connect(&server.url(""), MongoOptions::default()).await;
        store.expect("the store opens")
    };
    let (mut node, sender) = (Listening::on(&store().await).await, store().await);
    let sender = sender.coordinator().expect("one");
    notify(&*sender).await;
    node.heard(1, 0).await;

    let step_down = doc! { "replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": true };
    server.admin("").await.run_command(step_down).await.expect("it steps down");
    server.has_primary().await;
    sender.notify_cancel_requested().await.expect("no error");
    node.heard(1, 1).await;

    let [work, cancel] = node.calls();
    server.crash().await;
    // No notice is sent: the listener is called because one may have been lost.
    node.heard(work + 1, cancel + 1).await;
    let [work, cancel] = node.calls();
    notify(&*sender).await;
    node.heard(work + 1, cancel).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_follows_a_former_primary_finds_out() {
    let server = OwnServer::replica_set(false).await;
    let store = MongoStore::connect(&server.url(""), MongoOptions::default()).await.expect("the store opens");
    let mut node = Listening::on(&store).await;
    let step_down = doc! { "replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": true };
    server.admin("").await.run_command(step_down).await.expect("it steps down");
    // The cursor lives on, and no notice is sent.
    node.heard(1, 1).await;
    node.stop().await;
}

#[tokio::test]
async fn a_user_who_may_not_use_the_notices_does_without() {
    let server = OwnServer::replica_set(true).await;
    let root = server.make_root().await;
    let options = MongoOptions::default().database("jobs");
    MongoStore::connect(&server.url(&root), options.clone()).await.expect("the store opens");
    let admin = server.admin(&root).await;
    let jobs = admin.client().database("jobs");
    let collections = jobs.list_collection_names().await.expect("an answer");
    let others = collections.iter().filter(|name| *name != "scheduler_wakeup");
    let actions = ["find", "insert", "update", "remove"];
    let privileges: Vec<Document> = others
        .map(|name| doc! { "resource": { "db": "jobs", "collection": name }, "actions": actions.as_slice() })
        .collect();
    let role = doc! { "createRole": "without_notices", "privileges": privileges, "roles": [] };
    admin.run_command(role).await.expect("a role is made");
    let limited = user("hidden_limited", &[doc! { "role": "without_notices", "db": "admin" }]);
    admin.run_command(limited).await.expect("a user is made");
    let store = MongoStore::connect(&server.url(&login("hidden_limited")), options).await;
    let store = store.expect("the store opens");
    assert!(store.coordinator().is_none());
    store.database_time().await.expect("everything else works");
}
