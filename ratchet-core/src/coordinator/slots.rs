//! How many jobs of each queue run here at once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratchet_api::options::QueueOptions;
use ratchet_api::{QueueLimit, QueueName};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::pace::Pace;
use super::turnover::Turnover;

/// The slots of every queue that this node serves.
#[derive(Clone)]
pub(crate) struct Slots(Arc<Inner>);

struct Inner {
    queues: BTreeMap<QueueName, Arc<Queue>>,
    freed: Arc<Notify>,
}

struct Queue {
    slots: u32,
    /// Jobs that may be claimed beyond the slots, however slow they are.
    headroom: usize,
    /// For jobs that run.
    free: Arc<Semaphore>,
    /// Jobs that were claimed and have no recorded outcome yet, except those that wait outside.
    held: AtomicUsize,
    /// Jobs whose outcome the store does not take, and which left their place to others: as many as there are slots.
    outside: AtomicUsize,
    /// Jobs that went, ever.
    gone: AtomicUsize,
    /// Jobs that may be claimed beyond the slots, because they would go soon.
    ahead: AtomicUsize,
    turnover: Mutex<Turnover>,
    pace: Option<Mutex<Pace>>,
}

/// The place of a claimed job until its outcome is recorded.
#[derive(Debug)]
pub(crate) struct Place {
    // Before what holds the place, so that nobody claims for a slot that is still taken.
    /// The slot, if it was free at once.
    slot: Option<OwnedSemaphorePermit>,
    held: Arc<Held>,
}

/// One taken slot. It is free again when this goes, whatever became of the job.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
    /// A body that cannot be stopped keeps the place as well.
    _held: Arc<Held>,
}

/// Counts as a claimed job while it lives.
struct Held {
    queue: Arc<Queue>,
    freed: Arc<Notify>,
    /// It waits outside.
    outside: AtomicBool,
}

impl Slots {
    /// The slots of these queues. Of each, `headroom` times as many jobs may be claimed beyond them.
    pub(crate) fn new(queues: impl IntoIterator<Item = (QueueName, QueueOptions)>, headroom: f64) -> Self {
        let now = Instant::now();
        let queues =
            queues.into_iter().map(|(name, options)| (name, Arc::new(Queue::new(&options, headroom, now))));
        Self(Arc::new(Inner { queues: queues.collect(), freed: Arc::default() }))
    }

