//! Telling the others that this node lives: from a thread, a runtime and a connection of its own, so that no body can
//! keep it from doing so.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ratchet_api::store::NodeStore;
use ratchet_api::{Beat, BeatReply};
use tokio::sync::oneshot;

use crate::drain::Readiness;
use crate::engine::Engine;

/// A beating heart. It stops last.
pub(crate) struct Heartbeat {
    stop: Option<oneshot::Sender<()>>,
    stopped: oneshot::Receiver<()>,
}

impl Heartbeat {
    /// Begins to beat.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(crate) fn start(engine: Arc<Engine>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stops) = oneshot::channel();
        let (tell, stopped) = oneshot::channel();
        thread::Builder::new().name("ratchet-heartbeat".to_owned()).spawn(move || {
            let mut pulse = Pulse::new(engine);
            runtime.block_on(async {
                tokio::select! {
                    () = pulse.beat_for_ever() => {}
                    // Also if nobody holds the sender any more.
                    _ = stops => {}
                }
            });
            // Nobody may wait.
            let _ = tell.send(());
        })?;
        Ok(Self { stop: Some(stop), stopped })
    }

    /// Stops, and waits until no beat can follow.
    pub(crate) async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = self.stopped.await;
    }
}

struct Pulse {
    engine: Arc<Engine>,
    nodes: Option<Box<dyn NodeStore>>,
    /// When the last accepted beat was sent: the lease runs from before the server saw it.
    last: Instant,
}

impl Pulse {
    fn new(engine: Arc<Engine>) -> Self {
        Self { engine, nodes: None, last: Instant::now() }
    }

    async fn beat_for_ever(&mut self) {
        loop {
            tokio::time::sleep(self.engine.options.node.beat).await;
            let sent = Instant::now();
            match self.beat().await {
                Ok(reply) if reply.accepted => {
                    self.last = sent;
                    self.hear(&reply);
                }
                Ok(_) => return self.lose("the others hold this node for dead"),
                Err(error) => {
                    tracing::warn!(%error, "a heartbeat failed");
                    self.nodes = None;
                }
            }
            if self.last.elapsed() > self.engine.options.node.lease {
                return self.lose("no heartbeat came through for a whole lease");
            }
        }
    }

    async fn beat(&mut self) -> ratchet_api::StoreResult<BeatReply> {
        let engine = &self.engine;
        let nodes = match &mut self.nodes {
            Some(nodes) => nodes,
            none => none.insert(engine.store.dedicated().await?),
        };
        let mut beat = Beat::new(engine.owner.clone(), engine.options.node.lease);
        beat.running = engine.slots.taken();
        beat.slots = engine.slots.total();
        nodes.beat(&beat).await
    }

    /// Stops bodies whose jobs were cancelled elsewhere, and looks for work whose wakeup was lost.
    fn hear(&self, reply: &BeatReply) {
        for job in &reply.cancel_requested {
            self.engine.running.stop(*job);
        }
        if reply.due_work {
            self.engine.bell.notify_one();
        }
    }

    /// From now on nothing that this node does can be written, so it stops doing it.
    fn lose(&self, why: &'static str) {
        tracing::error!(why, "the lease of this node is lost; its jobs are stopped");
        self.engine.drain.set_lease(false);
        self.engine.drain.advance(Readiness::Draining);
        self.engine.running.stop_all();
    }
}
