//! The bodies of the jobs, and the worker process that runs them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use ratchet_api::options::RatchetOptions;
use ratchet_api::store::JobStore;
use ratchet_core::{JobContext, JobFailure, Ratchet, Readiness, Scheduler, jobs};
use ratchet_store_postgres::Namespace;
use ratchet_store_sqlite::SqliteStore;

use crate::ledger::{Act, Ledger};
use crate::witness::{open_mongodb, open_postgres};

/// The service whose bodies write to the ledger.
pub(crate) struct Work(Ledger);

#[jobs(target = "torture.Work")]
impl Work {
    /// Sleeps for `millis`.
    #[job]
    async fn wait(&self, ctx: &JobContext, millis: u64) -> Result<(), JobFailure> {
        self.run(ctx, millis).await
    }

    /// Sleeps for `millis`, and fails the first time.
    #[job]
    async fn fail_once(&self, ctx: &JobContext, millis: u64) -> Result<(), JobFailure> {
        self.run(ctx, millis).await?;
        if ctx.attempt() == 1 { Err(JobFailure::new("OnPurpose", "the first time")) } else { Ok(()) }
    }

    /// Aborts the process after `millis`.
    #[job]
    async fn abort(&self, ctx: &JobContext, millis: u64) -> Result<(), JobFailure> {
        self.run(ctx, millis).await?;
        std::process::abort()
    }

    #[job]
    async fn exit(&self, ctx: &JobContext, millis: u64) -> Result<(), JobFailure> {
        self.run(ctx, millis).await?;
        std::process::exit(1)
    }

    #[job]
    async fn overflow(&self, ctx: &JobContext, millis: u64) -> Result<u64, JobFailure> {
        self.run(ctx, millis).await?;
        Ok(deeper(millis))
    }

    #[job]
    async fn exhaust(&self, ctx: &JobContext, millis: u64) -> Result<usize, JobFailure> {
        self.run(ctx, millis).await?;
        // No machine has that much memory.
        Ok(std::hint::black_box(Vec::<u8>::with_capacity(isize::MAX as usize)).capacity())
    }

    /// Blocks a thread of the runtime, as no body should.
    #[job]
    async fn spin(&self, ctx: &JobContext, millis: u64) -> Result<(), JobFailure> {
        self.say(Act::Start, ctx)?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(millis) {
            std::hint::spin_loop();
        }
        self.say(Act::End, ctx)
    }
}

/// Recurses until the stack overflows.
#[expect(unconditional_recursion, reason = "on purpose")]
fn deeper(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    deeper(std::hint::black_box(depth + 1)) + frame[7]
}

impl Work {
    async fn run(&self, ctx: &JobContext, millis: u64) -> Result<(), JobFailure> {
        self.say(Act::Start, ctx)?;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(millis)) => {}
            () = ctx.canceled() => {
                self.say(Act::Told, ctx)?;
                return Err(JobFailure::new("Told", "told to stop"));
            }
        }
        self.say(Act::End, ctx)
    }

    fn say(&self, act: Act, ctx: &JobContext) -> Result<(), JobFailure> {
        let said = self.0.write(act, ctx.job_id(), ctx.fence());
        said.map_err(|error| JobFailure::new("Ledger", error.to_string()))
    }
}

/// The options of a worker process.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    #[arg(long)]
    postgres: Option<String>,
    #[arg(long)]
    schema: Option<String>,
    #[arg(long, requires = "database")]
    mongodb: Option<String>,
    #[arg(long)]
    database: Option<String>,
    #[arg(long)]
    sqlite: Option<PathBuf>,
    #[arg(long)]
    ledger: PathBuf,
    /// The same for every start of a worker, as a host name and a process id can be
    #[arg(long)]
    label: String,
    #[arg(long)]
    lease_ms: u64,
    /// How often a job may crash its node
    #[arg(long, default_value_t = CRASH_LIMIT)]
    crash_limit: u32,
    #[arg(long, default_value_t = 8)]
    slots: u32,
}

/// The line that a worker prints once it handles SIGTERM.
pub(crate) const READY: &str = "ready";

/// Sets a short lease, and the intervals that depend on it.
pub(crate) fn short_leases(options: &mut RatchetOptions, lease: Duration) {
    options.node.lease = lease;
    options.node.beat = lease / 5;
    options.node.recovery_interval = options.node.beat;
    options.node.crash_limit = CRASH_LIMIT;
    options.timeout.cancel_grace = Duration::from_millis(200);
    options.execution.drain_timeout = Duration::from_secs(5);
}

/// A crash limit above the number of kills that hit one job by chance.
pub(crate) const CRASH_LIMIT: u32 = 100;

/// Logs every change of the readiness.
async fn tell_readiness(scheduler: Arc<Scheduler>) {
    let mut before = Readiness::Ready;
    loop {
        let readiness = scheduler.readiness();
        if readiness != before {
            tracing::info!(?readiness, "readiness changed");
            before = readiness;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Worker {
    pub(crate) async fn run(self) -> Result<()> {
        tracing_subscriber::fmt().with_ansi(false).init();
        let scheduler = Ratchet::builder_shared(self.store().await?)
            .register(Work(Ledger::open(&self.ledger)?))
            .allow(["torture."])
            .configure(|options| {
                options.node.label = Some(self.label.clone());
                options.execution.queue("default").slots = self.slots;
                short_leases(options, Duration::from_millis(self.lease_ms));
                options.node.crash_limit = self.crash_limit;
            })
            .start()
            .await?;
        let scheduler = Arc::new(scheduler);
        tokio::spawn(tell_readiness(Arc::clone(&scheduler)));
        let mut running = std::pin::pin!(scheduler.run_until_signal());
        tokio::select! {
            biased;
            // Polled first: from then on it handles signals.
            ended = &mut running => return Ok(ended?),
            () = async { println!("{READY}") } => {}
        }
        Ok(running.await?)
    }

    async fn store(&self) -> Result<Arc<dyn JobStore>> {
        match (&self.postgres, &self.mongodb, &self.sqlite) {
            (Some(url), _, _) => {
                let schema = self.schema.clone().map(Namespace::schema).transpose()?.unwrap_or_default();
                open_postgres(url, schema).await
            }
            (_, Some(url), _) => open_mongodb(url, self.database.as_deref().unwrap_or_default()).await,
            (_, _, Some(file)) => Ok(Arc::new(SqliteStore::open(file).await?)),
            _ => bail!("a worker needs a database"),
        }
    }
}
