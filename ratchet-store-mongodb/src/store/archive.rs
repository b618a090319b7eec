use std::time::Duration;

use async_trait::async_trait;
use bson::{Bson, DateTime, Document, Uuid, doc};
use mongodb::options::FindOptions;
use ratchet_api::store::{ArchiveFilter, ArchiveStore, Retention};
use ratchet_api::{ArchivedJob, JobId, JobStatus, StoreError, StoreResult};
use serde::Deserialize;

use super::record::bounded;
use crate::MongoStore;
use crate::clock::instant;
use crate::codec::{JobDoc, date, job_id, uuid};
use crate::error::During;
use crate::unit::in_unit;

/// An archived job: its document as it was.
#[derive(Deserialize)]
struct ArchiveDoc {
    job: JobDoc,
    archived_at: DateTime,
}

#[async_trait]
impl ArchiveStore for MongoStore {
    async fn archive(&self, retention: &Retention, limit: usize) -> StoreResult<u64> {
        const OP: &str = "archive";
        #[derive(Deserialize)]
        struct Row {
            #[serde(rename = "_id")]
            id: Uuid,
        }
        if limit == 0 {
            return Ok(0);
        }
        let now = self.now(OP).await?;
        let old = |statuses: &[&str], keep: Duration| {
            doc! { "status": { "$in": statuses }, "ending.terminated_at": { "$lt": date(now - keep) } }
        };
        let ended = old(&[JobStatus::Succeeded.as_str(), JobStatus::Canceled.as_str()], retention.ended);
        let failed = old(&[JobStatus::Failed.as_str()], retention.failed);
        let pipeline = vec![
            doc! { "$match": { "$or": [ended, failed] } },
            doc! { "$sort": { "ending.terminated_at": 1, "_id": 1 } },
            doc! { "$project": { "spec.batch": 1 } },
            doc! { "$lookup": {
                "from": self.collections.batches.name(), "localField": "spec.batch", "foreignField": "_id", "as": "batch",
            } },
            // A child stays until its batch is complete.
            doc! { "$match": { "$or": [
                { "spec.batch": { "$exists": false } }, { "batch": { "$size": 0 } },
                { "batch.completed_at": { "$exists": true } },
            ] } },
            doc! { "$limit": bounded(limit) },
            doc! { "$project": { "_id": 1 } },
        ];
        let rows: Vec<Row> = self.aggregate(OP, &self.collections.jobs, pipeline).await?;
        let ids: Vec<_> = rows.into_iter().map(|row| job_id(row.id)).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        in_unit!(self, OP, |unit| unit.archive(&ids))
    }

    async fn archived(&self, filter: &ArchiveFilter, limit: usize) -> StoreResult<Vec<ArchivedJob>> {
        const OP: &str = "archived";
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut wanted = Document::new();
        if let Some(target) = &filter.target {
            wanted.insert("job.spec.call.target", target.as_str());
        }
        if let Some(key) = &filter.business_key {
            wanted.insert("job.spec.business_key", key.as_str());
        }
        if let Some(before) = filter.before {
            wanted.insert("_id", doc! { "$lt": uuid(before) });
        }
        let newest = FindOptions::builder().sort(doc! { "_id": -1 }).limit(bounded(limit)).build();
        let rows: Vec<ArchiveDoc> = self.find(OP, &self.collections.archive, wanted, newest).await?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in rows {
            let unreadable = |error: &StoreError| tracing::error!(%error, "an archived job cannot be read");
            let Ok(job) = row.job.read(OP).inspect_err(unreadable) else { continue };
            jobs.extend(ArchivedJob::of(job, instant(row.archived_at)));
        }
        Ok(jobs)
    }

    async fn purge_archive(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        const OP: &str = "purge_archive";
        #[derive(Deserialize)]
        struct Row {
            #[serde(rename = "_id")]
            id: Bson,
        }
        if limit == 0 {
            return Ok(0);
        }
        let filter = doc! { "archived_at": { "$lt": date(self.now(OP).await? - retention) } };
        let few = FindOptions::builder()
            .sort(doc! { "archived_at": 1 })
            .limit(bounded(limit))
            .projection(doc! { "_id": 1 })
            .build();
        let old: Vec<Row> = self.find(OP, &self.collections.archive, filter, few).await?;
        let ids: Vec<_> = old.into_iter().map(|row| row.id).collect();
        Ok(self
            .collections
            .archive
            .delete_many(doc! { "_id": { "$in": ids } })
            .await
            .during(OP)?
            .deleted_count)
    }
}

impl crate::unit::Unit<'_> {
    /// Moves jobs, if they are still ended, into the archive. Returns how many.
    async fn archive(&mut self, jobs: &[JobId]) -> StoreResult<u64> {
        let ended = self.ended(jobs).await?;
        let archived_at = date(self.now);
        let records: Vec<_> = ended
            .iter()
            .filter_map(|id| {
                Some(doc! { "_id": uuid(*id), "archived_at": archived_at, "job": self.stored_job(*id)? })
            })
            .collect();
        let archive = self.collections().archive;
        self.insert_documents(&archive, records).await?;
        self.remove(&ended).await?;
        Ok(ended.len() as u64)
    }
}
