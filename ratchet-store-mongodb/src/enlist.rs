//! Storing jobs inside a transaction of the application.

use async_trait::async_trait;
use bson::{Bson, doc};
use mongodb::ClientSession;
use mongodb::error::ErrorKind;
use ratchet_api::store::JobStore;
use ratchet_api::{Enlist, Inserted, StoreError, StoreErrorKind, StoreResult, Submission};

use crate::MongoStore;
use crate::error::During;
use crate::store::bulk::CHUNK;
use crate::unit::Unit;

const OP: &str = "insert_in";

/// The marker for this crate's implementations on the driver's types.
#[derive(Clone, Copy, Debug)]
pub struct InMongo;

/// Stores jobs in the session's transaction: they exist once it is committed, and never if it is aborted.
///
/// The session must be one of the store's own [client](MongoStore::client) and have begun a transaction. A key that was
/// taken before is an answer (`Inserted::Existing`). A key that another transaction takes at the same time ends this
/// one: the error is transient, and [`driver_error`](crate::driver_error) turns it back into the driver's own, whose
/// labels make the driver run the whole transaction again. Commit with a write concern of `majority`, the driver's
/// default, or the jobs may be lost with the primary.
#[async_trait]
impl Enlist<InMongo> for ClientSession {
    async fn insert_in(
        &mut self,
        store: &dyn JobStore,
        submissions: &[Submission],
    ) -> StoreResult<Vec<Inserted>> {
        let store = MongoStore::behind(store)?;
        has_begun(self).await?;
        let mut answers = Vec::with_capacity(submissions.len());
        for chunk in submissions.chunks(CHUNK) {
            match insert_chunk(store, self, chunk).await {
                Ok(inserted) => answers.extend(inserted),
                Err(error) if error.kind() == StoreErrorKind::Conflict => {
                    return Err(lost_race(store, self, error).await);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }
}

async fn insert_chunk(
    store: &MongoStore,
    session: &mut ClientSession,
    submissions: &[Submission],
) -> StoreResult<Vec<Inserted>> {
    let mut unit = Unit::join(store, session, OP).await?;
    let answer = unit.insert(&submissions.iter().collect::<Vec<_>>()).await;
    unit.leave(answer).await
}

/// Refuses a session without a transaction, in which every write would take effect at once.
async fn has_begun(session: &mut ClientSession) -> StoreResult<()> {
    // The driver does not tell whether one is under way, but refuses to begin a second one.
    match session.start_transaction().await {
        Ok(()) => {
            session.abort_transaction().await.during(OP)?;
            let advice = "the session has no transaction; begin one by `session.start_transaction()`";
            Err(StoreError::invalid(OP, advice))
        }
        Err(error) if matches!(*error.kind, ErrorKind::Transaction { .. }) => Ok(()),
        Err(error) => Err(error).during(OP),
    }
}

/// The error for a key that was taken after this transaction began. The server has ended the transaction and reports
/// only to the next command, with the label, that it can be run again.
async fn lost_race(store: &MongoStore, session: &mut ClientSession, taken: StoreError) -> StoreError {
    let next = store.collections.jobs.find_one(doc! { "_id": Bson::Null }).session(session).await;
    match next.during(OP) {
        Err(ended) => ended,
        Ok(_) => taken,
    }
}

impl MongoStore {
    /// The store behind a trait object.
    fn behind(store: &dyn JobStore) -> StoreResult<&Self> {
        let name = store.name();
        let other = || format!("a session of MongoDB cannot take jobs of the store {name}");
        let found = store.as_any().downcast_ref();
        found.ok_or_else(|| StoreError::new(StoreErrorKind::Unsupported, OP, other()))
    }
}
