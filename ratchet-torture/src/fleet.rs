//! The workers: real processes, started, killed and frozen.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};

use crate::ledger::now;
use crate::work::READY;

/// The workers, each of which is started many times.
pub(crate) struct Fleet {
    folder: PathBuf,
    address: Vec<String>,
    /// The leases, assigned to the workers in turn.
    leases: Vec<Duration>,
    /// The library that gives processes another clock, if the scenario needs it.
    faketime: Option<PathBuf>,
    workers: Vec<Worker>,
    /// The processes that were killed, with the times.
    pub(crate) kills: Vec<(String, i64)>,
}

/// The clock errors of the workers.
const CLOCKS: [&str; 3] = ["+1h", "-1h", "+0"];

struct Worker {
    lives: usize,
    process: Child,
}

impl Fleet {
    pub(crate) async fn start(
        count: usize,
        folder: &Path,
        address: Vec<String>,
        leases: Vec<Duration>,
        faketime: Option<PathBuf>,
    ) -> Result<Self> {
        let (folder, workers, kills) = (folder.to_owned(), Vec::new(), Vec::new());
        ensure!(!leases.is_empty(), "workers need a lease");
        let mut fleet = Self { folder, address, leases, faketime, workers, kills };
        for at in 0..count {
            let process = fleet.spawn(at, 1)?;
            fleet.workers.push(Worker { lives: 1, process });
        }
        Ok(fleet)
    }

    fn name(at: usize, life: usize) -> String {
        format!("worker-{at}-{life}")
    }

    fn spawn(&self, at: usize, life: usize) -> Result<Child> {
        let name = Self::name(at, life);
        let log = std::fs::File::create(self.folder.join(format!("{name}.log")))?;
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        if let Some(library) = &self.faketime {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME", CLOCKS[at % CLOCKS.len()])
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command
            .arg("worker")
            .args(&self.address)
            .arg("--ledger")
            .arg(self.folder.join(format!("{name}.ledger")))
            .args(["--label", &format!("worker-{at}")])
            .args(["--lease-ms", &self.leases[at % self.leases.len()].as_millis().to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a worker")
    }

    /// Starts the same worker again at once.
    fn respawn(&mut self, at: usize) -> Result<()> {
        let life = self.workers[at].lives + 1;
        self.workers[at] = Worker { lives: life, process: self.spawn(at, life)? };
        Ok(())
    }

    /// Restarts the workers that ended by themselves. Returns how many.
    pub(crate) fn revive(&mut self) -> Result<usize> {
        let mut revived = 0;
        for at in 0..self.len() {
            if self.workers[at].process.try_wait()?.is_some() {
                self.respawn(at)?;
                revived += 1;
            }
        }
        Ok(revived)
    }

    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    fn pid(&self, at: usize) -> Result<String> {
        Ok(self.workers[at].process.id().context("a worker has ended by itself; see its log")?.to_string())
    }

    /// Sends SIGKILL to a worker and restarts it.
    pub(crate) async fn kill(&mut self, at: usize) -> Result<()> {
        let pid = self.pid(at)?;
        self.kills.push((Self::name(at, self.workers[at].lives), now()));
        signal("KILL", &pid).await?;
        self.workers[at].process.wait().await?;
        self.respawn(at)
    }

    pub(crate) async fn freeze(&self, at: usize) -> Result<()> {
        signal("STOP", &self.pid(at)?).await
    }

    pub(crate) async fn thaw(&self, at: usize) -> Result<()> {
        signal("CONT", &self.pid(at)?).await
    }

    /// Sends SIGTERM to a worker, which must then exit with success, and restarts it.
    pub(crate) async fn ask_to_end(&mut self, at: usize) -> Result<()> {
        self.end(at).await?;
        self.respawn(at)
    }

    async fn end(&mut self, at: usize) -> Result<()> {
        let (name, limit) = (Self::name(at, self.workers[at].lives), Duration::from_secs(20));
        let ready = tokio::time::timeout(limit, self.ready(&name)).await;
        ready.with_context(|| format!("{name} is not ready after {limit:?}"))??;
        signal("TERM", &self.pid(at)?).await?;
        let ended = tokio::time::timeout(limit, self.workers[at].process.wait()).await;
        let status = ended.with_context(|| format!("{name} does not end {limit:?} after SIGTERM"))??;
        ensure!(status.success(), "{name} ended with {status} after SIGTERM");
        Ok(())
    }

    /// Waits until every worker is ready: one that finds no server at its start exits.
    pub(crate) async fn all_ready(&self) -> Result<()> {
        let limit = Duration::from_secs(60);
        for (at, worker) in self.workers.iter().enumerate() {
            let name = Self::name(at, worker.lives);
            let ready = tokio::time::timeout(limit, self.ready(&name)).await;
            ready.with_context(|| format!("{name} is not ready after {limit:?}"))??;
        }
        Ok(())
    }

    /// Waits until a worker is ready: before that it cannot be asked to end.
    async fn ready(&self, name: &str) -> Result<()> {
        let log = self.folder.join(format!("{name}.log"));
        while !std::fs::read_to_string(&log)?.contains(READY) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub(crate) async fn stop(mut self) -> Result<Vec<(String, i64)>> {
        for at in 0..self.len() {
            self.end(at).await?;
        }
        Ok(self.kills)
    }
}

/// Sends a signal to a process.
pub(crate) async fn signal(name: &str, pid: &str) -> Result<()> {
    let sent = Command::new("kill").args(["-s", name, pid]).status().await.context("cannot run kill")?;
    ensure!(sent.success(), "process {pid} cannot be told {name}");
    Ok(())
}
