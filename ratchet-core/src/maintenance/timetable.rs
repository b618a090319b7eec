//! When to check for due maintenance, and how long to rest between parts. Pure.

use std::time::Duration;

use ratchet_api::Timestamp;

/// The most jitter that is added to a time, so that nodes do not all check at once.
const SPREAD: Duration = Duration::from_secs(60);

/// The longest rest between two parts.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The wait before the next check: until the task is due, but not longer than a lock lasts, since its holder may have
/// died, or no node may have run when it was due.
pub(super) fn wait(now: Timestamp, due: Option<Timestamp>, lock_ttl: Duration, chance: f64) -> Duration {
    let again = lock_ttl.mul_f64(0.5 + chance / 2.0);
    let until_due = |due: Timestamp| {
        let left = due.since(now);
        left + (left / 10).min(SPREAD).mul_f64(chance)
    };
    due.map_or(again, |due| until_due(due).min(again))
}

/// The rest after a part that took `took`: at least half of the database's time is for the jobs.
pub(super) fn rest(took: Duration) -> Duration {
    took.min(LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_look_comes_when_it_is_due_and_at_least_as_often_as_a_lock_may_end() {
        let at = |secs: i64| Timestamp::from_millis(secs * 1_000);
        let table = [
            (100, 0.0, 100),
            (100, 1.0, 110),
            (3_600, 0.0, 300),
            (3_600, 1.0, 600),
            (550, 1.0, 600),
            (0, 0.5, 0),
        ];
        for (due, chance, expected) in table {
            assert_eq!(wait(at(0), Some(at(due)), secs(600), chance), secs(expected), "{due} {chance}");
        }
        assert_eq!(
            wait(at(0), Some(at(36_000)), secs(86_400), 1.0),
            secs(36_060),
            "chance adds a minute at most"
        );
        assert_eq!(wait(at(0), None, secs(600), 0.0), secs(300));
    }

    #[test]
    fn a_rest_is_as_long_as_the_part_before_it_but_not_without_end() {
        assert_eq!(rest(Duration::from_millis(20)), Duration::from_millis(20));
        assert_eq!(rest(secs(30)), secs(1));
    }
}
