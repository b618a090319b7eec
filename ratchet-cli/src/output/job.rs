//! Output of jobs.

use std::fmt;

use ratchet_api::store::JobPage;
use ratchet_api::{
    BatchId, BusinessKey, Fence, IdempotencyKey, Job, JobId, JobPayload, JobPriority, JobStatus, JobType,
    JsonText, MethodName, Owner, Progress, QueueName, ResourceName, Tag, TargetName, whole_millis,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Instant, Table, escape};

/// A stored job. Every field is always present; one that does not apply is null.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobView {
    pub(crate) id: JobId,
    pub(crate) status: JobStatus,
    #[serde(rename = "type")]
    pub(crate) job_type: JobType,
    pub(crate) queue: QueueName,
    pub(crate) priority: JobPriority,
    pub(crate) call: Call,
    pub(crate) params: Option<Json>,
    pub(crate) tags: Vec<Tag>,
    pub(crate) business_key: Option<BusinessKey>,
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    pub(crate) resource: Option<ResourceName>,
    pub(crate) caller_principal: Option<String>,
    pub(crate) trace_context: Option<String>,
    pub(crate) created_at: Instant,
    pub(crate) due_at: Instant,
    pub(crate) expires_at: Option<Instant>,
    pub(crate) attempts: u32,
    pub(crate) max_retries: u32,
    pub(crate) backoff: String,
    pub(crate) timeout_ms: Option<i64>,
    pub(crate) crash_count: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) cancel_reason: Option<String>,
    pub(crate) picked_by: Option<Owner>,
    pub(crate) picked_at: Option<Instant>,
    pub(crate) progress: Option<Progress>,
    pub(crate) paused_from: Option<JobStatus>,
    pub(crate) parked_on: Option<String>,
    pub(crate) blocked_by: u32,
    pub(crate) depends_on: Option<JobId>,
    pub(crate) superseded_by: Option<JobId>,
    pub(crate) batch: Option<BatchId>,
    pub(crate) on_success: Option<Call>,
    pub(crate) on_failure: Option<Call>,
    pub(crate) recurrence: Option<Recurrence>,
    pub(crate) ending: Option<Ending>,
    pub(crate) fence: Fence,
}

/// A target, one of its methods, and its arguments.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Call {
    target: TargetName,
    method: MethodName,
    /// The stored text, unchanged.
    payload: Json,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Recurrence {
    pub(crate) cron: String,
    pub(crate) zone: String,
    pub(crate) next_fire: Option<Instant>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ending {
    pub(crate) ended_at: Instant,
    pub(crate) body_started_at: Option<Instant>,
    pub(crate) body_ended_at: Option<Instant>,
    pub(crate) queue_wait_ms: Option<i64>,
    pub(crate) duration_ms: Option<i64>,
    pub(crate) result: Option<Json>,
}

/// Stored JSON, unchanged; a string if it is not valid JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Json {
    Value(Box<RawValue>),
    Broken(String),
}

impl Json {
    pub(crate) fn of(text: &JsonText) -> Self {
        let text = text.as_str().to_owned();
        RawValue::from_string(text.clone()).map_or(Self::Broken(text), Self::Value)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Value(value) => value.get(),
            Self::Broken(text) => text,
        })
    }
}

impl Call {
    fn of(payload: &JobPayload) -> Self {
        Self {
            target: payload.target().clone(),
            method: payload.method().clone(),
            payload: Json::of(payload.text()),
        }
    }

    /// The arguments, or the whole payload if it has none.
    pub(crate) fn arguments(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Payload<'a> {
            #[serde(borrow)]
            args: &'a RawValue,
        }
        let text = self.payload.to_string();
        let arguments = serde_json::from_str(&text).map(|Payload { args }| args.get().to_owned());
        arguments.unwrap_or(text)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.target, self.method)
    }
}

