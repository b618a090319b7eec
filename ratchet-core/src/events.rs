//! Events, which listeners receive after the commit that they are about.
//!
//! Each listener has a thread and a queue of its own, so that one that blocks or panics holds up neither the engine nor the
//! other listeners.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use ratchet_api::JobEvent;
use ratchet_api::spi::JobEventListener;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::sync::oneshot;

use crate::metrics::Metrics;

/// The most events that may wait for a listener. It misses events that are published while so many wait.
const QUEUE: usize = 16_384;

/// The listeners.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<RwLock<Vec<Post>>>);

/// A listener and the queue of its events.
struct Post {
    listener: Arc<dyn JobEventListener>,
    queue: Sender<Letter>,
    missed: AtomicU64,
}

enum Letter {
    Event(Arc<JobEvent>),
    /// Answered once the listener has received everything before it.
    Mark(oneshot::Sender<()>),
}

impl Events {
    pub(crate) fn add(&self, listener: Arc<dyn JobEventListener>) {
        let (queue, letters) = channel(QUEUE);
        let heard = Arc::clone(&listener);
        let thread = thread::Builder::new().name("ratchet-listener".to_owned());
        if let Err(error) = thread.spawn(move || listen(&*heard, letters)) {
            return tracing::error!(%error, "no thread can be started for a listener, which receives no events");
        }
        let post = Post { listener, queue, missed: AtomicU64::new(0) };
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(post);
    }

    /// Removes a listener; returns whether it was there.
    pub(crate) fn remove(&self, listener: &Arc<dyn JobEventListener>) -> bool {
        let mut posts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = posts.len();
        posts.retain(|post| !Arc::ptr_eq(&post.listener, listener));
        posts.len() < before
    }

    /// Publishes an event to every listener, and waits for none. The event is made only if there are listeners.
    pub(crate) fn publish(&self, metrics: &Metrics, event: impl FnOnce() -> JobEvent) {
        let posts = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if posts.is_empty() {
            return;
        }
        let event = Arc::new(event());
        let missed = posts.iter().filter(|post| !post.send(&event)).count();
        if missed > 0 {
            metrics.tell(|sink| sink.events_missed(missed));
        }
    }

    /// Waits until every listener has received the events published so far, or `limit` has passed.
    pub(crate) async fn heard(&self, limit: Duration) {
        let queues: Vec<Sender<Letter>> = {
            let posts = self.0.read().unwrap_or_else(PoisonError::into_inner);
            posts.iter().map(|post| post.queue.clone()).collect()
        };
        if tokio::time::timeout(limit, join_all(queues.into_iter().map(mark))).await.is_err() {
            tracing::warn!("a listener has not received every event; it is not waited for");
        }
    }
}

/// Completes when everything that waits in a queue was received.
async fn mark(queue: Sender<Letter>) {
    let (told, heard) = oneshot::channel();
    if queue.send(Letter::Mark(told)).await.is_ok() {
        let _ = heard.await;
    }
}

impl Post {
    /// Puts an event into the queue; `false` if the listener misses it.
    fn send(&self, event: &Arc<JobEvent>) -> bool {
        match self.queue.try_send(Letter::Event(Arc::clone(event))) {
            Ok(()) => match self.missed.swap(0, Ordering::Relaxed) {
                0 => {}
                missed => tracing::warn!(missed, "a listener was too slow and missed events"),
            },
            Err(TrySendError::Full(_)) => {
                if self.missed.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!("a listener is too slow and misses events");
                }
                return false;
            }
            // Its thread ends only when this is dropped.
            Err(TrySendError::Closed(_)) => {}
        }
        true
    }
}

