//! Several nodes that claim from one queue at once: without this, all of them would update the same heads.
//!
//! While nobody else is there, a claim takes exactly the best jobs. One that lost a job to another node divides the next
//! ones: of more heads than it wants, and of the same effective priority, it prefers those whose id falls to its node among
//! the live ones. So no job is overtaken by a less important one.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ratchet_api::{JobId, Owner};

/// For so many claims after a lost job.
const CLAIMS: u32 = 64;
/// One claim in so many takes the best of all, so that no share waits for a node that takes none.
const EXACT: u32 = 8;
/// No more heads of a priority are read than this, unless that many are wanted.
const MOST_HEADS: usize = 2_000;

/// Whether other nodes were taking the same jobs lately.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    claims_left: AtomicU32,
    nodes: AtomicUsize,
}

impl Contention {
    /// A job was lost to another node.
    pub(super) fn met(&self) {
        self.claims_left.store(CLAIMS, Ordering::Relaxed);
    }

    /// How many nodes the next claim divides the heads between, as far as is known; `None` if it takes the best.
    pub(super) fn divide(&self) -> Option<usize> {
        let less = |left: u32| left.checked_sub(1);
        let left = self.claims_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        (left % EXACT != 0).then(|| self.nodes.load(Ordering::Relaxed).max(2))
    }

    /// The share of one of these live nodes.
    pub(super) fn share(&self, mut nodes: Vec<String>, owner: &Owner) -> Share {
        nodes.sort();
        self.nodes.store(nodes.len(), Ordering::Relaxed);
        let place = nodes.iter().position(|node| node == owner.as_str());
        place.map_or(Share::EVERYTHING, |place| Share { nodes: nodes.len(), place })
    }
}

/// How many heads to read for so many jobs: shares are not equal, so a little more than all nodes would take.
pub(super) fn heads(wanted: usize, nodes: Option<usize>) -> usize {
    nodes.map_or(wanted, |nodes| wanted.saturating_mul(nodes + 2).min(MOST_HEADS.max(wanted)))
}

/// The jobs that fall to one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    nodes: usize,
    place: usize,
}

impl Share {
    pub(super) const EVERYTHING: Self = Self { nodes: 1, place: 0 };

    /// Ids end in random bytes.
    pub(super) fn has(self, job: JobId) -> bool {
        let bytes = job.as_uuid().into_bytes();
        usize::from(u16::from_be_bytes([bytes[14], bytes[15]])) % self.nodes == self.place
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
    fn every_job_falls_to_one_of_the_nodes() {
        let contention = Contention::default();
        let owners: Vec<Owner> = ["a", "b", "c"].map(Owner::incarnate).to_vec();
        let nodes: Vec<String> = owners.iter().map(ToString::to_string).collect();
        let shares: Vec<Share> = owners.iter().map(|owner| contention.share(nodes.clone(), owner)).collect();
        for job in std::iter::repeat_with(JobId::generate).take(100) {
            assert_eq!(shares.iter().filter(|share| share.has(job)).count(), 1);
        }
        let stranger = contention.share(nodes, &Owner::incarnate("d"));
        assert!(stranger.has(JobId::generate()));
    }
}
