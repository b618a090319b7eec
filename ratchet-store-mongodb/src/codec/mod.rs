//! Documents: how each record looks in MongoDB.
//!
//! Ids are BSON UUIDs of subtype 4 through [`bson::Uuid`]: a `uuid::Uuid` in a serde struct would be written as
//! subtype 0, which no filter finds. Times are BSON dates, durations whole milliseconds, JSON is kept as text.

mod job;
mod problem;
mod records;
mod salvage;
mod spec;

use std::time::Duration;

use bson::{DateTime, Document, RawDocument, RawDocumentBuf, Uuid, doc};
use ratchet_api::{JobId, StoreError, StoreResult, Timestamp, whole_millis};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use job::{EndingDoc, ExecutionDoc, JobDoc, ProgressDoc, claim_fields, read_claim};
pub(crate) use problem::read;
pub(crate) use records::{
    AlertDoc, BatchDoc, EdgeDoc, FireId, KeyDoc, LimitDoc, LockDoc, LogDoc, NodeDoc, PermitId, key_hash,
};
pub(crate) use salvage::{Salvage, salvage};
pub(crate) use spec::{RecurrenceDoc, SpecDoc};

pub(crate) fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.as_millis())
}

pub(crate) fn uuid(id: JobId) -> Uuid {
    Uuid::from_bytes(id.as_uuid().into_bytes())
}

pub(crate) fn uuids(ids: impl IntoIterator<Item = JobId>) -> Vec<Uuid> {
    ids.into_iter().map(uuid).collect()
}

pub(crate) fn job_id(uuid: Uuid) -> JobId {
    JobId::from_uuid(uuid::Uuid::from_bytes(uuid.bytes()))
}

/// A filter for `_id` ranges that hold only valid job ids. Values of other types, lengths and subtypes lie outside.
pub(crate) fn job_ids() -> Document {
    doc! { "$gte": Uuid::from_bytes([0; 16]), "$lte": Uuid::from_bytes([255; 16]) }
}

/// The same filter for scans of other indexes, as an expression so that the planner does not scan `_id` instead.
pub(crate) fn has_job_id() -> Document {
    let is_binary = doc! { "$eq": [{ "$type": "$_id" }, "binData"] };
    let size = doc! { "$cond": [is_binary, { "$binarySize": "$_id" }, 0] };
    doc! { "$and": [{ "$expr": { "$eq": [size, 16] } }] }
}

pub(crate) fn millis(duration: Duration) -> i64 {
    whole_millis(duration)
}

/// A stored duration; a negative one was not written by a store and counts as zero.
pub(crate) fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}

/// Decodes one document; an error names its row.
pub(crate) fn decode<T: DeserializeOwned>(op: &'static str, raw: &RawDocument) -> StoreResult<T> {
    read(raw).map_err(|problem| StoreError::corrupt(op, row_of(raw), problem))
}

pub(crate) fn encode<T: Serialize>(op: &'static str, value: &T) -> StoreResult<RawDocumentBuf> {
    use crate::error::During;
    bson::serialize_to_raw_document_buf(value).during(op)
}

/// The `_id` of a document, as text for error messages.
pub(crate) fn row_of(raw: &RawDocument) -> String {
    match raw.get("_id") {
        Ok(Some(bson::RawBsonRef::Binary(binary))) => match uuid::Uuid::from_slice(binary.bytes) {
            Ok(id) => id.to_string(),
            Err(_) => "with a binary id that is no UUID".to_owned(),
        },
        Ok(Some(bson::RawBsonRef::String(text))) => text.to_owned(),
        _ => "without a readable id".to_owned(),
    }
}

/// The id of a job's document, if it can be read.
pub(crate) fn id_of(raw: &RawDocument) -> Option<JobId> {
    match raw.get("_id") {
        Ok(Some(bson::RawBsonRef::Binary(binary))) => {
            uuid::Uuid::from_slice(binary.bytes).ok().map(JobId::from_uuid)
        }
        _ => None,
    }
}
