//! Tests of a real process with real signals.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ratchet_core::{Call, Client, JobHandle, Ratchet};
use ratchet_core::{Job, JobStatus};
use ratchet_store_sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

/// A running worker.
struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    client: Client,
    /// The address where it answers probes.
    probes: String,
    _folder: TempDir,
}

impl Worker {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("jobs.db");
        let client = Ratchet::client(SqliteStore::open(&file).await.unwrap());
        let mut process = Command::new(env!("CARGO_BIN_EXE_worker"))
            .arg(&file)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut worker = Self { process, lines, client, probes: String::new(), _folder: folder };
        let ready = worker.lines.next_line().await.unwrap().unwrap();
        worker.probes = ready.strip_prefix("ready ").unwrap().to_owned();
        worker
    }

    /// Returns the response to a readiness probe.
    async fn probe(&self) -> String {
        let mut probe = TcpStream::connect(&self.probes).await.unwrap();
        probe.write_all(b"GET /ready HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap().to_owned()
    }

    async fn says(&mut self, expected: &str) {
        let line = self.lines.next_line().await.unwrap();
        assert_eq!(line.as_deref(), Some(expected));
    }

    /// Submits a report of `steps` steps.
    async fn submit(&self, steps: u64) -> JobHandle<()> {
        self.client.enqueue(Call::new("shop.Reports", "write").arg(&steps)).submit().await.unwrap()
    }

    async fn signal(&self, name: &str) {
        let process = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", name, &process]).status().await.unwrap().success());
    }

    async fn ended(&mut self) -> ExitStatus {
        self.process.wait().await.unwrap()
    }

    async fn nodes(&self) -> usize {
        self.client.store().nodes().await.unwrap().len()
    }

    /// Waits until its node row says that it drains.
    async fn until_draining(&self) {
        while !self.client.store().nodes().await.unwrap()[0].draining {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn now(job: &JobHandle<()>) -> Job {
    job.job().await.unwrap().unwrap()
}

#[tokio::test]
async fn a_process_that_is_asked_to_end_finishes_what_runs_and_starts_nothing() {
    for signal in ["TERM", "INT"] {
        let mut worker = Worker::start().await;
        let running = worker.submit(100).await;
        worker.says("writing").await;
        assert_eq!(worker.probe().await, "HTTP/1.1 200 OK");
        let waiting = worker.submit(1).await;
        worker.signal(signal).await;
        worker.until_draining().await;
        assert_eq!(now(&running).await.status, JobStatus::Running, "the others know before it has ended");
        worker.says("written").await;
        worker.says("stopped").await;
        assert!(worker.ended().await.success());
        assert_eq!(now(&running).await.status, JobStatus::Succeeded);
        let waiting = now(&waiting).await;
        assert_eq!((waiting.status, waiting.picked_by, waiting.attempts), (JobStatus::Pending, None, 0));
        assert_eq!(worker.nodes().await, 0, "it has left");
    }
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_its_job_goes_back() {
    let mut worker = Worker::start().await;
    let running = worker.submit(1_000_000).await;
    worker.says("writing").await;
    // One signal of each kind, since the system does not count pending signals.
    worker.signal("TERM").await;
    worker.signal("INT").await;
    while worker.lines.next_line().await.unwrap().is_some_and(|line| line != "stopped") {}
    assert!(worker.ended().await.success());
    let job = now(&running).await;
    assert_eq!((job.status, job.picked_by, job.attempts, job.crash_count), (JobStatus::Pending, None, 0, 0));
    assert_eq!(worker.nodes().await, 0, "it has left");
}

#[tokio::test]
async fn a_body_that_can_be_interrupted_is_told_at_once() {
    let mut worker = Worker::start().await;
    let running = worker.client.enqueue(Call::<()>::new("shop.Reports", "watch")).submit().await.unwrap();
    worker.says("watching").await;
    worker.signal("TERM").await;
    worker.says("let go").await;
    worker.says("stopped").await;
    assert!(worker.ended().await.success());
    let job = now(&running).await;
    assert_eq!(
        (job.status, job.attempts, job.crash_count),
        (JobStatus::Pending, 0, 0),
        "another node goes on"
    );
}

#[tokio::test]
async fn a_second_signal_does_not_wait_for_clients_of_the_server() {
    let mut worker = Worker::start().await;
    // A connected client that sends no request.
    let client = TcpStream::connect(&worker.probes).await.unwrap();
    let running = worker.submit(20).await;
    worker.says("writing").await;
    worker.signal("TERM").await;
    worker.says("written").await;
    while worker.nodes().await > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(
        worker.process.try_wait().unwrap().is_none(),
        "the node has left, and the server waits for its client"
    );
    worker.signal("INT").await;
    worker.says("hurried").await;
    worker.says("stopped").await;
    assert!(worker.ended().await.success());
    assert_eq!(now(&running).await.status, JobStatus::Succeeded);
    drop(client);
}
