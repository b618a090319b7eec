//! Stopping in good order: nothing new is taken, what runs may end.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How far a node is with stopping.
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
    /// It takes nothing new and waits for what runs.
    Draining,
    /// It has stopped.
    Stopped,
}

impl Readiness {
    /// What a readiness probe answers: whether the node takes work.
    pub const fn takes_work(self) -> bool {
        matches!(self, Self::Ready | Self::Degraded)
    }
}

/// Steers and tells how far a node is.
pub(crate) struct Drain {
    readiness: watch::Sender<Readiness>,
    /// Set when bodies are told to end, because the deadline is near.
    pub(crate) closing: CancellationToken,
    /// Set when nobody wants to wait for bodies.
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
    /// Goes on to `next`; never back.
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

    /// For whoever has to know when it begins to drain.
    pub(crate) fn watch(&self) -> Draining {
        Draining(self.readiness.subscribe())
    }

    pub(crate) fn takes_work(&self) -> bool {
        self.readiness() <= Readiness::Ready
    }

    /// Completes once nothing new is to be taken.
    pub(crate) async fn begun(&self) {
        self.watch().begun().await;
    }
}

/// Knows whether a node drains.
#[derive(Clone)]
pub(crate) struct Draining(watch::Receiver<Readiness>);

impl Draining {
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow() >= Readiness::Draining
    }

    /// Completes once nothing new is to be taken; also when the node is gone.
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
