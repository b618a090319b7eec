//! Jobs as columns: one array for each, so that one statement of constant text stores any number.

use ratchet_api::{Due, IdempotencyKey, JobId, JobPayload, NewJob, Timestamp, whole_millis};
use sha2::{Digest, Sha256};

use crate::store::statement::{Bound, Query};
use crate::store::values::delay_millis;

/// The parents that a new job waits for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waits {
    /// The parent of its first edge.
    pub(crate) depends_on: Option<JobId>,
    /// The number of parents that must be satisfied.
    pub(crate) blocked_by: u32,
    /// The number of parents that are not decided.
    pub(crate) open_parents: u32,
}

/// `name: type = what a job has there;` for each array that the statements of `insert` take, by the name of its
/// parameter. Those before the dash are each job's own; the others are often the same for many jobs.
macro_rules! columns {
    (
        |$job:ident, $waits:ident|
        $($own:ident: $own_type:ty = $own_value:expr;)*
        ---
        $($shared:ident: $shared_type:ty = $shared_value:expr;)*
    ) => {
        /// The arrays that `insert/jobs.sql` takes.
        #[derive(Default)]
        pub(crate) struct JobColumns<'a> {
            $(pub(crate) $own: Vec<$own_type>,)*
            $(pub(crate) $shared: Vec<$shared_type>,)*
            key_hashes: Vec<Option<Vec<u8>>>,
            tag_jobs: Vec<JobId>,
            tags: Vec<&'a str>,
        }

        impl<'a> JobColumns<'a> {
            pub(crate) fn push(&mut self, $job: &'a NewJob, $waits: Waits) {
                $(self.$own.push($own_value);)*
                $(self.$shared.push($shared_value);)*
                self.key_hashes.push($job.spec.idempotency_key.as_ref().map(key_hash));
                for tag in &$job.spec.tags {
                    self.tag_jobs.push($job.spec.id);
                    self.tags.push(tag.as_str());
                }
            }

            /// Removes the last job again if all its shared columns equal those of the job before. For jobs without
            /// keys and tags.
            pub(crate) fn pop_if_alike(&mut self) {
                if true $(&& is_repeated(&self.$shared))* {
                    $(self.$own.pop();)*
                    $(self.$shared.pop();)*
                    self.key_hashes.pop();
                }
            }

            /// Binds all columns to a statement that takes the same arrays under the same names.
            pub(crate) fn bind<'v>(&'v self, query: &'v Query, now: Option<Timestamp>) -> Bound<'v> {
                let bound = query.bind().arg("now", now).arg("key_hashes", self.key_hashes());
                $(let bound = bound.arg(stringify!($own), &self.$own);)*
                $(let bound = bound.arg(stringify!($shared), &self.$shared);)*
                bound.arg("tag_jobs", &self.tag_jobs).arg("tags", &self.tags)
            }
        }
    };
}

columns! {
    |job, waits|
    job_ids: JobId = job.spec.id;
    payloads: &'a str = job.spec.payload.text().as_str();
    ---
    job_types: &'static str = job.spec.job_type.as_str();
    queues: &'a str = job.spec.queue.as_str();
    priorities: i16 = job.spec.priority.ordinal();
    max_retries: u32 = job.spec.max_retries;
    backoff_policies: &'static str = job.spec.backoff.policy_name();
    backoff_params: i64 = i64::try_from(job.spec.backoff.param_millis()).unwrap_or(i64::MAX);
    timeouts: Option<i64> = job.spec.timeout.map(whole_millis);
    expiries: Option<Timestamp> = job.spec.expires_at;
    targets: &'a str = job.spec.payload.target().as_str();
    methods: &'a str = job.spec.payload.method().as_str();
    params: Option<&'a str> = job.spec.params.as_ref().map(|params| params.as_str());
    success_payloads: Option<&'a str> = job.spec.on_success.as_ref().map(text);
    success_targets: Option<&'a str> = job.spec.on_success.as_ref().map(target);
    success_methods: Option<&'a str> = job.spec.on_success.as_ref().map(method);
    failure_payloads: Option<&'a str> = job.spec.on_failure.as_ref().map(text);
    failure_targets: Option<&'a str> = job.spec.on_failure.as_ref().map(target);
    failure_methods: Option<&'a str> = job.spec.on_failure.as_ref().map(method);
    idempotency_keys: Option<&'a str> = job.spec.idempotency_key.as_ref().map(|key| key.as_str());
    business_keys: Option<&'a str> = job.spec.business_key.as_ref().map(|key| key.as_str());
    resources: Option<&'a str> = job.spec.resource.as_ref().map(|name| name.as_str());
    principals: Option<&'a str> = job.spec.caller_principal.as_deref();
    traces: Option<&'a str> = job.spec.trace_context.as_deref();
    batches: Option<JobId> = job.spec.batch.map(|batch| batch.parent());
    depends_on: Option<JobId> = waits.depends_on;
    delays: i64 = delay(job.due);
    instants: Option<Timestamp> = instant(job.due);
    blocked_by: u32 = waits.blocked_by;
    open_parents: u32 = waits.open_parents;
}

impl JobColumns<'_> {
    /// The hashes of the idempotency keys.
    pub(crate) fn key_hashes(&self) -> Vec<Option<&[u8]>> {
        self.key_hashes.iter().map(Option::as_deref).collect()
    }

    /// Whether some job has both kinds of key, so that one of them may have to be undone.
    pub(crate) fn any_with_both_keys(&self) -> bool {
        self.key_hashes.iter().zip(&self.business_keys).any(|(hash, key)| hash.is_some() && key.is_some())
    }
}

/// Hashes a key. The ledger compares hashes of exact bytes, so no collation matters and no key is too long for an
/// index.
pub(crate) fn key_hash(key: &IdempotencyKey) -> Vec<u8> {
    Sha256::digest(key.as_str().as_bytes()).to_vec()
}

fn text(call: &JobPayload) -> &str {
    call.text().as_str()
}

fn target(call: &JobPayload) -> &str {
    call.target().as_str()
}

fn method(call: &JobPayload) -> &str {
    call.method().as_str()
}

fn delay(due: Due) -> i64 {
    match due {
        Due::After(delay) => delay_millis(delay),
        Due::At(_) => 0,
    }
}

fn instant(due: Due) -> Option<Timestamp> {
    match due {
        Due::After(_) => None,
        Due::At(instant) => Some(instant),
    }
}

/// Whether the last two values are equal.
fn is_repeated<T: PartialEq>(column: &[T]) -> bool {
    matches!(column, [.., before, last] if before == last)
}
