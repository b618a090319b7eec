//! How often to beat, and from when on the others' silence means something. Pure.

use std::time::{Duration, Instant};

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

/// How long the database was seen to be there without a gap.
///
/// After an outage every node looks dead to whoever is back first. Whoever has beaten for a whole lease without a gap knows
/// that the others had their chance to beat as well.
#[derive(Debug, Default)]
pub(crate) struct Streak(Option<(Instant, Instant)>);

impl Streak {
    /// A beat that was sent then was accepted. The one before it must not be longer ago than two intervals.
    pub(crate) fn beaten(&mut self, sent: Instant, options: &NodeOptions) {
        let first = match self.0 {
            Some((first, last)) if sent.saturating_duration_since(last) <= options.beat * 2 => first,
            _ => sent,
        };
        self.0 = Some((first, sent));
    }

    /// A beat failed.
    pub(crate) fn broken(&mut self) {
        self.0 = None;
    }

    /// Whether it is long enough to take over the jobs of the dead.
    pub(crate) fn may_reap(&self, options: &NodeOptions) -> bool {
        self.0.is_some_and(|(first, last)| last.saturating_duration_since(first) >= options.lease)
    }
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
    }

    /// Whether a node may reap after accepted beats at these seconds; a negative number is one that failed.
    fn may_reap(beats: &[i64]) -> bool {
        let (start, options, mut streak) = (Instant::now(), NodeOptions::default(), Streak::default());
        for beat in beats {
            match u64::try_from(*beat) {
                Ok(second) => streak.beaten(start + Duration::from_secs(second), &options),
                Err(_) => streak.broken(),
            }
        }
        streak.may_reap(&options)
    }

    #[test]
    fn only_a_whole_lease_of_beats_without_a_gap_allows_to_reap() {
        assert!(!may_reap(&[]));
        assert!(!may_reap(&[0]));
        assert!(!may_reap(&[0, 6, 12, 18, 24]));
        assert!(may_reap(&[0, 6, 12, 18, 24, 30]));
        assert!(may_reap(&[0, 12, 24, 36]), "a beat may be late by one interval");
        assert!(!may_reap(&[0, 6, 12, 25, 31]), "nobody knows what happened between 12 and 25");
        assert!(!may_reap(&[0, 6, 12, 18, -1, 24, 30]), "the database was not there");
        assert!(!may_reap(&[0, 6, 12, 18, 24, 30, -1]));
        assert!(may_reap(&[0, -1, 6, 12, 18, 24, 30, 36]), "but it is there again");
    }
}
