//! Time-ordered identifiers: UUID version 7 after RFC 9562, section 5.7.
//!
//! Ids are made by the submitting process, so a submit whose reply was lost can be repeated with the same id,
//! and they sort by creation, so new rows go to the right edge of every index.
//!
//! ```text
//! | 48 bits: Unix time in ms | 4: version 7 | 12: counter in this ms | 2: variant 10 | 62: random |
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::Rng as _;
use uuid::{Uuid, Variant};

#[cfg(test)]
mod tests;

const COUNTER_BITS: u32 = 12;
const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;
const MILLIS_MASK: u64 = (1 << 48) - 1;
const RANDOM_MASK: u64 = (1 << 62) - 1;

/// How long a full millisecond is waited out. The caller may be an async worker, so longer is not acceptable.
const SPIN_LIMIT: Duration = Duration::from_millis(2);
/// The same bound in clock readings, for simulated clocks whose monotonic time stands still as well.
const SPIN_READS: u32 = 100_000;

/// The Unix time in milliseconds that is embedded in `uuid`, or `None` when it is not a version 7 id.
///
/// ```
/// # use uuid::uuid;
/// use ratchet_api::uuid7::timestamp_of;
///
/// assert_eq!(timestamp_of(uuid!("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")), Some(1_645_557_742_000));
/// assert_eq!(timestamp_of(uuid!("919108f7-52d1-4320-9bac-f847db4148a8")), None);
/// ```
pub fn timestamp_of(uuid: Uuid) -> Option<u64> {
    let is_v7 = uuid.get_version_num() == 7 && uuid.get_variant() == Variant::RFC4122;
    is_v7.then(|| uuid.as_u64_pair().0 >> 16)
}

/// The two clocks a generator reads.
pub trait WallClock: Send + Sync {
    /// Milliseconds since the Unix epoch. May jump in either direction.
    fn unix_millis(&self) -> u64;

    /// Time since an arbitrary fixed moment. Never goes back.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

impl WallClock for SystemClock {
    fn unix_millis(&self) -> u64 {
        // A clock before 1970 reads as zero; the generator then treats it like any other step back.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, full_millis)
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// Makes version 7 UUIDs that strictly increase, from any number of threads, without a lock.
///
/// The counter starts at 0 in each millisecond. When its 4 096 values are used up, the caller spins until the
/// wall clock advances, so that an embedded timestamp is never ahead of wall time. That holds in normal
/// operation. When the wall clock was set back, or stands still for 2 ms, waiting could take as long as
/// the step itself; the generator then goes on from the last good wall time plus the monotonic time since, and
/// says so in one warning per step, until the wall clock has caught up.
///
/// ```
/// use ratchet_api::uuid7::{UuidV7Generator, timestamp_of};
///
/// let generator = UuidV7Generator::new();
/// let id = generator.generate();
/// assert!(id < generator.generate());
/// assert!(timestamp_of(id).is_some());
/// ```
#[derive(Debug)]
pub struct UuidV7Generator<C = SystemClock> {
    clock: C,
    /// The tick of the newest id: `millis << 12 | counter`. Every id is one successful exchange of it.
    last: AtomicU64,
    /// Wall time at monotonic zero, as of the newest good reading of the wall clock.
    anchor: AtomicU64,
    /// Whether ids are made from the anchor at present. Only keeps the warning to one per step.
    anchored: AtomicBool,
}

impl UuidV7Generator {
    /// A generator on the system clocks.
    pub fn new() -> Self {
        Self::with_clock(SystemClock::default())
    }
}

impl Default for UuidV7Generator {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: WallClock> UuidV7Generator<C> {
    /// A generator on clocks of the caller's choice, for tests and simulation.
    pub fn with_clock(clock: C) -> Self {
        let generator = Self {
            last: AtomicU64::new(0),
            anchor: AtomicU64::new(0),
            anchored: AtomicBool::new(false),
            clock,
        };
        generator.drop_anchor(generator.clock.unix_millis());
        generator
    }

    /// Makes the next id.
    pub fn generate(&self) -> Uuid {
        assemble(self.next_tick(), rand::rng().next_u64())
    }

    fn next_tick(&self) -> u64 {
        loop {
            // `last` is read before the clock: the thread that wrote it had read the clock earlier still, so a reading
            // that lies behind it means that the clock went back, not that another thread was quicker.
            let last = self.last.load(Ordering::Acquire);
            let now = self.clock.unix_millis();

            let fresh = now > millis(last);
            let next = if fresh {
                tick(now)
            } else if now < millis(last) {
                self.anchored_tick(last)
            } else if last & COUNTER_MASK < COUNTER_MASK {
                last + 1
            } else if self.wait_out(now) {
                continue;
            } else {
                self.anchored_tick(last)
            };

            if self.last.compare_exchange(last, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                if fresh {
                    self.drop_anchor(now);
                }
                return next;
            }
        }
    }

    /// Spins until the wall clock no longer shows `full`; `false` if it does not move in time.
    fn wait_out(&self, full: u64) -> bool {
        let deadline = self.clock.monotonic() + SPIN_LIMIT;
        for _ in 0..SPIN_READS {
            if self.clock.unix_millis() != full {
                return true;
            }
            if self.clock.monotonic() >= deadline {
                return false;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// The tick after `last` while the wall clock cannot be used.
    ///
    /// Adding one carries a full counter into the next millisecond. The timestamp can outrun the anchor that
    /// way only if ids are made faster than 4 096 per millisecond, and RFC 9562 permits it.
    fn anchored_tick(&self, last: u64) -> u64 {
        let elapsed = full_millis(self.clock.monotonic());
        let estimate = self.anchor.load(Ordering::Relaxed).wrapping_add(elapsed);
        if !self.anchored.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                last_millis = millis(last),
                estimate_millis = estimate,
                "the wall clock went back or stands still, ids continue from the monotonic clock"
            );
        }
        tick(estimate).max(last + 1)
    }

    /// Records the offset between wall and monotonic time, and that the wall clock is usable (again).
    ///
    /// Threads may pass each other here. A late one leaves an anchor that lies a little in the past, which
    /// `last + 1` covers; none leaves one that is ahead.
    fn drop_anchor(&self, now: u64) {
        let elapsed = full_millis(self.clock.monotonic());
        self.anchor.store(now.wrapping_sub(elapsed), Ordering::Relaxed);
        self.anchored.store(false, Ordering::Relaxed);
    }
}

/// The first tick of a millisecond.
const fn tick(millis: u64) -> u64 {
    (millis & MILLIS_MASK) << COUNTER_BITS
}

const fn millis(tick: u64) -> u64 {
    tick >> COUNTER_BITS
}

/// The milliseconds that have passed completely; rounding up would put an id ahead of time.
fn full_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Puts version and variant between the parts of a tick and 62 random bits.
fn assemble(tick: u64, random: u64) -> Uuid {
    let high = (millis(tick) << 16) | (0x7 << COUNTER_BITS) | (tick & COUNTER_MASK);
    let low = (0b10 << 62) | (random & RANDOM_MASK);
    Uuid::from_u64_pair(high, low)
}
