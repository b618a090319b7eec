//! The reference model of the Ratchet store contract: plain collections behind one lock.
//!
//! The contract of a store is written in [`ratchet_api::store`]; this is its shortest complete implementation. Read it
//! to see what an operation means, use it in tests, and compare another store with it. Nothing survives the process.
//!
//! One mutex makes every call a transaction. `state` holds the data and the few rules that several operations share;
//! each other module implements the sub-traits of one concern.

mod claim;
mod commit;
mod control;
mod grouping;
mod insert;
mod node;
mod parking;
mod query;
mod record;
mod recurring;
mod state;
mod wakeup;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ratchet_api::spi::ClusterCoordinator;
use ratchet_api::store::StoreInfo;
use ratchet_api::{Fence, JobId, Owner, StoreClock, StoreResult, Timestamp};

use state::State;
use wakeup::{MemoryCoordinator, Wakeups};

/// A store in the memory of this process. Clones and [`connect`](Self::connect) share the data.
///
/// ```
/// use ratchet_api::store::{ClaimRequest, JobBulkStore, JobClaimStore, NodeStore};
/// use ratchet_api::{JobPayload, JsonText, NewJob, NodeInfo, Owner, Submission};
/// use ratchet_store_memory::MemoryStore;
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let owner = Owner::incarnate("example");
/// store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(30)).await?;
///
/// let call = JobPayload::new("mail.Mailer", "send", &JsonText::parse("[7]")?)?;
/// store.insert(&[Submission::single(NewJob::new(call))]).await?;
/// assert_eq!(store.claim(&ClaimRequest::new(owner, 10)).await?.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    clock: StoreClock,
    wakeups: Arc<Wakeups>,
}

impl MemoryStore {
    /// Creates an empty store that goes by the system clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty store that goes by this clock.
    pub fn with_clock(clock: StoreClock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// Returns one more handle on the same data, going by this clock.
    #[must_use]
    pub fn connect(&self, clock: StoreClock) -> Self {
        Self { clock, ..self.clone() }
    }

    /// Damages a job as manual changes in a database could: `how` is the name of a `ratchet_tck::Spoil`.
    #[doc(hidden)]
    pub fn spoil(&self, job: JobId, how: &str) {
        self.transaction(|state, now| match (how, state.jobs.get_mut(&job)) {
            (_, None) => {}
            // No job here can be without its queue state, so the consequence is applied at once.
            ("QueueStateGone", Some(_)) => state.end_corrupt(job, now),
            ("FirstVersion", Some(row)) => row.job.fence = Fence::FIRST,
            ("OwnerName", Some(row)) => row.job.picked_by = Some(Owner::from_stored("nobody")),
            // Line numbers and the beats of nodes cannot be damaged here.
            ("LogNumber" | "OwnerBeats", Some(_)) => {}
            (_, Some(row)) => {
                row.unreadable = Some(how.to_owned());
                row.unreachable = matches!(how, "Priority" | "QueueName");
            }
        });
    }

    /// Runs one call as a transaction: alone, and at one instant.
    fn transaction<T>(&self, call: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.lock();
        let now = self.clock.manual_now().unwrap_or_else(Timestamp::node_now);
        call(&mut state, now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StoreInfo for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        Some(Arc::new(MemoryCoordinator::new(Arc::clone(&self.wakeups))))
    }

    async fn database_time(&self) -> StoreResult<Timestamp> {
        Ok(self.transaction(|_, now| now))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
