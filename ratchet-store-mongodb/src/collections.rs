//! The collections, named like the tables of the SQL stores.

use bson::RawDocumentBuf;
use mongodb::{Collection, Database};
use ratchet_api::{StoreError, StoreResult};

/// A collection whose documents are decoded one by one, so that a bad one hides no other.
pub(crate) type Raw = Collection<RawDocumentBuf>;

macro_rules! collections {
    ($($(#[$doc:meta])* $field:ident: $name:literal;)*) => {
        /// Every collection of one namespace.
        #[derive(Clone)]
        pub(crate) struct Collections {
            $($(#[$doc])* pub(crate) $field: Raw,)*
        }

        impl Collections {
            pub(crate) fn new(database: &Database, prefix: &str) -> Self {
                Self { $($field: database.collection(&format!("{prefix}{}", $name)),)* }
            }

            pub(crate) fn all(&self) -> impl Iterator<Item = &Raw> {
                [$(&self.$field),*].into_iter()
            }
        }
    };
}

collections! {
    /// One document per job: description, state, its last attempts, and while it lives a `queue` part.
    jobs: "scheduler_job";
    /// Edges between jobs: which child waits for which parent.
    edges: "scheduler_job_edge";
    /// Attempts that no longer fit into the job's own document.
    executions: "scheduler_job_execution";
    /// Log lines.
    logs: "scheduler_job_log";
    /// Idempotency keys that were ever used, by hash.
    keys: "scheduler_idempotency_key";
    /// Batch counters.
    batches: "scheduler_batch";
    /// Fires of schedules.
    fires: "scheduler_recurring_fire";
    /// Paused queues.
    queues: "scheduler_queue";
    /// Nodes and their leases.
    nodes: "scheduler_node";
    /// Locks.
    locks: "scheduler_lock";
    /// Resource limits and how many permits of each are taken.
    limits: "scheduler_resource_limit";
    /// Permits and the jobs that hold them.
    permits: "scheduler_resource_permit";
    /// Alerts about dead letters.
    alerts: "scheduler_dlq_alert";
    /// The last notification about each kind of error.
    alert_groups: "scheduler_dlq_alert_group";
    /// Archived jobs.
    archive: "scheduler_job_archive";
    /// The version of collections and indexes.
    schema: "scheduler_schema";
}

/// Checks a database name or prefix: letters, digits and `_`, not starting with a digit, at most 63 bytes.
pub(crate) fn check_name(what: &str, name: &str) -> StoreResult<()> {
    let fits = name.len() <= 63
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits {
        return Ok(());
    }
    let rule = "use letters, digits and `_`, no digit first, at most 63 bytes";
    Err(StoreError::invalid("connect", format!("the {what} `{name}` is not a name: {rule}")))
}
