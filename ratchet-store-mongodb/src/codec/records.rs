//! The documents of the collections other than jobs.

use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Uuid};
use ratchet_api::{
    Batch, BatchId, BatchProgress, Condition, DlqAlert, Edge, EdgeState, Fence, Fingerprint, IdempotencyKey,
    JobId, JsonText, LogLevel, LogLine, Node, NodeInfo, Owner, ResourceLimit, ResourceName, StoreError,
    StoreResult, Timestamp,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{date, duration, job_id, millis, uuid};
use crate::clock::instant;

/// An edge, keyed by its two ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EdgeDoc {
    #[serde(rename = "_id")]
    pub(crate) id: EdgeId,
    pub(crate) condition: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expression: Option<String>,
    pub(crate) priority: i32,
    pub(crate) state: EdgeState,
    /// The submitter's decision for an ended parent, while the edge is being stored.
    #[serde(skip)]
    pub(crate) if_ended: Option<EdgeState>,
    /// The order of storing: the time, the submission, and the position in it.
    pub(crate) stored_at: DateTime,
    pub(crate) submission: Uuid,
    pub(crate) place: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EdgeId {
    pub(crate) parent: Uuid,
    pub(crate) child: Uuid,
}

impl EdgeDoc {
    /// A new edge: open, whatever the submission says.
    pub(crate) fn open(edge: &Edge, submission: JobId, place: usize, now: Timestamp) -> Self {
        let (condition, expression) = edge.condition.to_parts();
        Self {
            id: EdgeId { parent: uuid(edge.parent), child: uuid(edge.child) },
            condition,
            expression: expression.map(|expression| expression.to_string()),
            priority: edge.priority,
            state: EdgeState::Open,
            if_ended: edge.if_ended,
            stored_at: date(now),
            submission: uuid(submission),
            place: i32::try_from(place).unwrap_or(i32::MAX),
        }
    }

    pub(crate) fn parent(&self) -> JobId {
        job_id(self.id.parent)
    }

    pub(crate) fn child(&self) -> JobId {
        job_id(self.id.child)
    }

    pub(crate) fn stored_order(&self) -> (DateTime, [u8; 16], i32) {
        (self.stored_at, self.submission.bytes(), self.place)
    }

    /// Decodes the edge. An unreadable condition becomes one that nobody can evaluate, so that the edge is refused when
    /// its parent ends and the parent can still end.
    pub(crate) fn read(&self) -> Edge {
        let (parent, child) = (self.parent(), self.child());
        let expression = self.expression.clone().map(JsonText::from_stored);
        let condition =
            Condition::from_parts(&self.condition, expression.as_ref()).unwrap_or_else(|problem| {
                tracing::error!(%parent, %child, %problem, "the condition of an edge cannot be read");
                Condition::Custom("unreadable".into())
            });
        let mut edge = Edge::new(parent, child, condition);
        edge.priority = self.priority;
        edge.state = self.state;
        edge.if_ended = self.if_ended;
        edge
    }
}

/// The hash of an idempotency key's exact bytes, by which the key is stored.
pub(crate) fn key_hash(key: &IdempotencyKey) -> Binary {
    let bytes = Sha256::digest(key.as_str().as_bytes()).to_vec();
    Binary { subtype: BinarySubtype::Generic, bytes }
}

/// A used idempotency key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeyDoc {
    #[serde(rename = "_id")]
    pub(crate) hash: Binary,
    pub(crate) job: Uuid,
    pub(crate) created_at: DateTime,
}

/// A batch, keyed by its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BatchDoc {
    #[serde(rename = "_id")]
    pub(crate) id: Uuid,
    pub(crate) total: i64,
    pub(crate) completed: i64,
    pub(crate) failed: i64,
    pub(crate) closed: bool,
    pub(crate) created_at: DateTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) completed_at: Option<DateTime>,
    pub(crate) child_execution_ms: i64,
}

impl BatchDoc {
    pub(crate) fn new(parent: JobId, closed: bool, now: Timestamp) -> Self {
        Self {
            id: uuid(parent),
            total: 0,
            completed: 0,
            failed: 0,
            closed,
            created_at: date(now),
            completed_at: None,
            child_execution_ms: 0,
        }
    }

    pub(crate) fn progress(&self) -> BatchProgress {
        let mut progress = BatchProgress::new(self.total.cast_unsigned(), self.closed);
        progress.completed = self.completed.cast_unsigned();
        progress.failed = self.failed.cast_unsigned();
        progress
    }

