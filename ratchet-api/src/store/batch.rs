//! Batches: counters over many children, and their metrics.

use async_trait::async_trait;

use crate::{Batch, BatchId, BatchMetrics, BatchProgress, JobStatus, StoreResult};

use super::{JobPage, PageRequest};

/// The result of closing a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It is closed now, with this progress.
    Closed(BatchProgress),
    /// It was closed already.
    AlreadyClosed,
    /// There is no such batch.
    Unknown,
}

/// Batches. Counters are changed by outcomes alone.
#[async_trait]
pub trait BatchStore: Send + Sync + 'static {
    /// Reads batches; `None` for each that does not exist, in order.
    ///
    /// # Contract
    /// - `batch.counters`: completed and failed are the numbers of ended children, always; a dead letter that is paused
    ///   stays counted.
    async fn find_batches(&self, batches: &[BatchId]) -> StoreResult<Vec<Option<Batch>>>;

    /// Closes an open batch: it takes no more children.
    ///
    /// # Contract
    /// - `batch.close`: closing a batch whose children have all ended completes it and releases its parent, once;
    ///   otherwise its last child does.
    async fn close_batch(&self, batch: BatchId) -> StoreResult<Closed>;

    /// The children of a batch, optionally of one status, lowest id first.
    ///
    /// # Contract
    /// - `batch.children`: every stored child once, page after page.
    async fn batch_children(
        &self,
        batch: BatchId,
        status: Option<JobStatus>,
        page: &PageRequest,
    ) -> StoreResult<JobPage>;
}

/// Metrics of batches.
#[async_trait]
pub trait BatchMetricsStore: Send + Sync + 'static {
    /// The metrics of a batch; `None` if it does not exist.
    ///
    /// # Contract
    /// - `batch_metrics.sums`: counts agree with the batch, the execution time is the sum over ended children, and the
    ///   total duration is set once, at completion.
    async fn batch_metrics(&self, batch: BatchId) -> StoreResult<Option<BatchMetrics>>;
}
