//! The capped collection of notices: a node with news appends one, a listening node follows the end.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, RawBsonRef, Timestamp, doc};
use futures::StreamExt as _;
use mongodb::options::{
    Acknowledgment, CollectionOptions, CreateCollectionOptions, CursorType, FindOptions, ReadConcern,
    ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::raw_batch_cursor::RawBatchCursor;
use mongodb::{Collection, Database};
use ratchet_api::spi::WakeupKind;
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};
use tokio::time::timeout;

use crate::error::During;

const NAME: &str = "scheduler_wakeup";
const OP: &str = "wakeup";
/// Room for about 600 notices. A node that falls behind by more has a gap.
const BYTES: u64 = 1 << 16;
/// How long the server waits for a notice before it returns an empty batch.
const AWAIT: Duration = Duration::from_secs(60);
/// How late that reply may be before the connection counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// A placeholder that the server replaces with its time.
const PRESENT: Timestamp = Timestamp { time: 0, increment: 0 };

/// The notices of one namespace.
#[derive(Clone)]
pub(crate) struct Notices {
    database: Database,
    collection: Collection<Document>,
}

impl Notices {
    pub(crate) fn new(database: &Database, prefix: &str) -> Self {
        // A hint waits for neither the journal nor another member, whether written or read.
        let hint = CollectionOptions::builder()
            .read_concern(ReadConcern::local())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .write_concern(WriteConcern::builder().w(Acknowledgment::Nodes(1)).journal(false).build());
        let collection = database.collection_with_options(&format!("{prefix}{NAME}"), hint.build());
        Self { database: database.clone(), collection }
    }

    pub(crate) fn name(&self) -> &str {
        self.collection.name()
    }

    /// The options for creating the collection.
    pub(crate) fn layout() -> CreateCollectionOptions {
        CreateCollectionOptions::builder().capped(true).size(BYTES).build()
    }

    /// Whether the collection exists and is capped. Any other would grow for ever and could not be followed.
    pub(crate) async fn are_capped(&self) -> StoreResult<bool> {
        let named = doc! { "name": self.name() };
        let mut found = self.database.list_collections().filter(named).await.during(OP)?;
        let capped = found.next().await.transpose().during(OP)?.and_then(|found| found.options.capped);
        Ok(capped == Some(true))
    }

    pub(super) async fn append(&self, by: ObjectId, kind: WakeupKind) -> StoreResult<()> {
        let notice = doc! { "at": PRESENT, "by": by, "about": word(kind) };
        self.collection.insert_one(notice).await.during(OP).map(drop)
    }

    /// Follows the notices that nodes other than `me` append from now on.
    pub(super) async fn follow(&self, me: ObjectId) -> StoreResult<Follower> {
        let election = self.election().await?;
        let newest = self.collection.find_one(doc! {}).sort(doc! { "$natural": -1 }).await.during(OP)?;
        if newest.is_none() {
            // A tailable cursor cannot be opened on an empty collection.
            self.collection.insert_one(doc! { "at": PRESENT }).await.during(OP)?;
        }
        let newest = newest.and_then(|newest| newest.get_timestamp("at").ok()).unwrap_or(PRESENT);
        let follow =
            FindOptions::builder().cursor_type(CursorType::TailableAwait).max_await_time(AWAIT).build();
        let others = doc! { "at": { "$gt": newest }, "by": { "$nin": [Bson::Null, Bson::from(me)] } };
        let batches = self.collection.find(others).with_options(follow).batch().await.during(OP)?;
        Ok(Follower { notices: self.clone(), election, batches, is_new: true })
    }

    /// The id of the election that the primary won; `None` behind a router.
    async fn election(&self) -> StoreResult<Option<ObjectId>> {
        let hello = self.database.run_command(doc! { "hello": 1 }).await.during(OP)?;
        Ok(hello.get_object_id("electionId").ok())
    }
}

/// A cursor at the end of the collection, on the server that was the primary when it was opened.
pub(super) struct Follower {
    notices: Notices,
    election: Option<ObjectId>,
    batches: RawBatchCursor,
    /// Whether the first batch, which the server returns at once, is still to be read.
    is_new: bool,
}

impl Follower {
    /// Waits for notices and returns their kinds; empty if none came for a while.
    pub(super) async fn hear(&mut self) -> StoreResult<Vec<WakeupKind>> {
        loop {
            let lost = |detail| StoreError::new(StoreErrorKind::Transient, OP, detail);
            let batch = timeout(AWAIT + PATIENCE, self.batches.next());
            let batch = batch.await.map_err(|_| lost("the server does not answer"))?;
            let batch = batch.ok_or_else(|| lost("the collection was emptied"))?.during(OP)?;
            let mut kinds = Vec::new();
            for notice in batch.doc_slices().during(OP)? {
                kinds.push(kind_of(notice.during(OP)?));
            }
            if kinds.is_empty() {
                if std::mem::take(&mut self.is_new) {
                    continue;
                }
                // The cursor survives a step-down, and a member that is cut off from the others gets no notices.
                if self.notices.election().await? != self.election {
                    return Err(lost("another primary was elected"));
                }
            }
            kinds.sort();
            kinds.dedup();
            return Ok(kinds);
        }
    }
}

const fn word(kind: WakeupKind) -> &'static str {
    match kind {
        WakeupKind::CancelRequested => "cancel",
        _ => "work",
    }
}

/// The kind of a notice. An unknown one is a reason to look for work.
fn kind_of(notice: RawBsonRef<'_>) -> WakeupKind {
    match notice.as_document().map(|notice| notice.get_str("about")) {
        Some(Ok("cancel")) => WakeupKind::CancelRequested,
        _ => WakeupKind::NewWork,
    }
}
