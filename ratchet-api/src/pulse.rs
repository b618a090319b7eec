//! The proof that a silent node is dead. Pure.
//!
//! An expired lease proves nothing by itself: after an outage of the database, or a step of its clock, every lease has
//! expired at once. A death is proven if the database was reachable for a whole lease of that node, and the node did
//! not beat. It does not matter which nodes reached it: the proof belongs to the cluster, so that it also holds where
//! no node lives for long.

use std::time::Duration;

use crate::{Owner, Timestamp};

/// The beats of one node, as the others see them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pulse {
    /// The owner that beats.
    pub owner: Owner,
    /// The start of the present span of beats without a gap. A beat that comes late or by an earlier clock starts a new
    /// span.
    pub since: Timestamp,
    /// When it last beat.
    pub last: Timestamp,
    /// An upper bound for the time between two beats of that span.
    pub gap: Duration,
    /// How long it counts as alive after a beat.
    pub lease: Duration,
    /// Its jobs were taken over before: it can only join anew.
    pub reaped: bool,
}

impl Pulse {
    /// Creates the beats of a node that joined at `now`.
    pub const fn joined(owner: Owner, now: Timestamp, lease: Duration) -> Self {
        Self { owner, since: now, last: now, gap: Duration::ZERO, lease, reaped: false }
    }

    /// Creates the beats of a node whose record cannot be read: its last beat lies at the beginning of time, which
    /// proves nothing, and its own death is proven like that of a node with this lease.
    pub fn unreadable(owner: Owner, lease: Duration) -> Self {
        Self::joined(owner, Timestamp::MIN, lease)
    }

    fn is_alive(&self, now: Timestamp) -> bool {
        !self.reaped && self.last <= now && self.last + self.lease > now
    }
}

/// The verdict on a node whose lease has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its jobs may be taken over.
    Proven,
    /// It is not known yet whether the node could have reached the database. Beats of other nodes at least this often,
    /// for one lease of that node, decide it.
    Unproven {
        /// The longest time between two beats that still counts as proof.
        gap: Duration,
    },
}

