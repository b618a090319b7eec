//! Storing a backlog with a progress line.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ratchet_api::store::{JobStore, Target};
use ratchet_api::{Condition, Due, Edge, Inserted, JobId, JobPayload, NewJob, QueueName, Submission};

use crate::backlog::{Backlog, Row, State};
use crate::job::payload;

const BATCH: usize = 1_000;
const LINE_EVERY: Duration = Duration::from_millis(500);

/// The progress line of a long fill, on standard error.
pub(crate) struct Progress {
    label: String,
    total: usize,
    done: usize,
    begun: Instant,
    said: Instant,
}

impl Progress {
    pub(crate) fn new(label: impl Into<String>, total: usize) -> Self {
        let begun = Instant::now();
        Self { label: label.into(), total, done: 0, begun, said: begun }
    }

    pub(crate) fn add(&mut self, jobs: usize) {
        self.done += jobs;
        if self.said.elapsed() >= LINE_EVERY {
            self.said = Instant::now();
            self.say("");
        }
    }

    pub(crate) fn finish(&self) {
        self.say("\n");
    }

    fn say(&self, end: &str) {
        let (seconds, share) = (self.begun.elapsed().as_secs_f64(), self.done * 100 / self.total.max(1));
        eprint!("\r{}: {share:>3} %, {} jobs, {seconds:.0} s{end}", self.label, self.done);
        // An error of the progress line does not stop the fill.
        drop(std::io::stderr().flush());
    }
}

/// Stores a backlog through the store itself.
pub(super) async fn through(store: &dyn JobStore, backlog: Backlog, progress: &mut Progress) -> Result<()> {
    let payload = payload()?;
    let mut batch = Vec::with_capacity(BATCH);
    let mut paused = Vec::new();
    for row in backlog.rows() {
        if row.state == State::Paused {
            paused.push(Target::from(row.id));
        }
        batch.push(submission(&row, &payload)?);
        if batch.len() == BATCH {
            insert(store, &mut batch, progress).await?;
        }
    }
    insert(store, &mut batch, progress).await?;
    for jobs in paused.chunks(BATCH) {
        store.pause(jobs).await?;
    }
    Ok(())
}

async fn insert(store: &dyn JobStore, batch: &mut Vec<Submission>, progress: &mut Progress) -> Result<()> {
    let inserted = store.insert(batch).await?;
    ensure!(inserted.iter().all(|verdict| *verdict == Inserted::New), "a job of the backlog was refused");
    progress.add(batch.len());
    batch.clear();
    Ok(())
}

/// The submission of a row. A blocked job comes with its parent: a job in a queue that nobody claims from.
fn submission(row: &Row, payload: &JobPayload) -> Result<Submission> {
    let mut job = NewJob::new(payload.clone());
    job.spec.id = row.id;
    job.spec.queue = QueueName::new(row.queue)?;
    job.spec.priority = row.priority;
    job.due = Due::At(row.due);
    if row.state != State::Blocked {
        return Ok(Submission::single(job));
    }
    let mut parent = NewJob::new(payload.clone());
    parent.spec.id = JobId::generate();
    parent.spec.queue = QueueName::new("parents")?;
    let edge = Edge::new(parent.spec.id, job.spec.id, Condition::Success);
    let mut submission = Submission::single(parent);
    submission.jobs.push(job);
    submission.edges.push(edge);
    Ok(submission)
}
