//! Operations that are not built yet. Each says so.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::store::*;
use ratchet_api::*;

use crate::PostgresStore;

macro_rules! unbuilt {
    ($($store:ident { $($op:ident($($arg:ty),*) -> $answer:ty;)* })*) => {$(
        #[async_trait]
        impl $store for PostgresStore {
            $(unbuilt!(@op $op ($($arg),*) -> $answer);)*
        }
    )*};
    (@op $op:ident () -> $answer:ty) => {
        async fn $op(&self) -> StoreResult<$answer> { Err(StoreError::unsupported(stringify!($op))) }
    };
    (@op $op:ident ($a:ty) -> $answer:ty) => {
        async fn $op(&self, _: $a) -> StoreResult<$answer> { Err(StoreError::unsupported(stringify!($op))) }
    };
    (@op $op:ident ($a:ty, $b:ty) -> $answer:ty) => {
        async fn $op(&self, _: $a, _: $b) -> StoreResult<$answer> { Err(StoreError::unsupported(stringify!($op))) }
    };
    (@op $op:ident ($a:ty, $b:ty, $c:ty) -> $answer:ty) => {
        async fn $op(&self, _: $a, _: $b, _: $c) -> StoreResult<$answer> {
            Err(StoreError::unsupported(stringify!($op)))
        }
    };
}

unbuilt! {
    ArchiveStore {
        archive(&Retention, usize) -> u64;
        archived(&ArchiveFilter, usize) -> Vec<ArchivedJob>;
        purge_archive(Duration, usize) -> u64;
    }
    JobLogStore {
        append_logs(&[NewLogLine]) -> ();
        logs(JobId, Option<u64>, usize) -> Vec<LogLine>;
        purge_logs(Duration, usize) -> u64;
    }
    TagStore {
        add_tags(JobId, &[Tag]) -> bool;
        remove_tags(JobId, &[Tag]) -> bool;
        jobs_by_tag(&Tag, Option<JobId>, usize) -> Vec<JobId>;
    }
    DlqAlertStore {
        record_alerts(&[NewDlqAlert]) -> Vec<Alerted>;
        alerts(JobId) -> Vec<DlqAlert>;
    }
    JobQueryStore {
        query_jobs(&JobFilter, &PageRequest) -> JobPage;
        job_story(JobId) -> Option<JobStory>;
        queue_health() -> Vec<(QueueName, QueueHealth)>;
        dead_letters(usize) -> Vec<DeadLetterGroup>;
        recurring() -> Vec<Job>;
        batches(Option<BatchId>, usize) -> Vec<Batch>;
    }
}