/// Decides by the beats of all nodes whether `silent`, whose lease has run out at `now`, is dead.
///
/// The spans of beats of all nodes, joined, must reach back from `now` for a whole lease of `silent`, without a hole
/// longer than half of the shortest lease among `silent` and the live nodes. Beats later than `now` prove nothing: the
/// clock went back.
pub fn death(silent: &Owner, pulses: &[Pulse], now: Timestamp) -> Death {
    let found = pulses.iter().find(|pulse| pulse.owner == *silent && !pulse.reaped);
    // A node that was reaped or is unknown cannot come back: its next beat is refused.
    let Some(silent) = found else { return Death::Proven };
    let alive = pulses.iter().filter(|pulse| pulse.is_alive(now)).map(|pulse| pulse.lease);
    let gap = alive.fold(silent.lease, Duration::min) / 2;
    let mut spans: Vec<_> = pulses.iter().filter(|pulse| pulse.gap <= gap && pulse.last <= now).collect();
    spans.sort_unstable_by_key(|pulse| std::cmp::Reverse(pulse.last));
    let reached = spans.into_iter().try_fold(now, |reached, span| match reached.since(span.last) > gap {
        true => Err(reached),
        false => Ok(reached.min(span.since)),
    });
    let (Ok(reached) | Err(reached)) = reached;
    if now.since(reached) >= silent.lease { Death::Proven } else { Death::Unproven { gap } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The silent node.
    const X: &str = "x";

    /// Beats of a node: first beat, last beat, gap and lease, in milliseconds.
    fn pulse(name: &str, since: i64, last: i64, gap: u64, lease: u64) -> Pulse {
        let (since, last) = (Timestamp::from_millis(since), Timestamp::from_millis(last));
        let (gap, lease) = (Duration::from_millis(gap), Duration::from_millis(lease));
        Pulse { since, last, gap, ..Pulse::joined(owner(name), last, lease) }
    }

    fn owner(name: &str) -> Owner {
        Owner::try_from(format!("{name}/{:0>32}", 0)).expect("an owner")
    }

    fn is_dead(now: i64, pulses: &[Pulse]) -> bool {
        death(&owner(X), pulses, Timestamp::from_millis(now)) == Death::Proven
    }

    /// Short leases of 2 s with beats every 400 ms, long ones of 300 s with beats every minute.
    const SHORT: (u64, u64) = (800, 2_000);
    const LONG: (u64, u64) = (120_000, 300_000);

    fn short(name: &str, since: i64, last: i64) -> Pulse {
        pulse(name, since, last, SHORT.0, SHORT.1)
    }

    fn long(name: &str, since: i64, last: i64) -> Pulse {
        pulse(name, since, last, LONG.0, LONG.1)
    }

    #[test]
    fn a_death_is_proven_by_what_others_did_for_a_whole_lease() {
        let table: &[(&str, bool, i64, Vec<Pulse>)] = &[
            ("another beat all the time", true, 12_000, vec![short(X, 0, 10_000), short("a", 0, 12_000)]),
            ("from when X fell silent", true, 12_000, vec![short(X, 0, 10_000), short("a", 10_000, 12_000)]),
            ("a millisecond less", false, 12_000, vec![short(X, 0, 9_000), short("a", 10_001, 12_000)]),
            (
                "a record from the future shortens nobody's gap",
                true,
                12_000,
                vec![short(X, 0, 10_000), short("a", 0, 12_000), pulse("b", 0, 99_000, 0, 0)],
            ),
            ("X alone cannot prove it", false, 12_000, vec![short(X, 0, 10_000)]),
            (
                "after an outage nobody knows",
                false,
                99_000,
                vec![short(X, 0, 10_000), short("a", 99_000, 99_000), short("b", 0, 10_400)],
            ),
            (
                "nor shortly after it",
                false,
                100_999,
                vec![short(X, 0, 10_000), short("a", 99_000, 100_999), short("b", 0, 10_400)],
            ),
            (
                "but after a whole lease",
                true,
                101_000,
                vec![short(X, 0, 10_000), short("a", 99_000, 101_000), short("b", 0, 10_400)],
            ),
            (
                "an outage that ended inside the lease",
                false,
                12_000,
                vec![short(X, 0, 10_000), short("a", 0, 10_200), short("b", 11_201, 12_000)],
            ),
            (
                "a hole of half a lease is none",
                true,
                12_000,
                vec![short(X, 0, 10_000), short("a", 0, 10_200), short("b", 11_200, 12_000)],
            ),
            (
                "nodes that each live for 1.7 s",
                true,
                12_000,
                vec![
                    short(X, 8_300, 9_900),
                    short("a", 9_000, 10_500),
                    short("b", 10_700, 11_100),
                    short("c", 11_900, 12_000),
                ],
            ),
            (
                "and the same with an outage between them",
                false,
                12_000,
                vec![short(X, 8_300, 9_900), short("a", 9_000, 10_500), short("c", 11_900, 12_000)],
            ),
            (
                "order does not matter",
                true,
                12_000,
                vec![
                    short("c", 11_900, 12_000),
                    short("a", 9_000, 10_500),
                    short(X, 8_300, 9_900),
                    short("b", 10_700, 11_100),
                ],
            ),
            (
                "a short span inside a long one hides nothing",
                true,
                12_000,
                vec![short(X, 0, 9_900), short("a", 9_000, 11_900), short("b", 11_000, 11_500)],
            ),
        ];
        check(table);
    }

    #[test]
    fn with_mixed_leases_the_shortest_says_what_a_hole_is() {
        let table: &[(&str, bool, i64, Vec<Pulse>)] = &[
            (
                "a beat a minute says nothing about the seconds between",
                false,
                70_000,
                vec![short(X, 0, 10_000), long("a", 0, 70_000)],
            ),
            (
                "unless it beats more often for as long as it takes",
                true,
                72_000,
                vec![short(X, 0, 10_000), pulse("a", 70_000, 72_000, 1_000, LONG.1)],
            ),
            (
                "long leases among themselves",
                true,
                900_000,
                vec![long(X, 0, 600_000), long("a", 600_000, 900_000)],
            ),
            (
                "a short lease lives: an outage of 2 s is a hole for all",
                false,
                900_000,
                vec![
                    long(X, 0, 600_000),
                    short("a", 0, 700_000),
                    short("b", 702_000, 900_000),
                    long("c", 0, 900_000),
                ],
            ),
            (
                "who lives with a short lease can prove the death of a long one",
                true,
                900_000,
                vec![long(X, 0, 600_000), short("a", 600_000, 900_000), long("c", 0, 890_000)],
            ),
            (
                "short leases that are dead do not matter to long ones",
                true,
                900_000,
                vec![long(X, 0, 600_000), short("a", 0, 10_000), long("c", 600_000, 890_000)],
            ),
            (
                "after an outage: a long one is back first, and robs no short one",
                false,
                200_000,
                vec![short(X, 0, 10_000), long("a", 0, 200_000)],
            ),
            (
                "after an outage: short ones are back first, and rob no long one",
                false,
                520_000,
                vec![long(X, 0, 10_000), short("a", 500_000, 520_000), short("b", 500_100, 519_900)],
            ),
        ];
        check(table);
    }

    #[test]
    fn a_clock_that_steps_kills_nobody() {
        const HOUR: i64 = 3_600_000;
        let table: &[(&str, bool, i64, Vec<Pulse>)] = &[
            (
                "an hour ahead: every lease is over, and there is a hole",
                false,
                HOUR,
                vec![short(X, 0, 10_000), short("a", HOUR, HOUR), short("b", 0, 10_100)],
            ),
            (
                "an hour back: what others did then was in another time",
                false,
                20_000,
                vec![short(X, 0, 10_000), short("a", 20_000, 20_000), short("b", 0, HOUR)],
            ),
            (
                "and a lease later there is proof again",
                true,
                22_000,
                vec![short(X, 0, 10_000), short("a", 20_000, 22_000), short("b", 0, HOUR)],
            ),
        ];
        check(table);
    }

    fn check(table: &[(&str, bool, i64, Vec<Pulse>)]) {
        for (what, expected, now, pulses) in table {
            assert_eq!(is_dead(*now, pulses), *expected, "{what}");
        }
    }

    #[test]
    fn whoever_cannot_come_back_needs_no_proof() {
        let mut reaped = short(X, 0, 10_000);
        reaped.reaped = true;
        assert!(is_dead(99_000, &[reaped, short("a", 99_000, 99_000)]), "it was reaped before");
        assert!(is_dead(99_000, &[short("a", 99_000, 99_000)]), "it has no row");
    }

    #[test]
    fn an_unproven_death_says_how_often_to_beat() {
        let unproven = |pulses: &[Pulse]| death(&owner(X), pulses, Timestamp::from_millis(70_000));
        let gap = |millis| Death::Unproven { gap: Duration::from_millis(millis) };
        assert_eq!(unproven(&[short(X, 0, 10_000), long("a", 0, 70_000)]), gap(1_000));
        let quicker = pulse("b", 70_000, 70_000, 100, 1_000);
        assert_eq!(unproven(&[short(X, 0, 10_000), long("a", 0, 70_000), quicker]), gap(500));
    }
}
