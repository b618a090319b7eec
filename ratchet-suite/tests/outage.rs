//! Nodes whose connections to a real server break: all of them, or without notice to either end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mongodb::bson::doc;
use mongodb::options::{ClientOptions, ServerAddress};
use ratchet_api::store::JobStore;
use ratchet_core::{JobContext, JobFailure, JobHandle, Ratchet, Readiness, Scheduler, jobs};
use ratchet_store_mongodb::MongoStore;
use ratchet_store_postgres::{PostgresOptions, PostgresStore};
use ratchet_suite::test_store::{Collections, Schema, TestStore, mongodb_url, postgres_url};
use sqlx::postgres::PgConnectOptions;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// The limit for a call whose server gives no sign of life.
const PATIENCE: Duration = Duration::from_millis(500);

/// A proxy between nodes and their server.
struct Proxy {
    port: u16,
    /// Whether connections are forwarded. If not, every connection ends, and new ones end at once.
    open: watch::Sender<bool>,
    /// Notified to let the current connections hang for ever.
    hole: Arc<Notify>,
}

impl Proxy {
    async fn before(host: String, port: u16) -> Self {
        let server = (host, port);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (open, hole) = (watch::Sender::new(true), Arc::new(Notify::new()));
        tokio::spawn({
            let (open, hole) = (open.subscribe(), Arc::clone(&hole));
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(forward(client, server.clone(), open.clone(), Arc::clone(&hole)));
                }
            }
        });
        Self { port, open, hole }
    }

    fn open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Stops forwarding on the current connections without closing them.
    fn swallow(&self) {
        self.hole.notify_waiters();
    }
}

async fn forward(
    mut client: TcpStream,
    server: (String, u16),
    mut open: watch::Receiver<bool>,
    hole: Arc<Notify>,
) {
    if !*open.borrow() {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        () = async { drop(open.wait_for(|open| !open).await) } => {}
        () = hole.notified() => std::future::pending().await,
    }
}

#[derive(Clone)]
struct Worker {
    runs: Arc<AtomicU32>,
    entered: Arc<Notify>,
    gate: Arc<watch::Sender<bool>>,
}

#[jobs(target = "test.Worker")]
impl Worker {
    #[job]
    async fn work(&self, ctx: &JobContext) -> Result<String, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.entered.notify_one();
        let mut gate = self.gate.subscribe();
        tokio::select! {
            _ = gate.wait_for(|open| *open) => {}
            () = ctx.canceled() => {}
        }
        Ok(ctx.node().to_string())
    }
}

fn worker() -> Worker {
    Worker { runs: Arc::default(), entered: Arc::default(), gate: Arc::new(watch::Sender::new(false)) }
}

/// An empty store on a server that nodes reach through a proxy.
#[async_trait]
trait Distant: TestStore {
    /// Puts a proxy in front of the server.
    async fn proxy(&self) -> Proxy;

    /// Connects to the store through the proxy.
    async fn connect_by(&self, proxy: &Proxy) -> Arc<dyn JobStore>;
}

#[async_trait]
impl Distant for Schema {
    async fn proxy(&self) -> Proxy {
        let server: PgConnectOptions = postgres_url().parse().expect("the URL is right");
        Proxy::before(server.get_host().to_owned(), server.get_port()).await
    }

    async fn connect_by(&self, proxy: &Proxy) -> Arc<dyn JobStore> {
        let server: PgConnectOptions = postgres_url().parse().expect("the URL is right");
        let mut options = PostgresOptions::default();
        options.namespace = self.0.clone();
        options.connections = 4;
        options.acquire_timeout = PATIENCE;
        options.operation_timeout = PATIENCE;
        let server = server.host("127.0.0.1").port(proxy.port);
        Arc::new(PostgresStore::from_options(server, options).await.expect("the store opens"))
    }
}

#[async_trait]
impl Distant for Collections {
    async fn proxy(&self) -> Proxy {
        let hello = self.database().await.run_command(doc! { "hello": 1 }).await.expect("the server answers");
        let primary = ServerAddress::parse(hello.get_str("primary").expect("a replica set"));
        let Ok(ServerAddress::Tcp { host, port: Some(port) }) = primary else { panic!("{primary:?}") };
        Proxy::before(host, port).await
    }

