//! The alarm of the poller, for jobs that become due and that this process knows of.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The most instants that are remembered. Ordinary polls find the other jobs, a little later.
const MAX_INSTANTS: usize = 1_024;

/// Instants at which jobs become due.
#[derive(Default)]
pub(crate) struct Alarm {
    instants: Mutex<BTreeSet<Instant>>,
    changed: Notify,
}

impl Alarm {
    /// Sets an alarm for a job that becomes due after `delay`.
    pub(crate) fn set(&self, delay: Duration) {
        let Some(at) = Instant::now().checked_add(delay) else { return };
        let mut instants = self.instants();
        let sooner = instants.first().is_none_or(|first| at < *first);
        instants.insert(at);
        if instants.len() > MAX_INSTANTS {
            instants.pop_last();
        }
        drop(instants);
        if sooner {
            self.changed.notify_one();
        }
    }

    /// Completes when a job becomes due.
    pub(crate) async fn rings(&self) {
        loop {
            let first = self.instants().first().copied();
            tokio::select! {
                () = self.changed.notified() => continue,
                () = at(first) => {}
            }
            let now = Instant::now();
            let mut instants = self.instants();
            // One poll finds all that are due by now.
            *instants = instants.split_off(&(now + Duration::from_nanos(1)));
            return;
        }
    }

    fn instants(&self) -> std::sync::MutexGuard<'_, BTreeSet<Instant>> {
        self.instants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_the_earliest_is_due_and_then_for_the_next() {
        let (alarm, begun) = (Alarm::default(), Instant::now());
        for secs in [5, 2, 9] {
            alarm.set(Duration::from_secs(secs));
        }
        for secs in [2, 5, 9] {
            alarm.rings().await;
            assert_eq!(begun.elapsed().as_secs(), secs);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_set_while_it_waits_for_a_later_one_counts() {
        let (alarm, begun) = (Alarm::default(), Instant::now());
        alarm.set(Duration::from_secs(60));
        let sooner = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            alarm.set(Duration::from_secs(1));
        };
        tokio::join!(alarm.rings(), sooner);
        assert_eq!(begun.elapsed().as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_latest_are_forgotten_first() {
        let (alarm, begun) = (Alarm::default(), Instant::now());
        for secs in 0..2 * MAX_INSTANTS as u64 {
            alarm.set(Duration::from_secs(2 * MAX_INSTANTS as u64 - secs));
        }
        assert_eq!(alarm.instants().len(), MAX_INSTANTS);
        alarm.rings().await;
        assert_eq!(begun.elapsed().as_secs(), 1);
    }
}
