//! How many jobs may be claimed before there is a slot for them. Pure: the time is told, never read.

use std::time::Duration;

use tokio::time::Instant;

/// A job is claimed no sooner than so long before it will have gone, as far as can be foreseen: long enough for a claim
/// to be shared by many jobs, short enough that nobody misses them elsewhere.
const AHEAD: Duration = Duration::from_millis(100);

/// The most jobs that are claimed ahead: so many that a claim goes on while the jobs of the one before it are read, run and
/// recorded. More buy nothing on any database that was measured.
const MOST: usize = 2_000;

/// For so long nothing is claimed ahead after jobs waited in vain: some bodies of this queue are slow, and how many jobs
/// went says little about when the next slot is free.
const DISTRUST: Duration = Duration::from_secs(10);

/// How long a job that was claimed ahead waits for its slot, before it goes back for others to run: it was meant to
/// start within [`AHEAD`]. While it waits here, nobody else can run it, and if this node dies, it waits for a lease
/// and counts as crashed.
pub(crate) fn longest_wait(lease: Duration) -> Duration {
    (lease / 10).clamp(AHEAD * 2, AHEAD * 10)
}

/// How fast jobs go: claimed, run and recorded.
#[derive(Debug)]
pub(crate) struct Turnover {
    /// When it was counted last.
    since: Instant,
    /// How many had gone by then.
    gone: usize,
    ahead: usize,
    /// Until then nothing is claimed ahead.
    distrusted_until: Instant,
}

impl Turnover {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, gone: 0, ahead: 0, distrusted_until: now }
    }

    /// A job that was claimed ahead waited for too long.
    pub(crate) fn distrust(&mut self, now: Instant) {
        (self.ahead, self.distrusted_until) = (0, now + DISTRUST);
    }

    /// As many as go in that time, now that so many have gone ever. More is believed at once, less by and by: outcomes
    /// are recorded in batches, and there may be none in a short while.
    pub(crate) fn ahead(&mut self, gone: usize, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.since);
        if now < self.distrusted_until {
            (self.since, self.gone) = (now, gone);
        } else if elapsed >= AHEAD {
            let share = AHEAD.div_duration_f64(elapsed);
            let went = (gone - self.gone) as f64 * share;
            let faded = self.ahead as f64 * share / 2.0;
            self.ahead = (went.max(faded) as usize).min(MOST);
            (self.since, self.gone) = (now, gone);
        }
        self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is claimed ahead after each step: so many milliseconds, in which so many jobs went.
    fn ahead<const N: usize>(steps: [(u64, usize); N]) -> [usize; N] {
        let (mut now, mut gone) = (Instant::now(), 0);
        let mut turnover = Turnover::new(now);
        steps.map(|(millis, went)| {
            now += Duration::from_millis(millis);
            gone += went;
            turnover.ahead(gone, now)
        })
    }

    #[test]
    fn slow_jobs_are_not_claimed_before_there_is_a_slot() {
        assert_eq!(ahead([(100, 0), (1_000, 9), (10_000, 99)]), [0, 0, 0]);
    }

    #[test]
    fn as_many_as_go_in_a_tenth_of_a_second() {
        assert_eq!(ahead([(100, 100), (200, 200), (1_000, 5_000)]), [100, 100, 500]);
        assert_eq!(ahead([(100, 100_000)]), [MOST]);
    }

    #[test]
    fn nothing_is_learned_from_a_moment() {
        assert_eq!(ahead([(0, 100), (99, 100), (1, 0)]), [0, 0, 200]);
    }

    #[test]
    fn nothing_is_claimed_ahead_for_a_while_after_jobs_waited_in_vain() {
        let begun = Instant::now();
        let mut turnover = Turnover::new(begun);
        assert_eq!(turnover.ahead(100, begun + AHEAD), 100);
        turnover.distrust(begun + AHEAD);
        assert_eq!(turnover.ahead(100, begun + AHEAD), 0);
        let end = begun + AHEAD + DISTRUST;
        assert_eq!(turnover.ahead(900, end - AHEAD), 0);
        assert_eq!(turnover.ahead(950, end), 50, "only what went since then counts");
    }

    #[test]
    fn a_short_lease_makes_the_wait_short() {
        let wait = |lease| longest_wait(Duration::from_secs(lease)).as_millis();
        assert_eq!([1, 2, 5, 10, 30, 3_600].map(wait), [200, 200, 500, 1_000, 1_000, 1_000]);
    }

    #[test]
    fn a_pause_halves_it_and_a_long_one_forgets_it() {
        assert_eq!(ahead([(100, 400), (100, 0), (100, 0), (100, 300)]), [400, 200, 100, 300]);
        assert_eq!(ahead([(100, 400), (60_000, 0)]), [400, 0]);
    }
}
