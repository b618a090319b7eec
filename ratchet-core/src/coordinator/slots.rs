//! How many jobs of each queue run here at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratchet_api::{QueueLimit, QueueName};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The slots of every queue that this node serves.
#[derive(Clone)]
pub(crate) struct Slots(Arc<Inner>);

struct Inner {
    queues: BTreeMap<QueueName, Queue>,
    freed: Arc<Notify>,
}

struct Queue {
    slots: u32,
    free: Arc<Semaphore>,
}

/// One taken slot. It is free again when this goes, whatever became of the job.
#[derive(Debug)]
pub(crate) struct Slot {
    // Dropped first, so that whoever is told finds the slot free.
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<Notify>,
}

impl Slots {
    pub(crate) fn new(queues: impl IntoIterator<Item = (QueueName, u32)>) -> Self {
        let queue = |(name, slots)| (name, Queue { slots, free: Arc::new(Semaphore::new(slots as usize)) });
        Self(Arc::new(Inner { queues: queues.into_iter().map(queue).collect(), freed: Arc::default() }))
    }

    /// How many of each queue could start now, with no more than `most` in all.
    pub(crate) fn free(&self, most: usize) -> Vec<QueueLimit> {
        let mut left = most;
        let limit = |(name, queue): (&QueueName, &Queue)| {
            let limit = queue.free.available_permits().min(left);
            left -= limit;
            (limit > 0).then(|| QueueLimit { queue: name.clone(), limit })
        };
        self.0.queues.iter().filter_map(limit).collect()
    }

    /// Takes a slot of this queue, if there is a free one.
    pub(crate) fn take(&self, queue: &QueueName) -> Option<Slot> {
        let free = &self.0.queues.get(queue)?.free;
        let permit = Arc::clone(free).try_acquire_owned().ok()?;
        Some(Slot { permit: Some(permit), freed: Arc::clone(&self.0.freed) })
    }

    /// Completes when a slot was freed since the last time.
    pub(crate) async fn freed(&self) {
        self.0.freed.notified().await;
    }

    /// All slots.
    pub(crate) fn total(&self) -> u32 {
        self.0.queues.values().map(|queue| queue.slots).sum()
    }

    /// Slots in use.
    pub(crate) fn taken(&self) -> u32 {
        let free: usize = self.0.queues.values().map(|queue| queue.free.available_permits()).sum();
        self.total() - u32::try_from(free).unwrap_or(u32::MAX).min(self.total())
    }

    /// The share of slots in use.
    pub(crate) fn load(&self) -> f64 {
        match self.total() {
            0 => 0.0,
            total => f64::from(self.taken()) / f64::from(total),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn limits(slots: &Slots, most: usize) -> Vec<(String, usize)> {
        slots.free(most).into_iter().map(|limit| (limit.queue.to_string(), limit.limit)).collect()
    }

    #[test]
    fn a_taken_slot_is_not_free_until_it_is_dropped() {
        let slots = Slots::new([(queue("a"), 2), (queue("b"), 1)]);
        let (one, other) = (slots.take(&queue("a")), slots.take(&queue("b")));
        assert!(one.is_some() && other.is_some());
        assert!(slots.take(&queue("b")).is_none());
        assert!(slots.take(&queue("nobody's")).is_none());
        assert_eq!((slots.taken(), slots.total()), (2, 3));
        assert_eq!(limits(&slots, 100), [("a".to_owned(), 1)]);
        drop(other);
        assert_eq!(limits(&slots, 100), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
        assert_eq!(slots.taken(), 1);
    }

    #[test]
    fn no_more_is_asked_for_than_allowed() {
        let slots = Slots::new([(queue("a"), 30), (queue("b"), 30)]);
        assert_eq!(limits(&slots, 50), [("a".to_owned(), 30), ("b".to_owned(), 20)]);
        assert_eq!(limits(&slots, 0), []);
    }

    #[tokio::test]
    async fn whoever_waits_for_a_slot_is_told_when_one_is_free() {
        let slots = Slots::new([(queue("a"), 1)]);
        let taken = slots.take(&queue("a"));
        let waits = tokio::spawn({
            let slots = slots.clone();
            async move {
                slots.freed().await;
                slots.take(&queue("a")).is_some()
            }
        });
        tokio::task::yield_now().await;
        drop(taken);
        assert!(waits.await.unwrap());
    }
}
