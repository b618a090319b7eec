use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::spi::StartupCoordinator;
use ratchet_api::store::LockStore;
use ratchet_api::{LockLease, LockName, Owner, StoreResult};

/// A coordinator that hands out start-up tasks by locks in the store, named `startup:` and the action.
///
/// The node that holds one may ask again: its lease is extended.
pub struct StoreStartupCoordinator {
    locks: Arc<dyn LockStore>,
    owner: Owner,
    held: Mutex<HashMap<LockName, LockLease>>,
}

impl StoreStartupCoordinator {
    /// A coordinator that takes locks for `owner`.
    pub fn new(locks: Arc<dyn LockStore>, owner: Owner) -> Self {
        Self { locks, owner, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<LockName, LockLease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock_name(action: &str) -> StoreResult<LockName> {
    Ok(LockName::new(format!("startup:{action}"))?)
}

#[async_trait]
impl StartupCoordinator for StoreStartupCoordinator {
    async fn try_acquire(&self, action: &str, lease: Duration) -> StoreResult<bool> {
        let name = lock_name(action)?;
        let taken = self.locks.try_lock(&name, lease, &self.owner).await?;
        let acquired = taken.is_some();
        match taken {
            Some(lease) => self.held().insert(name, lease),
            None => self.held().remove(&name),
        };
        Ok(acquired)
    }

    async fn release(&self, action: &str) -> StoreResult<()> {
        let name = lock_name(action)?;
        let Some(lease) = self.held().get(&name).cloned() else { return Ok(()) };
        self.locks.unlock(&lease).await?;
        self.held().remove(&name);
        Ok(())
    }
}

impl fmt::Debug for StoreStartupCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreStartupCoordinator")
            .field("owner", &self.owner)
            .field("held", &*self.held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ratchet_api::{ManualClock, StoreClock, StoreErrorKind, Timestamp};
    use ratchet_store_memory::MemoryStore;

    use super::*;

    const LEASE: Duration = Duration::from_mins(5);
    const CLEANUP: &str = "recurring-annotation-orphan-cleanup";

    fn two_nodes() -> (StoreStartupCoordinator, StoreStartupCoordinator, ManualClock) {
        let clock = ManualClock::starting_at(Timestamp::from_millis(0));
        let store = MemoryStore::with_clock(StoreClock::Manual(clock.clone()));
        let node = |label| StoreStartupCoordinator::new(Arc::new(store.clone()), Owner::incarnate(label));
        (node("a"), node("b"), clock)
    }

    // shows: S126
    #[tokio::test]
    async fn one_node_of_many_gets_a_task_until_its_lease_runs_out() {
        let (a, b, clock) = two_nodes();
        assert!(a.try_acquire(CLEANUP, LEASE).await.unwrap());
        assert!(!b.try_acquire(CLEANUP, LEASE).await.unwrap());
        assert!(b.try_acquire("something-else", LEASE).await.unwrap());
        clock.advance(LEASE);
        assert!(b.try_acquire(CLEANUP, LEASE).await.unwrap());
        assert!(!a.try_acquire(CLEANUP, LEASE).await.unwrap());
    }

    // shows: S126
    #[tokio::test]
    async fn a_released_task_can_be_taken_at_once() {
        let (a, b, _) = two_nodes();
        assert!(a.try_acquire(CLEANUP, LEASE).await.unwrap());
        a.release(CLEANUP).await.unwrap();
        assert!(b.try_acquire(CLEANUP, LEASE).await.unwrap());
    }

    #[tokio::test]
    async fn releasing_what_another_node_holds_changes_nothing() {
        let (a, b, clock) = two_nodes();
        assert!(a.try_acquire(CLEANUP, LEASE).await.unwrap());
        b.release(CLEANUP).await.unwrap();
        assert!(!b.try_acquire(CLEANUP, LEASE).await.unwrap());

        clock.advance(LEASE);
        assert!(b.try_acquire(CLEANUP, LEASE).await.unwrap());
        a.release(CLEANUP).await.unwrap();
        assert!(
            !a.try_acquire(CLEANUP, LEASE).await.unwrap(),
            "the lease of b outlived the late release of a"
        );
    }

    #[tokio::test]
    async fn an_action_that_is_no_name_is_an_error() {
        let (a, ..) = two_nodes();
        let error = a.try_acquire(&"x".repeat(200), LEASE).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid);
    }
}
