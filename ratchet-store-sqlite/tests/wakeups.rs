//! Real processes on one file that tell each other about new work.
//!
//! A process in which the variable is set does not test: it listens, and prints what it hears. At each line of its
//! input it notifies the others of new work.

use std::io::{BufRead as _, BufReader, Lines, Write as _, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use ratchet_api::JobPriority;
use ratchet_api::spi::ClusterCoordinator;
use ratchet_api::store::StoreInfo as _;
use ratchet_store_sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

const VARIABLE: &str = "RATCHET_TEST_LISTENER";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if let Some(file) = std::env::var_os(VARIABLE) {
        runtime.block_on(listen(Path::new(&file)));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("processes_wake_each_other_and_not_themselves", || {
            processes_wake_each_other_and_not_themselves();
            Ok(())
        }),
        Trial::test("a_process_that_is_killed_breaks_nothing_for_the_others", || {
            a_process_that_is_killed_breaks_nothing_for_the_others();
            Ok(())
        }),
        Trial::test("wakeups_can_be_off", move || {
            runtime.block_on(wakeups_can_be_off());
            Ok(())
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

async fn listen(file: &Path) {
    let store = SqliteStore::open(file).await.expect("the file opens");
    let coordinator: Arc<dyn ClusterCoordinator> = store.coordinator().expect("it has wakeups");
    coordinator.register_wakeup_listener(Arc::new(|_| say("heard"))).await.expect("it listens");
    say("listening");
    for _ in stdin().lines().map_while(Result::ok) {
        coordinator.notify_new_work(JobPriority::Normal).await.expect("it is noted");
    }
    coordinator.shutdown().await;
    say("ended");
}

fn say(what: &str) {
    let mut out = stdout().lock();
    // The reader may be gone.
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

/// A process that listens, seen from the test.
struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .env(VARIABLE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut process = Self { child, said };
        process.says("listening");
        process
    }

    /// Waits for its next line.
    fn says(&mut self, wanted: &str) {
        assert_eq!(self.said.next().expect("it lives").expect("a line"), wanted);
    }

    /// Makes it notify the others.
    fn tell(&mut self) {
        writeln!(self.child.stdin.as_mut().expect("its input")).expect("it lives");
    }

    /// Lets it end; it must not have said anything more.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.says("ended");
        assert!(self.child.wait().expect("its end").success());
    }

    /// Kills it with SIGKILL.
    fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("its end");
    }
}

fn place() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("there is room for files");
    let file = dir.path().join("jobs.db");
    (dir, file)
}

fn processes_wake_each_other_and_not_themselves() {
    let (_dir, file) = place();
    let mut processes = [Process::start(&file), Process::start(&file), Process::start(&file)];
    for teller in 0..processes.len() {
        processes[teller].tell();
        for (at, process) in processes.iter_mut().enumerate() {
            if at != teller {
                process.says("heard");
            }
        }
    }
    processes.into_iter().for_each(Process::end);
}

fn a_process_that_is_killed_breaks_nothing_for_the_others() {
    let (_dir, file) = place();
    let (mut first, mut second) = (Process::start(&file), Process::start(&file));
    for _ in 0..3 {
        let mut victim = Process::start(&file);
        victim.tell();
        first.says("heard");
        second.says("heard");
        victim.kill();
        first.tell();
        second.says("heard");
        second.tell();
        first.says("heard");
    }
    first.end();
    second.end();
}

async fn wakeups_can_be_off() {
    let (dir, file) = place();
    let mut options = SqliteOptions::default();
    options.wakeups = false;
    let store = SqliteStore::open_with(&file, options).await.expect("the file opens");
    assert!(store.coordinator().is_none());
    store.close().await;
    let store = SqliteStore::open(&file).await.expect("the file opens");
    store.coordinator().expect("one").notify_new_work(JobPriority::Low).await.expect("it is noted");
    store.close().await;
    drop(dir);
}
