//! Real processes on one file, killed one after the other.
//!
//! A process in which the variable of `worker` is set does not test but works, to be killed.

mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};

use libtest_mimic::{Arguments, Trial};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;
use worker::{Process, Told};

/// The number of processes at once.
const PROCESSES: usize = 4;
/// The number of kills in all: three for each of the processes at once.
const KILLS: usize = 12;
/// Jobs that must be done before the next kill, so that every process is at work.
const BETWEEN_KILLS: usize = 100;

fn main() -> ExitCode {
    if let Some(file) = worker::file_from_env() {
        return worker::work(&file);
    }
    let trials = vec![Trial::test("processes_that_are_killed_lose_nothing_and_do_nothing_twice", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(processes_that_are_killed_lose_nothing_and_do_nothing_twice());
        Ok(())
    })];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The reports of the processes.
#[derive(Default)]
struct Heard {
    stored: BTreeSet<String>,
    done: BTreeMap<String, usize>,
    finished: usize,
    killed: usize,
    gone: usize,
}

impl Heard {
    /// Listens until `enough`; a process that reports an error, or ends without being told to, fails the test.
    fn listen(&mut self, told: &Receiver<Told>, enough: impl Fn(&Self) -> bool) {
        while !enough(self) {
            match told.recv().expect("a process that works") {
                Told::Stored(id) => drop(self.stored.insert(id)),
                Told::Done(id) => *self.done.entry(id).or_default() += 1,
                Told::Finished => self.finished += 1,
                Told::Failed(error) => panic!("an error reached a caller: {error}"),
                Told::Gone => {
                    self.gone += 1;
                    assert!(self.gone <= self.killed + self.finished, "a process ended by itself");
                }
            }
        }
    }

    fn jobs_done(&self) -> usize {
        self.done.len()
    }
}

async fn processes_that_are_killed_lose_nothing_and_do_nothing_twice() {
    let dir = TempDir::new().expect("there is room for files");
    let file = dir.path().join("jobs.db");
    let (tell, told): (Sender<Told>, Receiver<Told>) = channel();
    let mut heard = Heard::default();
    // All at once, so that they also make the file and its tables together.
    let mut processes: Vec<Process> = (0..PROCESSES).map(|_| Process::start(&file, &tell)).collect();

    for kill in 0..KILLS {
        let enough = heard.jobs_done() + BETWEEN_KILLS;
        heard.listen(&told, |heard| heard.jobs_done() >= enough);
        let place = kill % PROCESSES;
        heard.killed += 1;
        processes.remove(place).kill();
        assert_eq!(integrity(&file).await, "ok", "after kill {kill}");
        processes.insert(place, Process::start(&file, &tell));
    }

    for process in &mut processes {
        process.stop_storing();
    }
    heard.listen(&told, |heard| heard.finished == PROCESSES);
    assert_eq!(integrity(&file).await, "ok");
    check(&file, &heard).await;
}

/// Every job that was stored has ended, by exactly one recorded outcome.
async fn check(file: &Path, heard: &Heard) {
    let twice: Vec<_> = heard.done.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "done more than once: {twice:?}");

    let mut connection = open(file).await;
    let ended: Vec<String> = sqlx::query_scalar(
        "SELECT lower(hex(j.job_id)) FROM scheduler_job j
         WHERE j.terminal_status = 'SUCCEEDED' AND 1 = (
             SELECT count(*) FROM scheduler_job_execution e
             WHERE e.job_id = j.job_id AND e.status = 'SUCCEEDED'
         )",
    )
    .fetch_all(&mut connection)
    .await
    .expect("an answer");
    let jobs: i64 = sqlx::query_scalar("SELECT count(*) FROM scheduler_job")
        .fetch_one(&mut connection)
        .await
        .expect("an answer");
    assert_eq!(ended.len() as i64, jobs, "a job has not ended once");
    let ended: BTreeSet<String> = ended.into_iter().collect();
    let lost: Vec<_> = heard.stored.difference(&ended).collect();
    assert!(lost.is_empty(), "accepted and lost: {lost:?}");
}

async fn integrity(file: &Path) -> String {
    sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut open(file).await).await.expect("an answer")
}

async fn open(file: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(file).connect().await.expect("the file can be opened")
}
