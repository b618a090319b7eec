//! Taking work from the store.

pub(crate) mod alarm;
mod strategy;

pub use strategy::{AdaptivePolling, PollingMode};

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratchet_api::spi::{PollSignal, PollingStrategy};
use ratchet_api::store::ClaimRequest;
use ratchet_api::{JobClaim, QueueLimit};

use crate::coordinator::Coordinator;
use crate::engine::Engine;

/// Looks for work and hands it over, as much as there are free slots.
pub(crate) struct Poller {
    engine: Arc<Engine>,
    coordinator: Arc<Coordinator>,
    strategy: Box<dyn PollingStrategy>,
    /// A claim whose reply was lost may have taken jobs.
    unsure: bool,
}

/// What to do after a look.
enum Next {
    /// Look again at once.
    Again,
    /// Wait for a free slot.
    Full,
    /// Wait so long, unless there is a wakeup.
    Wait(Duration),
}

impl Poller {
    pub(crate) fn new(
        engine: Arc<Engine>,
        coordinator: Arc<Coordinator>,
        strategy: Box<dyn PollingStrategy>,
    ) -> Self {
        Self { engine, coordinator, strategy, unsure: false }
    }

    /// Looks until the node drains.
    pub(crate) async fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        while engine.drain.takes_work() {
            let next = self.look().await;
            tokio::select! {
                () = engine.drain.begun() => return,
                () = self.rest(next) => {}
            }
        }
    }

    async fn rest(&mut self, next: Next) {
        match next {
            Next::Again => {}
            Next::Full => self.engine.slots.freed().await,
            Next::Wait(delay) => tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.engine.bell.notified() => drop(self.delay(PollSignal::Wakeup)),
                () = self.engine.alarm.rings() => {}
            },
        }
    }

    /// Claims as many as there are free slots. A claim that got all it asked for is followed by another one at once.
    async fn look(&mut self) -> Next {
        let options = &self.engine.options.polling;
        let free = self.engine.slots.free(options.batch_size as usize);
        let asked: usize = free.iter().map(|queue| queue.limit).sum();
        if asked == 0 {
            return Next::Full;
        }
        match self.claim(free).await {
            Some(claims) => {
                let claimed = claims.len();
                self.coordinator.accept(claims).await;
                let delay = self.delay(PollSignal::Polled { claimed, batch_size: asked });
                if claimed >= asked { Next::Again } else { Next::Wait(delay) }
            }
            None => Next::Wait(self.delay(PollSignal::Failed)),
        }
    }

    async fn claim(&mut self, queues: Vec<QueueLimit>) -> Option<Vec<JobClaim>> {
        let engine = &self.engine;
        if self.unsure {
            // What a lost reply took is ours, and nobody else's until our lease ends.
            let owned = engine.store.owned(&engine.owner).await.ok()?;
            self.unsure = false;
            return Some(owned.into_iter().filter(|claim| !engine.runs(claim.id)).collect());
        }
        let boost = engine.options.store.priority_boost_interval;
        let mut request = ClaimRequest::of_queues(engine.owner.clone(), queues);
        request.boost_interval = Some(boost).filter(|interval| !interval.is_zero());
        match engine.store.claim(&request).await {
            Ok(claims) => Some(claims),
            Err(error) => {
                tracing::warn!(%error, "looking for work failed");
                self.unsure = true;
                None
            }
        }
    }

    fn delay(&mut self, signal: PollSignal) -> Duration {
        self.strategy.next_delay(signal, self.engine.slots.load(), Instant::now())
    }
}
