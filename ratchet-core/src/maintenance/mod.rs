//! Maintenance of old data: ended jobs are archived and, like old dead letters, logs and rows of dead nodes, deleted at
//! last.
//!
//! Each [`Task`] has its time and its lock, so that one node of the cluster does it. The work is done in parts, each of
//! them one transaction: after a crash, another node goes on where the first one stopped. Nodes do it by themselves;
//! [`Client::maintenance`](crate::Client::maintenance) does it now.

mod held_lock;
mod runner;
mod task;
mod timetable;

pub(crate) use runner::run;
pub(crate) use task::check;
pub use task::{Task, UnknownTask};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::options::MaintenanceOptions;
use ratchet_api::store::JobStore;
use ratchet_api::{Owner, StoreError, StoreErrorKind, StoreResult};
use tokio::time::{Instant, sleep, timeout};

use self::held_lock::HeldLock;

/// The time limit of a part, as a multiple of the time that a lock lasts. Without a limit, a store that never answers
/// would keep every other node from the task.
const PATIENCE: u32 = 6;

/// How a run of a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ran {
    /// Nothing is left to do.
    Done {
        /// How many rows were moved or deleted.
        rows: u64,
    },
    /// It was told to stop.
    Stopped {
        /// How many rows were moved or deleted before.
        rows: u64,
    },
    /// Another node runs it. Nothing was done.
    Busy,
    /// The lock was lost, so another node may run it.
    Lost {
        /// How many rows were moved or deleted before.
        rows: u64,
    },
}

/// The runner of maintenance tasks, each under its lock.
#[derive(Clone)]
pub struct Maintenance {
    store: Arc<dyn JobStore>,
    options: MaintenanceOptions,
    owner: Owner,
}

impl Maintenance {
    pub(crate) fn new(store: Arc<dyn JobStore>, options: MaintenanceOptions, owner: Owner) -> Self {
        Self { store, options, owner }
    }

    /// Sets this age for everything, instead of the ages in the options.
    #[must_use]
    pub fn older_than(self, age: Duration) -> Self {
        Self { options: task::older_than(self.options, age), ..self }
    }

    /// Runs a task now, even if it is disabled, unless another node runs it. Asks before each part whether to go on,
    /// and passes how many rows were moved or deleted so far.
    ///
    /// # Errors
    /// If the store fails. The parts that were done stay done, and the next run goes on.
    pub async fn run(&self, task: Task, go_on: impl FnMut(u64) -> bool) -> StoreResult<Ran> {
        let Some(mut hold) = self.hold(task).await? else { return Ok(Ran::Busy) };
        let ran = self.sweep(task, &mut hold, go_on).await;
        hold.release().await;
        ran
    }

    async fn hold(&self, task: Task) -> StoreResult<Option<HeldLock>> {
        let (name, ttl) = (task.lock()?, self.options.lock_ttl);
        in_time(ttl, HeldLock::take(Arc::<dyn JobStore>::clone(&self.store), &name, ttl, &self.owner)).await
    }

    /// Runs part after part, as long as there is something left.
    async fn sweep(
        &self,
        task: Task,
        hold: &mut HeldLock,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> StoreResult<Ran> {
        let mut rows = 0;
        while go_on(rows) {
            let begun = Instant::now();
            let Ok(part) = hold.during(self.part(task)).await else { return Ok(Ran::Lost { rows }) };
            let (count, more) = part?;
            rows += count;
            if !more {
                return Ok(Ran::Done { rows });
            }
            if hold.during(sleep(timetable::rest(begun.elapsed()))).await.is_err() {
                return Ok(Ran::Lost { rows });
            }
        }
        Ok(Ran::Stopped { rows })
    }

    async fn part(&self, task: Task) -> StoreResult<(u64, bool)> {
        in_time(self.options.lock_ttl * PATIENCE, task.chunk(&*self.store, &self.options)).await
    }
}

/// Limits the time of a call, so that a store that never answers does not hold a task up for ever.
async fn in_time<T>(limit: Duration, call: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    let late = |_| StoreError::new(StoreErrorKind::Unavailable, "maintenance", "no answer in time");
    timeout(limit, call).await.map_err(late)?
}

impl fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maintenance")
            .field("owner", &self.owner)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
