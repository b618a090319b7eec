//! Slots: how many jobs of each queue run on this node at once.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratchet_api::options::QueueOptions;
use ratchet_api::{QueueLimit, QueueName};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout};

use super::rate_limit::{RateClock, RateLimit};
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
    /// The slots, as permits for jobs that run.
    free: Arc<Semaphore>,
    /// Jobs that were claimed and have no recorded outcome yet, except those that were set aside.
    held: AtomicUsize,
    /// Jobs that were set aside: the store does not take their outcome, so they left their place to others. At most
    /// as many as there are slots.
    outside: AtomicUsize,
    /// Jobs that have left their place, in total.
    gone: AtomicUsize,
    /// Jobs that may be claimed ahead (prefetched) beyond the slots, because they would end soon.
    ahead: AtomicUsize,
    turnover: Mutex<Turnover>,
    pace: Option<RateLimit>,
}

/// The place of a claimed job until its outcome is recorded.
#[derive(Debug)]
pub(crate) struct SlotTicket {
    // Dropped before `held`, so that nothing is claimed for a slot that is still taken.
    /// `None` once the job has its slot.
    turn: Option<Turn>,
    held: Arc<Held>,
}

/// The turn of a job for a slot.
enum Turn {
    /// It has a slot now.
    Free(OwnedSemaphorePermit),
    /// It gets one after those before it.
    Waiting(Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>),
}

impl Turn {
    /// Takes a slot, or joins the line for one now: the order is that of these calls, whenever the tasks run.
    fn of(free: &Arc<Semaphore>) -> Self {
        if let Ok(permit) = Arc::clone(free).try_acquire_owned() {
            return Self::Free(permit);
        }
        // Without the task's cooperative budget: if that is spent, this poll would not join the line.
        let mut line = Box::pin(unconstrained(Arc::clone(free).acquire_owned()));
        match line.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(permit)) => Self::Free(permit),
            _ => Self::Waiting(line),
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free(_) => "Free",
            Self::Waiting(_) => "Waiting",
        })
    }
}

/// One taken slot. It is free again when this is dropped, however the job ended.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
    /// A body that cannot be stopped keeps the place as well.
    _held: Arc<Held>,
}

/// The count of one claimed job, until this is dropped.
struct Held {
    queue: Arc<Queue>,
    freed: Arc<Notify>,
    /// Whether the job was set aside.
    outside: AtomicBool,
}

impl Slots {
    /// The slots of these queues. Of each, `headroom` times as many jobs may be claimed beyond them. Rate limits go by `clock`.
    pub(crate) fn new(
        queues: impl IntoIterator<Item = (QueueName, QueueOptions)>,
        headroom: f64,
        clock: &RateClock,
    ) -> Self {
        let queue = |options: &QueueOptions| Arc::new(Queue::new(options, headroom, clock));
        let queues = queues.into_iter().map(|(name, options)| (name, queue(&options)));
        Self(Arc::new(Inner { queues: queues.collect(), freed: Arc::default() }))
    }

