//! Graceful shutdown: no new job is taken, and running jobs may end.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The stage of a node between its start and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Readiness {
    /// It has not begun yet, or its lease was lost and it joins the cluster anew.
    Starting,
    /// It takes work.
    Ready,
    /// It would take work, but the store does not let it: claims fail, or outcomes wait because it does not record them.
    /// The log says why. Once as many outcomes wait as there are slots, nothing more is claimed.
    Degraded,
    /// It takes no new jobs and waits for those that run.
    Draining,
    /// It has stopped.
    Stopped,
}

impl Readiness {
    /// Whether the node takes work, which is the answer of a readiness probe.
    pub const fn takes_work(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }
}

/// The state of a node's shutdown.
pub(crate) struct Drain {
    readiness: watch::Sender<Readiness>,
    /// Set when bodies are told to stop, because the deadline is near.
    pub(crate) closing: CancellationToken,
    /// Set when the shutdown is not to wait for bodies any more.
    pub(crate) hurry: CancellationToken,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            readiness: watch::Sender::new(Readiness::Starting),
            closing: CancellationToken::new(),
            hurry: CancellationToken::new(),
        }
    }
}

impl Drain {
    /// Advances to `next`; never goes back.
    pub(crate) fn advance(&self, next: Readiness) {
        self.readiness.send_if_modified(|now| {
            let later = next > *now;
            if later {
                *now = next;
            }
            later
        });
    }

    pub(crate) fn readiness(&self) -> Readiness {
        *self.readiness.borrow()
    }

    /// A watch on the beginning of the drain.
    pub(crate) fn watch(&self) -> Draining {
        Draining(self.readiness.subscribe())
    }

    pub(crate) fn takes_work(&self) -> bool {
        self.readiness() <= Readiness::Ready
    }

    /// Completes once the node takes no new jobs.
    pub(crate) async fn begun(&self) {
        self.watch().begun().await;
    }
}

/// A watch on whether a node drains.
#[derive(Clone)]
pub(crate) struct Draining(watch::Receiver<Readiness>);

impl Draining {
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow() >= Readiness::Draining
    }

    /// Completes once the node takes no new jobs; also when it is gone.
    pub(crate) async fn begun(mut self) {
        let _ = self.0.wait_for(|now| *now >= Readiness::Draining).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // shows: S64
    #[tokio::test]
    async fn a_node_never_goes_back_to_an_earlier_stage() {
        let drain = Drain::default();
        drain.advance(Readiness::Ready);
        assert!(drain.takes_work());
        drain.advance(Readiness::Draining);
        drain.begun().await;
        drain.advance(Readiness::Ready);
        assert_eq!(drain.readiness(), Readiness::Draining);
        assert!(!drain.takes_work());
    }

    #[test]
    fn a_probe_passes_while_work_is_taken() {
        use Readiness::{Degraded, Draining, Ready, Starting, Stopped};
        assert_eq!([Ready, Degraded].map(Readiness::takes_work), [true; 2]);
        assert_eq!([Starting, Draining, Stopped].map(Readiness::takes_work), [false; 3]);
    }
}