    async fn connect_by(&self, proxy: &Proxy) -> Arc<dyn JobStore> {
        let mut server = ClientOptions::parse(mongodb_url()).await.expect("the URL is right");
        server.hosts = vec![ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(proxy.port) }];
        // Otherwise the driver asks for the members of the replica set and bypasses the proxy.
        server.direct_connection = Some(true);
        server.connect_timeout = Some(PATIENCE);
        server.heartbeat_freq = Some(PATIENCE);
        server.server_selection_timeout = Some(PATIENCE);
        Arc::new(MongoStore::from_options(server, self.options()).await.expect("the store opens"))
    }
}

async fn node(store: Arc<dyn JobStore>, worker: &Worker) -> Scheduler {
    let builder = Ratchet::builder_shared(store).register(worker.clone());
    let builder = builder.allow(["test."]).configure(|options| {
        options.node.lease = Duration::from_secs(2);
        options.node.beat = Duration::from_millis(200);
        options.node.recovery_interval = Duration::from_millis(200);
        options.timeout.cancel_grace = Duration::from_millis(50);
        options.polling.error_delay = Duration::from_millis(100);
        options.retry.drain_interval = Duration::from_millis(100);
    });
    builder.start().await.expect("the node starts")
}

async fn until(node: &Scheduler, wanted: Readiness) {
    while node.readiness() != wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// shows: S135 S182 S186
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_longer_than_a_lease_costs_one_more_run_of_what_was_under_way() {
    outage(Schema::migrated().await).await;
}

// shows: S135 S182 S186
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_mongodb_longer_than_a_lease_costs_one_more_run_of_what_was_under_way() {
    outage(Collections::default()).await;
}

async fn outage(place: impl Distant) {
    let (client, proxy) = (Ratchet::client_shared(place.connect().await), place.proxy().await);
    let workers = [worker(), worker()];
    let start = async |worker| node(place.connect_by(&proxy).await, worker).await;
    let nodes = [start(&workers[0]).await, start(&workers[1]).await];
    let mut jobs: Vec<JobHandle<String>> = Vec::new();
    for _ in 0..10 {
        jobs.push(client.enqueue(Worker::job().work()).submit().await.expect("stored"));
    }
    nodes[0].client().wake_up(ratchet_api::JobPriority::Normal);
    let runs = || workers.iter().map(|worker| worker.runs.load(Ordering::SeqCst)).sum::<u32>();
    while runs() < 10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.open(false);
    for node in &nodes {
        until(node, Readiness::Starting).await;
    }
    for worker in &workers {
        worker.gate.send_replace(true);
    }
    proxy.open(true);
    let back = Instant::now();
    for job in jobs {
        job.result().await.expect("it runs again");
        let job = job.job().await.expect("read").expect("there");
        assert_eq!((job.attempts, job.crash_count), (0, 0), "nothing failed and nothing crashed");
    }
    println!("all had ended {:?} after the server was back", back.elapsed());
    assert_eq!(runs(), 20, "each ran once more");
    for node in &nodes {
        until(node, Readiness::Ready).await;
        node.stop().await;
    }
    assert_eq!(client.store().nodes().await.expect("read"), []);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_hang_are_replaced_before_the_lease_is_over() {
    hang(Schema::migrated().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_mongodb_that_hang_are_replaced_before_the_lease_is_over() {
    hang(Collections::default()).await;
}

async fn hang(place: impl Distant) {
    let (worker, proxy) = (worker(), place.proxy().await);
    let node = node(place.connect_by(&proxy).await, &worker).await;
    let owner = node.owner();
    let job = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    proxy.swallow();
    // As many beats as fit into a lease have come through since.
    let row = async || node.client().store().nodes().await.ok().and_then(|nodes| nodes.into_iter().next());
    let since = loop {
        match row().await {
            Some(row) => break row.heartbeat_at,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    while row().await.is_none_or(|row| row.heartbeat_at.since(since) < Duration::from_secs(3)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    worker.gate.send_replace(true);
    assert_eq!(job.result().await.expect("it ends"), owner.to_string(), "it never lost its lease");
    assert_eq!((node.owner(), worker.runs.load(Ordering::SeqCst)), (owner, 1));
    node.stop().await;
    place.remove().await;
}