    /// Every queue.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.0.queues.keys()
    }

    /// How many of each queue may be claimed now: in all no more than `most`, and what would go soon. Queue number
    /// `first` is served first: take turns, and none starves.
    pub(crate) fn room(&self, most: usize, first: usize) -> Vec<QueueLimit> {
        let now = Instant::now();
        let ahead: usize = self.0.queues.values().map(|queue| queue.look_ahead(now)).sum();
        self.vacant(most.saturating_add(ahead), first)
    }

    /// How many of each queue may be claimed now, with no more than `most` in all, by what is known already.
    pub(crate) fn vacant(&self, most: usize, first: usize) -> Vec<QueueLimit> {
        let (queues, now) = (&self.0.queues, Instant::now());
        let in_turn = queues.iter().cycle().skip(first % queues.len().max(1)).take(queues.len());
        let mut left = most;
        let limit = |(name, queue): (&QueueName, &Arc<Queue>)| {
            let limit = queue.room(now).min(left);
            left -= limit;
            (limit > 0).then(|| QueueLimit { queue: name.clone(), limit })
        };
        in_turn.filter_map(limit).collect()
    }

    /// Whether it is time to claim jobs of one of these queues.
    pub(crate) fn has_room<'q>(&self, queues: impl IntoIterator<Item = &'q QueueName>) -> bool {
        let now = Instant::now();
        queues.into_iter().filter_map(|name| self.0.queues.get(name)).any(|queue| queue.is_open(now))
    }

    /// Completes when there may be room in one of these queues that had none.
    pub(crate) async fn opened<'q>(&self, queues: impl IntoIterator<Item = &'q QueueName>) {
        let now = Instant::now();
        let queues = queues.into_iter().filter_map(|name| self.0.queues.get(name));
        let next = queues.filter_map(|queue| queue.next(now)).min();
        let paced = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.0.freed.notified() => {}
            () = paced => {}
        }
    }

    /// Takes the place of a claimed job, if there is one.
    pub(crate) fn take(&self, queue: &QueueName) -> Option<Place> {
        let queue = self.0.queues.get(queue)?;
        let held = queue.hold().then(|| Held::new(Arc::clone(queue), Arc::clone(&self.0.freed)))?;
        if let Some(pace) = &queue.pace {
            lock(pace).take(Instant::now());
        }
        Some(Place { slot: Arc::clone(&queue.free).try_acquire_owned().ok(), held: Arc::new(held) })
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

impl Queue {
    fn new(options: &QueueOptions, headroom: f64, now: Instant) -> Self {
        Self {
            slots: options.slots,
            headroom: (f64::from(options.slots) * headroom).ceil() as usize,
            free: Arc::new(Semaphore::new(options.slots as usize)),
            held: AtomicUsize::new(0),
            outside: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
            turnover: Mutex::new(Turnover::new(now)),
            pace: options.rate_limit_per_minute.map(|per_minute| Mutex::new(Pace::new(per_minute, now))),
        }
    }

    /// Finds out how many may be claimed beyond the slots because they would go soon.
    fn look_ahead(&self, now: Instant) -> usize {
        let ahead = lock(&self.turnover).ahead(self.gone.load(Ordering::Relaxed), now);
        self.ahead.store(ahead, Ordering::Relaxed);
        ahead
    }

    /// The most jobs that may be held.
    fn places(&self) -> usize {
        let slots = self.slots as usize;
        match self.pace {
            None => slots + self.headroom + self.ahead.load(Ordering::Relaxed),
            // A job that waits here would start later than it was counted, perhaps together with many others.
            Some(_) => slots,
        }
    }

    /// How many may be claimed now: none while as many outcomes wait outside as there are slots.
    fn room(&self, now: Instant) -> usize {
        if self.outside.load(Ordering::Relaxed) >= self.slots as usize {
            return 0;
        }
        let paced = self.pace.as_ref().map_or(usize::MAX, |pace| lock(pace).available(now) as usize);
        self.places().saturating_sub(self.held.load(Ordering::Relaxed)).min(paced)
    }

    /// Whether there is enough room for a claim to be worth its while.
    fn is_open(&self, now: Instant) -> bool {
        self.room(now) > self.ahead.load(Ordering::Relaxed) / 2
    }

    /// One more is held, if there is a place for it.
    fn hold(&self) -> bool {
        let places = self.places();
        let one_more = |held: usize| (held < places).then_some(held + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// When its pace allows the next one; nothing if there is no place for it anyway.
    fn next(&self, now: Instant) -> Option<Instant> {
        let pace = self.pace.as_ref().filter(|_| self.held.load(Ordering::Relaxed) < self.places())?;
        Some(lock(pace).next(now))
    }
}

impl Place {
    /// Waits for a slot; those who wait get theirs in turn.
    pub(crate) async fn slot(&mut self) -> Slot {
        let permit = match self.slot.take() {
            Some(permit) => Some(permit),
            // Nobody closes the semaphore.
            None => Arc::clone(&self.held.queue.free).acquire_owned().await.ok(),
        };
        Slot { _permit: permit, _held: Arc::clone(&self.held) }
    }

    /// Leaves the place to another job, because the outcome of this one waits for the store: unless as many do already
    /// as there are slots, or the body still runs.
    pub(crate) fn set_aside(&self) {
        let Held { queue, freed, outside } = &*self.held;
        if Arc::strong_count(&self.held) > 1 || outside.load(Ordering::Relaxed) {
            return;
        }
        let one_more = |waiting: usize| (waiting < queue.slots as usize).then_some(waiting + 1);
        if queue.outside.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok() {
            outside.store(true, Ordering::Relaxed);
            queue.held.fetch_sub(1, Ordering::Relaxed);
            freed.notify_one();
        }
    }
}

impl Held {
    fn new(queue: Arc<Queue>, freed: Arc<Notify>) -> Self {
        Self { queue, freed, outside: AtomicBool::new(false) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let count = if *self.outside.get_mut() { &self.queue.outside } else { &self.queue.held };
        count.fetch_sub(1, Ordering::Relaxed);
        self.queue.gone.fetch_add(1, Ordering::Relaxed);
        if self.queue.is_open(Instant::now()) {
            self.freed.notify_one();
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn options(slots: u32, rate_limit_per_minute: Option<u32>) -> QueueOptions {
        QueueOptions { slots, rate_limit_per_minute }
    }

    fn slots<const N: usize>(queues: [(&str, u32); N], headroom: f64) -> Slots {
        Slots::new(queues.map(|(name, slots)| (queue(name), options(slots, None))), headroom)
    }

    fn room(slots: &Slots, most: usize, first: usize) -> Vec<(String, usize)> {
        slots.room(most, first).into_iter().map(|limit| (limit.queue.to_string(), limit.limit)).collect()
    }

    fn limits<const N: usize>(limits: [(&str, usize); N]) -> Vec<(String, usize)> {
        limits.map(|(name, limit)| (name.to_owned(), limit)).into()
    }

    async fn run(slots: &Slots, name: &str) -> Slot {
        slots.take(&queue(name)).expect("there is a place").slot().await
    }

    // shows: S66
    #[tokio::test]
    async fn a_taken_slot_is_not_free_until_it_is_dropped() {
        let slots = slots([("a", 2), ("b", 1)], 0.0);
        let (_one, other) = (run(&slots, "a").await, run(&slots, "b").await);
        assert!(slots.take(&queue("b")).is_none());
        assert!(slots.take(&queue("nobody's")).is_none());
        assert_eq!((slots.taken(), slots.total()), (2, 3));
        assert_eq!(room(&slots, 100, 0), limits([("a", 1)]));
        drop(other);
        assert_eq!(room(&slots, 100, 0), limits([("a", 1), ("b", 1)]));
        assert_eq!(slots.taken(), 1);
    }

    #[test]
    fn no_more_is_asked_for_than_allowed_and_queues_take_turns() {
        let slots = slots([("a", 30), ("b", 30)], 0.0);
        assert_eq!(room(&slots, 50, 0), limits([("a", 30), ("b", 20)]));
        assert_eq!(room(&slots, 50, 1), limits([("b", 30), ("a", 20)]));
        assert_eq!(room(&slots, 50, 2), room(&slots, 50, 0));
        assert_eq!(room(&slots, 0, 0), []);
    }

    #[tokio::test]
    async fn headroom_is_for_jobs_that_wait_here_until_a_slot_is_free() {
        let slots = slots([("a", 2)], 0.5);
        assert_eq!(room(&slots, 100, 0), limits([("a", 3)]));
        let (one, _two) = (run(&slots, "a").await, run(&slots, "a").await);
        let mut third = slots.take(&queue("a")).expect("a place to wait");
        let mut third = Box::pin(third.slot());
        assert!(third.as_mut().now_or_never().is_none(), "both slots are taken");
        assert!(slots.take(&queue("a")).is_none());
        assert_eq!(slots.taken(), 2, "who waits does not run");
        drop(one);
        third.await;
    }

    #[tokio::test]
    async fn as_many_jobs_as_there_are_slots_wait_outside_and_then_nothing_is_claimed() {
        let slots = slots([("a", 2)], 0.0);
        let take = || slots.take(&queue("a"));
        let (mut first, mut second) = (take().unwrap(), take().unwrap());
        assert!(take().is_none());
        drop((first.slot().await, second.slot().await));
        first.set_aside();
        first.set_aside();
        assert_eq!(room(&slots, 100, 0), limits([("a", 1)]));
        let mut third = take().expect("its place is free");
        let running = third.slot().await;
        third.set_aside();
        assert!(take().is_none(), "a body that runs keeps its place");
        drop(running);
        second.set_aside();
        assert_eq!(room(&slots, 100, 0), [], "two wait outside");
        third.set_aside();
        drop(first);
        assert_eq!(
            room(&slots, 100, 0),
            limits([("a", 1)]),
            "one waits outside, and the third has its place"
        );
        drop((second, third));
        assert_eq!(room(&slots, 100, 0), limits([("a", 2)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_holds_claims_back_and_tells_when_the_next_may_start() {
        let slots = Slots::new([(queue("a"), options(5, Some(60)))], 1.0);
        let (names, begun) = ([queue("a")], Instant::now());
        assert_eq!(room(&slots, 100, 0), limits([("a", 1)]));
        let _running = run(&slots, "a").await;
        assert!(!slots.has_room(&names));
        slots.opened(&names).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        assert!(slots.has_room(&names));
    }

    #[tokio::test(start_paused = true)]
    async fn a_paced_queue_without_a_place_waits_for_one() {
        let slots = Slots::new([(queue("a"), options(1, Some(60)))], 0.0);
        let running = run(&slots, "a").await;
        let names = [queue("a")];
        let mut opened = Box::pin(slots.opened(&names));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(opened.as_mut().now_or_never().is_none());
        drop(running);
        opened.await;
        assert!(slots.has_room(&names));
    }

    #[tokio::test]
    async fn whoever_waits_for_a_slot_is_told_when_one_is_free() {
        let slots = slots([("a", 1)], 0.0);
        let taken = run(&slots, "a").await;
        let waits = tokio::spawn({
            let slots = slots.clone();
            async move {
                slots.opened(&[queue("a")]).await;
                slots.take(&queue("a")).is_some()
            }
        });
        tokio::task::yield_now().await;
        drop(taken);
        assert!(waits.await.unwrap());
    }
}
