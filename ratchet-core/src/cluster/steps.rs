//! A watch on the database's clock by this node's monotonic one, which nobody sets. Pure.

use std::time::{Duration, Instant};

use ratchet_api::Timestamp;

/// The largest difference that is no step: clocks are corrected by a little all the time.
const A_LITTLE: Duration = Duration::from_secs(1);

/// A reading of the database's clock, taken at some time between `sent` and `heard`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) sent: Instant,
    pub(crate) heard: Instant,
    pub(crate) db_now: Timestamp,
}

/// The step of the database's clock between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It advanced as time did.
    None,
    /// It jumped ahead by this.
    Ahead(Duration),
    /// It went back, at least by this, at some time within the last `within`.
    Back { by: Duration, within: Duration },
}

/// Compares the time that passed between two readings by both clocks, as far as it is certain.
pub(crate) fn step(before: &Reading, now: &Reading) -> Step {
    let least = now.sent.saturating_duration_since(before.heard);
    let most = now.heard.saturating_duration_since(before.sent);
    let (back, ahead) = ((before.db_now + least).since(now.db_now), now.db_now.since(before.db_now + most));
    match (back > A_LITTLE, ahead > A_LITTLE) {
        (true, _) => Step::Back { by: back, within: most },
        (_, true) => Step::Ahead(ahead),
        _ => Step::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading that took a tenth of a second.
    fn reading(begun: Instant, sent: u64, db_now: i64) -> Reading {
        let sent = begun + Duration::from_millis(sent);
        Reading { sent, heard: sent + Duration::from_millis(100), db_now: Timestamp::from_millis(db_now) }
    }

    #[test]
    fn a_step_is_what_both_clocks_differ_by_beyond_doubt() {
        const HOUR: i64 = 3_600_000;
        let begun = Instant::now();
        let back =
            |by, within| Step::Back { by: Duration::from_millis(by), within: Duration::from_millis(within) };
        let ahead = |by| Step::Ahead(Duration::from_millis(by));
        // The second reading is 6 s after the first, so 5.9 to 6.1 s passed.
        let table = [
            (10_000_000 + 6_000, Step::None),
            (10_000_000 + 7_100, Step::None),
            (10_000_000 + 7_101, ahead(1_001)),
            (10_000_000 + 4_900, Step::None),
            (10_000_000 + 4_899, back(1_001, 6_100)),
            (10_000_000 + 6_000 + HOUR, ahead(3_599_900)),
            (10_000_000 + 6_000 - HOUR, back(3_599_900, 6_100)),
        ];
        for (db_now, expected) in table {
            let (before, now) = (reading(begun, 0, 10_000_000), reading(begun, 6_000, db_now));
            assert_eq!(step(&before, &now), expected, "{db_now}");
        }
    }
}
