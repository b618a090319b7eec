//! Tests of the guide's programs that need PostgreSQL, on a database of their own.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test")]

mod service;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use ratchet_core::{Call, JobStatus, Ratchet};
use ratchet_servers::Server;
use ratchet_store_postgres::sqlx::postgres::PgConnectOptions;
use ratchet_store_postgres::sqlx::{self, Connection as _, PgConnection};
use ratchet_store_postgres::{PostgresOptions, PostgresStore};
use service::Service;

/// An empty database, which only one test run at a time uses.
struct Database {
    admin: PgConnection,
    url: String,
}

impl Database {
    async fn new() -> Self {
        let url = ratchet_servers::url(Server::Postgres).unwrap_or_else(|error| panic!("{error}"));
        let mut admin = PgConnection::connect(&url).await.unwrap();
        // Held until this connection ends.
        sqlx::query("SELECT pg_advisory_lock(hashtext('ratchet guide'))").execute(&mut admin).await.unwrap();
        let mut database = Self { admin, url };
        database.run("DROP DATABASE IF EXISTS ratchet_guide WITH (FORCE)").await;
        database.run("CREATE DATABASE ratchet_guide").await;
        let server: PgConnectOptions = database.url.parse().unwrap();
        let name = server.get_database().unwrap();
        let at = database.url.rfind(name).unwrap();
        database.url.replace_range(at..at + name.len(), "ratchet_guide");
        database
    }

    async fn run(&mut self, statement: &'static str) {
        sqlx::raw_sql(statement).execute(&mut self.admin).await.unwrap();
    }

    /// Returns the environment variable that its programs read.
    fn variable(&self) -> (&'static str, &str) {
        ("DATABASE_URL", &self.url)
    }

    async fn drop(mut self) {
        self.run("DROP DATABASE ratchet_guide WITH (FORCE)").await;
    }
}

#[tokio::test]
async fn the_programs_that_need_postgresql_do_what_their_pages_say() {
    let database = Database::new().await;
    a_web_service_submits_and_runs_jobs(&database);
    a_request_that_hangs_does_not_keep_it_from_ending(&database);
    a_worker_runs_its_queue_and_stops_when_asked_to(&database).await;
    a_job_is_stored_with_the_order_or_not_at_all(&database);
    database.drop().await;
}

fn a_web_service_submits_and_runs_jobs(database: &Database) {
    let mut service = Service::start(env!("CARGO_BIN_EXE_postgres"), database.variable());
    let (status, first) = service.ask("POST /sign-ups", r#"{"name": "ada"}"#);
    assert_eq!(status, "HTTP/1.1 202 Accepted");
    let (_, second) = service.ask("POST /sign-ups", r#"{"name": "ada"}"#);
    assert_eq!(first, second, "one job");
    let id = first.strip_prefix(r#"{"job":""#).and_then(|rest| rest.strip_suffix(r#""}"#)).unwrap();
    while service.ask(&format!("GET /jobs/{id}"), "").1 != r#"{"status":"SUCCEEDED","failures":0}"# {}
    assert_eq!(service.ask("GET /ready", "").0, "HTTP/1.1 200 OK");
    let unknown = "GET /jobs/00000000-0000-7000-8000-000000000000";
    assert_eq!(service.ask(unknown, "").0, "HTTP/1.1 404 Not Found");
    service.stop();
}

/// Checks that the first signal waits for the request and the second one does not.
fn a_request_that_hangs_does_not_keep_it_from_ending(database: &Database) {
    let mut service = Service::start(env!("CARGO_BIN_EXE_postgres"), database.variable());
    let mut hanging = TcpStream::connect(&service.address).unwrap();
    let headers = "Host: localhost\r\nExpect: 100-continue\r\nContent-Type: application/json";
    write!(hanging, "POST /sign-ups HTTP/1.1\r\n{headers}\r\nContent-Length: 9\r\n\r\n").unwrap();
    let mut begun = [0; "HTTP/1.1 100 Continue".len()];
    hanging.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 100 Continue", "the handler waits for the body");
    service.signal();
    while TcpStream::connect(&service.address).is_ok() {
        std::thread::yield_now();
    }
    assert!(service.process.try_wait().unwrap().is_none(), "it waits for the request");
    service.stop();
}

async fn a_worker_runs_its_queue_and_stops_when_asked_to(database: &Database) {
    let mut worker = Service::start(env!("CARGO_BIN_EXE_worker_pod"), database.variable());
    let store = PostgresStore::connect(&database.url, PostgresOptions::default()).await.unwrap();
    let client = Ratchet::client(store);
    let call = || Call::<()>::new("shop.Reports", "write").arg(&1_u64);
    let report = client.enqueue(call()).queue("reports").submit().await.unwrap();
    assert_eq!(report.ended().await.unwrap().status, JobStatus::Succeeded);
    let not_served = client.enqueue(call()).submit().await.unwrap();
    assert_eq!(worker.ask("GET /ready", "").0, "HTTP/1.1 200 OK");
    let nodes = client.store().nodes().await.unwrap();
    assert_eq!(nodes.iter().filter(|node| node.info.owner.to_string().starts_with("pod-1/")).count(), 1);
    worker.stop();
    assert_eq!(not_served.job().await.unwrap().unwrap().status, JobStatus::Pending);
}

fn a_job_is_stored_with_the_order_or_not_at_all(database: &Database) {
    let program = env!("CARGO_BIN_EXE_submit_in");
    let out = Command::new(program).env("DATABASE_URL", &database.url).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(String::from_utf8_lossy(&out.stdout), include_str!("../expected/submit_in.txt"));
}
