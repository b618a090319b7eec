//! A real process, and real signals.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::process::{ExitStatus, Stdio};

use ratchet_api::{Job, JobStatus};
use ratchet_core::{Call, Client, JobHandle, Ratchet};
use ratchet_store_sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A running worker.
struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    client: Client,
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
        let mut worker = Self { process, lines, client, _folder: folder };
        worker.says("ready").await;
        worker
    }

    async fn says(&mut self, expected: &str) {
        let line = self.lines.next_line().await.unwrap();
        assert_eq!(line.as_deref(), Some(expected));
    }

    /// A report of so many steps.
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
}

async fn now(job: &JobHandle<()>) -> Job {
    job.job().await.unwrap().unwrap()
}

#[tokio::test]
async fn a_process_that_is_asked_to_end_finishes_what_runs_and_starts_nothing() {
    for signal in ["TERM", "INT"] {
        let mut worker = Worker::start().await;
        let running = worker.submit(20).await;
        worker.says("writing").await;
        let waiting = worker.submit(1).await;
        worker.signal(signal).await;
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
    // One of each kind: the system keeps no count of a signal that waits.
    worker.signal("TERM").await;
    worker.signal("INT").await;
    while worker.lines.next_line().await.unwrap().is_some_and(|line| line != "stopped") {}
    assert!(worker.ended().await.success());
    let job = now(&running).await;
    assert_eq!((job.status, job.picked_by, job.attempts, job.crash_count), (JobStatus::Pending, None, 0, 0));
    assert_eq!(worker.nodes().await, 0, "it has left");
}
