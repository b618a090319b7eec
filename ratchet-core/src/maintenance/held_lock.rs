//! A lock that is renewed while work is done under it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::LockStore;
use ratchet_api::{LockLease, LockName, Owner, StoreResult};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::in_time;

/// The lock is lost: another owner has it, or may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

/// A held lock.
pub(super) struct HeldLock {
    locks: Arc<dyn LockStore>,
    lease: LockLease,
    ttl: Duration,
    /// When it was last requested: the store counts from when it saw that, which was later.
    asked: Instant,
    /// When the last try to renew it began.
    tried: Instant,
}

impl HeldLock {
    /// Takes a lock; `None` if another owner has it.
    pub(super) async fn take(
        locks: Arc<dyn LockStore>,
        name: &LockName,
        ttl: Duration,
        owner: &Owner,
    ) -> StoreResult<Option<Self>> {
        let asked = Instant::now();
        let lease = locks.try_lock(name, ttl, owner).await?;
        Ok(lease.map(|lease| Self { locks, lease, ttl, asked, tried: asked }))
    }

    /// Does a piece of work, and renews the lock for as long as that takes. Gives the work up if the lock is lost.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = sleep_until(self.tried + self.ttl / 3) => self.renew().await?,
            }
        }
    }

    /// Renews the lock. A store that does not answer is asked again, as long as the lock may still be held.
    async fn renew(&mut self) -> Result<(), Lost> {
        self.tried = Instant::now();
        let end = self.asked + self.ttl;
        let answer = timeout_at(end, self.locks.renew_lock(&self.lease, self.ttl)).await;
        match answer {
            Ok(Ok(true)) => self.asked = self.tried,
            Ok(Err(error)) if Instant::now() < end => {
                tracing::debug!(%error, lock = %self.lease.name, "lock not renewed; it is tried again");
            }
            _ => return Err(Lost),
        }
        Ok(())
    }

    /// Releases the lock.
    pub(super) async fn release(self) {
        if let Err(error) = in_time(self.ttl, self.locks.unlock(&self.lease)).await {
            tracing::debug!(%error, lock = %self.lease.name, "lock not released; it ends by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use ratchet_api::{StoreError, StoreErrorKind};
    use tokio::time::sleep;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    /// A lock that gives these answers when it is renewed, the last one first, and after that says that it is held.
    #[derive(Default)]
    struct Locks {
        answers: Mutex<Vec<StoreResult<bool>>>,
        renewed: Mutex<u32>,
    }

    #[async_trait]
    impl LockStore for Locks {
        async fn try_lock(
            &self,
            name: &LockName,
            _: Duration,
            owner: &Owner,
        ) -> StoreResult<Option<LockLease>> {
            Ok(Some(LockLease { name: name.clone(), owner: owner.clone(), term: 1 }))
        }

        async fn renew_lock(&self, _: &LockLease, ttl: Duration) -> StoreResult<bool> {
            assert_eq!(ttl, TTL);
            *self.renewed.lock().unwrap() += 1;
            self.answers.lock().unwrap().pop().unwrap_or(Ok(true))
        }

        async fn unlock(&self, _: &LockLease) -> StoreResult<bool> {
            Ok(true)
        }
    }

    fn no_answer() -> StoreResult<bool> {
        Err(StoreError::new(StoreErrorKind::Unavailable, "renew_lock", "nobody is there"))
    }

    /// Works for `secs` seconds under a lock with these answers; also returns how often it was renewed.
    async fn work(secs: u64, answers: Vec<StoreResult<bool>>) -> (Result<(), Lost>, u32) {
        let locks = Arc::new(Locks { answers: Mutex::new(answers), renewed: Mutex::default() });
        let name = LockName::new("task").unwrap();
        let hold = HeldLock::take(Arc::<Locks>::clone(&locks), &name, TTL, &Owner::incarnate("me")).await;
        let mut hold = hold.unwrap().unwrap();
        let ended = hold.during(sleep(Duration::from_secs(secs))).await;
        let renewed = *locks.renewed.lock().unwrap();
        (ended, renewed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_is_renewed_for_as_long_as_the_work_takes() {
        assert_eq!(work(5, vec![]).await, (Ok(()), 0));
        assert_eq!(work(95, vec![]).await, (Ok(()), 9), "three times for each time that it lasts");
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_given_up_as_soon_as_the_lock_is_somebody_elses() {
        assert_eq!(work(95, vec![Ok(false), Ok(true)]).await, (Err(Lost), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_is_asked_again_while_the_lock_may_be_held() {
        assert_eq!(work(95, vec![Ok(true), no_answer(), no_answer()]).await, (Ok(()), 9));
        assert_eq!(work(95, vec![no_answer(), no_answer(), no_answer()]).await, (Err(Lost), 3));
    }
}
