use std::collections::HashMap;

use async_trait::async_trait;
use bson::doc;
use mongodb::options::FindOptions;
use ratchet_api::store::{BatchMetricsStore, BatchStore, Closed, JobPage, PageRequest};
use ratchet_api::{Batch, BatchId, BatchMetrics, JobStatus, StoreResult};

use super::query::{Direction, statuses};
use crate::MongoStore;
use crate::codec::{BatchDoc, duration, uuid, uuids};
use crate::unit::in_unit;

#[async_trait]
impl BatchStore for MongoStore {
    async fn find_batches(&self, batches: &[BatchId]) -> StoreResult<Vec<Option<Batch>>> {
        let found: HashMap<_, _> = self
            .batch_documents("find_batches", batches)
            .await?
            .iter()
            .map(|doc| doc.read())
            .map(|batch| (batch.id.parent(), batch))
            .collect();
        Ok(batches.iter().map(|id| found.get(&id.parent()).cloned()).collect())
    }

    async fn close_batch(&self, batch: BatchId) -> StoreResult<Closed> {
        in_unit!(self, "close_batch", |unit| unit.close_batch(batch))
    }

    async fn batch_children(
        &self,
        batch: BatchId,
        status: Option<JobStatus>,
        page: &PageRequest,
    ) -> StoreResult<JobPage> {
        let mut filter = vec![doc! { "spec.batch": uuid(batch.parent()) }];
        filter.extend(status.map(|status| statuses(&[status])));
        self.page("batch_children", filter, page, Direction::LowestFirst).await
    }
}

#[async_trait]
impl BatchMetricsStore for MongoStore {
    async fn batch_metrics(&self, batch: BatchId) -> StoreResult<Option<BatchMetrics>> {
        let found = self.batch_documents("batch_metrics", &[batch]).await?;
        Ok(found.first().map(|doc| {
            let batch = doc.read();
            let mut metrics = BatchMetrics::default();
            metrics.child_count = batch.progress.total;
            metrics.success_count = batch.progress.completed;
            metrics.failure_count = batch.progress.failed;
            metrics.child_execution = duration(doc.child_execution_ms);
            metrics.total_duration = batch.completed_at.map(|end| end.since(batch.created_at));
            metrics
        }))
    }
}

impl MongoStore {
    async fn batch_documents(&self, op: &'static str, batches: &[BatchId]) -> StoreResult<Vec<BatchDoc>> {
        let ids = uuids(batches.iter().map(|batch| batch.parent()));
        self.find(op, &self.collections.batches, doc! { "_id": { "$in": ids } }, FindOptions::default()).await
    }
}
