use async_trait::async_trait;
use bson::{Document, doc};
use futures::TryStreamExt;
use mongodb::options::FindOptions;
use ratchet_api::store::{JobPauseStore, PauseVerdict, ResumeVerdict, Target};
use ratchet_api::{QueueName, StoreResult};

use crate::MongoStore;
use crate::error::During;
use crate::unit::in_unit;

#[async_trait]
impl JobPauseStore for MongoStore {
    async fn pause(&self, jobs: &[Target]) -> StoreResult<Vec<PauseVerdict>> {
        in_unit!(self, "pause", |unit| unit.pause(jobs))
    }

    async fn resume(&self, jobs: &[Target]) -> StoreResult<Vec<ResumeVerdict>> {
        in_unit!(self, "resume", |unit| unit.resume(jobs))
    }

    /// A paused queue has a document, any other has none.
    async fn set_queue_paused(&self, queue: &QueueName, paused: bool) -> StoreResult<bool> {
        const OP: &str = "set_queue_paused";
        let (queues, id) = (&self.collections.queues, doc! { "_id": queue.as_str() });
        if !paused {
            return Ok(queues.delete_one(id).await.during(OP)?.deleted_count > 0);
        }
        let stored =
            queues.update_one(id, doc! { "$set": { "paused": true } }).upsert(true).await.during(OP)?;
        Ok(stored.upserted_id.is_some())
    }

    async fn paused_queues(&self) -> StoreResult<Vec<QueueName>> {
        const OP: &str = "paused_queues";
        let by_name = FindOptions::builder().sort(doc! { "_id": 1 }).build();
        let queues = self.collections.queues.clone_with_type::<Document>();
        let found: Vec<Document> =
            queues.find(doc! {}).with_options(by_name).await.during(OP)?.try_collect().await.during(OP)?;
        // Other names are skipped: nobody can ask for such a queue.
        Ok(found.iter().filter_map(|queue| QueueName::new(queue.get_str("_id").ok()?).ok()).collect())
    }
}
