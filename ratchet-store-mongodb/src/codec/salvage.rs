//! Recovery of the readable part of a damaged document.
//!
//! The server enforces no schema, so other programs can write anything into a document. An operation that must end such
//! a job takes every readable field and a harmless value for the rest; writing it back repairs it.

use bson::{Bson, Document, RawDocument, doc};
use ratchet_api::{JobType, Timestamp};
use serde::de::DeserializeOwned;

use super::{EdgeDoc, JobDoc, NodeDoc, date, row_of};

/// A document that must be processed even if it is damaged.
pub(crate) trait Salvage: DeserializeOwned {
    /// A harmless document with the same id that records the problem; `None` to skip damaged documents of this kind.
    fn blank(_stored: &Document, _problem: &str) -> Option<Document> {
        None
    }
}

/// Decodes a document, or as much of it as can be read.
pub(crate) fn salvage<T: Salvage>(op: &'static str, raw: &RawDocument) -> Option<T> {
    let problem = match super::read(raw) {
        Ok(doc) => return Some(doc),
        Err(problem) => problem,
    };
    tracing::error!(op, row = row_of(raw), problem, "a document cannot be read");
    let stored = Document::try_from(raw).ok()?;
    let read = |doc: &Document| bson::deserialize_from_document::<T>(doc.clone());
    read(&mend(&stored, &T::blank(&stored, &problem)?, &|doc| read(doc).is_ok())).ok()
}

/// `blank` with every field of `stored` that can be read.
fn mend(stored: &Document, blank: &Document, readable: &dyn Fn(&Document) -> bool) -> Document {
    let mut mended = blank.clone();
    for (field, value) in stored {
        let with = |value: Bson| {
            let mut tried = mended.clone();
            tried.insert(field, value);
            tried
        };
        let whole = with(value.clone());
        if readable(&whole) {
            mended = whole;
        } else if let (Bson::Document(inner), Some(Bson::Document(blank))) = (value, blank.get(field)) {
            let inner = mend(inner, blank, &|inner| readable(&with(inner.clone().into())));
            mended.insert(field, inner);
        }
    }
    mended
}

impl Salvage for JobDoc {
    /// A job that stays marked as corrupt. Its state follows from its queue part; its fence is the last one.
    fn blank(stored: &Document, problem: &str) -> Option<Document> {
        let job_type = JobType::default().as_str();
        let epoch = date(Timestamp::MIN);
        let mut blank = doc! {
            "_id": stored.get("_id")?, "fence": i64::MAX, "created_at": epoch, "scheduled_time": epoch, "attempts": 0,
            "crash_count": 0, "blocked_by": 0, "open_parents": 0, "edge_count": 0, "corrupt": problem,
            "spec": {
                "job_type": job_type, "queue": "?", "priority": 2, "max_retries": 0, "backoff": "NONE", "backoff_ms": 0_i64,
                "call": { "target": "?", "method": "?", "payload": "null" },
            },
        };
        let queue = stored.get_document("queue").ok();
        let status = match queue {
            Some(queue) if queue.contains_key("picked_by") => "RUNNING",
            Some(_) => "PENDING",
            None => "FAILED",
        };
        blank.insert("status", status);
        if queue.is_some() {
            blank.insert("queue", doc! { "job_type": job_type, "priority": 2 });
        }
        Some(blank)
    }
}

impl Salvage for EdgeDoc {
    fn blank(stored: &Document, _: &str) -> Option<Document> {
        let id = stored.get("_id")?;
        let submission = bson::Uuid::from_bytes([0; 16]);
        Some(doc! {
            "_id": id, "condition": "unreadable", "priority": 0, "state": "OPEN", "stored_at": date(Timestamp::MIN),
            "submission": submission, "place": 0,
        })
    }
}

impl Salvage for super::BatchDoc {}
impl Salvage for super::KeyDoc {}
impl Salvage for super::LimitDoc {}

impl Salvage for NodeDoc {
    /// A node whose lease is over.
    fn blank(stored: &Document, _: &str) -> Option<Document> {
        let epoch = date(Timestamp::MIN);
        Some(doc! {
            "_id": stored.get_str("_id").ok()?, "label": "", "version": "", "methods": [], "queues": [], "started_at": epoch,
            "heartbeat_at": epoch, "beating_since": epoch, "beat_gap_ms": 0_i64, "lease_until": epoch, "reaped": false,
            "skew_ms": 0_i64, "running": 0, "slots": 0, "draining": false,
        })
    }
}

impl Salvage for super::ExecutionDoc {}
impl Salvage for super::AlertDoc {}
