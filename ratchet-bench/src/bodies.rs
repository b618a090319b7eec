//! Counted bodies: they do nothing, or sleep for a while as if waiting for another service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratchet_core::{InvalidName, JobFailure, Method};
use tokio::sync::Notify;

use crate::job::{Invoice, METHOD};

/// The bodies of the jobs, and their count.
pub(crate) struct Bodies {
    lasts: Duration,
    wanted: usize,
    count: AtomicUsize,
    busy_micros: AtomicU64,
    all: Notify,
}

impl Bodies {
    /// `wanted` bodies, each of which sleeps for `lasts`.
    pub(crate) fn new(lasts: Duration, wanted: usize) -> Self {
        let (count, busy_micros) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { lasts, wanted, count, busy_micros, all: Notify::new() }
    }

    pub(crate) async fn run(&self) {
        if !self.lasts.is_zero() {
            let begun = Instant::now();
            tokio::time::sleep(self.lasts).await;
            self.busy_micros.fetch_add(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.all.notify_one();
        }
    }

    /// Completes when the wanted number of bodies have run.
    pub(crate) async fn ended(&self) {
        self.all.notified().await;
    }

    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The total time of all bodies.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_micros(self.busy_micros.load(Ordering::Relaxed))
    }

    /// A method of this target with these bodies.
    pub(crate) fn method(self: &Arc<Self>, target: &str) -> Result<Method, InvalidName> {
        let bodies = Arc::clone(self);
        Method::function(target, METHOD, move |_, (_,): (Invoice,)| {
            let bodies = Arc::clone(&bodies);
            async move {
                bodies.run().await;
                Ok::<(), JobFailure>(())
            }
        })
    }
}
