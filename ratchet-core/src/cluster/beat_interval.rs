//! How often to beat. Pure.

use std::time::Duration;

use ratchet_api::options::NodeOptions;

/// The largest share of an interval that jitter takes off, so that nodes which started together do not beat together.
const SPREAD: f64 = 0.1;

/// The time until the next beat. Load makes it shorter, down to a second, and nothing makes it longer than the options
/// say; after a beat that failed the next one comes soon.
pub(crate) fn interval(options: &NodeOptions, load: f64, failed: bool, chance: f64) -> Duration {
    let beat = options.beat;
    if failed {
        return (beat / 4).mul_f64(1.0 - SPREAD * chance);
    }
    let share = match options.dynamic_beat {
        true if load >= 0.9 => 0.5,
        true if load >= 0.5 => 0.75,
        _ => 1.0,
    };
    beat.mul_f64(share * (1.0 - SPREAD * chance)).max(NodeOptions::MIN_DYNAMIC_BEAT.min(beat))
}

/// The longest time between two beats that is no gap: the longest that proves the death of a node with the same lease, so
/// that beats which a busy database answers late still do. To prove the death of a node with a shorter lease, this node
/// beats as often as that takes.
pub(crate) fn gap(options: &NodeOptions, wanted: Option<Duration>) -> Duration {
    let usual = (options.lease / 2).max(options.beat * 2);
    wanted.map_or(usual, |wanted| wanted.min(usual))
}

/// The pause after a beat that took `took`. Beats that the database answers slowly come as often as others, or each
/// would count as late, and none would prove a death.
pub(crate) fn rest(interval: Duration, took: Duration) -> Duration {
    interval.saturating_sub(took).max(interval / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(change: impl FnOnce(&mut NodeOptions)) -> NodeOptions {
        let mut options = NodeOptions::default();
        change(&mut options);
        options
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    // shows: S134
    #[test]
    fn load_only_shortens_the_time_between_beats_and_never_below_a_second() {
        let usual = NodeOptions::default();
        let quick = options(|node| node.beat = millis(1_100));
        let quicker = options(|node| node.beat = millis(200));
        let fixed = options(|node| node.dynamic_beat = false);
        let table = [
            (&usual, 0.0, 6_000),
            (&usual, 0.49, 6_000),
            (&usual, 0.5, 4_500),
            (&usual, 0.9, 3_000),
            (&usual, 7.0, 3_000),
            (&quick, 1.0, 1_000),
            (&quicker, 1.0, 200),
            (&fixed, 1.0, 6_000),
        ];
        for (options, load, expected) in table {
            assert_eq!(interval(options, load, false, 0.0), millis(expected), "{load} {options:?}");
        }
    }

    #[test]
    fn nodes_that_start_together_do_not_beat_together() {
        assert_eq!(interval(&NodeOptions::default(), 0.0, false, 1.0), millis(5_400));
    }

    #[test]
    fn a_beat_that_failed_is_soon_followed_by_another() {
        assert_eq!(interval(&NodeOptions::default(), 1.0, true, 0.0), millis(1_500));
        assert_eq!(interval(&NodeOptions::default(), 1.0, true, 1.0), millis(1_350), "and not together");
    }

    #[test]
    fn a_beat_that_takes_long_is_followed_by_a_shorter_rest() {
        for (took, expected) in [(0, 100), (40, 60), (75, 25), (90, 25), (1_000, 25)] {
            assert_eq!(rest(millis(100), millis(took)), millis(expected), "{took}");
        }
    }

    #[test]
    fn beats_may_be_half_a_lease_apart_unless_the_death_of_a_short_lease_is_to_be_proven() {
        let usual = NodeOptions::default();
        assert_eq!(gap(&usual, None), millis(15_000));
        assert_eq!(gap(&usual, Some(millis(1_000))), millis(1_000));
        assert_eq!(gap(&usual, Some(millis(20_000))), millis(15_000));
        let seldom = options(|node| node.beat = millis(10_000));
        assert_eq!(gap(&seldom, None), millis(20_000), "a beat may be late by one interval");
    }
}
