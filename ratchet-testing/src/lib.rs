//! A test kit for applications that use Ratchet: no server, no sleeping, and a clock that only the test moves.
//!
//! ```
//! use std::time::Duration;
//!
//! use ratchet_core::{JobFailure, jobs};
//! use ratchet_testing::TestKit;
//!
//! struct Mailer;
//!
//! #[jobs(target = "mail.Mailer")]
//! impl Mailer {
//!     #[job]
//!     async fn remind(&self, user: u64) -> Result<String, JobFailure> {
//!         Ok(format!("dear {user}"))
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let kit = TestKit::start(|node| node.register(Mailer)).await?;
//!
//! // Your code enqueues…
//! let job = kit.enqueue(Mailer::job().remind(7)).delay(Duration::from_secs(86_400)).submit().await?;
//!
//! // … and the test sees what, runs what is due, and travels to tomorrow.
//! kit.assert_enqueued(&Mailer::job().remind(7)).await;
//! assert_eq!(kit.run_due().await?, 0);
//! kit.advance(Duration::from_secs(86_400));
//! assert_eq!(kit.run_due().await?, 1);
//! assert_eq!(job.result().await?, "dear 7");
//! # Ok::<_, Box<dyn std::error::Error>>(()) })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::time::{Duration, Instant};

use ratchet_api::spi::ClassPolicy;
use ratchet_api::store::{JobFilter, PageRequest};
use ratchet_api::{Job, JobStatus, ManualClock, StoreClock, StoreResult, TargetName, Timestamp};
use ratchet_core::{Call, Client, Enqueue, Ratchet, SchedulerBuilder, StartError, Stepper};
use ratchet_store_memory::MemoryStore;

/// The initial time: a Thursday at noon, in UTC.
const BEGINNING: Timestamp = Timestamp::from_millis(1_767_268_800_000);

/// The most jobs that are searched.
const MAX_JOBS: usize = 100_000;

/// A node on a store in memory, with a clock that only the test moves.
/// Its [`client`](Self::client) is given to the code under test.
#[derive(Debug)]
pub struct TestKit {
    node: Stepper,
    clock: ManualClock,
}

/// A policy that lets every registered target run.
struct Everything;

impl ClassPolicy for Everything {
    fn allows(&self, _: &TargetName) -> bool {
        true
    }
}

impl TestKit {
    /// Starts a node. `set_up` registers the beans; every target may run unless it says otherwise, and every queue is
    /// served.
    ///
    /// # Errors
    /// The same as those of a real node: options out of range, a name that is registered twice.
    pub async fn start(
        set_up: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder,
    ) -> Result<Self, StartError> {
        let clock = ManualClock::starting_at(BEGINNING);
        let store = MemoryStore::with_clock(StoreClock::Manual(clock.clone()));
        let (begun, monotonic) = (Instant::now(), clock.clone());
        let builder = Ratchet::builder(store)
            .class_policy(Everything)
            .monotonic_clock(move || begun + monotonic.now().since(BEGINNING));
        let node = set_up(builder).start_stepping().await?.serving_every_queue();
        Ok(Self { node, clock })
    }

    /// The node, which works only when it is called.
    pub const fn node(&self) -> &Stepper {
        &self.node
    }

    /// The client of the node, which submits, reads and controls jobs. Clone it to keep it.
    pub const fn client(&self) -> &Client {
        self.node.client()
    }

    /// Describes a job that makes this call: short for `client().enqueue(call)`.
    pub fn enqueue<R>(&self, call: impl Into<Call<R>>) -> Enqueue<R> {
        self.node.enqueue(call)
    }

    /// Runs all jobs that are due, and those that become due by that: see [`Stepper::run_due`].
    ///
    /// # Errors
    /// If the store fails.
    pub async fn run_due(&self) -> StoreResult<usize> {
        self.node.run_due().await
    }

    /// The present time of the kit's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock forward, for jobs, circuit breakers and rate limits. Runs nothing;
    /// [`run_due`](Stepper::run_due) does.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Runs every job, however far in the future: moves the clock to the next due time, or to when a rate limit lets
    /// another job start, until time alone makes nothing run any more. Returns how many bodies ran.
    ///
    /// # Errors
    /// If the store fails.
    ///
    /// # Panics
    /// After a thousand moves of the clock: then some job probably submits another one for ever.
    pub async fn run_all(&self) -> StoreResult<usize> {
        let mut attempts = self.run_due().await?;
        for _ in 0..1_000 {
            let waiting = self
                .jobs()
                .await?
                .into_iter()
                .filter(|job| job.status == JobStatus::Pending && job.blocked_by == 0);
            let (due, later): (Vec<_>, Vec<_>) =
                waiting.map(|job| job.scheduled_time.since(self.now())).partition(Duration::is_zero);
            let held_up = self.node().held_up_for().filter(|_| !due.is_empty());
            let Some(next) = later.into_iter().chain(held_up).min() else { return Ok(attempts) };
            self.advance(next);
            attempts += self.run_due().await?;
        }
        panic!("after a thousand travels jobs still wait: does one of them make another for ever?");
    }

    /// Every job in any state, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn jobs(&self) -> StoreResult<Vec<Job>> {
        let page =
            self.client().store().query_jobs(&JobFilter::default(), &PageRequest::first(MAX_JOBS)).await?;
        let mut jobs = page.jobs;
        jobs.sort_by_key(|job| job.spec.id);
        Ok(jobs)
    }

    /// The jobs of this very call: the same target, method and arguments.
    ///
    /// # Errors
    /// If the store fails.
    ///
    /// # Panics
    /// If the call cannot be stored at all.
    pub async fn enqueued<R>(&self, call: &Call<R>) -> StoreResult<Vec<Job>> {
        let payload = self.client().payload(call).expect("the call can be stored");
        let jobs = self.jobs().await?.into_iter();
        Ok(jobs.filter(|job| job.spec.payload.text() == payload.text()).collect())
    }

    /// Fails the test unless a job of this very call exists. Returns the first one.
    ///
    /// # Panics
    /// If there is none. The message lists the existing jobs.
    pub async fn assert_enqueued<R>(&self, call: &Call<R>) -> Job {
        let found = self.enqueued(call).await.expect("the store answers");
        let Some(job) = found.into_iter().next() else {
            panic!("no job makes the call {:?}; there are:{}", self.shown(call), self.list().await);
        };
        job
    }

    /// Fails the test if a job of this very call exists.
    ///
    /// # Panics
    /// If there is one.
    pub async fn assert_not_enqueued<R>(&self, call: &Call<R>) {
        let found = self.enqueued(call).await.expect("the store answers");
        assert!(found.is_empty(), "{} jobs make the call {:?}", found.len(), self.shown(call));
    }

    fn shown<R>(&self, call: &Call<R>) -> String {
        self.client()
            .payload(call)
            .map_or_else(|error| error.to_string(), |payload| payload.text().to_string())
    }

    async fn list(&self) -> String {
        let jobs = self.jobs().await.expect("the store answers");
        jobs.iter().map(|job| format!("\n  {} {}", job.status, job.spec.payload.text())).collect()
    }
}
