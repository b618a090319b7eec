//! The lease of this node: how long it counts as alive, as far as it can know by itself.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ratchet_api::Owner;
use tokio_util::sync::CancellationToken;

use crate::running::RunningJobs;

/// The lease of one life of this node. It is checked before every write: after a freeze nothing else may have noticed
/// yet that it has ended.
pub(crate) struct Lease {
    owner: Owner,
    length: Duration,
    /// When the last accepted beat was sent: the database counts from when it saw it, which was later.
    renewed: Mutex<Instant>,
    running: RunningJobs,
    lost: CancellationToken,
}

impl Lease {
    /// A lease that was asked for at `sent`.
    pub(crate) fn new(owner: Owner, length: Duration, sent: Instant, running: RunningJobs) -> Self {
        Self { owner, length, renewed: Mutex::new(sent), running, lost: CancellationToken::new() }
    }

    /// A lease that never ends by itself, for a node that is stepped from outside.
    pub(crate) fn endless(owner: Owner) -> Self {
        Self::new(owner, Duration::MAX, Instant::now(), RunningJobs::default())
    }

    /// The owner that holds it.
    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether its owner may write. A lease that was lost stays lost.
    pub(crate) fn holds(&self) -> bool {
        if !self.lost.is_cancelled() && self.left(Instant::now()).is_zero() {
            self.lose("no heartbeat was accepted for a whole lease");
        }
        !self.lost.is_cancelled()
    }

    /// How much of it is left.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        self.length.saturating_sub(now.saturating_duration_since(renewed))
    }

    /// Whether a beat was accepted that was sent after `then`. A lease that needs no beats always counts as renewed.
    pub(crate) fn was_renewed_after(&self, then: Instant) -> bool {
        self.length == Duration::MAX || *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) > then
    }

    /// Renews it from `sent`, when the accepted beat was sent. A lease that was lost meanwhile stays lost.
    pub(crate) fn renew(&self, sent: Instant) {
        if self.holds() {
            *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = sent;
        }
    }

    /// Ends the lease. Nothing that this life does can be written any more, so its bodies are stopped.
    pub(crate) fn lose(&self, why: &'static str) {
        if !self.lost.is_cancelled() {
            tracing::error!(node = %self.owner, why, "the lease of this node is lost; its jobs are stopped");
        }
        self.lost.cancel();
        self.running.stop_all();
    }

    /// Completes when it is lost.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use ratchet_api::{Fence, JobId};

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn lease(sent: Instant) -> (Lease, RunningJobs) {
        let running = RunningJobs::default();
        (Lease::new(Owner::incarnate("test"), LEASE, sent, running.clone()), running)
    }

    fn ago(time: Duration) -> Instant {
        Instant::now().checked_sub(time).expect("the machine runs for longer than that")
    }

    #[test]
    fn it_counts_from_when_the_last_accepted_beat_was_sent() {
        let sent = Instant::now();
        let (lease, _) = lease(sent);
        assert_eq!(lease.left(sent), LEASE);
        let later = sent + LEASE / 2;
        assert_eq!(lease.left(later), LEASE / 2);
        lease.renew(later);
        assert_eq!(lease.left(later), LEASE);
        assert_eq!(lease.left(later + LEASE), Duration::ZERO);
        assert!(lease.was_renewed_after(sent) && !lease.was_renewed_after(later));
        assert!(Lease::endless(Owner::incarnate("test")).was_renewed_after(later));
    }

    #[test]
    fn whoever_asks_first_after_a_freeze_stops_every_body() {
        let (lease, running) = lease(ago(LEASE));
        let body = running.begin(JobId::generate(), Fence::FIRST);
        assert!(!lease.holds());
        assert!(body.token.is_cancelled());
        assert!(lease.lost().now_or_never().is_some());
    }

    #[test]
    fn a_beat_that_is_accepted_too_late_does_not_bring_it_back() {
        let (lease, _) = lease(ago(LEASE));
        lease.renew(Instant::now());
        assert!(!lease.holds());
    }

    #[test]
    fn what_was_lost_stays_lost() {
        let (lease, running) = lease(Instant::now());
        let body = running.begin(JobId::generate(), Fence::FIRST);
        assert!(lease.holds() && !body.token.is_cancelled());
        lease.lose("told so");
        lease.renew(Instant::now());
        assert!(!lease.holds() && body.token.is_cancelled());
    }
}
