//! The lives of a node, one after the other: a node that lost its lease joins the cluster anew.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{Owner, StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::StartError;
use crate::cluster::heartbeat::Heartbeat;
use crate::cluster::lease::Lease;
use crate::cluster::{recovery, unknown, unreachable};
use crate::coordinator::Coordinator;
use crate::engine::{Engine, Node};
use crate::outage::Outage;
use crate::poller::Poller;

/// The tasks that run by themselves while a node holds one lease.
pub(super) struct Life {
    pub(super) engine: Arc<Engine>,
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) poller: JoinHandle<()>,
    pub(super) recovery: JoinHandle<()>,
    pub(super) heartbeat: Heartbeat,
}

impl Life {
    /// Joins the cluster as a new owner, beats, and begins to poll. If it fails, nothing stays behind.
    pub(super) async fn begin(node: &Arc<Node>, past: Vec<Owner>) -> Result<Self, StartError> {
        let (owner, length) = (Owner::incarnate(&node.label), node.options.node.lease);
        let sent = std::time::Instant::now();
        let late = || StoreError::new(StoreErrorKind::Unavailable, "join", "no answer in time");
        // Over a connection of its own: those of the life before may hang.
        let info = node.info(&owner);
        let join = async { node.dedicated().await?.join(&info, length).await };
        timeout(length / 2, join).await.map_err(|_| late())??;
        let lease = Lease::new(owner, length, sent, node.running.clone());
        let engine = Arc::new(Engine::new(Arc::clone(node), lease, past));
        let heartbeat = match Heartbeat::start(Arc::clone(&engine)) {
            Ok(heartbeat) => heartbeat,
            Err(error) => {
                leave(&engine).await;
                return Err(error.into());
            }
        };
        let coordinator = Arc::new(Coordinator::new(Arc::clone(&engine)));
        let poller = tokio::spawn(Poller::new(Arc::clone(&engine), Arc::clone(&coordinator)).run());
        let (dead, lost) = (recovery::run(Arc::clone(&engine)), unreachable::run(Arc::clone(&engine)));
        let unknown = unknown::run(Arc::clone(&engine));
        let recovery = tokio::spawn(async {
            tokio::join!(dead, lost, unknown);
        });
        Ok(Self { engine, coordinator, poller, recovery, heartbeat })
    }

    /// Waits until its tasks and attempts have ended, as far as they do, because its lease is lost.
    async fn end(mut self, limit: Duration) {
        let ended = async {
            let _ = (&mut self.poller).await;
            let _ = (&mut self.recovery).await;
            self.coordinator.idle().await;
        };
        if timeout(limit, ended).await.is_err() {
            tracing::error!(node = %self.engine.owner, "some tasks of this node do not end; they are not waited for");
            self.poller.abort();
            self.recovery.abort();
        }
        let _ = timeout(limit, self.heartbeat.stop()).await;
    }
}

/// Runs one life after another until the node drains. Returns the life that is to be drained, if there is one just
/// then.
pub(super) async fn live(
    node: Arc<Node>,
    mut life: Life,
    present: watch::Sender<Arc<Lease>>,
) -> Option<Life> {
    let grace = node.options.timeout.cancel_grace;
    loop {
        life.engine.over().await;
        if !node.drain.takes_work() {
            return Some(life);
        }
        node.plugs.metrics.tell(|sink| sink.lease_lost());
        let past = life.engine.lives();
        life.end(grace * 2).await;
        life = tokio::select! {
            () = node.drain.begun() => return None,
            next = begin_again(&node, past) => next,
        };
        tracing::info!(node = %life.engine.owner, "this node has joined the cluster anew");
        present.send_replace(Arc::clone(&life.engine.lease));
    }
}

/// Joins as soon as the store lets it.
async fn begin_again(node: &Arc<Node>, past: Vec<Owner>) -> Life {
    let outage = Outage::new("join", &node.label, &node.plugs.sanitizer);
    loop {
        match Life::begin(node, past.clone()).await {
            Ok(life) => {
                outage.over();
                return life;
            }
            Err(StartError::Store(error)) => outage.failed(&error),
            Err(error) => tracing::warn!(label = node.label, %error, "this node cannot join the cluster yet"),
        }
        // Nodes that were all cut off do not all come back in the same moment.
        tokio::time::sleep((node.options.node.beat / 4).mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
    }
}

/// Removes the node from the list of nodes.
pub(super) async fn leave(engine: &Engine) {
    match engine.node.store.leave(&engine.owner).await {
        Ok(true) => {}
        Ok(false) => tracing::warn!("this node still holds jobs; they are recovered after its lease"),
        Err(error) => tracing::warn!(%error, "the node's row stays until its lease ends"),
    }
}
