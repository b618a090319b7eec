//! Locks that expire.

use std::time::Duration;

use async_trait::async_trait;

use crate::{LockLease, LockName, Owner, StoreResult};

/// Distributed locks. They save work; correctness does not depend on them.
#[async_trait]
pub trait LockStore: Send + Sync + 'static {
    /// Takes the lock for `ttl`, or answers `None` if another owner holds it.
    ///
    /// # Contract
    /// - `lock.exclusive`: while a lease runs no other owner gets the lock; under a race exactly one does.
    /// - `lock.expires`: a lock whose time has run out by the store's clock can be taken by anyone; sub-second times
    ///   count.
    /// - `lock.term`: each change of holder raises the term; a holder that takes its lock again extends it under the
    ///   same term.
    /// - `lock.clock_back`: a lock that was taken or extended later than the store's present, by more than its `ttl`,
    ///   has run out: the store's clock went back since.
    /// - `lock.ttl`: a zero `ttl` is an error of kind `Invalid`.
    async fn try_lock(&self, name: &LockName, ttl: Duration, owner: &Owner)
    -> StoreResult<Option<LockLease>>;

    /// Extends a held lock to `ttl` from now; `false` if it is no longer held under this term.
    ///
    /// # Contract
    /// - `lock.renew`: only the present owner and term can renew, and only before the time has run out.
    async fn renew_lock(&self, lease: &LockLease, ttl: Duration) -> StoreResult<bool>;

    /// Releases a lock; `false` if it is no longer held under this term.
    ///
    /// # Contract
    /// - `lock.unlock`: only the present owner and term can unlock; then anyone can take it at once, under a new term.
    async fn unlock(&self, lease: &LockLease) -> StoreResult<bool>;
}
