//! Time as stores see it: whole milliseconds, UTC, read from one clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeZone, Utc};
use serde::{Deserialize, Serialize};

/// An instant in UTC with whole milliseconds.
///
/// Every store keeps exactly this resolution (BSON has no more), so a value that was written
/// reads back equal on all of them.
///
/// ```
/// use ratchet_api::Timestamp;
/// use std::time::Duration;
///
/// let t = Timestamp::from_millis(1_000);
/// assert_eq!(t + Duration::from_millis(500), Timestamp::from_millis(1_500));
/// assert_eq!(t.to_string(), "1970-01-01T00:00:01.000Z");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest instant that every store can hold.
    pub const MIN: Self = Self(0);
    /// The latest instant that every store can hold: the end of the year 9998.
    pub const MAX: Self = Self(253_370_764_799_999);

    /// Creates an instant from milliseconds since the Unix epoch, clamped to [`MIN`](Self::MIN)..=[`MAX`](Self::MAX).
    pub const fn from_millis(millis: i64) -> Self {
        if millis < Self::MIN.0 {
            Self::MIN
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time that passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        let gap = self.0 - earlier.0;
        Duration::from_millis(if gap < 0 { 0 } else { gap as u64 })
    }

    /// The same instant as a chrono value, for drivers and time zones.
    pub fn to_datetime(self) -> DateTime<Utc> {
        Utc.timestamp_millis_opt(self.0).single().unwrap_or(DateTime::<Utc>::MIN_UTC)
    }

    /// The node's own wall clock. Only for reporting and skew measurement: stores decide by their own clock.
    pub fn node_now() -> Self {
        Self::from(Utc::now())
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(value: DateTime<Utc>) -> Self {
        Self::from_millis(value.timestamp_millis())
    }
}

/// Parses RFC 3339, in any zone; fractions of a millisecond are cut off.
///
/// ```
/// use ratchet_api::Timestamp;
///
/// assert_eq!("1970-01-01T01:00:01.5+01:00".parse(), Ok(Timestamp::from_millis(1_500)));
/// assert!("yesterday".parse::<Timestamp>().is_err());
/// ```
impl std::str::FromStr for Timestamp {
    type Err = chrono::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(DateTime::parse_from_rfc3339(text)?.with_timezone(&Utc).into())
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(whole_millis(delay)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, delay: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(whole_millis(delay)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_datetime().to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A duration in whole milliseconds, rounded up so that a short but positive delay, lease or TTL
/// never becomes none at all, and saturating where it would not fit.
pub fn whole_millis(duration: Duration) -> i64 {
    let millis = duration.as_millis() + u128::from(!duration.subsec_nanos().is_multiple_of(1_000_000));
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// The clock by which a store decides what is due, alive or expired.
#[derive(Clone, Debug, Default)]
pub enum StoreClock {
    /// The database server's clock, read by the statement that decides.
    #[default]
    Server,
    /// A clock that only moves when a test moves it.
    Manual(ManualClock),
}

impl StoreClock {
    /// The instant a manual clock shows; `None` means that the server's clock decides.
    ///
    /// A SQL store binds this as `coalesce(:now, <server time>)`, so one statement serves both.
    pub fn manual_now(&self) -> Option<Timestamp> {
        match self {
            Self::Server => None,
            Self::Manual(clock) => Some(clock.now()),
        }
    }
}

/// A clock that stands still until it is moved. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `start`.
    pub fn starting_at(start: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(start.as_millis())))
    }

    /// The time that the clock shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(whole_millis(by), Ordering::SeqCst);
    }

    /// Moves the clock back, as when a wrong clock is corrected.
    pub fn step_back(&self, by: Duration) {
        self.0.fetch_sub(whole_millis(by), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Starts on 2026-01-01, an ordinary day in every store's range.
    fn default() -> Self {
        Self::starting_at(Timestamp::from_millis(1_767_225_600_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_to_whole_milliseconds() {
        for (duration, millis) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(999), 1),
            (Duration::from_millis(1), 1),
            (Duration::from_micros(1_001), 2),
            (Duration::MAX, i64::MAX),
        ] {
            assert_eq!(whole_millis(duration), millis, "{duration:?}");
        }
    }

    #[test]
    fn arithmetic_stays_inside_the_range_that_stores_hold() {
        assert_eq!(Timestamp::MAX + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::MIN - Duration::from_secs(1), Timestamp::MIN);
        assert_eq!(Timestamp::MAX.to_string(), "9998-12-31T23:59:59.999Z");
    }

    #[test]
    fn clones_of_a_manual_clock_show_the_same_time() {
        let clock = ManualClock::default();
        let other = clock.clone();
        clock.advance(Duration::from_secs(5));
        assert_eq!(other.now(), Timestamp::from_millis(1_767_225_605_000));
    }

    #[test]
    fn time_that_has_not_passed_is_zero() {
        let at = Timestamp::from_millis;
        assert_eq!(at(1_500).since(at(1_000)), Duration::from_millis(500));
        assert_eq!(at(1_000).since(at(1_000)), Duration::ZERO);
        assert_eq!(at(1_000).since(at(1_500)), Duration::ZERO);
    }

    #[test]
    fn instants_are_kept_inside_the_range_that_stores_hold() {
        let beyond = [i64::MIN, -1, 0, 1, Timestamp::MAX.0, Timestamp::MAX.0 + 1, i64::MAX];
        let kept = [0, 0, 0, 1, Timestamp::MAX.0, Timestamp::MAX.0, Timestamp::MAX.0];
        assert_eq!(beyond.map(|millis| Timestamp::from_millis(millis).as_millis()), kept);
        let text = "2026-01-01T00:00:00.123Z";
        assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), text);
    }

    #[test]
    fn only_a_manual_clock_shows_an_instant() {
        assert_eq!(StoreClock::Server.manual_now(), None);
        let start = Timestamp::from_millis(5);
        assert_eq!(StoreClock::Manual(ManualClock::starting_at(start)).manual_now(), Some(start));
    }
}
