//! A job's log lines, trace and events, and the places where they end up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratchet_core::spi::{JobEventListener, JobLabels, MetricsSink, RunEnd};
use ratchet_core::{JobContext, JobEvent, JobEventKind, JobFailure, Ratchet, jobs};
use ratchet_store_sqlite::SqliteStore;

struct Mailer;

#[jobs(target = "mail.Mailer")]
impl Mailer {
    #[job(max_retries = 1)]
    async fn send(&self, ctx: &JobContext, to: String) -> Result<(), JobFailure> {
        tracing::info!("opening a connection"); // carries the job and the node, as all lines in a body do
        ctx.info(format!("sending to {to}")); // the same, and kept with the job
        if ctx.attempt() == 1 {
            return Err(JobFailure::new("Smtp", "smtp://app:s3cret@mail.example refused the sender"));
        }
        let trace = ctx.trace_context().map(|trace| trace.parent.to_string());
        ctx.info(format!("in the trace of {}", trace.unwrap_or_default()));
        Ok(())
    }
}

/// A listener for the events of jobs on this node, each called after its commit.
struct Watch;

impl JobEventListener for Watch {
    fn on_event(&self, event: &JobEvent) {
        if let JobEventKind::Retrying { error, attempt, .. } = &event.kind {
            println!("event: attempt {attempt} failed: {error}");
        }
    }
}

/// A metrics sink that counts ended bodies. An application would update its own metrics here.
struct Ends(Arc<AtomicU64>);

impl MetricsSink for Ends {
    fn ended(&self, _: &JobLabels<'_>, _: &RunEnd<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Any subscriber of the crate `tracing` works.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let ends = Arc::new(AtomicU64::new(0));
    let scheduler = Ratchet::builder(SqliteStore::open("jobs.db").await?)
        .register(Mailer)
        .allow(["mail."])
        .listener(Watch)
        .metrics(Ends(Arc::clone(&ends)))
        .start()
        .await?;
    let job = scheduler
        .enqueue(Mailer::job().send("ada@example.org".to_owned()))
        .trace_parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") // from the header of a request
        .submit()
        .await?;
    job.result().await?;
    scheduler.stop().await; // listeners have heard all of it then
    for line in scheduler.client().store().logs(job.id(), None, 100).await? {
        println!("kept: {}", line.message);
    }
    println!("bodies that ended: {}", ends.load(Ordering::Relaxed));
    Ok(())
}
