//! A watch on this node's clock, which decides nothing, but whose times people read. Pure.

use std::time::Duration;

use ratchet_api::Timestamp;

/// The watch on this node's clock.
pub(crate) struct SkewWatch {
    limit: Duration,
    /// The difference that was last reported.
    told: Option<i64>,
}

/// A change that is worth reporting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SkewNews {
    /// The clocks differ by more than allowed, or by another amount than was reported.
    Off,
    /// The clocks agree again.
    Agrees,
}

/// The node's clock minus the database's, in milliseconds, as far as it is certain: the database read its clock at some time
/// between `sent` and `heard`.
pub(crate) fn skew(sent: Timestamp, heard: Timestamp, db_now: Timestamp) -> i64 {
    let (sent, heard, db_now) = (sent.as_millis(), heard.as_millis(), db_now.as_millis());
    match db_now {
        early if early < sent => sent - early,
        late if late > heard => heard - late,
        _ => 0,
    }
}

impl SkewWatch {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self { limit, told: None }
    }

    /// Returns what has changed: once for each change, not for each beat.
    pub(crate) fn observe(&mut self, skew: i64) -> Option<SkewNews> {
        let beyond = |millis: i64| Duration::from_millis(millis.unsigned_abs()) > self.limit;
        let news = match self.told {
            None if beyond(skew) => SkewNews::Off,
            Some(_) if !beyond(skew) => SkewNews::Agrees,
            Some(told) if beyond(skew.saturating_sub(told)) => SkewNews::Off,
            _ => return None,
        };
        self.told = beyond(skew).then_some(skew);
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_slow_network_explains_is_no_difference() {
        let at = Timestamp::from_millis;
        assert_eq!(skew(at(1_000), at(9_000), at(5_000)), 0);
        assert_eq!(skew(at(1_000), at(9_000), at(10_000)), -1_000, "the node is late");
        assert_eq!(skew(at(1_000), at(9_000), at(400)), 600, "the node is early");
    }

    #[test]
    fn a_difference_is_told_once_for_each_change() {
        let mut watch = SkewWatch::new(Duration::from_secs(5));
        let table = [
            (0, None),
            (5_000, None),
            (5_001, Some(SkewNews::Off)),
            (5_002, None),
            (10_001, None),
            (10_002, Some(SkewNews::Off)),
            (-3_600_000, Some(SkewNews::Off)),
            (-3_600_100, None),
            (-5_000, Some(SkewNews::Agrees)),
            (0, None),
            (-5_001, Some(SkewNews::Off)),
        ];
        for (skew, news) in table {
            assert_eq!(watch.observe(skew), news, "{skew}");
        }
    }
}
