//! Contention between nodes that claim from one queue at once: without this, all of them would update the same heads.
//!
//! While no other node competes, a claim takes exactly the best jobs. After a node loses a job to another one, it
//! divides the next heads: it reads more of them than it wants, and within one effective priority prefers those whose
//! id falls to it among the live nodes. So no job is overtaken by a less important one.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ratchet_api::{JobId, Owner};

/// The number of claims that are divided after a lost job.
const CLAIMS: u32 = 64;
/// One divided claim in so many takes the best of all, so that no share waits for a node that takes none. Such a claim
/// of many jobs conflicts with those of the other nodes almost certainly.
const EXACT: u32 = 32;
/// The most heads of a priority that are read, unless more are wanted.
const MAX_HEADS: usize = 2_000;

/// Whether other nodes took the same jobs recently.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    claims_left: AtomicU32,
    /// Every claim that was to be divided.
    divided: AtomicU32,
    nodes: AtomicUsize,
}

impl Contention {
    /// Records that a job was lost to another node.
    pub(super) fn met(&self) {
        self.claims_left.store(CLAIMS, Ordering::Relaxed);
    }

    /// The number of nodes that share the next claim's heads, as far as known; `None` if it takes the best.
    pub(super) fn divide(&self) -> Option<usize> {
        let less = |left: u32| left.checked_sub(1);
        self.claims_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        let is_exact = self.divided.fetch_add(1, Ordering::Relaxed) % EXACT == EXACT - 1;
        (!is_exact).then(|| self.nodes.load(Ordering::Relaxed).max(2))
    }

    /// The share of `owner` among these live nodes.
    pub(super) fn share(&self, mut nodes: Vec<String>, owner: &Owner) -> Share {
        nodes.sort();
        self.nodes.store(nodes.len(), Ordering::Relaxed);
        let place = nodes.iter().position(|node| node == owner.as_str());
        place.map_or(Share::EVERYTHING, |place| Share { nodes: nodes.len(), place })
    }
}

/// The number of heads to read. Shares are uneven: with four standard deviations more than its share, a node finds enough
/// jobs of its own almost always.
pub(super) fn heads(wanted: usize, nodes: Option<usize>) -> usize {
    let share = wanted.saturating_add(4 * wanted.isqrt());
    nodes.map_or(wanted, |nodes| share.saturating_mul(nodes).min(MAX_HEADS.max(wanted)))
}

/// The subset of jobs that falls to one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    nodes: usize,
    place: usize,
}

impl Share {
    pub(super) const EVERYTHING: Self = Self { nodes: 1, place: 0 };

    /// How far the job's share is from this one: 0 if it falls to this share. Ids end in random bytes.
    pub(super) fn distance(self, job: JobId) -> usize {
        let bytes = job.as_uuid().into_bytes();
        let share = usize::from(u16::from_be_bytes([bytes[14], bytes[15]])) % self.nodes;
        (share + self.nodes - self.place) % self.nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_claimer_divides_nothing_and_one_that_lost_divides_for_a_while() {
        let contention = Contention::default();
        assert_eq!(contention.divide(), None);
        contention.met();
        let divided = (0..CLAIMS).filter(|_| contention.divide().is_some()).count();
        assert_eq!(divided, (CLAIMS - CLAIMS / EXACT) as usize);
        assert_eq!(contention.divide(), None);
    }

    #[test]
    fn the_claim_after_a_lost_job_is_divided_however_many_were_lost() {
        let contention = Contention::default();
        let exact = |_| {
            contention.met();
            contention.divide().is_none()
        };
        let exact: Vec<u32> = (1..=2 * EXACT).filter(|claim| exact(*claim)).collect();
        assert_eq!(exact, [EXACT, 2 * EXACT]);
    }

    #[test]
    fn a_divided_claim_reads_enough_heads_for_an_uneven_share() {
        let table =
            [(1, None, 1), (1, Some(8), 40), (10, Some(8), 176), (50, Some(8), 624), (2_500, Some(8), 2_500)];
        for (wanted, nodes, expected) in table {
            assert_eq!(heads(wanted, nodes), expected, "{wanted} {nodes:?}");
        }
    }

    #[test]
    fn every_job_falls_to_one_of_the_nodes() {
        let contention = Contention::default();
        let owners: Vec<Owner> = ["a", "b", "c"].map(Owner::incarnate).to_vec();
        let nodes: Vec<String> = owners.iter().map(ToString::to_string).collect();
        let shares: Vec<Share> = owners.iter().map(|owner| contention.share(nodes.clone(), owner)).collect();
        for job in std::iter::repeat_with(JobId::generate).take(100) {
            let mut distances: Vec<_> = shares.iter().map(|share| share.distance(job)).collect();
            distances.sort_unstable();
            assert_eq!(distances, [0, 1, 2], "each node prefers another share after its own");
        }
        let stranger = contention.share(nodes, &Owner::incarnate("d"));
        assert_eq!(stranger.distance(JobId::generate()), 0);
    }
}
