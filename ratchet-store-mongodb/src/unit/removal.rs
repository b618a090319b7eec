//! The removals of a unit.

use bson::Document;
use ratchet_api::{JobId, StoreResult};

use super::Unit;
use crate::codec::encode;
use crate::collections::{Collections, Raw};
use crate::error::During;

impl Unit<'_> {
    pub(crate) fn collections(&self) -> Collections {
        self.store.collections.clone()
    }

    /// The jobs among these that have ended.
    pub(crate) async fn ended(&mut self, jobs: &[JobId]) -> StoreResult<Vec<JobId>> {
        self.load_jobs(jobs.iter().copied()).await?;
        let ended = |id: &&JobId| self.job(**id).is_some_and(|job| job.status.is_terminal());
        Ok(jobs.iter().filter(ended).copied().collect())
    }

    /// A job's document as it was read.
    pub(crate) fn stored_job(&self, id: JobId) -> Option<Document> {
        self.jobs.get(&id)?.stored.clone()
    }

    pub(crate) async fn delete_many(&mut self, from: &Raw, filter: Document) -> StoreResult<()> {
        from.delete_many(filter).session(&mut *self.session).await.during(self.op)?;
        Ok(())
    }

    pub(crate) async fn insert_documents(&mut self, to: &Raw, documents: Vec<Document>) -> StoreResult<()> {
        if documents.is_empty() {
            return Ok(());
        }
        let raw: Vec<_> =
            documents.iter().map(|document| encode(self.op, document)).collect::<StoreResult<_>>()?;
        to.insert_many(raw).session(&mut *self.session).await.during(self.op)?;
        Ok(())
    }
}
