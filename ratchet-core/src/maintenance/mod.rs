//! What becomes of jobs that nobody needs any more: they are archived and, like old dead letters, logs and rows of dead
//! nodes, deleted at last.
//!
//! Each [`Task`] has its time and its lock, so that one node of the cluster does it. The work is done in parts, each of
//! them one transaction: whoever comes after a crash goes on where the other one stopped. Nodes do it by themselves;
//! [`Client::maintenance`](crate::Client::maintenance) does it now.

mod hold;
mod keep;
mod pace;
mod task;

pub(crate) use keep::keep;
pub(crate) use task::check;
pub use task::{Task, UnknownTask};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::options::MaintenanceOptions;
use ratchet_api::store::JobStore;
use ratchet_api::{Owner, StoreError, StoreErrorKind, StoreResult};
use tokio::time::{Instant, sleep, timeout};

use self::hold::Hold;

/// A part takes at most so many times as long as a lock lasts. Somewhere it must end: a store that never answers would
/// keep every other node from the task.
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
    /// Another node is at it. Nothing was done.
    Busy,
    /// The lock was lost, so another node may be at it.
    Lost {
        /// How many rows were moved or deleted before.
        rows: u64,
    },
}

/// Does tasks, each under its lock.
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

    /// With this age for everything, instead of what the options say.
    #[must_use]
    pub fn older_than(self, age: Duration) -> Self {
        Self { options: task::older_than(self.options, age), ..self }
    }

    /// Does a task now, also one that is switched off, unless another node is at it. Asks before each part whether to go on, and
    /// tells how many rows were moved or deleted so far.
    ///
    /// # Errors
    /// If the store fails. What was done so far is done, and the next run goes on.
    pub async fn run(&self, task: Task, go_on: impl FnMut(u64) -> bool) -> StoreResult<Ran> {
        let Some(mut hold) = self.hold(task).await? else { return Ok(Ran::Busy) };
        let ran = self.sweep(task, &mut hold, go_on).await;
        hold.release().await;
        ran
    }

    async fn hold(&self, task: Task) -> StoreResult<Option<Hold>> {
        let (name, ttl) = (task.lock()?, self.options.lock_ttl);
        in_time(ttl, Hold::take(Arc::<dyn JobStore>::clone(&self.store), &name, ttl, &self.owner)).await
    }

    /// Part after part, as long as there is something left.
    async fn sweep(
        &self,
        task: Task,
        hold: &mut Hold,
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
            if hold.during(sleep(pace::rest(begun.elapsed()))).await.is_err() {
                return Ok(Ran::Lost { rows });
            }
        }
        Ok(Ran::Stopped { rows })
    }

    async fn part(&self, task: Task) -> StoreResult<(u64, bool)> {
        in_time(self.options.lock_ttl * PATIENCE, task.chunk(&*self.store, &self.options)).await
    }
}

/// A store that never answers must not hold a task up for ever.
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
