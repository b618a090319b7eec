//! Locks that expire. Each call is one statement, so the server's row lock decides every race.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::LockStore;
use ratchet_api::{LockLease, LockName, Owner, StoreError, StoreResult};

use super::SqlStore;
use crate::store::row::Cells;
use crate::store::values::delay_millis;

#[async_trait]
impl LockStore for SqlStore {
    async fn try_lock(
        &self,
        name: &LockName,
        ttl: Duration,
        owner: &Owner,
    ) -> StoreResult<Option<LockLease>> {
        const OP: &str = "try_lock";
        if ttl.is_zero() {
            return Err(StoreError::invalid(OP, "a lock needs a time to live above zero"));
        }
        self.write(OP, |session| {
            Box::pin(async move {
                let try_lock = session.sql().try_lock.bind();
                let rows = try_lock
                    .arg("lock_name", name.as_str())
                    .arg("owner", owner.as_str())
                    .arg("ttl_ms", delay_millis(ttl))
                    .arg("now", session.store().now())
                    .rows(session)
                    .await?;
                let Some(row) = rows.first() else { return Ok(None) };
                let term = Cells(row).must(OP, "term")?;
                Ok(Some(LockLease { name: name.clone(), owner: owner.clone(), term }))
            })
        })
        .await
    }

    async fn renew_lock(&self, lease: &LockLease, ttl: Duration) -> StoreResult<bool> {
        self.write("renew_lock", |session| {
            Box::pin(async move {
                let renew = session.sql().renew_lock.bind().arg("ttl_ms", delay_millis(ttl));
                let renew = renew.arg("now", session.store().now()).arg("lock_name", lease.name.as_str());
                let renew = renew.arg("owner", lease.owner.as_str()).arg("term", lease.term);
                Ok(renew.run(session).await? > 0)
            })
        })
        .await
    }

    async fn unlock(&self, lease: &LockLease) -> StoreResult<bool> {
        self.write("unlock", |session| {
            Box::pin(async move {
                let unlock = session.sql().unlock.bind().arg("now", session.store().now());
                let unlock = unlock.arg("lock_name", lease.name.as_str()).arg("owner", lease.owner.as_str());
                Ok(unlock.arg("term", lease.term).run(session).await? > 0)
            })
        })
        .await
    }
}