impl JobView {
    pub(crate) fn of(job: Job) -> Self {
        let spec = job.spec;
        Self {
            id: spec.id,
            status: job.status,
            job_type: spec.job_type,
            queue: spec.queue,
            priority: spec.priority,
            call: Call::of(&spec.payload),
            params: spec.params.as_ref().map(Json::of),
            tags: spec.tags,
            business_key: spec.business_key,
            idempotency_key: spec.idempotency_key,
            resource: spec.resource,
            caller_principal: spec.caller_principal,
            trace_context: spec.trace_context,
            created_at: job.created_at.into(),
            due_at: job.scheduled_time.into(),
            expires_at: spec.expires_at.map(Instant),
            attempts: job.attempts,
            max_retries: spec.max_retries,
            backoff: spec.backoff.to_string(),
            timeout_ms: spec.timeout.map(whole_millis),
            crash_count: job.crash_count,
            last_error: job.last_error,
            cancel_reason: job.cancel_reason,
            picked_by: job.picked_by,
            picked_at: job.picked_at.map(Instant),
            progress: job.progress,
            paused_from: job.paused_from,
            parked_on: job.parked_on.map(|on| on.to_string()),
            blocked_by: job.blocked_by,
            depends_on: job.depends_on,
            superseded_by: job.superseded_by,
            batch: spec.batch,
            on_success: spec.on_success.as_ref().map(Call::of),
            on_failure: spec.on_failure.as_ref().map(Call::of),
            recurrence: job.recurrence.map(|recurrence| Recurrence {
                cron: recurrence.cron,
                zone: recurrence.zone,
                next_fire: recurrence.next_fire.map(Instant),
            }),
            ending: job.ending.map(|ending| Ending {
                ended_at: ending.terminated_at.into(),
                body_started_at: ending.started_at.map(Instant),
                body_ended_at: ending.ended_at.map(Instant),
                queue_wait_ms: ending.queue_wait.map(whole_millis),
                duration_ms: ending.duration().map(whole_millis),
                result: ending.result.as_ref().map(Json::of),
            }),
            fence: job.fence,
        }
    }

    /// Failures so far, out of the allowed attempts.
    pub(crate) fn tries(&self) -> String {
        format!("{} of {}", self.attempts, u64::from(self.max_retries) + 1)
    }
}

/// A page of the list of jobs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Page {
    jobs: Vec<JobView>,
    /// The argument of `--after` for the next page.
    next: Option<JobId>,
    /// Rows that cannot be read.
    unreadable: Vec<JobId>,
    #[serde(skip)]
    now: Instant,
}

impl Page {
    pub(crate) fn of(page: JobPage, now: Instant) -> Self {
        let jobs = page.jobs.into_iter().map(JobView::of).collect();
        Self { jobs, next: page.next, unreadable: page.unreadable, now }
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.jobs.is_empty() {
            writeln!(f, "No job matches.")?;
        } else {
            let mut table = Table::new(["ID", "STATUS", "QUEUE", "CALL", "FAILURES", "CREATED"]);
            for job in &self.jobs {
                table.row([
                    job.id.to_string(),
                    job.status.to_string(),
                    job.queue.to_string(),
                    job.call.to_string(),
                    job.tries(),
                    job.created_at.seen_from(self.now),
                ]);
            }
            write!(f, "{table}")?;
        }
        for id in &self.unreadable {
            writeln!(f, "{id}  cannot be read; mend or delete its row")?;
        }
        match self.next {
            Some(next) => writeln!(f, "There are more: --after {next}"),
            None => Ok(()),
        }
    }
}

/// The result of an operation on one job.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Answer {
    pub(crate) id: JobId,
    /// Whether the job is in the requested state.
    pub(crate) done: bool,
    /// The current status; null if there is no such job.
    pub(crate) status: Option<JobStatus>,
    pub(crate) answer: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", self.id, escape::one_line(&self.answer))
    }
}

/// The results for several jobs, in order.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Answers {
    pub(crate) jobs: Vec<Answer>,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.jobs.iter().try_for_each(|answer| write!(f, "{answer}"))
    }
}
