//! Stores made of other stores.

/// Implements sub-traits of the store contract by passing each call on to a field.
///
/// A store can be built from parts this way: write the sub-traits that differ, pass on the rest. A wrapper that
/// measures or re-runs calls does the same. `ratchet-tck` runs against the result as against any other store.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ratchet_api::store::{JobStore, LockStore};
/// use ratchet_api::{LockLease, LockName, Owner, StoreResult};
///
/// /// Takes no locks, for a cluster of one.
/// struct Alone {
///     inner: Arc<dyn JobStore>,
/// }
///
/// #[async_trait::async_trait]
/// impl LockStore for Alone {
///     async fn try_lock(&self, name: &LockName, _ttl: Duration, owner: &Owner) -> StoreResult<Option<LockLease>> {
///         Ok(Some(LockLease { name: name.clone(), owner: owner.clone(), term: 1 }))
///     }
///     async fn renew_lock(&self, _lease: &LockLease, _ttl: Duration) -> StoreResult<bool> {
///         Ok(true)
///     }
///     async fn unlock(&self, _lease: &LockLease) -> StoreResult<bool> {
///         Ok(true)
///     }
/// }
///
/// ratchet_api::delegate_store!(Alone => inner:
///     StoreInfo, JobCrudStore, JobClaimStore, JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore,
///     JobBulkStore, BatchStore, NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore,
///     WorkflowConditionStore, BatchMetricsStore, DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);
///
/// fn is_a_store(store: Alone) -> Arc<dyn JobStore> {
///     Arc::new(store)
/// }
/// ```
///
/// If the field is called `observed`, every call goes through a method of the wrapper, which gets its name and the
/// future:
/// `async fn observe<T>(&self, operation: &'static str, call: impl Future<Output = StoreResult<T>>) -> StoreResult<T>`.
#[macro_export]
macro_rules! delegate_store {
    ($store:ty => $inner:ident: $($part:ident),+ $(,)?) => {
        $($crate::__delegate_part!($part, $store, $inner);)+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __delegate_methods {
    ($store:ty, observed, $part:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*
    }) => {
        #[$crate::__async_trait]
        impl $crate::store::$part for $store {
            $(async fn $method(&self, $($arg: $type),*) -> $crate::StoreResult<$answer> {
                self.observe(stringify!($method), self.observed.$method($($arg),*)).await
            })*
        }
    };
    ($store:ty, $inner:ident, $part:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*
    }) => {
        #[$crate::__async_trait]
        impl $crate::store::$part for $store {
            $(async fn $method(&self, $($arg: $type),*) -> $crate::StoreResult<$answer> {
                self.$inner.$method($($arg),*).await
            })*
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __delegate_part {
    (StoreInfo, $store:ty, $inner:ident) => {
        #[$crate::__async_trait]
        impl $crate::store::StoreInfo for $store {
            fn name(&self) -> &'static str {
                self.$inner.name()
            }
            fn coordinator(
                &self,
            ) -> ::std::option::Option<::std::sync::Arc<dyn $crate::spi::ClusterCoordinator>> {
                self.$inner.coordinator()
            }
            fn limits(&self) -> $crate::Limits {
                self.$inner.limits()
            }
            async fn database_time(&self) -> $crate::StoreResult<$crate::Timestamp> {
                self.$inner.database_time().await
            }
            fn as_any(&self) -> &dyn ::std::any::Any {
                self.$inner.as_any()
            }
        }
    };
    (JobCrudStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobCrudStore {
            load(owner: &$crate::Owner, claims: &[$crate::JobClaim]) -> Vec<$crate::store::Loaded>;
            find(jobs: &[$crate::JobId]) -> Vec<Option<$crate::Job>>;
            find_by_idempotency_key(key: &$crate::IdempotencyKey) -> Option<$crate::JobId>;
            find_active_by_business_key(key: &$crate::BusinessKey) -> Option<$crate::JobId>;
        });
    };
    (JobClaimStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobClaimStore {
            claim(request: &$crate::store::ClaimRequest) -> Vec<$crate::JobClaim>;
            owned(owner: &$crate::Owner) -> Vec<$crate::JobClaim>;
            commit_and_claim(owner: &$crate::Owner, outcomes: &[$crate::Outcome], request: &$crate::store::ClaimRequest)
                -> (Vec<$crate::Verdict>, Vec<$crate::JobClaim>);
        });
    };
    (JobTerminalStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobTerminalStore {
            commit(owner: &$crate::Owner, outcomes: &[$crate::Outcome]) -> Vec<$crate::Verdict>;
            cancel(jobs: &[$crate::store::Target], reason: &$crate::Sanitized) -> Vec<$crate::store::CancelVerdict>;
        });
    };
    (JobRetryStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobRetryStore {
            retry(jobs: &[$crate::store::Target]) -> Vec<$crate::store::RetryVerdict>;
        });
    };
    (JobPauseStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobPauseStore {
            pause(jobs: &[$crate::store::Target]) -> Vec<$crate::store::PauseVerdict>;
            resume(jobs: &[$crate::store::Target]) -> Vec<$crate::store::ResumeVerdict>;
            set_queue_paused(queue: &$crate::QueueName, paused: bool) -> bool;
            paused_queues() -> Vec<$crate::QueueName>;
        });
    };
    (JobBatchStatusStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobBatchStatusStore {
            pick_up(owner: &$crate::Owner, jobs: &[$crate::JobId]) -> Vec<$crate::JobClaim>;
            pick_up_parked(
                owner: &$crate::Owner, queue: &$crate::QueueName, on: &$crate::ParkedOn, limit: usize
            ) -> Vec<$crate::JobClaim>;
            pick_up_unreachable(owner: &$crate::Owner, limit: usize) -> Vec<$crate::JobClaim>;
            report_progress(reports: &[$crate::store::ProgressReport]) -> Vec<bool>;
            cancel_recurring_by_key(key: &$crate::BusinessKey, reason: &$crate::Sanitized) -> u64;
            cancel_recurring_by_tag(tag: &$crate::Tag, reason: &$crate::Sanitized) -> u64;
            cancel_undeclared_recurring(declared: &$crate::Tag, keep: &[$crate::BusinessKey],
                older_than: ::std::time::Duration, reason: &$crate::Sanitized) -> Vec<$crate::JobId>;
        });
    };
    (JobBulkStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobBulkStore {
            insert(submissions: &[$crate::Submission]) -> Vec<$crate::Inserted>;
            delete(jobs: &[$crate::JobId]) -> u64;
            purge_dead_letters(retention: ::std::time::Duration, limit: usize) -> u64;
        });
    };
    (BatchStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, BatchStore {
            find_batches(batches: &[$crate::BatchId]) -> Vec<Option<$crate::Batch>>;
            close_batch(batch: $crate::BatchId) -> $crate::store::Closed;
            batch_children(batch: $crate::BatchId, status: Option<$crate::JobStatus>, page: &$crate::store::PageRequest)
                -> $crate::store::JobPage;
        });
    };
    (BatchMetricsStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, BatchMetricsStore {
            batch_metrics(batch: $crate::BatchId) -> Option<$crate::BatchMetrics>;
        });
    };
    (LockStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, LockStore {
            try_lock(name: &$crate::LockName, ttl: ::std::time::Duration, owner: &$crate::Owner)
                -> Option<$crate::LockLease>;
            renew_lock(lease: &$crate::LockLease, ttl: ::std::time::Duration) -> bool;
            unlock(lease: &$crate::LockLease) -> bool;
        });
    };
    (NodeStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, NodeStore {
            dedicated() -> Box<dyn $crate::store::NodeStore>;
            join(node: &$crate::NodeInfo, lease: ::std::time::Duration) -> ();
            beat(beat: &$crate::Beat) -> $crate::BeatReply;
            recover(dead: &[$crate::Owner], to: &$crate::Owner, limit: usize) -> Vec<$crate::JobClaim>;
            leave(owner: &$crate::Owner) -> bool;
            nodes() -> Vec<$crate::Node>;
            purge_nodes(retention: ::std::time::Duration) -> u64;
            clock_went_back(by: ::std::time::Duration, within: ::std::time::Duration, limit: usize) -> u64;
        });
    };
    (ArchiveStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, ArchiveStore {
            archive(retention: &$crate::store::Retention, limit: usize) -> u64;
            archived(filter: &$crate::store::ArchiveFilter, limit: usize) -> Vec<$crate::ArchivedJob>;
            purge_archive(retention: ::std::time::Duration, limit: usize) -> u64;
        });
    };
    (ExecutionStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, ExecutionStore {
            executions(job: $crate::JobId) -> Vec<$crate::Execution>;
        });
    };
    (JobLogStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobLogStore {
            append_logs(lines: &[$crate::NewLogLine]) -> ();
            logs(job: $crate::JobId, after: Option<u64>, limit: usize) -> Vec<$crate::LogLine>;
            purge_logs(retention: ::std::time::Duration, limit: usize) -> u64;
        });
    };
    (TagStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, TagStore {
            add_tags(job: $crate::JobId, tags: &[$crate::Tag]) -> bool;
            remove_tags(job: $crate::JobId, tags: &[$crate::Tag]) -> bool;
            jobs_by_tag(tag: &$crate::Tag, after: Option<$crate::JobId>, limit: usize) -> Vec<$crate::JobId>;
        });
    };
    (WorkflowConditionStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, WorkflowConditionStore {
            edges_from(parents: &[$crate::JobId]) -> Vec<$crate::Edge>;
            edges_to(children: &[$crate::JobId]) -> Vec<$crate::Edge>;
        });
    };
    (DlqAlertStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, DlqAlertStore {
            record_alerts(alerts: &[$crate::NewDlqAlert]) -> Vec<$crate::Alerted>;
            alerts(job: $crate::JobId) -> Vec<$crate::DlqAlert>;
        });
    };
    (ResourcePermitStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, ResourcePermitStore {
            acquire(owner: &$crate::Owner, requests: &[$crate::store::PermitRequest]) -> Vec<$crate::store::Permit>;
            configure_resource(limit: &$crate::ResourceLimit) -> ();
            resources() -> Vec<$crate::ResourceUse>;
        });
    };
    (RecurringStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, RecurringStore {
            save_recurring(recurring: &$crate::store::NewRecurring) -> $crate::store::SavedRecurring;
            due_recurring(limit: usize) -> Vec<$crate::Job>;
        });
    };
    (JobQueryStore, $store:ty, $inner:ident) => {
        $crate::__delegate_methods!($store, $inner, JobQueryStore {
            query_jobs(filter: &$crate::store::JobFilter, page: &$crate::store::PageRequest) -> $crate::store::JobPage;
            job_story(job: $crate::JobId) -> Option<$crate::store::JobStory>;
            queue_health() -> Vec<($crate::QueueName, $crate::store::QueueHealth)>;
            parkings() -> Vec<$crate::store::Parking>;
            dead_letters(limit: usize) -> Vec<$crate::store::DeadLetterGroup>;
            recurring() -> Vec<$crate::Job>;
            batches(after: Option<$crate::BatchId>, limit: usize) -> Vec<$crate::Batch>;
        });
    };
}
