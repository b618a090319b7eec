//! The poller, which claims jobs from the store.

pub(crate) mod alarm;
mod strategy;
mod suspects;

pub use strategy::{AdaptivePolling, PollingMode};

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ratchet_api::spi::PollSignal;
use ratchet_api::{JobClaim, QueueLimit, QueueName, StoreResult};

use crate::cluster::recovery::{self, Orphaned};
use crate::commit_claim::ClaimTerms;
use crate::coordinator::Coordinator;
use crate::engine::Engine;
use crate::outage::Outage;
use suspects::Suspects;

/// The loop that claims as many jobs as there is room for, and hands them to the coordinator.
pub(crate) struct Poller {
    engine: Arc<Engine>,
    coordinator: Arc<Coordinator>,
    /// The number of polls so far.
    looks: usize,
    /// Queues that may have more jobs than were claimed.
    more: BTreeSet<QueueName>,
    /// Whether a claim whose reply was lost may have taken jobs.
    unsure: bool,
    /// When the jobs of this node were last reconciled with the store.
    reconciled: Instant,
    suspects: Suspects,
    outage: Outage,
}

impl Poller {
    pub(crate) fn new(engine: Arc<Engine>, coordinator: Arc<Coordinator>) -> Self {
        let more = engine.node.slots.queues().cloned().collect();
        let (reconciled, outage) = (Instant::now(), engine.outage("claim"));
        let suspects = Suspects::new();
        Self { engine, coordinator, looks: 0, more, unsure: false, reconciled, suspects, outage }
    }

    /// Polls until the node drains or loses its lease.
    pub(crate) async fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        while engine.takes_work() {
            let mut delay = self.look().await;
            if !is_idle(&engine) {
                // At least once in a lease, to reconcile.
                delay = delay.min(engine.node.options.node.lease);
            }
            tokio::select! {
                () = engine.over() => return,
                () = self.rest(delay) => {}
            }
        }
    }

    /// Waits until there is room in a queue that may have more. After `delay`, or a wakeup, any of them may. A wakeup
    /// alone is no reason for a claim, or a fully loaded node would claim a few jobs at a time.
    async fn rest(&mut self, delay: Duration) {
        let mut over = std::pin::pin!(tokio::time::sleep(delay));
        while !self.engine.node.slots.has_room(&self.more) {
            tokio::select! {
                () = &mut over => {}
                () = self.engine.node.alarm.rings() => {}
                () = self.engine.node.bell.notified() => {
                    // The strategy is informed; the poll follows as soon as there is room, whatever it answers.
                    let _ = self.engine.node.delay(PollSignal::Wakeup);
                    self.more = self.engine.node.slots.queues().cloned().collect();
                    continue;
                }
                () = self.engine.node.running.suspect_gone() => {}
                () = self.engine.node.slots.opened(&self.more) => continue,
            }
            self.more = self.engine.node.slots.queues().cloned().collect();
            return;
        }
    }

    /// Claims as many jobs as there is room for. Returns how long to wait if there are no more.
    async fn look(&mut self) -> Duration {
        let claimed = self.claim().await;
        // A claim that ends with the lease is no failure of the store.
        if claimed.is_ok() || self.engine.lease.holds() {
            self.outage.note(&claimed);
        }
        self.engine.node.claimed(claimed.is_err());
        match claimed {
            Ok((asked, claims)) => {
                learn(&mut self.more, &asked, &claims);
                self.engine.node.plugs.metrics.claimed(&asked, &claims);
                let batch_size = asked.iter().map(|queue| queue.limit).sum();
                let signal = PollSignal::Polled { claimed: claims.len(), batch_size };
                self.coordinator.accept(claims).await;
                self.engine.node.delay(signal)
            }
            Err(_) => {
                // All queues wait until the store may have recovered.
                self.more.clear();
                self.engine.node.delay(PollSignal::Failed)
            }
        }
    }

    /// Claims jobs, and returns also what was asked for.
    async fn claim(&mut self) -> StoreResult<(Vec<QueueLimit>, Vec<JobClaim>)> {
        let is_time = self.reconciled.elapsed() >= self.engine.node.options.node.lease;
        if self.unsure || is_time && !is_idle(&self.engine) {
            reconcile(&self.engine, &self.coordinator).await?;
            (self.unsure, self.reconciled) = (false, Instant::now());
        }
        let taken = self.suspects.look(&self.engine, &self.coordinator).await;
        taken.inspect_err(|_| self.unsure = true)?;
        self.looks = self.looks.wrapping_add(1);
        let claimed = self.engine.commit_claim.claim(self.terms()).await;
        let (request, claims) = claimed.inspect_err(|_| self.unsure = true)?;
        Ok((request.queues, claims))
    }

    fn terms(&self) -> ClaimTerms {
        let node = &self.engine.node;
        ClaimTerms {
            slots: node.slots.clone(),
            draining: node.drain.watch(),
            batch_size: node.options.polling.batch_size as usize,
            first: self.looks,
            boost_interval: node.boost_interval(),
        }
    }
}

