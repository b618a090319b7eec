//! A process that stores jobs and runs them, about fifty a second, until it is killed or told to finish.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use ratchet_api::store::{
    ClaimRequest, JobBulkStore as _, JobClaimStore as _, JobCrudStore as _, JobQueryStore as _,
    NodeStore as _,
};
use ratchet_api::{
    Beat, End, Inserted, JobClaim, JobId, JobPayload, JsonText, NewJob, NodeInfo, Outcome, Owner,
    StoreResult, Submission, Verdict,
};
use ratchet_store_sqlite::SqliteStore;

const VARIABLE: &str = "RATCHET_TEST_WORKER";
/// The time between two jobs: four processes store two hundred a second.
const TICK: Duration = Duration::from_millis(20);
const TICKS_BETWEEN_BEATS: u32 = 10;
/// Short, so that the jobs of killed processes are soon recovered.
const LEASE: Duration = Duration::from_secs(2);
const SLOTS: usize = 50;

/// A report of a process.
pub(crate) enum Told {
    Stored(String),
    Done(String),
    Finished,
    Failed(String),
    Gone,
}

/// A running process, seen from the test.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a process that works on this file and reports what it did.
    pub(crate) fn start(file: &Path, tell: &Sender<Told>) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .env(VARIABLE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (lines, tell) = (BufReader::new(child.stdout.take().expect("its output")).lines(), tell.clone());
        std::thread::spawn(move || {
            // A line that was cut off by the kill is ignored.
            let told = lines.map_while(Result::ok).filter_map(|line| parse(&line)).chain([Told::Gone]);
            for told in told {
                // A test that failed listens no more.
                drop(tell.send(told));
            }
        });
        Self(child)
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("a process that lives");
        let status = self.0.wait().expect("its end");
        assert_eq!(status.code(), None, "it ended by itself: {status}");
    }

    /// Closes its input: the process then stores no more jobs, and ends when all are done.
    pub(crate) fn stop_storing(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Process {
    /// Kills the process, so that a failed test leaves none behind.
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn parse(line: &str) -> Option<Told> {
    let line = line.strip_suffix('.')?;
    match line.split_once(' ') {
        None if line == "finished" => Some(Told::Finished),
        Some(("stored", id)) => Some(Told::Stored(id.to_owned())),
        Some(("done", id)) => Some(Told::Done(id.to_owned())),
        Some(("failed", error)) => Some(Told::Failed(error.to_owned())),
        _ => None,
    }
}

/// Tells the test. The full stop shows that the line is whole.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}.").and_then(|()| out.flush()).expect("someone who listens");
}

/// The file to work on, in a process that was started for that.
pub(crate) fn file_from_env() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Works until there is nothing more to do.
pub(crate) fn work(file: &Path) -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    std::thread::spawn(move || {
        // Nothing is ever written there; the input ends when the test closes it.
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        stopped.store(true, Ordering::Relaxed);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(run(file, &stop)) {
        Ok(()) => {
            tell("finished");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tell(&format!("failed {error:?}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// A minimal node.
struct Worker {
    store: SqliteStore,
    owner: Owner,
    held: Vec<JobClaim>,
}

async fn run(file: &Path, stop: &AtomicBool) -> StoreResult<()> {
    let store = SqliteStore::open(file).await?;
    let mut worker = Worker { owner: Owner::incarnate("worker"), store, held: Vec::new() };
    worker.join().await?;
    let mut ticks = tokio::time::interval(TICK);
    for tick in 0_u32.. {
        ticks.tick().await;
        let storing = !stop.load(Ordering::Relaxed);
        if storing {
            worker.store_one().await?;
        }
        worker.turn().await?;
        if tick % TICKS_BETWEEN_BEATS == 0 {
            worker.beat().await?;
            if !storing && worker.is_all_done().await? {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl Worker {
    async fn join(&self) -> StoreResult<()> {
        self.store.join(&NodeInfo::new(self.owner.clone()), LEASE).await
    }

    async fn store_one(&self) -> StoreResult<()> {
        let args = JsonText::parse("[]").expect("JSON");
        let job = NewJob::new(JobPayload::new("mail.Sender", "send", &args).expect("names"));
        let id = job.spec.id;
        assert_eq!(self.store.insert(&[Submission::single(job)]).await?, [Inserted::New]);
        tell(&format!("stored {}", hex(id)));
        Ok(())
    }

    /// Loads the jobs that it holds, ends them, and claims more.
    async fn turn(&mut self) -> StoreResult<()> {
        let held = std::mem::take(&mut self.held);
        self.store.load(&self.owner, &held).await?;
        let succeeded =
            |claim: &JobClaim| Outcome::new(claim.id, claim.fence, End::Succeeded { result: None });
        let outcomes: Vec<Outcome> = held.iter().map(succeeded).collect();
        let more = ClaimRequest::new(self.owner.clone(), SLOTS);
        let (verdicts, claims) = self.store.commit_and_claim(&self.owner, &outcomes, &more).await?;
        for (outcome, verdict) in outcomes.iter().zip(verdicts) {
            // A worker that was slower than its lease has lost the job to another.
            if matches!(verdict, Verdict::Recorded(_)) {
                tell(&format!("done {}", hex(outcome.id)));
            }
        }
        self.held = claims;
        Ok(())
    }

    /// Renews the lease, and recovers the jobs of dead owners.
    async fn beat(&mut self) -> StoreResult<()> {
        let reply = self.store.beat(&Beat::new(self.owner.clone(), LEASE)).await?;
        if !reply.accepted {
            self.owner = Owner::incarnate("worker");
            self.held.clear();
            return self.join().await;
        }
        if !reply.dead.is_empty() {
            self.held.extend(self.store.recover(&reply.dead, &self.owner, SLOTS).await?);
        }
        Ok(())
    }

    async fn is_all_done(&self) -> StoreResult<bool> {
        let health = self.store.queue_health().await?;
        Ok(health.iter().all(|(_, queue)| queue.ready + queue.running + queue.scheduled == 0))
    }
}

fn hex(id: JobId) -> String {
    id.as_uuid().simple().to_string()
}
