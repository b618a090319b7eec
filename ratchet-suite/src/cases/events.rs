//! Events: their content, their time and their listeners.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_api::spi::JobEventListener;
use ratchet_api::store::JobStore;
use ratchet_api::{JobEvent, JobEventKind, JobId, JobPriority, JobStatus, JobType};
use ratchet_core::{JobContext, JobFailure, jobs};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::{Fixture, Node};

crate::cases! {
    every_kind_of_event_reaches_a_listener_with_what_it_tells;
    what_an_event_tells_is_in_the_store_by_then;
    listeners_that_panic_or_block_harm_nobody;
    a_listener_that_was_added_late_hears_from_then_on_and_a_removed_one_no_more;
}

const LATER: Duration = Duration::from_secs(3_600);

#[derive(Clone, Default)]
struct Eventful {
    entered: Arc<Notify>,
    calls: Arc<AtomicU32>,
}

#[jobs(target = "test.Eventful")]
impl Eventful {
    #[job]
    async fn succeed(&self) {}

    #[job]
    async fn fail(&self) -> Result<(), JobFailure> {
        Err(JobFailure::new("Down", "password=hunter2 was refused"))
    }

    #[job]
    async fn fail_once(&self) -> Result<(), JobFailure> {
        match self.calls.fetch_add(1, Ordering::SeqCst) {
            0 => Err(JobFailure::new("Down", "not yet")),
            _ => Ok(()),
        }
    }

    #[job]
    async fn wait(&self, ctx: &JobContext) {
        self.entered.notify_one();
        ctx.canceled().await;
    }
}

/// An event and what the store said about its job at that moment.
type Seen = (JobEvent, JobStatus, u32);

