//! The backlog that a claim has to search: the same jobs for the same sizes.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ratchet_api::{JobId, JobPriority, Timestamp};
use uuid::Uuid;

/// The wait after which the priority rises by one.
pub(crate) const BOOST: Duration = Duration::from_secs(15 * 60);
/// The queues, and how many of ten jobs are in each.
pub(crate) const QUEUES: [(&str, usize); 3] = [("default", 6), ("mail", 3), ("reports", 1)];

/// Of ten jobs, how many have each priority.
const PRIORITIES: [usize; 5] = [1, 2, 4, 2, 1];
/// The age of the oldest: enough for the lowest priority to overtake the youngest of the highest.
const OLDEST: Duration = Duration::from_secs(3 * 3600);
const FARTHEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// The numbers of jobs of each kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    pub(crate) now: Timestamp,
    pub(crate) due: usize,
    pub(crate) future: usize,
    /// Jobs that must not be claimed: half of them paused, half blocked, all of them past due.
    pub(crate) held: usize,
}

/// A job of the backlog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) id: JobId,
    pub(crate) queue: &'static str,
    pub(crate) priority: JobPriority,
    pub(crate) due: Timestamp,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Paused,
    Blocked,
}

impl Backlog {
    pub(crate) fn len(&self) -> usize {
        self.due + self.future + self.held
    }

    /// Every job, in the order of the ids, all kinds mixed.
    pub(crate) fn rows(self) -> impl Iterator<Item = Row> {
        let mut random = StdRng::seed_from_u64(self.len() as u64);
        let first = self.now.as_millis() - self.len() as i64;
        let (mut due, mut future, mut held) = (self.due, self.future, self.held);
        (0..self.len()).map(move |at| {
            let kind = random.random_range(0..due + future + held);
            let (state, time) = if kind < due {
                due -= 1;
                (State::Pending, past(self.now, &mut random))
            } else if kind < due + future {
                future -= 1;
                let ahead = random.random_range(1..FARTHEST.as_millis() as u64);
                (State::Pending, self.now + Duration::from_millis(ahead))
            } else {
                held -= 1;
                let state = if held % 2 == 0 { State::Paused } else { State::Blocked };
                (state, past(self.now, &mut random))
            };
            Row {
                id: id(first + at as i64, random.random()),
                queue: QUEUES[pick(&mut random, QUEUES.map(|(_, share)| share))].0,
                priority: JobPriority::ALL[pick(&mut random, PRIORITIES)],
                due: time,
                state,
            }
        })
    }

    /// The best jobs of a queue by the literal rule: all due ones, sorted.
    pub(crate) fn best(self, queue: &str, limit: usize) -> Vec<JobId> {
        let claimable = |row: &Row| row.queue == queue && row.state == State::Pending && row.due <= self.now;
        let rank = |row: &Row| {
            let boosted = row.priority.boosted(self.now.since(row.due), Some(BOOST));
            (std::cmp::Reverse(boosted), row.due, row.id)
        };
        let mut rows: Vec<Row> = self.rows().filter(claimable).collect();
        rows.sort_by_key(rank);
        rows.into_iter().take(limit).map(|row| row.id).collect()
    }
}

/// A past time. One in four is at a full minute, so that times tie and ids decide.
fn past(now: Timestamp, random: &mut StdRng) -> Timestamp {
    const MINUTE: u64 = 60_000;
    let age: u64 = random.random_range(0..OLDEST.as_millis() as u64);
    let age = if random.random_range(0..4) == 0 { age / MINUTE * MINUTE } else { age };
    Timestamp::from_millis(now.as_millis() - age as i64)
}

/// An index, drawn by its share of ten.
fn pick<const N: usize>(random: &mut StdRng, shares: [usize; N]) -> usize {
    let mut left = random.random_range(0..10);
    shares
        .iter()
        .position(|share| {
            left < *share || {
                left -= share;
                false
            }
        })
        .unwrap_or_default()
}

/// A UUIDv7 of this millisecond.
fn id(millis: i64, random: u128) -> JobId {
    const VERSION: u128 = 0x7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    const RANDOM: u128 = (0xfff << 64) | ((1 << 62) - 1);
    JobId::from_uuid(Uuid::from_u128((millis as u128) << 80 | VERSION | VARIANT | random & RANDOM))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog() -> Backlog {
        Backlog { now: Timestamp::from_millis(1_800_000_000_000), due: 1_000, future: 1_000, held: 200 }
    }

    #[test]
    fn the_same_sizes_give_the_same_jobs_in_the_order_of_their_ids() {
        let ids = || backlog().rows().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(), ids());
        assert!(ids().is_sorted());
    }

    #[test]
    fn every_kind_is_as_frequent_as_asked() {
        let count = |wanted: fn(&Row) -> bool| backlog().rows().filter(wanted).count();
        assert_eq!(count(|row| row.state == State::Paused), 100);
        assert_eq!(count(|row| row.state == State::Blocked), 100);
        assert_eq!(count(|row| row.state == State::Pending && row.due <= backlog().now), 1_000);
        assert!(count(|row| row.queue == "default") > count(|row| row.queue == "reports"));
    }

    #[test]
    fn age_lets_low_priorities_overtake() {
        let best = backlog().best("default", 100);
        let priorities: Vec<_> =
            best.iter().map(|id| backlog().rows().find(|row| row.id == *id).unwrap().priority).collect();
        assert!(!priorities.is_sorted_by(|a, b| a >= b), "{priorities:?}");
    }
}
