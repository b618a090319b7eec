//! The rate limit of a queue: how many of its jobs may start per minute.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// The clock of a queue's rate limit.
pub(crate) type RateClock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// The rate limit of a queue, with its clock.
pub(crate) struct RateLimit {
    pace: Mutex<TokenBucket>,
    clock: RateClock,
}

impl RateLimit {
    /// At most `per_minute` starts in any minute.
    pub(crate) fn new(per_minute: u32, clock: &RateClock) -> Self {
        Self { pace: Mutex::new(TokenBucket::new(per_minute, clock())), clock: Arc::clone(clock) }
    }

    /// How many may start now.
    pub(crate) fn available(&self) -> usize {
        self.with(|pace, now| pace.available(now)) as usize
    }

    /// Counts one start, even if none is available.
    pub(crate) fn take(&self) {
        self.with(TokenBucket::take);
    }

    /// How long until the next one may start.
    pub(crate) fn next_in(&self) -> Duration {
        self.with(|pace, now| pace.next(now).saturating_duration_since(now))
    }

    fn with<T>(&self, act: impl FnOnce(&mut TokenBucket, Instant) -> T) -> T {
        act(&mut self.pace.lock().unwrap_or_else(PoisonError::into_inner), (self.clock)())
    }
}

/// A bucket of tokens, one for each start. It fills evenly and holds about a second's worth, so that starts are spread over
/// the minute and still share claims.
///
/// No minute sees more starts than the limit, wherever it begins: the bucket fills a little slower than the limit alone
/// would ask for, by as much as it holds. Pure: the time is an argument.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// The most tokens in the bucket.
    most: u32,
    /// Time between two tokens.
    interval: Duration,
    /// When the bucket is full again.
    full_at: Instant,
}

impl TokenBucket {
    /// At most `per_minute` starts in any minute; the bucket is full at first.
    pub(crate) fn new(per_minute: u32, now: Instant) -> Self {
        let per_minute = per_minute.max(1);
        let most = (per_minute / 60).max(1);
        let tokens = u64::from(per_minute - most + 1);
        // Rounded up: a shorter interval would let one too many in.
        let interval = Duration::from_nanos(60_000_000_000_u64.div_ceil(tokens));
        Self { most, interval, full_at: now }
    }

    /// How many may start now.
    pub(crate) fn available(&self, now: Instant) -> u32 {
        let missing =
            self.full_at.saturating_duration_since(now).as_nanos().div_ceil(self.interval.as_nanos());
        self.most.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    /// Counts one start, even if none is available.
    pub(crate) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }

    /// When the next one may start; now, if it may.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        let held = self.interval.saturating_mul(self.most - 1).min(MINUTE);
        self.full_at.checked_sub(held).map_or(now, |next| next.max(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_slow_queue_starts_one_job_at_a_time() {
        let begun = Instant::now();
        for (per_minute, between) in [(1, 60), (2, 30), (6, 10), (60, 1)] {
            let mut pace = TokenBucket::new(per_minute, begun);
            assert_eq!(pace.available(begun), 1, "{per_minute} a minute");
            pace.take(begun);
            assert_eq!(pace.available(begun), 0);
            assert_eq!(pace.next(begun), begun + secs(between));
            assert_eq!(pace.available(begun + secs(between) - Duration::from_nanos(1)), 0);
            assert_eq!(pace.available(begun + secs(between)), 1);
        }
    }

    #[test]
    fn a_fast_queue_holds_a_second_of_starts_and_no_more() {
        let begun = Instant::now();
        let mut pace = TokenBucket::new(600, begun);
        assert_eq!(pace.available(begun + secs(3_600)), 10);
        for left in (0..10).rev() {
            pace.take(begun);
            assert_eq!(pace.available(begun), left);
        }
        let next = pace.next(begun);
        assert_eq!((pace.available(next - Duration::from_nanos(1)), pace.available(next)), (0, 1));
    }

    #[test]
    fn the_largest_limit_is_no_limit_that_anybody_would_notice() {
        let begun = Instant::now();
        let mut pace = TokenBucket::new(u32::MAX, begun);
        pace.take(begun);
        assert!(pace.available(begun) > 70_000_000);
        assert_eq!(pace.next(begun), begun);
    }

    /// Starts every job that may start, at each of these instants.
    fn starts(per_minute: u32, looks: &[Duration]) -> Vec<Duration> {
        let begun = Instant::now();
        let (mut pace, mut elapsed, mut starts) =
            (TokenBucket::new(per_minute, begun), Duration::ZERO, Vec::new());
        for pause in looks {
            elapsed += *pause;
            for _ in 0..pace.available(begun + elapsed) {
                pace.take(begun + elapsed);
                starts.push(elapsed);
            }
        }
        starts
    }

    proptest! {
        #[test]
        fn no_minute_sees_more_starts_than_allowed(
            per_minute in 1_u32..2_000,
            pauses in prop::collection::vec(0_u64..5_000, 1..200),
        ) {
            let looks: Vec<Duration> = pauses.into_iter().map(Duration::from_millis).collect();
            let starts = starts(per_minute, &looks);
            for one_too_many in starts.windows(per_minute as usize + 1) {
                prop_assert!(one_too_many[per_minute as usize] - one_too_many[0] >= MINUTE);
            }
        }

        #[test]
        fn whoever_comes_as_soon_as_told_gets_nearly_the_whole_limit(per_minute in 1_u32..2_000) {
            let begun = Instant::now();
            let (mut pace, mut now, mut starts) = (TokenBucket::new(per_minute, begun), begun, 0);
            while now < begun + 10 * MINUTE {
                now = pace.next(now);
                prop_assert!(pace.available(now) >= 1, "nobody is told to come too soon");
                pace.take(now);
                starts += 1;
            }
            prop_assert!(f64::from(starts) >= 9.8 * f64::from(per_minute), "{starts} in ten minutes");
        }
    }
}
