//! The turnover of a queue: how many jobs may be claimed ahead, before there is a slot for them. Pure: the time is an
//! argument.

use std::time::Duration;

use tokio::time::Instant;

/// The time for which jobs are claimed ahead: as many as will have ended within it, as far as can be foreseen. It is
/// long enough for a claim to be shared by many jobs, and short enough that other nodes do not miss them.
const AHEAD: Duration = Duration::from_millis(100);

/// The most jobs that are claimed ahead: enough for a claim to go on while the jobs of the one before it are read, run
/// and recorded. More gain nothing on any database that was measured.
const MAX_AHEAD: usize = 2_000;

/// The time for which nothing is claimed ahead after a job waited in vain for its slot: some bodies of this queue are
/// slow, and the number of jobs that ended says little about when the next slot is free.
const DISTRUST: Duration = Duration::from_secs(10);

/// How long a job that was claimed ahead waits for its slot, before it is handed back for others to run: it was meant
/// to start within [`AHEAD`]. While it waits here, no other node can run it, and if this node dies, it waits for a
/// lease and counts as crashed.
pub(crate) fn longest_wait(lease: Duration) -> Duration {
    (lease / 10).clamp(AHEAD * 2, AHEAD * 10)
}

/// The rate at which jobs are claimed, run and recorded.
#[derive(Debug)]
pub(crate) struct Turnover {
    /// When it was measured last.
    since: Instant,
    /// How many jobs had ended by then.
    gone: usize,
    ahead: usize,
    /// The time until which nothing is claimed ahead.
    distrusted_until: Instant,
}

impl Turnover {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, gone: 0, ahead: 0, distrusted_until: now }
    }

    /// Stops claiming ahead for a while, because a job that was claimed ahead waited for too long.
    pub(crate) fn distrust(&mut self, now: Instant) {
        (self.ahead, self.distrusted_until) = (0, now + DISTRUST);
    }

    /// How many may be claimed ahead: as many as end within [`AHEAD`], where `gone` have ended in total. A rise counts
    /// at once, a fall gradually: outcomes are recorded in batches, and there may be none in a short while.
    pub(crate) fn ahead(&mut self, gone: usize, now: Instant) -> usize {
        let elapsed = now.saturating_duration_since(self.since);
        if now < self.distrusted_until {
            (self.since, self.gone) = (now, gone);
        } else if elapsed >= AHEAD {
            let share = AHEAD.div_duration_f64(elapsed);
            let went = (gone - self.gone) as f64 * share;
            let faded = self.ahead as f64 * share / 2.0;
            self.ahead = (went.max(faded) as usize).min(MAX_AHEAD);
            (self.since, self.gone) = (now, gone);
        }
        self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are claimed ahead after each step, which is a number of milliseconds and of jobs that ended in them.
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
        assert_eq!(ahead([(100, 100_000)]), [MAX_AHEAD]);
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
