//! Output of times.

use std::fmt;
use std::time::Duration;

use ratchet_api::Timestamp;
use serde::{Serialize, Serializer};

/// A point in time: RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(pub(crate) Timestamp);

impl Instant {
    /// The time, and its distance from `now`.
    pub(crate) fn seen_from(self, now: Self) -> String {
        let (then, now) = (self.0, now.0);
        let relation = match (then.since(now), now.since(then)) {
            (Duration::ZERO, Duration::ZERO) => "now".to_owned(),
            (ahead, Duration::ZERO) => format!("in {}", span(ahead)),
            (_, past) => format!("{} ago", span(past)),
        };
        format!("{self} ({relation})")
    }
}

impl From<Timestamp> for Instant {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A duration in its two largest units.
pub(crate) fn span(time: Duration) -> String {
    const UNITS: [(&str, u128); 5] =
        [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let mut rest = time.as_millis();
    let Some(first) = UNITS.iter().position(|(_, millis)| rest >= *millis) else { return "0 ms".to_owned() };
    let (unit, millis) = UNITS[first];
    let mut text = format!("{} {unit}", rest / millis);
    rest %= millis;
    // Ages do not need milliseconds.
    if let Some((unit, millis)) = UNITS[..4].get(first + 1).filter(|(_, millis)| rest >= *millis) {
        text = format!("{text} {} {unit}", rest / millis);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_its_two_largest_units() {
        for (millis, text) in [
            (0, "0 ms"),
            (250, "250 ms"),
            (1_999, "1 s"),
            (60_000, "1 min"),
            (200_500, "3 min 20 s"),
            (3_600_000 * 25, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_time_is_shown_from_both_sides() {
        let at = |millis| Instant(Timestamp::from_millis(millis));
        assert_eq!(at(1_000).seen_from(at(61_000)), "1970-01-01T00:00:01.000Z (1 min ago)");
        assert_eq!(at(61_000).seen_from(at(1_000)), "1970-01-01T00:01:01.000Z (in 1 min)");
        assert_eq!(at(1_000).seen_from(at(1_000)), "1970-01-01T00:00:01.000Z (now)");
    }
}
