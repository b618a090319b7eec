//! A job's document.

use bson::oid::ObjectId;
use bson::{DateTime, Document, RawDocument, Uuid, doc};
use ratchet_api::{
    BusinessKey, Ending, Execution, ExecutionResult, Fence, Job, JobClaim, JobId, JobPriority, JobStatus,
    JobType, JsonText, NewJob, Owner, Progress, QueueName, StoreError, StoreResult, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{RecurrenceDoc, SpecDoc, date, duration, id_of, job_id, millis, read, uuid};
use crate::clock::instant;

/// A job: its description and state, its last attempts, and while it lives a `queue` part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobDoc {
    #[serde(rename = "_id")]
    pub(crate) id: Uuid,
    pub(crate) status: JobStatus,
    pub(crate) fence: i64,
    pub(crate) spec: SpecDoc,
    pub(crate) created_at: DateTime,
    pub(crate) scheduled_time: DateTime,
    pub(crate) attempts: u32,
    pub(crate) crash_count: u32,
    pub(crate) blocked_by: u32,
    pub(crate) open_parents: u32,
    pub(crate) edge_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<QueueDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) picked_at: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paused_from: Option<JobStatus>,
    /// The ending that a paused dead letter gets back when it is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set_aside: Option<EndingDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancel_reason: Option<String>,
    /// Whether it was canceled because a parent's edge was refused, so that a retry of that parent revives it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) refused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) depends_on: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) superseded_by: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<ProgressDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<EndingDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recurrence: Option<RecurrenceDoc>,
    /// The newest attempts; older ones move to `scheduler_job_execution`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<ExecutionDoc>,
    /// Whether older attempts have moved there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) spilled: bool,
    /// When it got a new due time because the clock had gone back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retimed_at: Option<DateTime>,
    /// The call of `commit` that last changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<ObjectId>,
    /// The problem for which the document could not be decoded in full; the other fields have what could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) corrupt: Option<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// The part that a job has only while it lives: how claims find it, its holder, and what it reserves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct QueueDoc {
    /// Absent on schedules, which are never claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) job_type: JobType,
    pub(crate) priority: i16,
    /// The reserved business key: unique over all documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) business_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) picked_by: Option<String>,
    /// The token of the claim that took it, by which a claim reads back what it got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) cancel_requested: bool,
    /// The reason for which it is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parked_on: Option<String>,
    /// The resources of which it holds a permit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) permits: Vec<String>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndingDoc {
    pub(crate) terminated_at: DateTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue_wait_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
}

impl From<&Ending> for EndingDoc {
    fn from(ending: &Ending) -> Self {
        Self {
            terminated_at: date(ending.terminated_at),
            started_at: ending.started_at.map(date),
            ended_at: ending.ended_at.map(date),
            queue_wait_ms: ending.queue_wait.map(millis),
            result: ending.result.as_ref().map(ToString::to_string),
        }
    }
}

impl From<EndingDoc> for Ending {
    fn from(doc: EndingDoc) -> Self {
        let mut ending = Self::at(instant(doc.terminated_at));
        ending.started_at = doc.started_at.map(instant);
        ending.ended_at = doc.ended_at.map(instant);
        ending.queue_wait = doc.queue_wait_ms.map(duration);
        ending.result = doc.result.map(JsonText::from_stored);
        ending
    }
}

/// A body's last progress report. BSON has no unsigned numbers, so their bits are stored as signed ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgressDoc {
    done: i64,
    total: Option<i64>,
    message: Option<String>,
}

