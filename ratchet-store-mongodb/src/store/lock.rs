use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, doc};
use mongodb::options::ReturnDocument;
use ratchet_api::store::LockStore;
use ratchet_api::{LockLease, LockName, Owner, StoreError, StoreResult, Timestamp};

use crate::MongoStore;
use crate::clock::Present;
use crate::codec::{LockDoc, date, decode};
use crate::error::{During, is_duplicate};

#[async_trait]
impl LockStore for MongoStore {
    /// Takes the lock in one update that changes nothing if another owner holds it; the resulting document tells.
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
        let running = running(present);
        let is_mine = doc! { "$eq": ["$owner", &me] };
        let mine = doc! { "$and": [&running, &is_mine] };
        let theirs = doc! { "$and": [&running, { "$not": [&is_mine] }, { "$ne": [{ "$ifNull": ["$owner", null] }, null] }] };
        let same_term =
            doc! { "$convert": { "input": "$term", "to": "long", "onError": 0_i64, "onNull": 0_i64 } };
        let term = doc! { "$add": [{ "$min": [&same_term, i64::MAX - 1] }, 1_i64] };
        let unless_theirs = |field: &str, new: bson::Bson| doc! { "$cond": [&theirs, field, new] };
        let take = vec![doc! { "$set": {
            "owner": unless_theirs("$owner", me.clone().into()),
            "taken": unless_theirs("$taken", present.expr()),
            "expires": unless_theirs("$expires", present.plus(ttl)),
            "term": { "$cond": [{ "$or": [&mine, &theirs] }, same_term, term] },
        } }];
        let id = doc! { "_id": name.as_str() };
        // Two first takers may collide on the insert; the second attempt finds the lock.
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
        let present = self.present();
        let extend = vec![doc! { "$set": { "taken": present.expr(), "expires": present.plus(ttl) } }];
        self.change_held("renew_lock", lease, extend).await
    }

    async fn unlock(&self, lease: &LockLease) -> StoreResult<bool> {
        self.change_held("unlock", lease, vec![doc! { "$unset": ["owner"] }]).await
    }
}

/// An expression for whether a lock's time is still running. It is not if the lock was taken further ahead of now than
/// it was to last (the clock went back), if its times are not dates or end beyond the calendar (written by hand), or if
/// it was never taken.
fn running(present: Present) -> Document {
    let is_date = |field: &str| doc! { "$eq": [{ "$type": field }, "date"] };
    let ahead = doc! { "$subtract": ["$taken", present.expr()] };
    let ttl = doc! { "$subtract": ["$expires", "$taken"] };
    let lasts = doc! { "$and": [
        { "$gt": ["$expires", present.expr()] }, { "$lte": ["$expires", date(Timestamp::MAX)] }, { "$lte": [ahead, ttl] },
    ] };
    doc! { "$cond": [{ "$and": [is_date("$taken"), is_date("$expires")] }, lasts, false] }
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
        held.insert("$expr", running(self.present()));
        Ok(self.collections.locks.update_one(held, change).await.during(op)?.matched_count > 0)
    }
}
