//! Nodes on the store of a case, and ways to wait for what they do.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_api::spi::JobEventListener;
use ratchet_api::store::{JobFilter, JobStore, PageRequest};
use ratchet_api::{Job, JobEvent, JobEventKind, JobId, JobType, LogLine, StoreClock};
use ratchet_core::{Client, Ratchet, Readiness, Scheduler, SchedulerBuilder};
use tokio::sync::Notify;

use crate::MakePlace;
use crate::lines::{self, Line};
use crate::test_store::TestStore;

/// The interval at which a case polls a state that it waits for.
const LOOK: Duration = Duration::from_millis(2);

/// A listener that records every event.
#[derive(Clone, Default)]
pub(crate) struct Told {
    events: Arc<Mutex<Vec<JobEvent>>>,
    more: Arc<Notify>,
}

impl JobEventListener for Told {
    fn on_event(&self, event: &JobEvent) {
        self.events.lock().expect("nobody panics").push(event.clone());
        self.more.notify_waiters();
    }
}

/// A running node, with the events that it published.
pub struct Node {
    scheduler: Scheduler,
    told: Told,
}

/// The environment of a case: an empty store, and ways to open connections and start nodes on it.
pub struct Fixture {
    place: Arc<dyn TestStore>,
    make: MakePlace,
}

impl Fixture {
    pub(crate) fn new(place: Arc<dyn TestStore>, make: MakePlace) -> Self {
        Self { place, make }
    }

    /// Returns the function that makes more stores of this kind.
    pub(crate) fn make(&self) -> MakePlace {
        self.make
    }

    /// Opens one more connection to the store.
    pub async fn store(&self) -> Arc<dyn JobStore> {
        self.place.connect().await
    }

    /// Opens one more connection to the store, which decides by this clock.
    pub async fn store_at(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        self.place.connect_at(clock).await
    }

    /// Starts a node that may run every target below `test.`.
    pub async fn node(&self, set_up: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder) -> Node {
        self.node_on(self.store().await, set_up).await
    }

    /// Starts such a node on a given store, for instance one with faults.
    pub async fn node_on(
        &self,
        store: Arc<dyn JobStore>,
        set_up: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder,
    ) -> Node {
        let told = Told::default();
        let builder = Ratchet::builder_shared(store);
        let builder = builder.allow(["test."]);
        let builder = builder.configure(|options| options.timeout.cancel_grace = Duration::from_millis(50));
        let scheduler = set_up(builder).listener(told.clone()).start().await.expect("the node starts");
        Node { scheduler, told }
    }

    /// Creates a client, as in a process that only submits.
    pub async fn client(&self) -> Client {
        Ratchet::client_shared(self.store().await)
    }
}

impl Deref for Node {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl Node {
    /// Waits until the job satisfies the predicate; returns it.
    pub async fn until(&self, id: JobId, wanted: impl Fn(&Job) -> bool) -> Job {
        loop {
            let job = self
                .client()
                .store()
                .find(&[id])
                .await
                .expect("read")
                .pop()
                .flatten()
                .expect("the job is there");
            if wanted(&job) {
                return job;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until an event of this kind was published.
    pub async fn told(&self, wanted: impl Fn(&JobEventKind) -> bool) {
        self.told_times(1, wanted).await;
    }

    /// Waits until `times` events of this kind were published.
    pub async fn told_times(&self, times: usize, wanted: impl Fn(&JobEventKind) -> bool) {
        loop {
            let more = self.told.more.notified();
            let told = self
                .told
                .events
                .lock()
                .expect("nobody panics")
                .iter()
                .filter(|event| wanted(&event.kind))
                .count();
            if told >= times {
                return;
            }
            more.await;
        }
    }

    /// Returns the kinds of the events about a job, in order.
    pub fn kinds_of(&self, id: JobId) -> Vec<String> {
        let events = self.told.events.lock().expect("nobody panics");
        events
            .iter()
            .filter(|event| event.header.job_id == id)
            .map(|event| format!("{:?}", event.kind))
            .collect()
    }

    /// Returns the log lines about a job.
    pub fn lines(&self, id: JobId) -> Vec<Line> {
        lines::of(id)
    }

    /// Waits until the log has a line about the job with this message; returns it.
    pub async fn until_said(&self, id: JobId, message: &str) -> Line {
        loop {
            if let Some(line) = self.lines(id).into_iter().find(|line| line.message() == message) {
                return line;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the job's own log has a line that starts with this message; returns it.
    pub async fn until_logged(&self, id: JobId, message: &str) -> LogLine {
        loop {
            let lines = self.client().store().logs(id, None, 100).await.expect("read");
            if let Some(line) = lines.into_iter().find(|line| line.message.starts_with(message)) {
                return line;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the newest callback has a result; returns it.
    pub async fn callback_result(&self) -> String {
        let mut filter = JobFilter::default();
        filter.types = vec![JobType::Callback];
        loop {
            let jobs =
                self.client().store().query_jobs(&filter, &PageRequest::first(10)).await.expect("read").jobs;
            let newest = jobs.iter().max_by_key(|job| job.spec.id);
            if let Some(result) = newest.and_then(|job| job.ending.as_ref()?.result.clone()) {
                return result.as_str().to_owned();
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the node takes nothing new.
    pub async fn until_draining(&self) {
        while self.readiness() < Readiness::Draining {
            tokio::time::sleep(LOOK).await;
        }
    }
}