impl From<Progress> for ProgressDoc {
    fn from(progress: Progress) -> Self {
        Self {
            done: progress.done.cast_signed(),
            total: progress.total.map(u64::cast_signed),
            message: progress.message,
        }
    }
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecutionDoc {
    pub(crate) fence: i64,
    pub(crate) owner: String,
    pub(crate) result: ExecutionResult,
    pub(crate) attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<DateTime>,
    pub(crate) recorded_at: DateTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl ExecutionDoc {
    pub(crate) fn read(self, job: JobId) -> Execution {
        let owner = Owner::from_stored(self.owner);
        let (fence, recorded_at) = (Fence::from_version(self.fence), instant(self.recorded_at));
        let mut execution = Execution::new(job, fence, owner, self.result, self.attempt, recorded_at);
        execution.started_at = self.started_at.map(instant);
        execution.duration = self.duration_ms.map(duration);
        execution.error_class = self.error_class;
        execution.error = self.error;
        execution
    }
}

impl JobDoc {
    /// The most attempts that a job's own document holds.
    pub(crate) const HISTORY: usize = 16;

    /// A newly stored job.
    pub(crate) fn pending(new: &NewJob, parents: u32, now: Timestamp) -> Self {
        let mut doc = Self {
            id: uuid(new.spec.id),
            status: JobStatus::Pending,
            fence: Fence::FIRST.version(),
            spec: (&new.spec).into(),
            created_at: date(now),
            scheduled_time: date(new.due.resolve(now)),
            attempts: 0,
            crash_count: 0,
            blocked_by: new.needs.of(parents),
            open_parents: parents,
            edge_count: 0,
            queue: None,
            picked_at: None,
            paused_from: None,
            set_aside: None,
            last_error: None,
            fingerprint: None,
            cancel_reason: None,
            refused: false,
            depends_on: None,
            superseded_by: None,
            progress: None,
            ending: None,
            recurrence: None,
            history: Vec::new(),
            spilled: false,
            retimed_at: None,
            commit: None,
            corrupt: None,
        };
        doc.queue = Some(doc.new_queue_part(new.spec.job_type));
        doc
    }

    /// The queue part of a job that becomes live, again or for the first time: unclaimed, and with its business key.
    pub(crate) fn new_queue_part(&self, job_type: JobType) -> QueueDoc {
        QueueDoc {
            name: self.recurrence.is_none().then(|| self.spec.queue.clone()),
            job_type,
            priority: self.spec.priority,
            business_key: self.spec.business_key.clone(),
            picked_by: None,
            token: None,
            cancel_requested: false,
            parked_on: None,
            permits: Vec::new(),
        }
    }

    pub(crate) fn job_id(&self) -> JobId {
        job_id(self.id)
    }

    pub(crate) fn cancel_requested(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.cancel_requested)
    }

    /// The status that readers see: canceled from the moment the cancel was accepted.
    pub(crate) fn visible_status(&self) -> JobStatus {
        if self.cancel_requested() { JobStatus::Canceled } else { self.status }
    }

    /// The status by which the job decides its edges: FAILED for a paused dead letter, CANCELED for a canceled body.
    pub(crate) fn decides_as(&self) -> JobStatus {
        match self.paused_from {
            Some(origin) if origin.is_terminal() => origin,
            _ => self.visible_status(),
        }
    }

    pub(crate) fn is_master(&self) -> bool {
        self.recurrence.is_some()
    }

    pub(crate) fn is_held_by(&self, owner: &Owner) -> bool {
        let holder = self.queue.as_ref().and_then(|queue| queue.picked_by.as_deref());
        self.status == JobStatus::Running && holder == Some(owner.as_str())
    }

    /// The time from due to claimed.
    pub(crate) fn queue_wait(&self) -> Option<std::time::Duration> {
        Some(instant(self.picked_at?).since(instant(self.scheduled_time)))
    }

    /// Decodes the job, or names the problem with its row.
    pub(crate) fn read(self, op: &'static str) -> StoreResult<Job> {
        let id = self.job_id();
        self.into_job().map_err(|problem| StoreError::corrupt(op, id, problem))
    }

    pub(crate) fn into_job(self) -> Result<Job, String> {
        let status = self.visible_status();
        let created_at = instant(self.created_at);
        let spec = self.spec.read(job_id(self.id))?;
        let mut job = Job::pending(spec.into(), 0, created_at);
        job.status = status;
        job.fence = Fence::from_version(self.fence);
        job.scheduled_time = instant(self.scheduled_time);
        job.attempts = self.attempts;
        job.crash_count = self.crash_count;
        let (picked_by, parked_on) =
            self.queue.map(|queue| (queue.picked_by, queue.parked_on)).unwrap_or_default();
        job.picked_by = picked_by.map(Owner::from_stored);
        // An unknown reason does not keep the job from being read.
        job.parked_on = parked_on.and_then(|on| on.parse().ok());
        job.picked_at = self.picked_at.map(instant);
        job.paused_from = self.paused_from;
        job.last_error = self.last_error;
        job.cancel_reason = self.cancel_reason;
        job.blocked_by = self.blocked_by;
        job.open_parents = self.open_parents;
        job.edge_count = self.edge_count;
        job.depends_on = self.depends_on.map(job_id);
        job.superseded_by = self.superseded_by.map(job_id);
        job.progress = self.progress.map(|progress| Progress {
            done: progress.done.cast_unsigned(),
            total: progress.total.map(i64::cast_unsigned),
            message: progress.message,
        });
        job.ending = self.ending.map(Into::into);
        job.recurrence = self.recurrence.map(Into::into);
        Ok(job)
    }
}

/// The fields of a [`ClaimDoc`], as a projection.
pub(crate) fn claim_fields() -> Document {
    doc! {
        "fence": 1, "queue": 1, "scheduled_time": 1, "picked_at": 1, "attempts": 1, "crash_count": 1, "edge_count": 1,
        "spec.max_retries": 1, "spec.timeout_ms": 1, "spec.expires_at": 1, "corrupt": 1,
    }
}

/// The fields of a document that a claim needs.
#[derive(Debug, Deserialize)]
struct ClaimDoc {
    #[serde(rename = "_id")]
    id: Uuid,
    fence: i64,
    queue: QueueDoc,
    scheduled_time: DateTime,
    picked_at: DateTime,
    attempts: u32,
    crash_count: u32,
    edge_count: u32,
    spec: ClaimSpecDoc,
    corrupt: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ClaimSpecDoc {
    max_retries: u32,
    timeout_ms: Option<i64>,
    expires_at: Option<DateTime>,
}

/// A running job as a claim at `now`. A damaged one is marked as `corrupt`; `None` if it does not even have an id.
pub(crate) fn read_claim(op: &'static str, raw: &RawDocument, now: Timestamp) -> Option<JobClaim> {
    let corrupt = |problem: String| {
        let id = id_of(raw)?;
        tracing::error!(op, job = %id, problem, "a claimed job cannot be read");
        let queue = raw.get_document("queue").ok().and_then(|queue| queue.get_str("name").ok());
        let queue = queue.and_then(|name| QueueName::new(name).ok()).unwrap_or_default();
        let time = |field| raw.get_datetime(field).map_or(Timestamp::MIN, instant);
        let fence = Fence::from_version(raw.get_i64("fence").unwrap_or(i64::MAX));
        let mut claim = JobClaim::new(id, fence, queue, time("scheduled_time"), time("picked_at"));
        claim.corrupt = Some(problem);
        Some(claim)
    };
    read::<ClaimDoc>(raw).and_then(|doc| doc.into_claim(now)).map_or_else(corrupt, Some)
}

impl ClaimDoc {
    fn into_claim(self, now: Timestamp) -> Result<JobClaim, String> {
        if Fence::from_version(self.fence).is_last() {
            return Err("fence: nothing can raise it any more".to_owned());
        }
        let queue = self.queue;
        let name =
            QueueName::new(queue.name.unwrap_or_default()).map_err(|error| format!("queue.name: {error}"))?;
        let key = queue.business_key.map(BusinessKey::new).transpose();
        let key = key.map_err(|error| format!("queue.business_key: {error}"))?;
        // `JobClaim` can only be made from a job, so this makes a job with the fields that a claim shows.
        let mut job = Job::pending(blank(), 0, now);
        job.spec.id = job_id(self.id);
        job.spec.queue = name;
        job.spec.job_type = queue.job_type;
        let priority = JobPriority::from_ordinal(queue.priority);
        job.spec.priority = priority.map_err(|error| format!("queue.priority: {error}"))?;
        job.spec.business_key = key;
        job.spec.max_retries = self.spec.max_retries;
        job.spec.timeout = self.spec.timeout_ms.map(duration);
        job.spec.expires_at = self.spec.expires_at.map(instant);
        job.status = if queue.cancel_requested { JobStatus::Canceled } else { JobStatus::Running };
        job.fence = Fence::from_version(self.fence);
        job.scheduled_time = instant(self.scheduled_time);
        job.picked_at = Some(instant(self.picked_at));
        job.attempts = self.attempts;
        job.crash_count = self.crash_count;
        job.edge_count = self.edge_count;
        let mut claim = JobClaim::of(&job, now);
        claim.corrupt = self.corrupt;
        Ok(claim)
    }
}

fn blank() -> NewJob {
    let target = ratchet_api::TargetName::new("-").expect("a dash is a name");
    let method = ratchet_api::MethodName::new("-").expect("a dash is a name");
    NewJob::new(ratchet_api::JobPayload::from_stored(target, method, JsonText::from_stored("null")))
}
