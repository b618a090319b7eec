//! A test kit for applications that use Ratchet: no server, no sleeping, and time goes by when the test says so.
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

use std::ops::Deref;
use std::time::{Duration, Instant};

use ratchet_api::spi::ClassPolicy;
use ratchet_api::store::{JobFilter, PageRequest};
use ratchet_api::{Job, JobStatus, ManualClock, StoreClock, StoreResult, TargetName, Timestamp};
use ratchet_core::{Call, Ratchet, SchedulerBuilder, StartError, Stepper};
use ratchet_store_memory::MemoryStore;

/// Where time begins: a Thursday at noon, in UTC.
const BEGINNING: Timestamp = Timestamp::from_millis(1_767_268_800_000);

/// The most jobs that are looked through.
const MOST: usize = 100_000;

/// A node on a store in memory, with a clock that only the test moves. It is also a [`Stepper`] and a
/// [`Client`](ratchet_core::Client), so it can be given to the code under test.
#[derive(Debug)]
pub struct TestKit {
    node: Stepper,
    clock: ManualClock,
}

/// What is registered may run.
struct Everything;

impl ClassPolicy for Everything {
    fn allows(&self, _: &TargetName) -> bool {
        true
    }
}

impl TestKit {
    /// Starts a node. `set_up` registers the beans; every target may run unless it says otherwise, and every queue is served.
    ///
    /// # Errors
    /// As the real node would: options out of range, a name that is registered twice.
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

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets time go by, for jobs, for circuit breakers and for rate limits. Nothing runs by that;
    /// [`run_due`](Stepper::run_due) does.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Runs everything there is, however far in the future: travels to the next due time, or to when a rate limit lets another
    /// job start, until time alone makes nothing run any more. Answers how many bodies ran.
    ///
    /// # Errors
    /// If the store fails.
    ///
    /// # Panics
    /// After a thousand travels: then some job makes another one for ever.
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
            let held_up = self.held_up_for().filter(|_| !due.is_empty());
            let Some(next) = later.into_iter().chain(held_up).min() else { return Ok(attempts) };
            self.advance(next);
            attempts += self.run_due().await?;
        }
        panic!("after a thousand travels jobs still wait: does one of them make another for ever?");
    }

    /// Every job, oldest first, whatever became of it.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn jobs(&self) -> StoreResult<Vec<Job>> {
        let page = self.store().query_jobs(&JobFilter::default(), &PageRequest::first(MOST)).await?;
        let mut jobs = page.jobs;
        jobs.sort_by_key(|job| job.spec.id);
        Ok(jobs)
    }

    /// The jobs that make this very call: the same target, method and arguments.
    ///
    /// # Errors
    /// If the store fails.
    ///
    /// # Panics
    /// If the call cannot be stored at all.
    pub async fn enqueued<R>(&self, call: &Call<R>) -> StoreResult<Vec<Job>> {
        let payload = self.payload(call).expect("the call can be stored");
        let jobs = self.jobs().await?.into_iter();
        Ok(jobs.filter(|job| job.spec.payload.text() == payload.text()).collect())
    }

    /// Fails the test unless some job makes this very call. Answers the first of them.
    ///
    /// # Panics
    /// If there is none: with a list of what there is.
    pub async fn assert_enqueued<R>(&self, call: &Call<R>) -> Job {
        let found = self.enqueued(call).await.expect("the store answers");
        let Some(job) = found.into_iter().next() else {
            panic!("no job makes the call {:?}; there are:{}", self.shown(call), self.list().await);
        };
        job
    }

    /// Fails the test if some job makes this very call.
    ///
    /// # Panics
    /// If there is one.
    pub async fn assert_not_enqueued<R>(&self, call: &Call<R>) {
        let found = self.enqueued(call).await.expect("the store answers");
        assert!(found.is_empty(), "{} jobs make the call {:?}", found.len(), self.shown(call));
    }

    fn shown<R>(&self, call: &Call<R>) -> String {
        self.payload(call).map_or_else(|error| error.to_string(), |payload| payload.text().to_string())
    }

    async fn list(&self) -> String {
        let jobs = self.jobs().await.expect("the store answers");
        jobs.iter().map(|job| format!("\n  {} {}", job.status, job.spec.payload.text())).collect()
    }
}

impl Deref for TestKit {
    type Target = Stepper;

    fn deref(&self) -> &Stepper {
        &self.node
    }
}