/// A listener that reads the store on every event.
#[derive(Clone)]
struct Witness {
    store: Arc<dyn JobStore>,
    runtime: Handle,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Witness {
    fn new(store: Arc<dyn JobStore>) -> Self {
        Self { store, runtime: Handle::current(), seen: Arc::default() }
    }

    fn of(&self, job: JobId) -> Vec<Seen> {
        let seen = self.seen.lock().expect("nobody panics");
        seen.iter().filter(|(event, ..)| event.header.job_id == job).cloned().collect()
    }
}

impl JobEventListener for Witness {
    fn on_event(&self, event: &JobEvent) {
        let job = self.runtime.block_on(self.store.find(&[event.header.job_id]));
        let job = job.expect("read").pop().flatten().expect("there");
        self.seen.lock().expect("nobody panics").push((event.clone(), job.status, job.attempts));
    }
}

async fn node(fx: &Fixture, eventful: &Eventful, listener: impl JobEventListener) -> Node {
    fx.node(|builder| builder.register(eventful.clone()).listener(listener)).await
}

// shows: S88 S96 S102 S108 S112 S113 S114 S115 S116
async fn every_kind_of_event_reaches_a_listener_with_what_it_tells(fx: Fixture) {
    let (eventful, witness) = (Eventful::default(), Witness::new(fx.store().await));
    let node = node(&fx, &eventful, witness.clone()).await;
    let job = node.enqueue(Eventful::job().fail()).max_retries(1).business_key("pay-42");
    let job = job.priority(JobPriority::High).submit().await.expect("stored");
    job.result().await.expect_err("it fails");
    let good = node.enqueue(Eventful::job().succeed()).submit().await.expect("stored");
    good.result().await.expect("it succeeds");
    let running = node.enqueue(Eventful::job().wait()).submit().await.expect("stored");
    eventful.entered.notified().await;
    assert!(node.client().cancel(running.id(), "not needed").await.expect("answered"));
    running.result().await.expect_err("it is canceled");
    let waiting = node.enqueue(Eventful::job().succeed()).delay(LATER).submit().await.expect("stored");
    assert!(node.client().pause(waiting.id()).await.expect("answered"));
    assert!(node.client().resume(waiting.id()).await.expect("answered"));
    assert!(node.client().cancel(waiting.id(), "not needed").await.expect("answered"));
    node.stop().await;

    let header = witness.of(job.id())[0].0.header.clone();
    assert_eq!(header.business_key.expect("it has one").as_str(), "pay-42");
    assert_eq!((header.job_type, header.priority), (JobType::Single, JobPriority::High));
    assert_eq!(header.node, Some(node.owner()));
    assert_eq!((header.queue.as_str(), header.attempt), ("default", 1));
    assert_eq!(header.target.as_ref().map(|target| target.as_str()), Some("test.Eventful"));
    assert_eq!(header.method.as_ref().map(|method| method.as_str()), Some("fail"));
    for (event, ..) in witness.of(job.id()) {
        if let JobEventKind::Failed { attempt, .. } | JobEventKind::DeadLettered { attempt, .. } = event.kind
        {
            assert_eq!(event.header.attempt, attempt);
        }
    }

    let told = |job: JobId| -> Vec<JobEventKind> {
        let kinds = witness.of(job).into_iter().map(|(event, ..)| event.kind);
        // The next attempt may start before the event about the end of the last one is delivered.
        kinds.filter(|kind| *kind != JobEventKind::Started).collect()
    };
    let text = "Down: password=[REDACTED] was refused";
    let ended = job.job().await.expect("read").expect("there");
    let [
        JobEventKind::Failed { error: first, attempt: 1 },
        JobEventKind::Retrying { error: again, attempt: 1, next_scheduled_time },
        JobEventKind::Failed { error: last, attempt: 2 },
        JobEventKind::DeadLettered { error: dead, attempt: 2 },
    ] = &told(job.id())[..]
    else {
        panic!("{:?}", told(job.id()))
    };
    assert_eq!([first, again, last, dead], [text; 4]);
    assert!(*next_scheduled_time >= ended.created_at);
    assert!(matches!(told(good.id())[..], [JobEventKind::Completed { .. }]));
    let [JobEventKind::Canceling, JobEventKind::Canceled { previous_status, execution_time }] =
        told(running.id())[..]
    else {
        panic!("{:?}", told(running.id()))
    };
    assert_eq!((previous_status, execution_time.is_some()), (JobStatus::Running, true));
    let pending = JobEventKind::Canceled { previous_status: JobStatus::Pending, execution_time: None };
    assert_eq!(told(waiting.id()), [JobEventKind::Paused, JobEventKind::Resumed, pending]);
}

// shows: S88 S102
async fn what_an_event_tells_is_in_the_store_by_then(fx: Fixture) {
    let (eventful, witness) = (Eventful::default(), Witness::new(fx.store().await));
    let node = node(&fx, &eventful, witness.clone()).await;
    let bad = node.enqueue(Eventful::job().fail()).submit().await.expect("stored");
    let again = node.enqueue(Eventful::job().fail_once()).max_retries(1).submit().await.expect("stored");
    bad.result().await.expect_err("it fails");
    again.result().await.expect("it succeeds at last");
    node.stop().await;
    for (event, status, attempts) in [witness.of(bad.id()), witness.of(again.id())].concat() {
        match event.kind {
            JobEventKind::Started => assert_ne!(status, JobStatus::Paused),
            JobEventKind::Completed { .. } => assert_eq!(status, JobStatus::Succeeded),
            JobEventKind::DeadLettered { .. } => assert_eq!(status, JobStatus::Failed),
            JobEventKind::Failed { attempt, .. } | JobEventKind::Retrying { attempt, .. } => {
                assert!(attempts >= attempt, "{attempt} failures are told and {attempts} are stored");
            }
            other => panic!("{other:?}"),
        }
    }
}

struct Panics;

impl JobEventListener for Panics {
    fn on_event(&self, _: &JobEvent) {
        panic!("on purpose");
    }
}

/// A listener that does not return while the other end of its channel is held.
struct Blocks(Mutex<std::sync::mpsc::Receiver<()>>);

impl JobEventListener for Blocks {
    fn on_event(&self, _: &JobEvent) {
        let _ = self.0.lock().expect("nobody panics").recv();
    }
}

// shows: S116
async fn listeners_that_panic_or_block_harm_nobody(fx: Fixture) {
    let (unblock, blocked) = std::sync::mpsc::channel();
    let bad = Blocks(Mutex::new(blocked));
    let node = fx.node(|builder| builder.register(Eventful::default()).listener(Panics).listener(bad)).await;
    let mut jobs = BTreeSet::new();
    for _ in 0..100 {
        let job = node.enqueue(Eventful::job().succeed()).submit().await.expect("stored");
        job.result().await.expect("it is not disturbed");
        jobs.insert(job.id());
    }
    node.told_times(100, |kind| matches!(kind, JobEventKind::Completed { .. })).await;
    assert_eq!(jobs.len(), 100);
    node.stop().await;
    drop(unblock);
}

/// A listener that counts completed jobs.
#[derive(Default)]
struct Completed(AtomicU32);

impl JobEventListener for Completed {
    fn on_event(&self, event: &JobEvent) {
        let completed = matches!(event.kind, JobEventKind::Completed { .. });
        self.0.fetch_add(u32::from(completed), Ordering::SeqCst);
    }
}

// shows: S116
async fn a_listener_that_was_added_late_hears_from_then_on_and_a_removed_one_no_more(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Eventful::default())).await;
    let late: Arc<Completed> = Arc::default();
    let listener: Arc<dyn JobEventListener> = Arc::clone(&late) as _;
    for (times, heard) in [(1, 0), (2, 1), (3, 1)] {
        let job = node.enqueue(Eventful::job().succeed()).submit().await.expect("stored");
        job.result().await.expect("it succeeds");
        node.told_times(times, |kind| matches!(kind, JobEventKind::Completed { .. })).await;
        while late.0.load(Ordering::SeqCst) < heard {
            tokio::task::yield_now().await;
        }
        match times {
            1 => node.add_listener(Arc::clone(&listener)),
            2 => assert!(node.remove_listener(&listener)),
            _ => assert!(!node.remove_listener(&listener), "it is gone"),
        }
    }
    node.stop().await;
    assert_eq!(late.0.load(Ordering::SeqCst), 1);
}
