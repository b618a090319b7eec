//! Notifying other nodes of new work through a capped collection that they follow.
//!
//! - `notices`: the collection, writing and reading it;
//! - here: the listeners that are called, and the reaction to a gap.
//!
//! A notice is only a hint: no job needs it to run, so no error of this module reaches the caller.
//! `docs/wakeups.md` lists the alternatives that were tried.

mod notices;

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener, WakeupListeners};
use ratchet_api::{Backoff, JobPriority, StoreResult};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use notices::Notices;

/// The pause between two attempts to follow: jittered, so that nodes that lost the same server do not return at once.
const PAUSE: Backoff = Backoff::Exponential(Duration::from_millis(100));
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The wakeup coordinator of a [`MongoStore`](crate::MongoStore).
pub(crate) struct MongoCoordinator {
    node: Arc<Node>,
    /// The listening task, once a listener is registered.
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Node {
    notices: Notices,
    /// The sender id by which a node recognizes its own notices.
    me: ObjectId,
    listeners: WakeupListeners,
    /// Whether following was attempted.
    tried: watch::Sender<bool>,
}

impl MongoCoordinator {
    pub(crate) fn new(notices: Notices) -> Self {
        let (listeners, tried) = (WakeupListeners::default(), watch::Sender::new(false));
        let node = Node { notices, me: ObjectId::new(), listeners, tried };
        Self { node: Arc::new(node), task: Mutex::default() }
    }

    /// Returns when the notice is sent, so that the engine has one in flight.
    async fn tell(&self, kind: WakeupKind) {
        if self.node.listeners.is_closed() {
            return;
        }
        if let Err(error) = self.node.notices.append(self.node.me, kind).await {
            tracing::debug!(%error, ?kind, "wakeup not sent; other nodes find the work by their next poll or beat");
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops listening. Aborting the task drops the cursor.
    fn stop(&self) {
        self.node.listeners.close();
        if let Some(task) = self.task().take() {
            task.abort();
        }
        // Nobody may wait for an aborted task.
        self.node.tried.send_replace(true);
    }
}

#[async_trait]
impl ClusterCoordinator for MongoCoordinator {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        self.tell(WakeupKind::NewWork).await;
        Ok(())
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.tell(WakeupKind::CancelRequested).await;
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        if !self.node.listeners.add(listener) {
            return Ok(());
        }
        let mut tried = self.node.tried.subscribe();
        {
            let mut task = self.task();
            // The task is finished if its runtime has ended.
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                self.node.tried.send_replace(false);
                *task = Some(tokio::spawn(listen(Arc::clone(&self.node))));
            }
        }
        // If the first attempt failed, the task keeps trying.
        let _ = tried.wait_for(|tried| *tried).await;
        Ok(())
    }

    async fn shutdown(&self) {
        self.stop();
    }
}

impl Drop for MongoCoordinator {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for MongoCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoCoordinator")
            .field("collection", &self.node.notices.name())
            .field("listeners", &self.node.listeners)
            .finish_non_exhaustive()
    }
}

/// Follows the notices until it is aborted, and starts again after each error.
async fn listen(node: Arc<Node>) {
    let (mut gap, mut failed) = (false, 0);
    loop {
        let Err(error) = follow(&node, gap, &mut failed).await;
        node.tried.send_replace(true);
        if failed == 0 {
            tracing::warn!(%error, "wakeups interrupted; work of other nodes is found by polling until they are back");
        }
        gap = true;
        failed += 1;
        tokio::time::sleep(PAUSE.jittered(failed, rand::random()).min(LONGEST_PAUSE)).await;
    }
}

async fn follow(node: &Node, gap: bool, failed: &mut u32) -> StoreResult<Infallible> {
    let mut follower = node.notices.follow(node.me).await?;
    node.tried.send_replace(true);
    if gap {
        // Notices sent meanwhile are lost.
        node.listeners.call(WakeupKind::ALL);
    }
    loop {
        let kinds = follower.hear().await?;
        *failed = 0;
        node.listeners.call(kinds);
    }
}
