//! Notices to the other nodes: one is in flight, and those that arrive meanwhile form the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratchet_api::spi::{ClusterCoordinator, WakeupDirection};
use ratchet_api::{JobPriority, StoreResult};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::metrics::Metrics;

/// The time limit of a notice. If the coordinator does not return within it, the notice counts as lost.
const LIMIT: Duration = Duration::from_secs(5);

/// The sender of notices. No caller waits for one, and a lost one delays its effect to the next poll or beat.
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
    /// The task that sends. It also ends with its runtime.
    sends: Option<JoinHandle<()>>,
}

/// The news for the other nodes.
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

    /// Notifies the other nodes that there is work.
    pub(crate) fn new_work(&self, priority: JobPriority) {
        self.tell(|notice| notice.work = notice.work.max(Some(priority)));
    }

    /// Notifies the other nodes that a job was canceled which one of them runs.
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

    /// The notice to send next; if there is none, the sending task ends, and the next notice starts another one.
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

/// Sends until no notice is pending.
async fn send(shared: Arc<Shared>) {
    // Submissions that one call to the store has answered share a notice.
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
