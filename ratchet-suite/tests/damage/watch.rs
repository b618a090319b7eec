//! The calls that a node makes to its store, and the warnings that it logs.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::{CancelVerdict, NewRecurring, SavedRecurring, Target};
use ratchet_api::store::{
    ClaimRequest, JobBatchStatusStore, JobClaimStore, JobLogStore, JobStore, JobTerminalStore, NodeStore,
    ProgressReport, RecurringStore,
};
use ratchet_api::{
    Beat, BeatReply, BusinessKey, Job, JobClaim, JobId, LogLine, NewLogLine, Node, NodeInfo, Outcome, Owner,
    ParkedOn, QueueName, Sanitized, StoreResult, Tag, Verdict,
};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, Registry};

/// The calls so far.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) calls: HashMap<&'static str, usize>,
    /// The number of times that each job was handed out.
    pub(crate) claims: HashMap<JobId, usize>,
    pub(crate) errors: Vec<String>,
}

impl Log {
    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls.get(call).copied().unwrap_or_default()
    }
}

/// A store that counts the calls to it.
pub(crate) struct Watched<S: ?Sized> {
    inner: Arc<S>,
    pub(crate) log: Arc<Mutex<Log>>,
}

impl Watched<dyn JobStore> {
    pub(crate) fn new(inner: Arc<dyn JobStore>) -> Self {
        Self { inner, log: Arc::default() }
    }
}

impl<S: ?Sized> Watched<S> {
    fn note<T: Any>(&self, call: &'static str, answer: StoreResult<T>) -> StoreResult<T> {
        let mut log = self.log.lock().expect("nobody panics");
        *log.calls.entry(call).or_default() += 1;
        match &answer {
            Err(error) => log.errors.push(format!("{call}: {error}")),
            Ok(answer) if call != "owned" => {
                let answer: &dyn Any = answer;
                let both = answer.downcast_ref::<(Vec<Verdict>, Vec<JobClaim>)>().map(|both| &both.1);
                for claim in answer.downcast_ref::<Vec<JobClaim>>().or(both).into_iter().flatten() {
                    *log.claims.entry(claim.id).or_default() += 1;
                }
            }
            Ok(_) => {}
        }
        answer
    }
}

macro_rules! watch {
    ($part:ident { $($method:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* } $($rest:tt)*) => {
        #[async_trait]
        impl<S: $part + ?Sized> $part for Watched<S> {
            $(async fn $method(&self, $($arg: $type),*) -> StoreResult<$answer> {
                self.note(stringify!($method), self.inner.$method($($arg),*).await)
            })*
            $($rest)*
        }
    };
}

watch!(JobClaimStore {
    claim(request: &ClaimRequest) -> Vec<JobClaim>;
    owned(owner: &Owner) -> Vec<JobClaim>;
    commit_and_claim(owner: &Owner, outcomes: &[Outcome], request: &ClaimRequest) -> (Vec<Verdict>, Vec<JobClaim>);
});
watch!(JobTerminalStore {
    commit(owner: &Owner, outcomes: &[Outcome]) -> Vec<Verdict>;
    cancel(jobs: &[Target], reason: &Sanitized) -> Vec<CancelVerdict>;
});
watch!(JobBatchStatusStore {
    pick_up(owner: &Owner, jobs: &[JobId]) -> Vec<JobClaim>;
    pick_up_parked(owner: &Owner, queue: &QueueName, on: &ParkedOn, limit: usize) -> Vec<JobClaim>;
    pick_up_unreachable(owner: &Owner, limit: usize) -> Vec<JobClaim>;
    report_progress(reports: &[ProgressReport]) -> Vec<bool>;
    cancel_recurring_by_key(key: &BusinessKey, reason: &Sanitized) -> u64;
    cancel_recurring_by_tag(tag: &Tag, reason: &Sanitized) -> u64;
    cancel_undeclared_recurring(declared: &Tag, keep: &[BusinessKey], older_than: Duration, reason: &Sanitized)
        -> Vec<JobId>;
});
watch!(JobLogStore {
    append_logs(lines: &[NewLogLine]) -> ();
    logs(job: JobId, after: Option<u64>, limit: usize) -> Vec<LogLine>;
    purge_logs(retention: Duration, limit: usize) -> u64;
});
watch!(RecurringStore {
    save_recurring(recurring: &NewRecurring) -> SavedRecurring;
    due_recurring(limit: usize) -> Vec<Job>;
});
watch!(NodeStore {
    join(node: &NodeInfo, lease: Duration) -> ();
    beat(beat: &Beat) -> BeatReply;
    recover(dead: &[Owner], to: &Owner, limit: usize) -> Vec<JobClaim>;
    leave(owner: &Owner) -> bool;
    nodes() -> Vec<Node>;
    purge_nodes(retention: Duration) -> u64;
    clock_went_back(by: Duration, within: Duration, limit: usize) -> u64;
}
async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
    let inner: Arc<dyn NodeStore> = Arc::from(self.inner.dedicated().await?);
    Ok(Box::new(Watched { inner, log: Arc::clone(&self.log) }))
});

ratchet_api::delegate_store!(Watched<dyn JobStore> => inner:
    StoreInfo, JobCrudStore, JobRetryStore, JobPauseStore, JobBulkStore, BatchStore, LockStore, ArchiveStore,
    ExecutionStore, TagStore, WorkflowConditionStore, BatchMetricsStore, DlqAlertStore, ResourcePermitStore,
    JobQueryStore);

static WARNINGS: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

/// Returns every warning of the program so far.
pub(crate) fn warnings() -> Vec<String> {
    WARNINGS.lock().expect("nobody panics").clone()
}

/// Installs the collector of warnings.
pub(crate) fn keep_warnings() {
    // Another test may have installed it already.
    drop(tracing::subscriber::set_global_default(Registry::default().with(Keeper)));
}

struct Keeper;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a text grows");
    }
}

impl<S: Subscriber> Layer<S> for Keeper {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target().starts_with("ratchet") && *metadata.level() <= Level::WARN {
            let mut text = Text(format!("{} ", metadata.target()));
            event.record(&mut text);
            WARNINGS.lock().expect("nobody panics").push(text.0);
        }
    }
}
