//! The heartbeat of this node, which has a thread, a runtime and a connection of its own, so that no body can keep it
//! from beating.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ratchet_api::store::NodeStore;
use ratchet_api::{Beat, BeatReply, Death, StoreError, StoreErrorKind, StoreResult, Timestamp, death};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::beat_interval::{gap, interval, rest};
use super::skew::{SkewNews, SkewWatch, skew};
use super::steps::{Reading, Step, step};
use crate::engine::Engine;
use crate::outage::Outage;

/// The most jobs that one call makes due again after the database's clock went back.
const MENDED: usize = 20_000;

/// A running heartbeat. It is stopped last, and stops by itself when the lease is lost.
pub(crate) struct Heartbeat {
    stop: Option<oneshot::Sender<()>>,
    stopped: oneshot::Receiver<()>,
}

impl Heartbeat {
    /// Begins to beat.
    ///
    /// # Errors
    /// If the runtime or the thread cannot be started.
    pub(crate) fn start(engine: Arc<Engine>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stops) = oneshot::channel();
        let (tell, stopped) = oneshot::channel();
        thread::Builder::new().name("ratchet-heartbeat".to_owned()).spawn(move || {
            let mut pulse = Pulse::new(Arc::clone(&engine));
            runtime.block_on(async {
                tokio::select! {
                    () = pulse.beat_while_alive() => {}
                    () = engine.lease.lost() => {}
                    // Also completes when the sender was dropped.
                    _ = stops => {}
                }
            });
            // The receiver may be gone.
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
    /// The longest gap between beats that can prove the deaths still in doubt; `None` if there are none.
    wanted: Option<Duration>,
    clock: SkewWatch,
    /// The reading of the database's clock that the next one is compared with.
    reading: Option<Reading>,
    /// Whether a beat was answered before. Until then the poller is at its first poll.
    heard: bool,
    outage: Outage,
}

impl Pulse {
    fn new(engine: Arc<Engine>) -> Self {
        let clock = SkewWatch::new(engine.node.options.node.skew_warning);
        let outage = engine.outage("heartbeat");
        Self { engine, nodes: None, wanted: None, reading: None, clock, heard: false, outage }
    }

    /// Beats at once, and then as often as it should, until the lease is lost.
    async fn beat_while_alive(&mut self) {
        while self.engine.lease.holds() {
            let sent = Instant::now();
            let beat = self.beat().await;
            self.outage.note(&beat);
            let failed = match beat {
                Ok(reply) if !reply.accepted => {
                    return self.engine.lease.lose("the other nodes consider this node dead");
                }
                Ok(_) => false,
                Err(_) => {
                    // The next one goes over another connection.
                    self.nodes = None;
                    true
                }
            };
            let (options, load) = (&self.engine.node.options.node, self.engine.node.slots.load());
            let next = interval(options, load, failed, rand::random());
            let next = next.min(gap(options, self.wanted) / 2);
            tokio::select! {
                () = sleep(rest(next, sent.elapsed())) => {}
                // A request that arrives while a beat is under way gets one more.
                () = self.engine.node.beat.notified() => {}
            }
        }
    }

    /// Beats once, and does what the answer asks for.
    async fn beat(&mut self) -> StoreResult<BeatReply> {
        let (sent, node_time) = (Instant::now(), Timestamp::node_now());
        // Leaves time for another beat if the connection hangs.
        let limit = (self.engine.node.options.node.lease / 2).min(self.engine.lease.left(sent));
        let late = || StoreError::new(StoreErrorKind::Transient, "beat", "no answer in time");
        let reply = timeout(limit, self.send()).await.unwrap_or_else(|_| Err(late()))?;
        if reply.accepted {
            self.engine.lease.renew(sent);
            let skew = skew(node_time, Timestamp::node_now(), reply.db_now);
            self.measure(skew);
            self.compare(skew);
            self.hear(&reply);
            self.follow(Reading { sent, heard: Instant::now(), db_now: reply.db_now }).await;
        }
        Ok(reply)
    }

    fn measure(&self, skew_millis: i64) {
        let (plugs, slots) = (&self.engine.node.plugs, &self.engine.node.slots);
        plugs.metrics.tell(|sink| sink.beat(skew_millis));
        for (queue, used, limit) in slots.usage() {
            plugs.metrics.tell(|sink| sink.slots(queue, used, limit));
        }
    }

    fn compare(&mut self, skew_millis: i64) {
        let (node, limit) = (&self.engine.owner, self.engine.node.options.node.skew_warning);
        match self.clock.observe(skew_millis) {
            None => {}
            Some(SkewNews::Agrees) => {
                tracing::info!(%node, skew_millis, "the clock of this node is right again");
            }
            Some(SkewNews::Off) => tracing::warn!(
                %node,
                skew_millis,
                ?limit,
                "the clock of this node differs from the database's, which decides; set it right"
            ),
        }
    }

    /// Detects steps of the database's clock, and keeps jobs due that were due before a step back.
    async fn follow(&mut self, now: Reading) {
        let node = &self.engine.owner;
        match self.reading.map_or(Step::None, |before| step(&before, &now)) {
            Step::None => {}
            Step::Ahead(by) => tracing::warn!(
                %node,
                ?by,
                "the clock of the database jumped ahead; no node counts as dead because of it"
            ),
            Step::Back { by, within } => match self.mend(by, within).await {
                Ok(jobs) => {
                    tracing::warn!(%node, ?by, jobs, "the clock of the database went back; jobs that were due stay due");
                    self.engine.node.bell.notify_one();
                    if jobs >= MENDED as u64 {
                        // There may be more; they follow after the next beat.
                        return;
                    }
                }
                Err(error) => {
                    // It is noticed again by the next beat.
                    return tracing::warn!(%node, ?by, %error, "the clock of the database went back");
                }
            },
        }
        self.reading = Some(now);
    }

    async fn mend(&self, by: Duration, within: Duration) -> StoreResult<u64> {
        let late = || StoreError::new(StoreErrorKind::Transient, "clock_went_back", "no answer in time");
        let Some(nodes) = &self.nodes else { return Err(late()) };
        let answer =
            timeout(self.engine.node.options.node.lease / 2, nodes.clock_went_back(by, within, MENDED));
        answer.await.unwrap_or_else(|_| Err(late()))
    }

    /// Stops bodies whose jobs were canceled elsewhere, looks for work whose wakeup was lost and for jobs that this node holds
    /// and does not know of, and has the jobs of the dead taken over.
    fn hear(&mut self, reply: &BeatReply) {
        let engine = &self.engine;
        for job in &reply.cancel_requested {
            let _ = engine.node.running.stop(*job);
        }
        engine.may_hold.store(reply.holds_jobs, Ordering::Relaxed);
        let knows_of_none = reply.holds_jobs && engine.node.running.is_empty();
        engine.suspects.fetch_or(reply.suspects, Ordering::Relaxed);
        if (reply.due_work || reply.suspects || knows_of_none) && self.heard {
            engine.node.bell.notify_one();
        }
        self.heard = true;
        self.wanted = None;
        let mut dead = reply.dead.clone();
        dead.retain(|owner| match death(owner, &reply.pulses, reply.db_now) {
            Death::Proven => true,
            // An earlier life of this process lives on in it, and its death needs no proof.
            Death::Unproven { .. } if engine.is_past_life(owner) => true,
            Death::Unproven { gap } => {
                self.wanted = Some(self.wanted.map_or(gap, |wanted| wanted.min(gap)));
                false
            }
        });
        engine.dead.send_if_modified(|found| {
            *found = dead;
            !found.is_empty()
        });
    }

    /// Sends a beat over a connection of its own.
    async fn send(&mut self) -> StoreResult<BeatReply> {
        let (engine, options) = (&self.engine, &self.engine.node.options.node);
        let nodes = match &mut self.nodes {
            Some(nodes) => nodes,
            none => none.insert(engine.node.dedicated().await?),
        };
        let mut beat = Beat::new(engine.owner.clone(), options.lease);
        beat.gap = gap(options, self.wanted);
        beat.running = engine.node.slots.taken();
        beat.slots = engine.node.slots.total();
        beat.draining = !engine.node.drain.takes_work();
        nodes.beat(&beat).await
    }
}
