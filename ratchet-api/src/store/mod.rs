//! The store contract: nineteen sub-traits that, with [`StoreInfo`], [`RecurringStore`] and [`JobQueryStore`], add up
//! to [`JobStore`].
//!
//! A store author implements the traits and runs `ratchet-tck`, which has at least one case for every
//! `# Contract` bullet here. Each bullet starts with its id, and a case names the ids that it shows.
//!
//! Three rules hold for all of them:
//!
//! - **The store's clock decides.** No call takes the present time; delays and durations count from the
//!   [`StoreClock`](crate::StoreClock) that the store was opened with, which is read during the call, by the statement
//!   that decides wherever the database can do that.
//! - **Many in, many out.** Calls take slices and answer one verdict for each item, in order; one bad item never fails
//!   its neighbours. An `Err` means that the store itself failed, and that any part or all of the call may have been
//!   carried out.
//! - **A retried call is safe.** Ids are made by the caller and writes carry fences, so a caller that lost a reply
//!   sends the same call again.

mod archive;
mod batch;
mod batch_status;
mod bulk;
mod claim;
mod crud;
mod delegate;
mod ext;
mod info;
mod lock;
mod node;
mod pause;
mod permit;
mod query;
mod record;
mod recurring;
mod retry;
mod terminal;

pub use archive::{ArchiveFilter, ArchiveStore, Retention};
pub use batch::{BatchMetricsStore, BatchStore, Closed};
pub use batch_status::{JobBatchStatusStore, ProgressReport};
pub use bulk::JobBulkStore;
pub use claim::{ClaimRequest, JobClaimStore};
pub use crud::{JobCrudStore, Loaded};
pub use ext::{Cas, JobStoreExt};
pub use info::StoreInfo;
pub use lock::LockStore;
pub use node::NodeStore;
pub use pause::{JobPauseStore, PauseVerdict, ResumeVerdict};
pub use permit::{Permit, PermitRequest, ResourcePermitStore};
pub use query::{
    DeadLetterGroup, JobFilter, JobPage, JobQueryStore, JobStory, PageRequest, Parking, QueueHealth,
};
pub use record::{DlqAlertStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore};
pub use recurring::{NewRecurring, RecurringStore, SavedRecurring};
pub use retry::{JobRetryStore, RetryVerdict};
pub use terminal::{CancelVerdict, JobTerminalStore, Target};

/// The four traits that change a job's status, under one name.
pub trait JobStatusStore: JobTerminalStore + JobRetryStore + JobPauseStore + JobBatchStatusStore {}
impl<T> JobStatusStore for T where
    T: JobTerminalStore + JobRetryStore + JobPauseStore + JobBatchStatusStore + ?Sized
{
}

/// The whole store: the sum of its sub-traits, implemented for every type that implements all of them.
/// Used as `Arc<dyn JobStore>`, which upcasts to an `Arc` of any sub-trait, so that each part of the engine asks for no
/// more than it needs.
///
/// ```
/// use std::sync::Arc;
/// use ratchet_api::store::{JobClaimStore, JobStore};
///
/// fn poller_needs_only_claims(store: Arc<dyn JobStore>) -> Arc<dyn JobClaimStore> {
///     store
/// }
/// ```
pub trait JobStore:
    StoreInfo
    + JobCrudStore
    + JobClaimStore
    + JobTerminalStore
    + JobRetryStore
    + JobPauseStore
    + JobBatchStatusStore
    + JobStatusStore
    + JobBulkStore
    + BatchStore
    + LockStore
    + NodeStore
    + ArchiveStore
    + ExecutionStore
    + JobLogStore
    + TagStore
    + WorkflowConditionStore
    + BatchMetricsStore
    + DlqAlertStore
    + ResourcePermitStore
    + RecurringStore
    + JobQueryStore
{
}

impl<T> JobStore for T where
    T: StoreInfo
        + JobCrudStore
        + JobClaimStore
        + JobStatusStore
        + JobBulkStore
        + BatchStore
        + LockStore
        + NodeStore
        + ArchiveStore
        + ExecutionStore
        + JobLogStore
        + TagStore
        + WorkflowConditionStore
        + BatchMetricsStore
        + DlqAlertStore
        + ResourcePermitStore
        + RecurringStore
        + JobQueryStore
{
}
