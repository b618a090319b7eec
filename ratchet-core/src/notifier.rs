//! Telling the other nodes: one notice in flight, whatever comes meanwhile is the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratchet_api::spi::{ClusterCoordinator, WakeupDirection};
use ratchet_api::{JobPriority, StoreResult};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::metrics::Metrics;

/// A coordinator that does not return within this has lost the notice.
const LIMIT: Duration = Duration::from_secs(5);

/// Sends notices. Nobody waits for one, and a lost one costs a poll or a beat.
#[derive(Clone)]
pub(crate) struct Notifier(Arc<Shared>);

struct Shared {
    cluster: Arc<dyn ClusterCoordinator>,
    metrics: Metrics,
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Default)]
struct State {
    pending: Notice,
    /// The task that sends. A runtime that has ended took it along.
    sends: Option<JoinHandle<()>>,
}

/// What the others are to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Notice {
    /// The highest priority of new work.
    work: Option<JobPriority>,
    cancel: bool,
}

impl Notifier {
    pub(crate) fn new(cluster: Arc<dyn ClusterCoordinator>, metrics: Metrics) -> Self {
        let (state, idle) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { cluster, metrics, state, idle }))
    }

    /// Tells the others that there is work.
    pub(crate) fn new_work(&self, priority: JobPriority) {
        self.tell(|notice| notice.work = notice.work.max(Some(priority)));
    }

    /// Tells the others that a job was canceled which one of them runs.
    pub(crate) fn cancel_requested(&self) {
        self.tell(|notice| notice.cancel = true);
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn flush(&self) {
        loop {
            let mut idle = std::pin::pin!(self.0.idle.notified());
            idle.as_mut().enable();
            if !self.0.state().is_sending() {
                return;
            }
            idle.await;
        }
    }

    fn tell(&self, note: impl FnOnce(&mut Notice)) {
        let mut state = self.0.state();
        note(&mut state.pending);
        if !state.is_sending() {
            state.sends = Some(tokio::spawn(send(Arc::clone(&self.0))));
        }
    }
}

impl State {
    fn is_sending(&self) -> bool {
        self.sends.as_ref().is_some_and(|sends| !sends.is_finished())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes next; if there is nothing, the next one to tell something begins anew.
    fn next(&self) -> Option<Notice> {
        let mut state = self.state();
        let notice = std::mem::take(&mut state.pending);
        if notice == Notice::default() {
            state.sends = None;
            self.idle.notify_waiters();
            return None;
        }
        Some(notice)
    }

    async fn deliver(&self, call: impl Future<Output = StoreResult<()>>) {
        match timeout(LIMIT, call).await {
            Ok(Ok(())) => self.metrics.tell(|sink| sink.wakeup(WakeupDirection::Sent)),
            Ok(Err(error)) => tracing::debug!(%error, "a wakeup was not sent"),
            Err(_) => {
                tracing::debug!(limit = ?LIMIT, "a wakeup was not sent: the coordinator does not return");
            }
        }
    }
}

/// Sends until nothing is left to tell.
async fn send(shared: Arc<Shared>) {
    // Submissions that one call to the store has answered tell the others together.
    tokio::task::yield_now().await;
    while let Some(Notice { work, cancel }) = shared.next() {
        if let Some(priority) = work {
            shared.deliver(shared.cluster.notify_new_work(priority)).await;
        }
        if cancel {
            shared.deliver(shared.cluster.notify_cancel_requested()).await;
        }
    }
}
