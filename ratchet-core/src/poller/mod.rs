//! Taking work from the store.

pub(crate) mod alarm;
mod strategy;

pub use strategy::{AdaptivePolling, PollingMode};

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratchet_api::spi::{PollSignal, PollingStrategy};
use ratchet_api::store::ClaimRequest;
use ratchet_api::{JobClaim, QueueLimit, QueueName, StoreResult};

use crate::coordinator::Coordinator;
use crate::engine::Engine;

/// Looks for work and hands it over, as much as there is room for.
pub(crate) struct Poller {
    engine: Arc<Engine>,
    coordinator: Arc<Coordinator>,
    strategy: Box<dyn PollingStrategy>,
    /// How many looks there were.
    looks: usize,
    /// Queues that may have more than the last look could take.
    more: BTreeSet<QueueName>,
    /// A claim whose reply was lost may have taken jobs.
    unsure: bool,
}

impl Poller {
    pub(crate) fn new(
        engine: Arc<Engine>,
        coordinator: Arc<Coordinator>,
        strategy: Box<dyn PollingStrategy>,
    ) -> Self {
        Self { engine, coordinator, strategy, looks: 0, more: BTreeSet::new(), unsure: false }
    }

    /// Looks until the node drains.
    pub(crate) async fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        while engine.drain.takes_work() {
            let delay = self.look().await;
            tokio::select! {
                () = engine.drain.begun() => return,
                () = self.rest(delay) => {}
            }
        }
    }

    /// Waits so long, unless there is a wakeup, or room in a queue that may have more.
    async fn rest(&mut self, delay: Duration) {
        let mut over = std::pin::pin!(tokio::time::sleep(delay));
        while !self.engine.slots.has_room(&self.more) {
            tokio::select! {
                () = &mut over => return,
                () = self.engine.bell.notified() => {
                    // The strategy is to know; the look follows at once, whatever it says.
                    let _ = self.delay(PollSignal::Wakeup);
                    return;
                }
                () = self.engine.alarm.rings() => return,
                () = self.engine.slots.opened(&self.more) => {}
            }
        }
    }

    /// Claims as many as there is room for. Answers how long to wait if there is no more.
    async fn look(&mut self) -> Duration {
        let asked = self.engine.slots.room(self.engine.options.polling.batch_size as usize, self.looks);
        self.looks = self.looks.wrapping_add(1);
        match self.claim(&asked).await {
            Ok(claims) => {
                self.more = may_have_more(self.engine.slots.queues(), &asked, &claims);
                let batch_size = asked.iter().map(|queue| queue.limit).sum();
                let signal = PollSignal::Polled { claimed: claims.len(), batch_size };
                self.coordinator.accept(claims).await;
                self.delay(signal)
            }
            Err(error) => {
                tracing::warn!(%error, "looking for work failed");
                // Whatever there is, it waits until the store may be well again.
                self.more.clear();
                self.delay(PollSignal::Failed)
            }
        }
    }

    async fn claim(&mut self, asked: &[QueueLimit]) -> StoreResult<Vec<JobClaim>> {
        if self.unsure {
            adopt(&self.engine, &self.coordinator).await?;
            self.unsure = false;
        }
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let engine = &self.engine;
        let boost = engine.options.store.priority_boost_interval;
        let mut request = ClaimRequest::of_queues(engine.owner.clone(), asked.to_vec());
        request.boost_interval = Some(boost).filter(|interval| !interval.is_zero());
        engine.store.claim(&request).await.inspect_err(|_| self.unsure = true)
    }

    fn delay(&mut self, signal: PollSignal) -> Duration {
        self.strategy.next_delay(signal, self.engine.slots.load(), Instant::now())
    }
}

/// What a lost reply took is ours, and nobody else's until our lease ends.
async fn adopt(engine: &Engine, coordinator: &Coordinator) -> StoreResult<()> {
    let owned = engine.store.owned(&engine.owner).await?;
    coordinator.accept(owned.into_iter().filter(|claim| !engine.runs(claim.id)).collect()).await;
    Ok(())
}

/// The queues that gave all they were asked for, and those that were not asked.
fn may_have_more<'q>(
    queues: impl Iterator<Item = &'q QueueName>,
    asked: &[QueueLimit],
    claims: &[JobClaim],
) -> BTreeSet<QueueName> {
    let gave_all = |name: &QueueName| {
        let limit = asked.iter().find(|asked| asked.queue == *name).map_or(0, |asked| asked.limit);
        claims.iter().filter(|claim| claim.queue == *name).count() >= limit
    };
    queues.filter(|name| gave_all(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use ratchet_api::{Fence, JobId, Timestamp};

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).unwrap()
    }

    fn more(asked: &[(&str, usize)], claimed: &[(&str, usize)]) -> Vec<String> {
        let limits: Vec<_> =
            asked.iter().map(|(name, limit)| QueueLimit { queue: queue(name), limit: *limit }).collect();
        let claim = |name: &str| {
            let now = Timestamp::from_millis(0);
            JobClaim::new(JobId::generate(), Fence::FIRST, queue(name), now, now)
        };
        let claims: Vec<_> =
            claimed.iter().flat_map(|(name, count)| std::iter::repeat_n(claim(name), *count)).collect();
        let queues = [queue("a"), queue("b")];
        may_have_more(queues.iter(), &limits, &claims).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_queue_may_have_more_unless_it_gave_less_than_it_was_asked_for() {
        assert_eq!(more(&[("a", 2), ("b", 2)], &[]), [""; 0]);
        assert_eq!(more(&[("a", 2), ("b", 2)], &[("a", 2), ("b", 1)]), ["a"]);
        assert_eq!(more(&[("a", 2)], &[("a", 1)]), ["b"], "it was not asked");
        assert_eq!(more(&[], &[]), ["a", "b"]);
    }
}
