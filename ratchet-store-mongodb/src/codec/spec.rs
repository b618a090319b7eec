//! The `spec` part of a job: the request, which only changes of tags and of saved schedules modify.

use bson::{DateTime, Uuid};
use ratchet_api::{
    Backoff, BatchId, BusinessKey, IdempotencyKey, JobId, JobPayload, JobPriority, JobSpec, JsonText,
    MethodName, QueueName, Recurrence, ResourceName, Tag, TargetName,
};
use serde::{Deserialize, Serialize};

use super::{date, duration, job_id, millis, uuid};
use crate::clock::instant;

/// The description of a job. Words of a vocabulary stay text here: a row with a word that this build does not know can
/// still be canceled, dead-lettered or deleted, and only reading it in full fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpecDoc {
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) priority: i16,
    pub(crate) call: CallDoc,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) params: Option<String>,
    pub(crate) max_retries: u32,
    pub(crate) backoff: String,
    pub(crate) backoff_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) business_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) caller_principal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace_context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_success: Option<CallDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_failure: Option<CallDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<Uuid>,
}

/// A call: the submitted text, with target and method beside it for searches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallDoc {
    pub(crate) target: String,
    pub(crate) method: String,
    pub(crate) payload: String,
}

impl From<&JobPayload> for CallDoc {
    fn from(payload: &JobPayload) -> Self {
        Self {
            target: payload.target().to_string(),
            method: payload.method().to_string(),
            payload: payload.text().to_string(),
        }
    }
}

impl CallDoc {
    pub(crate) fn read(self) -> Result<JobPayload, String> {
        let target = TargetName::new(self.target).map_err(text)?;
        let method = MethodName::new(self.method).map_err(text)?;
        Ok(JobPayload::from_stored(target, method, JsonText::from_stored(self.payload)))
    }
}

impl From<&JobSpec> for SpecDoc {
    fn from(spec: &JobSpec) -> Self {
        Self {
            job_type: spec.job_type.as_str().to_owned(),
            queue: spec.queue.to_string(),
            priority: spec.priority.ordinal(),
            call: (&spec.payload).into(),
            params: spec.params.as_ref().map(ToString::to_string),
            max_retries: spec.max_retries,
            backoff: spec.backoff.policy_name().to_owned(),
            // BSON has no unsigned numbers; the bits come back as they were.
            backoff_ms: spec.backoff.param_millis().cast_signed(),
            timeout_ms: spec.timeout.map(millis),
            expires_at: spec.expires_at.map(date),
            idempotency_key: spec.idempotency_key.as_ref().map(ToString::to_string),
            business_key: spec.business_key.as_ref().map(ToString::to_string),
            resource: spec.resource.as_ref().map(ToString::to_string),
            tags: spec.tags.iter().map(ToString::to_string).collect(),
            caller_principal: spec.caller_principal.clone(),
            trace_context: spec.trace_context.clone(),
            on_success: spec.on_success.as_ref().map(Into::into),
            on_failure: spec.on_failure.as_ref().map(Into::into),
            batch: spec.batch.map(|batch| uuid(batch.parent())),
        }
    }
}

impl SpecDoc {
    /// Decodes the specification, or names the problem with it.
    pub(super) fn read(self, id: JobId) -> Result<JobSpec, String> {
        let mut spec = JobSpec::with_id(id, self.call.read()?);
        spec.job_type = self.job_type.parse().map_err(text)?;
        spec.queue = QueueName::new(self.queue).map_err(text)?;
        spec.priority = JobPriority::from_ordinal(self.priority).map_err(text)?;
        spec.params = self.params.map(JsonText::from_stored);
        spec.max_retries = self.max_retries;
        spec.backoff = Backoff::from_parts(&self.backoff, self.backoff_ms.cast_unsigned()).map_err(text)?;
        spec.timeout = self.timeout_ms.map(duration);
        spec.expires_at = self.expires_at.map(instant);
        spec.idempotency_key = self.idempotency_key.map(IdempotencyKey::new).transpose().map_err(text)?;
        spec.business_key = self.business_key.map(BusinessKey::new).transpose().map_err(text)?;
        spec.resource = self.resource.map(ResourceName::new).transpose().map_err(text)?;
        spec.tags = self.tags.into_iter().map(Tag::new).collect::<Result<_, _>>().map_err(text)?;
        spec.caller_principal = self.caller_principal;
        spec.trace_context = self.trace_context;
        spec.on_success = self.on_success.map(CallDoc::read).transpose()?;
        spec.on_failure = self.on_failure.map(CallDoc::read).transpose()?;
        spec.batch = self.batch.map(|parent| BatchId::of(job_id(parent)));
        Ok(spec)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The schedule of a master.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecurrenceDoc {
    pub(crate) cron: String,
    pub(crate) zone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_fire: Option<DateTime>,
}

impl From<&Recurrence> for RecurrenceDoc {
    fn from(recurrence: &Recurrence) -> Self {
        Self {
            cron: recurrence.cron.clone(),
            zone: recurrence.zone.clone(),
            next_fire: recurrence.next_fire.map(date),
        }
    }
}

impl From<RecurrenceDoc> for Recurrence {
    fn from(doc: RecurrenceDoc) -> Self {
        Self::new(doc.cron, doc.zone, doc.next_fire.map(instant))
    }
}
