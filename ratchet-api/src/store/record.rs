//! Records beside the jobs: history, logs, tags, edges and alerts.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Alerted, DlqAlert, Edge, Execution, JobId, LogLine, NewDlqAlert, NewLogLine, StoreResult, Tag};

/// The history of attempts. Written by outcomes alone.
#[async_trait]
pub trait ExecutionStore: Send + Sync + 'static {
    /// The attempts of a job, oldest first.
    ///
    /// # Contract
    /// - `execution.listed`: one row for each fence that left one, in order, with owner, result, times and error.
    async fn executions(&self, job: JobId) -> StoreResult<Vec<Execution>>;
}

/// The logs of jobs.
#[async_trait]
pub trait JobLogStore: Send + Sync + 'static {
    /// Adds lines.
    ///
    /// # Contract
    /// - `log.appended`: lines are kept in the order given, stamped with the store's present.
    /// - `log.corrupt`: lines can be added, whatever number another line was given by hand.
    async fn append_logs(&self, lines: &[NewLogLine]) -> StoreResult<()>;

    /// Up to `limit` lines of a job with a number above `after`, oldest first.
    ///
    /// # Contract
    /// - `log.read`: every line once, page after page, and no line of another job.
    async fn logs(&self, job: JobId, after: Option<u64>, limit: usize) -> StoreResult<Vec<LogLine>>;

    /// Removes up to `limit` lines older than `retention`; returns how many.
    ///
    /// # Contract
    /// - `log.purge`: only lines past the retention go, at most `limit`.
    async fn purge_logs(&self, retention: Duration, limit: usize) -> StoreResult<u64>;
}

/// Labels of jobs.
#[async_trait]
pub trait TagStore: Send + Sync + 'static {
    /// Adds labels to a stored job; `false` if it does not exist.
    ///
    /// # Contract
    /// - `tag.added`: a label that is there already is not added twice.
    async fn add_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool>;

    /// Removes labels from a stored job; `false` if it does not exist.
    ///
    /// # Contract
    /// - `tag.removed`: the others stay.
    async fn remove_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool>;

    /// Up to `limit` jobs with this label and an id above `after`, lowest first.
    ///
    /// # Contract
    /// - `tag.found`: every job with exactly this label once, page after page.
    async fn jobs_by_tag(&self, tag: &Tag, after: Option<JobId>, limit: usize) -> StoreResult<Vec<JobId>>;
}

/// The edges between jobs and their conditions. Decided by outcomes alone.
#[async_trait]
pub trait WorkflowConditionStore: Send + Sync + 'static {
    /// Edges that lead from any of these jobs, by priority, then in the order they were stored.
    ///
    /// # Contract
    /// - `edge.from`: each edge with its condition as it was given, and its state.
    async fn edges_from(&self, parents: &[JobId]) -> StoreResult<Vec<Edge>>;

    /// Edges that lead to any of these jobs, in the order they were stored.
    ///
    /// # Contract
    /// - `edge.to`: each edge with its condition as it was given, and its state.
    async fn edges_to(&self, children: &[JobId]) -> StoreResult<Vec<Edge>>;
}

/// The audit trail of dead-letter alerts.
#[async_trait]
pub trait DlqAlertStore: Send + Sync + 'static {
    /// Records alerts; one answer for each, in order.
    ///
    /// # Contract
    /// - `alert.job_window`: the same error of the same job within the window is not recorded again.
    /// - `alert.fingerprint_window`: of the alerts with one fingerprint, one within the window says `notify`, under any
    ///   race; the count is exact.
    async fn record_alerts(&self, alerts: &[NewDlqAlert]) -> StoreResult<Vec<Alerted>>;

    /// The alerts of a job, oldest first.
    ///
    /// # Contract
    /// - `alert.listed`: every recorded alert.
    async fn alerts(&self, job: JobId) -> StoreResult<Vec<DlqAlert>>;
}
