//! Jobs as columns: one array for each, so that one statement of constant text stores any number.

use ratchet_api::{Due, IdempotencyKey, JobId, JobPayload, NewJob, Timestamp, whole_millis};
use sha2::{Digest, Sha256};

use crate::store::statement::{Bound, Query};
use crate::store::values::delay_millis;

/// The arrays that `insert/jobs.sql` takes.
#[derive(Default)]
pub(crate) struct JobColumns<'a> {
    pub(crate) ids: Vec<JobId>,
    job_types: Vec<&'static str>,
    queues: Vec<&'a str>,
    priorities: Vec<i16>,
    max_retries: Vec<i64>,
    backoff_policies: Vec<&'static str>,
    backoff_params: Vec<i64>,
    timeouts: Vec<Option<i64>>,
    expiries: Vec<Option<Timestamp>>,
    payloads: CallColumns<'a>,
    params: Vec<Option<&'a str>>,
    on_success: CallColumns<'a>,
    on_failure: CallColumns<'a>,
    idempotency_keys: Vec<Option<&'a str>>,
    key_hashes: Vec<Option<Vec<u8>>>,
    pub(crate) business_keys: Vec<Option<&'a str>>,
    resources: Vec<Option<&'a str>>,
    principals: Vec<Option<&'a str>>,
    traces: Vec<Option<&'a str>>,
    batches: Vec<Option<JobId>>,
    depends_on: Vec<Option<JobId>>,
    delays: Vec<i64>,
    instants: Vec<Option<Timestamp>>,
    blocked_by: Vec<i64>,
    open_parents: Vec<i64>,
    tag_jobs: Vec<JobId>,
    tags: Vec<&'a str>,
}

#[derive(Default)]
struct CallColumns<'a> {
    texts: Vec<Option<&'a str>>,
    targets: Vec<Option<&'a str>>,
    methods: Vec<Option<&'a str>>,
}

impl<'a> CallColumns<'a> {
    fn push(&mut self, call: Option<&'a JobPayload>) {
        self.texts.push(call.map(|call| call.text().as_str()));
        self.targets.push(call.map(|call| call.target().as_str()));
        self.methods.push(call.map(|call| call.method().as_str()));
    }
}

/// What a new job waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waits {
    /// The parent of its first edge.
    pub(crate) depends_on: Option<JobId>,
    /// Parents that must be satisfied.
    pub(crate) blocked_by: u32,
    /// Parents that are not decided.
    pub(crate) open_parents: u32,
}

impl<'a> JobColumns<'a> {
    pub(crate) fn push(&mut self, job: &'a NewJob, waits: Waits) {
        let spec = &job.spec;
        self.ids.push(spec.id);
        self.job_types.push(spec.job_type.as_str());
        self.queues.push(spec.queue.as_str());
        self.priorities.push(spec.priority.ordinal());
        self.max_retries.push(spec.max_retries.into());
        self.backoff_policies.push(spec.backoff.policy_name());
        self.backoff_params.push(i64::try_from(spec.backoff.param_millis()).unwrap_or(i64::MAX));
        self.timeouts.push(spec.timeout.map(whole_millis));
        self.expiries.push(spec.expires_at);
        self.payloads.push(Some(&spec.payload));
        self.params.push(spec.params.as_ref().map(|params| params.as_str()));
        self.on_success.push(spec.on_success.as_ref());
        self.on_failure.push(spec.on_failure.as_ref());
        self.idempotency_keys.push(spec.idempotency_key.as_ref().map(|key| key.as_str()));
        self.key_hashes.push(spec.idempotency_key.as_ref().map(key_hash));
        self.business_keys.push(spec.business_key.as_ref().map(|key| key.as_str()));
        self.resources.push(spec.resource.as_ref().map(|name| name.as_str()));
        self.principals.push(spec.caller_principal.as_deref());
        self.traces.push(spec.trace_context.as_deref());
        self.batches.push(spec.batch.map(|batch| batch.parent()));
        self.depends_on.push(waits.depends_on);
        self.push_due(job.due);
        self.blocked_by.push(waits.blocked_by.into());
        self.open_parents.push(waits.open_parents.into());
        for tag in &spec.tags {
            self.tag_jobs.push(spec.id);
            self.tags.push(tag.as_str());
        }
    }

    fn push_due(&mut self, due: Due) {
        let (delay, instant) = match due {
            Due::After(delay) => (delay_millis(delay), None),
            Due::At(instant) => (0, Some(instant)),
        };
        self.delays.push(delay);
        self.instants.push(instant);
    }

    /// The hashes of the idempotency keys.
    pub(crate) fn key_hashes(&self) -> Vec<Option<&[u8]>> {
        self.key_hashes.iter().map(Option::as_deref).collect()
    }

    /// Whether some job has both kinds of key, so that one may have to be taken back.
    pub(crate) fn any_with_both_keys(&self) -> bool {
        self.key_hashes.iter().zip(&self.business_keys).any(|(hash, key)| hash.is_some() && key.is_some())
    }

    /// Binds all of it to a statement that takes the same arrays under the same names.
    pub(crate) fn bind<'v>(&'v self, query: &'v Query, now: Option<Timestamp>) -> Bound<'v> {
        let bound = query.bind();
        bound
            .arg("now", now)
            .arg("job_ids", &self.ids)
            .arg("job_types", &self.job_types)
            .arg("queues", &self.queues)
            .arg("priorities", &self.priorities)
            .arg("max_retries", &self.max_retries)
            .arg("backoff_policies", &self.backoff_policies)
            .arg("backoff_params", &self.backoff_params)
            .arg("timeouts", &self.timeouts)
            .arg("expiries", &self.expiries)
            .arg("payloads", &self.payloads.texts)
            .arg("targets", &self.payloads.targets)
            .arg("methods", &self.payloads.methods)
            .arg("params", &self.params)
            .arg("success_payloads", &self.on_success.texts)
            .arg("success_targets", &self.on_success.targets)
            .arg("success_methods", &self.on_success.methods)
            .arg("failure_payloads", &self.on_failure.texts)
            .arg("failure_targets", &self.on_failure.targets)
            .arg("failure_methods", &self.on_failure.methods)
            .arg("idempotency_keys", &self.idempotency_keys)
            .arg("key_hashes", self.key_hashes())
            .arg("business_keys", &self.business_keys)
            .arg("resources", &self.resources)
            .arg("principals", &self.principals)
            .arg("traces", &self.traces)
            .arg("batches", &self.batches)
            .arg("depends_on", &self.depends_on)
            .arg("delays", &self.delays)
            .arg("instants", &self.instants)
            .arg("blocked_by", &self.blocked_by)
            .arg("open_parents", &self.open_parents)
            .arg("tag_jobs", &self.tag_jobs)
            .arg("tags", &self.tags)
    }
}

/// The ledger compares hashes of exact bytes, so no collation has a say and no key is too long for an index.
pub(crate) fn key_hash(key: &IdempotencyKey) -> Vec<u8> {
    Sha256::digest(key.as_str().as_bytes()).to_vec()
}
