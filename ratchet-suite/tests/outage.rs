//! Nodes whose connections to a real server break: all of them, or so that nobody tells them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ratchet_api::store::JobStore;
use ratchet_core::defaults::PackagePrefixClassPolicy;
use ratchet_core::{JobContext, JobFailure, JobHandle, Ratchet, Readiness, Scheduler, jobs};
use ratchet_store_postgres::{PostgresOptions, PostgresStore};
use ratchet_suite::place::{Place, Schema, postgres_url};
use sqlx::postgres::PgConnectOptions;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// Lies between nodes and their server.
struct Proxy {
    url: String,
    /// If not, every connection ends, and no new one lasts.
    open: watch::Sender<bool>,
    /// Whoever is connected now waits for ever.
    hole: Arc<Notify>,
}

impl Proxy {
    async fn start() -> Self {
        let server: PgConnectOptions = postgres_url().parse().expect("the URL is right");
        let server = (server.get_host().to_owned(), server.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let url =
            postgres_url().replacen(&format!("{}:{}", server.0, server.1), &format!("127.0.0.1:{port}"), 1);
        assert_ne!(url, postgres_url(), "the URL names host and port");
        let (open, hole) = (watch::Sender::new(true), Arc::new(Notify::new()));
        tokio::spawn({
            let (open, hole) = (open.subscribe(), Arc::clone(&hole));
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(forward(client, server.clone(), open.clone(), Arc::clone(&hole)));
                }
            }
        });
        Self { url, open, hole }
    }

    fn open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// From now on nothing goes through the connections that there are, and nobody tells them so.
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
            () = ctx.cancelled() => {}
        }
        Ok(ctx.node().to_string())
    }
}

fn worker() -> Worker {
    Worker { runs: Arc::default(), entered: Arc::default(), gate: Arc::new(watch::Sender::new(false)) }
}

async fn node(proxy: &Proxy, schema: &Schema, worker: &Worker) -> Scheduler {
    let mut options = PostgresOptions::default();
    options.namespace = schema.0.clone();
    options.connections = 4;
    options.acquire_timeout = Duration::from_millis(500);
    options.operation_timeout = Duration::from_millis(500);
    let store = PostgresStore::connect(&proxy.url, options).await.expect("the store opens");
    let builder = Ratchet::builder(store).bean(worker.clone());
    let builder = builder.class_policy(PackagePrefixClassPolicy::allow(["test."])).configure(|options| {
        options.node.lease = Duration::from_secs(2);
        options.node.beat = Duration::from_millis(200);
        options.node.recovery_interval = Duration::from_millis(200);
        options.timeout.cancel_grace = Duration::from_millis(50);
        options.polling.error_delay = Duration::from_millis(100);
        options.retry.drain_interval = Duration::from_millis(100);
    });
    builder.start().await.expect("the node starts")
}

async fn place() -> (Arc<dyn JobStore>, Schema, Proxy) {
    let (schema, proxy) = (Schema::default(), Proxy::start().await);
    let migrator = PostgresStore::migrator(&postgres_url(), schema.0.clone()).expect("the URL is right");
    migrator.migrate(|_| {}).await.expect("the tables are made");
    (schema.connect().await, schema, proxy)
}

async fn until(node: &Scheduler, wanted: Readiness) {
    while node.readiness() != wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// shows: S135 S182 S186
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_longer_than_a_lease_costs_one_more_run_of_what_was_under_way() {
    let (store, schema, proxy) = place().await;
    let client = Ratchet::client_shared(store);
    let workers = [worker(), worker()];
    let nodes = [node(&proxy, &schema, &workers[0]).await, node(&proxy, &schema, &workers[1]).await];
    let mut jobs: Vec<JobHandle<String>> = Vec::new();
    for _ in 0..10 {
        jobs.push(client.enqueue(Worker::job().work()).submit().await.expect("stored"));
    }
    nodes[0].wake_up(ratchet_api::JobPriority::Normal);
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
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_hang_are_replaced_before_the_lease_is_over() {
    let (_store, schema, proxy) = place().await;
    let worker = worker();
    let node = node(&proxy, &schema, &worker).await;
    let owner = node.owner();
    let job = node.enqueue(Worker::job().work()).submit().await.expect("stored");
    worker.entered.notified().await;
    proxy.swallow();
    // As many beats as there are in a lease have come through since.
    let row = async || node.store().nodes().await.ok().and_then(|nodes| nodes.into_iter().next());
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
    schema.remove().await;
}