    pub(crate) fn read(&self) -> Batch {
        let mut batch = Batch::new(BatchId::of(job_id(self.id)), self.progress(), instant(self.created_at));
        batch.completed_at = self.completed_at.map(instant);
        batch
    }
}

/// The id of a fire: master and instant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FireId {
    pub(crate) master: Uuid,
    pub(crate) instant: DateTime,
}

/// A node, keyed by owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeDoc {
    #[serde(rename = "_id")]
    pub(crate) owner: String,
    pub(crate) label: String,
    pub(crate) version: String,
    pub(crate) methods: Vec<String>,
    pub(crate) queues: Vec<String>,
    pub(crate) started_at: DateTime,
    pub(crate) heartbeat_at: DateTime,
    pub(crate) beating_since: DateTime,
    pub(crate) beat_gap_ms: i64,
    pub(crate) lease_until: DateTime,
    pub(crate) reaped: bool,
    pub(crate) skew_ms: i64,
    pub(crate) running: u32,
    pub(crate) slots: u32,
    pub(crate) draining: bool,
}

impl NodeDoc {
    pub(crate) fn read(self) -> Node {
        let mut info = NodeInfo::new(Owner::from_stored(self.owner));
        info.label = self.label;
        info.version = self.version;
        info.methods = self.methods;
        info.queues = self.queues;
        let started_at = instant(self.started_at);
        let mut node = Node::joined(info, started_at, std::time::Duration::ZERO);
        node.heartbeat_at = instant(self.heartbeat_at);
        node.beating_since = instant(self.beating_since);
        node.beat_gap = duration(self.beat_gap_ms);
        node.lease_until = instant(self.lease_until);
        node.reaped = self.reaped;
        node.skew_millis = self.skew_ms;
        node.running = self.running;
        node.slots = self.slots;
        node.draining = self.draining;
        node
    }
}

/// A lock, keyed by name. It stays when it is released, so that its term keeps rising.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LockDoc {
    pub(crate) term: i64,
}

/// A resource, keyed by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LimitDoc {
    #[serde(rename = "_id")]
    pub(crate) name: String,
    pub(crate) max_concurrent: u32,
    pub(crate) retry_delay_ms: i64,
    /// The number of permits taken. Every change of holders changes it, so that two concurrent ones conflict.
    pub(crate) in_use: i64,
}

impl LimitDoc {
    pub(crate) fn read(&self, op: &'static str) -> StoreResult<ResourceLimit> {
        let name = ResourceName::new(self.name.clone())
            .map_err(|error| StoreError::corrupt(op, &self.name, error))?;
        let mut limit = ResourceLimit::new(name, self.max_concurrent);
        limit.retry_delay = duration(self.retry_delay_ms);
        Ok(limit)
    }
}

impl From<&ResourceLimit> for LimitDoc {
    fn from(limit: &ResourceLimit) -> Self {
        Self {
            name: limit.name.to_string(),
            max_concurrent: limit.max_concurrent,
            retry_delay_ms: millis(limit.retry_delay),
            in_use: 0,
        }
    }
}

/// The id of a permit: resource and job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PermitId {
    pub(crate) resource: String,
    pub(crate) job: Uuid,
}

/// A log line, keyed by job and number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LogDoc {
    pub(crate) job: Uuid,
    pub(crate) seq: i64,
    pub(crate) fence: i64,
    pub(crate) at: DateTime,
    pub(crate) level: LogLevel,
    pub(crate) message: String,
}

impl From<LogDoc> for LogLine {
    fn from(doc: LogDoc) -> Self {
        let (seq, fence) = (doc.seq.cast_unsigned(), Fence::from_version(doc.fence));
        Self::new(seq, fence, instant(doc.at), doc.level, doc.message)
    }
}

/// An alert.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AlertDoc {
    pub(crate) job: Uuid,
    pub(crate) error_hash: String,
    pub(crate) fingerprint: String,
    pub(crate) at: DateTime,
}

impl From<AlertDoc> for DlqAlert {
    fn from(doc: AlertDoc) -> Self {
        let fingerprint = Fingerprint::from_stored(doc.fingerprint);
        Self::new(job_id(doc.job), doc.error_hash, fingerprint, instant(doc.at))
    }
}
