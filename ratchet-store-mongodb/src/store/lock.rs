use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, doc};
use mongodb::options::ReturnDocument;
use ratchet_api::store::LockStore;
use ratchet_api::{LockLease, LockName, Owner, StoreError, StoreResult};

use crate::MongoStore;
use crate::codec::{LockDoc, decode};
use crate::error::{During, is_duplicate};

#[async_trait]
impl LockStore for MongoStore {
    /// One update that changes nothing if another owner holds the lock; the answer is in what it leaves.
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
        let present = self.present();
        let me = doc! { "$literal": owner.as_str() };
        // A missing field is less than any date, so a lock that never was counts as expired.
        let running = doc! { "$gt": ["$expires", present.expr()] };
        let is_mine = doc! { "$eq": ["$owner", &me] };
        let mine = doc! { "$and": [&running, &is_mine] };
        let theirs = doc! { "$and": [&running, { "$not": [&is_mine] }, { "$ne": [{ "$ifNull": ["$owner", null] }, null] }] };
        let term = doc! { "$add": [{ "$ifNull": ["$term", 0_i64] }, 1_i64] };
        let unless_theirs = |field: &str, new: bson::Bson| doc! { "$cond": [&theirs, field, new] };
        let take = vec![doc! { "$set": {
            "owner": unless_theirs("$owner", me.clone().into()),
            "expires": unless_theirs("$expires", present.plus(ttl)),
            "term": { "$cond": [{ "$or": [&mine, &theirs] }, "$term", term] },
        } }];
        let id = doc! { "_id": name.as_str() };
        // Two first takers may collide on the insert; the second look finds the lock.
        let mut updated = self.lock_document(&id, &take).await;
        if updated.as_ref().is_err_and(is_duplicate) {
            updated = self.lock_document(&id, &take).await;
        }
        let Some(raw) = updated.during(OP)? else { return Ok(None) };
        if raw.get_str("owner").ok() != Some(owner.as_str()) {
            return Ok(None);
        }
        let LockDoc { term } = decode(OP, &raw)?;
        Ok(Some(LockLease { name: name.clone(), owner: owner.clone(), term }))
    }

    async fn renew_lock(&self, lease: &LockLease, ttl: Duration) -> StoreResult<bool> {
        let extend = vec![doc! { "$set": { "expires": self.present().plus(ttl) } }];
        self.change_held("renew_lock", lease, extend).await
    }

    async fn unlock(&self, lease: &LockLease) -> StoreResult<bool> {
        self.change_held("unlock", lease, vec![doc! { "$unset": ["owner"] }]).await
    }
}

impl MongoStore {
    async fn lock_document(
        &self,
        id: &Document,
        take: &[Document],
    ) -> Result<Option<bson::RawDocumentBuf>, mongodb::error::Error> {
        self.collections
            .locks
            .find_one_and_update(id.clone(), take.to_vec())
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await
    }

    /// Changes a lock if it is still held under this lease.
    async fn change_held(
        &self,
        op: &'static str,
        lease: &LockLease,
        change: Vec<Document>,
    ) -> StoreResult<bool> {
        let mut held = doc! { "_id": lease.name.as_str(), "owner": lease.owner.as_str(), "term": lease.term };
        held.extend(self.present().ahead("expires"));
        Ok(self.collections.locks.update_one(held, change).await.during(op)?.matched_count > 0)
    }
}
