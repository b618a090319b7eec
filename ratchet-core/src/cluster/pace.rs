//! How often to beat. Pure.

use std::time::Duration;

use ratchet_api::options::NodeOptions;

/// The most of an interval that chance takes off, so that nodes which started together do not beat together.
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

/// The longest time between two beats that is no gap: a beat may be late by one interval. Whoever wants to know whether
/// somebody is dead beats as often as that takes.
pub(crate) fn gap(options: &NodeOptions, wanted: Option<Duration>) -> Duration {
    wanted.map_or(options.beat * 2, |wanted| wanted.min(options.beat * 2))
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
    fn a_beat_may_be_late_by_one_interval_unless_a_death_is_to_be_proven() {
        let usual = NodeOptions::default();
        assert_eq!(gap(&usual, None), millis(12_000));
        assert_eq!(gap(&usual, Some(millis(1_000))), millis(1_000));
        assert_eq!(gap(&usual, Some(millis(15_000))), millis(12_000));
    }
}
