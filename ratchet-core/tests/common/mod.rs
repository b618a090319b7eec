//! A node on a store in memory, and ways to wait for what it does.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_api::spi::JobEventListener;
use ratchet_api::store::{JobFilter, PageRequest};
use ratchet_api::{Job, JobEvent, JobEventKind, JobId, JobType};
use ratchet_core::defaults::PackagePrefixClassPolicy;
use ratchet_core::{Ratchet, Readiness, Scheduler, SchedulerBuilder};
use ratchet_store_memory::MemoryStore;
use tokio::sync::Notify;

/// Every event so far.
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

/// A running node.
pub(crate) struct Node {
    scheduler: Scheduler,
    told: Told,
}

/// Starts a node that may run everything below `test.`.
pub(crate) async fn node(set_up: impl FnOnce(SchedulerBuilder) -> SchedulerBuilder) -> Node {
    let told = Told::default();
    let builder =
        Ratchet::builder(MemoryStore::new()).class_policy(PackagePrefixClassPolicy::allow(["test."]));
    let builder = builder.configure(|options| options.timeout.cancel_grace = Duration::from_millis(50));
    let scheduler = set_up(builder).listener(told.clone()).start().await.expect("the node starts");
    Node { scheduler, told }
}

impl Deref for Node {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl Node {
    /// Waits until a job is as wanted.
    pub(crate) async fn until(&self, id: JobId, wanted: impl Fn(&Job) -> bool) -> Job {
        loop {
            let job =
                self.store().find(&[id]).await.expect("read").pop().flatten().expect("the job is there");
            if wanted(&job) {
                return job;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until such an event was told.
    pub(crate) async fn told(&self, wanted: impl Fn(&JobEventKind) -> bool) {
        loop {
            let more = self.told.more.notified();
            if self.told.events.lock().expect("nobody panics").iter().any(|event| wanted(&event.kind)) {
                return;
            }
            more.await;
        }
    }

    /// What was told about a job, in order.
    pub(crate) fn kinds_of(&self, id: JobId) -> Vec<String> {
        let events = self.told.events.lock().expect("nobody panics");
        events
            .iter()
            .filter(|event| event.header.job_id == id)
            .map(|event| format!("{:?}", event.kind))
            .collect()
    }

    /// The result of the newest callback, once it has one.
    pub(crate) async fn callback_result(&self) -> String {
        let mut filter = JobFilter::default();
        filter.types = vec![JobType::Callback];
        loop {
            let jobs = self.store().query_jobs(&filter, &PageRequest::first(10)).await.expect("read").jobs;
            let newest = jobs.iter().max_by_key(|job| job.spec.id);
            if let Some(result) = newest.and_then(|job| job.ending.as_ref()?.result.clone()) {
                return result.as_str().to_owned();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until it takes nothing new.
    pub(crate) async fn until_draining(&self) {
        while self.readiness() < Readiness::Draining {
            tokio::task::yield_now().await;
        }
    }
}