/// Whether node and store agree that this node holds no jobs.
fn is_idle(engine: &Engine) -> bool {
    let takeover_lost = engine.takeover.try_lock().map_or(true, |lost| *lost);
    !engine.may_hold.load(Ordering::Relaxed) && engine.node.running.is_empty() && !takeover_lost
}

/// Reconciles the jobs of this node with the store. Jobs that a lost reply claimed are run, for no other node may until
/// our lease ends; jobs that run here and belong to another owner are told to stop. No claim may be under way.
pub(crate) async fn reconcile(engine: &Engine, coordinator: &Coordinator) -> StoreResult<()> {
    let mut takeover_lost = engine.takeover.lock().await;
    let before = engine.node.running.all();
    let owned = engine.node.store.owned(&engine.owner).await?;
    let fences: HashMap<_, _> = owned.iter().map(|claim| (claim.id, claim.fence)).collect();
    for (job, fence) in before {
        if fences.get(&job).is_none_or(|owned| *owned > fence) {
            engine.node.running.stop_at(job, fence);
        }
    }
    let unknown: Vec<_> =
        owned.into_iter().filter(|claim| !engine.node.running.has(claim.id, claim.fence)).collect();
    if *takeover_lost {
        // They may be a dead node's: running them would hide that it died with them.
        recovery::settle(
            engine,
            recovery::begin(engine, unknown),
            Orphaned::Crashed { owner: None, alone: false },
        )
        .await;
    } else {
        // Those that crashed before may have been suspects, which are not claimed like other jobs.
        let (suspects, others): (Vec<_>, Vec<_>) =
            unknown.into_iter().partition(|claim| claim.crash_count > 0);
        recovery::settle(engine, recovery::begin(engine, suspects), Orphaned::Released).await;
        coordinator.accept(others).await;
    }
    *takeover_lost = false;
    Ok(())
}

/// Updates which queues may have more: one that gave all it was asked for may, one that gave less has not.
fn learn(more: &mut BTreeSet<QueueName>, asked: &[QueueLimit], claims: &[JobClaim]) {
    for QueueLimit { queue, limit } in asked {
        match claims.iter().filter(|claim| claim.queue == *queue).count() >= *limit {
            true => more.insert(queue.clone()),
            false => more.remove(queue),
        };
    }
}

#[cfg(test)]
mod tests {
    use ratchet_api::{Fence, JobId, Timestamp};

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn learned(before: &[&str], asked: &[(&str, usize)], claimed: &[(&str, usize)]) -> Vec<String> {
        let limits: Vec<_> =
            asked.iter().map(|(name, limit)| QueueLimit { queue: queue(name), limit: *limit }).collect();
        let claim = |name: &str| {
            let now = Timestamp::from_millis(0);
            JobClaim::new(JobId::generate(), Fence::FIRST, queue(name), now, now)
        };
        let claims: Vec<_> =
            claimed.iter().flat_map(|(name, count)| std::iter::repeat_n(claim(name), *count)).collect();
        let mut more = before.iter().map(|name| queue(name)).collect();
        learn(&mut more, &limits, &claims);
        more.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_queue_may_have_more_until_it_gives_less_than_it_was_asked_for() {
        let both = [("a", 2), ("b", 2)];
        assert_eq!(learned(&["a", "b"], &both, &[("a", 2), ("b", 1)]), ["a"]);
        assert_eq!(learned(&["a", "b"], &both, &[]), [""; 0]);
        assert_eq!(learned(&["a"], &both, &both), ["a", "b"]);
        assert_eq!(learned(&["b"], &[("a", 2)], &[("a", 1)]), ["b"], "it was not asked");
        assert_eq!(learned(&["a"], &[], &[]), ["a"]);
    }
}