    /// Every queue.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.0.queues.keys()
    }

    /// How many jobs of each queue may be claimed now: at most `most` in all, and those to claim ahead. Queue number
    /// `first` is served first; rotate it, and none starves.
    pub(crate) fn room(&self, most: usize, first: usize) -> Vec<QueueLimit> {
        let now = Instant::now();
        let ahead: usize = self.0.queues.values().map(|queue| queue.look_ahead(now)).sum();
        self.vacant(most.saturating_add(ahead), first)
    }

    /// How many jobs of each queue may be claimed now, with no more than `most` in all, by the last measured turnover.
    pub(crate) fn vacant(&self, most: usize, first: usize) -> Vec<QueueLimit> {
        let queues = &self.0.queues;
        let in_turn = queues.iter().cycle().skip(first % queues.len().max(1)).take(queues.len());
        let mut left = most;
        let limit = |(name, queue): (&QueueName, &Arc<Queue>)| {
            let limit = queue.room().min(left);
            left -= limit;
            (limit > 0).then(|| QueueLimit { queue: name.clone(), limit })
        };
        in_turn.filter_map(limit).collect()
    }

    /// Whether it is time to claim jobs of one of these queues.
    pub(crate) fn has_room<'q>(&self, queues: impl IntoIterator<Item = &'q QueueName>) -> bool {
        queues.into_iter().filter_map(|name| self.0.queues.get(name)).any(|queue| queue.is_open())
    }

    /// Completes when there may be room in one of these queues that had none.
    pub(crate) async fn opened<'q>(&self, queues: impl IntoIterator<Item = &'q QueueName>) {
        let queues = queues.into_iter().filter_map(|name| self.0.queues.get(name));
        let next = queues.filter_map(|queue| queue.next_in()).min();
        let paced = async {
            match next {
                Some(next) => sleep(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.0.freed.notified() => {}
            () = paced => {}
        }
    }

    /// Takes the place of a claimed job, if there is one.
    pub(crate) fn take(&self, queue: &QueueName) -> Option<SlotTicket> {
        let queue = self.0.queues.get(queue)?;
        let held = queue.hold().then(|| Held::new(Arc::clone(queue), Arc::clone(&self.0.freed)))?;
        if let Some(pace) = &queue.pace {
            pace.take();
        }
        Some(SlotTicket { turn: Some(Turn::of(&queue.free)), held: Arc::new(held) })
    }

    /// How many jobs of this queue would get a slot at once.
    pub(crate) fn free(&self, queue: &QueueName) -> usize {
        self.0.queues.get(queue).map_or(0, |queue| queue.room().min(queue.free.available_permits()))
    }

    /// The shortest delay of a queue's next job by its rate limit; `None` if none is delayed.
    pub(crate) fn paced_for(&self) -> Option<Duration> {
        let queues = self.0.queues.values();
        queues.filter_map(|queue| queue.next_in()).filter(|wait| !wait.is_zero()).min()
    }

    /// The number of slots.
    pub(crate) fn total(&self) -> u32 {
        self.0.queues.values().map(|queue| queue.slots).sum()
    }

    /// The number of slots in use.
    pub(crate) fn taken(&self) -> u32 {
        self.usage().map(|(_, used, _)| used).sum()
    }

    /// Of each queue, how many slots are in use, and how many there are.
    pub(crate) fn usage(&self) -> impl Iterator<Item = (&QueueName, u32, u32)> {
        self.0.queues.iter().map(|(name, queue)| {
            let free = u32::try_from(queue.free.available_permits()).unwrap_or(u32::MAX);
            (name, queue.slots.saturating_sub(free), queue.slots)
        })
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
    fn new(options: &QueueOptions, headroom: f64, clock: &RateClock) -> Self {
        Self {
            slots: options.slots,
            headroom: (f64::from(options.slots) * headroom).ceil() as usize,
            free: Arc::new(Semaphore::new(options.slots as usize)),
            held: AtomicUsize::new(0),
            outside: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
            turnover: Mutex::new(Turnover::new(Instant::now())),
            pace: options.rate_limit_per_minute.map(|per_minute| RateLimit::new(per_minute, clock)),
        }
    }

    /// Measures how many may be claimed ahead, beyond the slots, because they would end soon.
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

    /// How many may be claimed now: none while as many jobs are set aside as there are slots.
    fn room(&self) -> usize {
        if self.outside.load(Ordering::Relaxed) >= self.slots as usize {
            return 0;
        }
        let paced = self.pace.as_ref().map_or(usize::MAX, RateLimit::available);
        self.places().saturating_sub(self.held.load(Ordering::Relaxed)).min(paced)
    }

    /// Whether there is enough room for a claim to be worthwhile.
    fn is_open(&self) -> bool {
        self.room() > self.ahead.load(Ordering::Relaxed) / 2
    }

    /// Counts one more job as held, if there is a place for it.
    fn hold(&self) -> bool {
        let places = self.places();
        let one_more = |held: usize| (held < places).then_some(held + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// How long until its rate limit allows the next one; `None` without a limit, or if there is no place for it
    /// anyway.
    fn next_in(&self) -> Option<Duration> {
        let pace = self.pace.as_ref().filter(|_| self.held.load(Ordering::Relaxed) < self.places())?;
        Some(pace.next_in())
    }
}

impl SlotTicket {
    /// Waits for a slot; waiting jobs get theirs in turn.
    pub(crate) async fn slot(&mut self) -> Slot {
        let permit = match self.turn.take() {
            Some(Turn::Free(permit)) => Some(permit),
            // Nobody closes the semaphore.
            Some(Turn::Waiting(line)) => line.await.ok(),
            None => Arc::clone(&self.held.queue.free).acquire_owned().await.ok(),
        };
        Slot { _permit: permit, _held: Arc::clone(&self.held) }
    }

    /// Waits for a slot, at most `longest` if the job was claimed ahead; `None` after that, and then no more are
    /// claimed ahead for a while. In a queue with headroom, jobs wait however long it takes.
    pub(crate) async fn slot_within(&mut self, longest: Duration) -> Option<Slot> {
        if matches!(self.turn, Some(Turn::Free(_))) || self.held.queue.headroom > 0 {
            return Some(self.slot().await);
        }
        let slot = timeout(longest, self.slot()).await.ok();
        if slot.is_none() {
            let queue = &self.held.queue;
            lock(&queue.turnover).distrust(Instant::now());
            queue.ahead.store(0, Ordering::Relaxed);
        }
        slot
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
        if self.queue.is_open() {
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
    use futures::FutureExt as _;

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn clock() -> RateClock {
        Arc::new(Instant::now)
    }

    fn options(slots: u32, rate_limit_per_minute: Option<u32>) -> QueueOptions {
        QueueOptions { slots, rate_limit_per_minute }
    }

    fn slots<const N: usize>(queues: [(&str, u32); N], headroom: f64) -> Slots {
        Slots::new(queues.map(|(name, slots)| (queue(name), options(slots, None))), headroom, &clock())
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

    #[tokio::test(start_paused = true)]
    async fn a_job_that_was_claimed_ahead_does_not_wait_behind_a_slow_one() {
        const LONGEST: Duration = Duration::from_millis(200);
        let slots = slots([("a", 1)], 0.0);
        for _ in 0..10 {
            drop(run(&slots, "a").await);
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(room(&slots, 1, 0), limits([("a", 11)]), "ten went in a tenth of a second");
        let (slow, begun) = (run(&slots, "a").await, Instant::now());
        let mut ahead = slots.take(&queue("a")).expect("a place to wait");
        assert!(ahead.slot_within(LONGEST).await.is_none());
        assert_eq!(begun.elapsed(), LONGEST);
        drop(ahead);
        assert_eq!(room(&slots, 100, 0), [], "no more are claimed ahead");
        drop(slow);
        assert!(slots.take(&queue("a")).expect("a place").slot_within(LONGEST).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_in_the_headroom_waits_for_as_long_as_it_takes() {
        let slots = slots([("a", 1)], 1.0);
        let slow = run(&slots, "a").await;
        let mut waits = slots.take(&queue("a")).expect("a place to wait");
        let mut waits = Box::pin(waits.slot_within(Duration::from_millis(200)));
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(waits.as_mut().now_or_never().is_none());
        drop(slow);
        assert!(waits.await.is_some());
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
        let slots = Slots::new([(queue("a"), options(5, Some(60)))], 1.0, &clock());
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
        let slots = Slots::new([(queue("a"), options(1, Some(60)))], 0.0, &clock());
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