/// Calls one listener with the events that arrive for it, until it is removed. After a panic it goes on with the next
/// event.
fn listen(listener: &dyn JobEventListener, mut letters: Receiver<Letter>) {
    while let Some(letter) = letters.blocking_recv() {
        match letter {
            Letter::Event(event) => {
                if catch_unwind(AssertUnwindSafe(|| listener.on_event(&event))).is_err() {
                    tracing::error!(job = %event.header.job_id, "a listener panicked; it goes on with the next event");
                }
            }
            // The caller may have stopped waiting.
            Letter::Mark(told) => drop(told.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use ratchet_api::spi::MetricsSink;
    use ratchet_api::{EventHeader, JobEventKind, JobId, JobPriority, JobType, QueueName, Timestamp};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    struct Calls<F>(F);

    impl<F: Fn(&JobEvent) + Send + Sync + 'static> JobEventListener for Calls<F> {
        fn on_event(&self, event: &JobEvent) {
            (self.0)(event);
        }
    }

    fn listener(f: impl Fn(&JobEvent) + Send + Sync + 'static) -> Arc<dyn JobEventListener> {
        Arc::new(Calls(f))
    }

    fn failed(attempt: u32) -> JobEvent {
        let header = EventHeader {
            job_id: JobId::generate(),
            business_key: None,
            job_type: JobType::Single,
            priority: JobPriority::Normal,
            queue: QueueName::default(),
            target: None,
            method: None,
            attempt,
            node: None,
            at: Timestamp::node_now(),
        };
        JobEvent::new(header, JobEventKind::Failed { error: String::new(), attempt })
    }

    fn publish(events: &Events, attempt: u32) {
        events.publish(&Metrics::default(), || failed(attempt));
    }

    /// Counts the events that were missed.
    fn missing() -> (Arc<AtomicUsize>, Metrics) {
        struct Missed(Arc<AtomicUsize>);
        impl MetricsSink for Missed {
            fn events_missed(&self, listeners: usize) {
                self.0.fetch_add(listeners, Ordering::Relaxed);
            }
        }
        let missed = Arc::<AtomicUsize>::default();
        (Arc::clone(&missed), Metrics::new(Missed(missed)))
    }

    fn attempt(event: &JobEvent) -> u32 {
        match event.kind {
            JobEventKind::Failed { attempt, .. } => attempt,
            _ => 0,
        }
    }

    /// A listener that keeps the events it receives.
    fn keeps(events: &Events) -> mpsc::Receiver<u32> {
        let (tell, told) = mpsc::channel();
        events.add(listener(move |event| tell.send(attempt(event)).unwrap()));
        told
    }

    // shows: S116
    #[tokio::test]
    async fn every_listener_hears_everything_in_order() {
        let events = Events::default();
        let (one, other) = (keeps(&events), keeps(&events));
        (1..=100).for_each(|attempt| publish(&events, attempt));
        events.heard(LONG).await;
        assert_eq!(one.try_iter().collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
        assert_eq!(other.try_iter().count(), 100);
    }

    // shows: S116
    #[tokio::test]
    async fn a_listener_that_panics_hears_the_next_event_and_the_others_all() {
        let events = Events::default();
        let (tell, told) = mpsc::channel();
        events.add(listener(move |event| {
            assert_ne!(attempt(event), 1, "on purpose");
            tell.send(attempt(event)).unwrap();
        }));
        let other = keeps(&events);
        (1..=2).for_each(|attempt| publish(&events, attempt));
        events.heard(LONG).await;
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [2]);
        assert_eq!(other.try_iter().collect::<Vec<_>>(), [1, 2]);
    }

    // shows: S116
    #[tokio::test]
    async fn a_listener_that_blocks_misses_events_and_holds_up_nobody() {
        let events = Events::default();
        let (unblock, blocked) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let blocked = std::sync::Mutex::new(blocked);
        events.add(listener(move |event| {
            let _ = blocked.lock().unwrap().recv();
            tell.send(attempt(event)).unwrap();
        }));
        let published = u32::try_from(QUEUE).unwrap() + 100;
        let (missed, metrics) = missing();
        (1..=published).for_each(|attempt| events.publish(&metrics, || failed(attempt)));
        drop(unblock);
        events.heard(LONG).await;
        let heard = told.try_iter().count();
        assert!((QUEUE..QUEUE + 100).contains(&heard), "it heard {heard} of {published}");
        assert_eq!(heard + missed.load(Ordering::Relaxed), QUEUE + 100, "the sink is told of the others");
        publish(&events, 7);
        events.heard(LONG).await;
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [7], "and goes on");
    }

    // shows: S116
    #[tokio::test]
    async fn a_listener_that_was_removed_is_told_nothing_more() {
        let events = Events::default();
        let (tell, told) = mpsc::channel();
        let removed = listener(move |event| tell.send(attempt(event)).unwrap());
        events.add(Arc::clone(&removed));
        assert!(events.remove(&removed));
        assert!(!events.remove(&removed), "it is gone");
        publish(&events, 1);
        drop(removed);
        assert!(told.recv().is_err(), "nothing, and then its thread is gone");
    }
}
