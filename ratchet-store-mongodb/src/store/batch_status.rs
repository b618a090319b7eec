use std::time::Duration;

use async_trait::async_trait;
use bson::{Document, doc};
use ratchet_api::store::{JobBatchStatusStore, ProgressReport};
use ratchet_api::{BusinessKey, JobClaim, JobId, Owner, ParkedOn, QueueName, Sanitized, StoreResult, Tag};

use crate::MongoStore;
use crate::codec::{ProgressDoc, date, has_job_id, job_id, uuid};
use crate::error::During;
use crate::indexes::parked;
use crate::store::parking::Parked;
use crate::unit::in_unit;

#[async_trait]
impl JobBatchStatusStore for MongoStore {
    async fn pick_up_parked(
        &self,
        owner: &Owner,
        queue: &QueueName,
        on: &ParkedOn,
        limit: usize,
    ) -> StoreResult<Vec<JobClaim>> {
        const OP: &str = "pick_up_parked";
        if limit == 0 || !self.is_alive(OP, owner).await? {
            return Ok(Vec::new());
        }
        let paused = doc! { "_id": queue.as_str() };
        if self.collections.queues.find_one(paused).await.during(OP)?.is_some() {
            return Ok(Vec::new());
        }
        let (on, mut which) = (on.to_string(), parked());
        which.extend(doc! { "queue.name": queue.as_str(), "queue.parked_on": &on });
        which.extend(has_job_id());
        which.extend(self.present().reached("scheduled_time"));
        let jobs: Vec<JobId> = self.first_ids(OP, which, limit).await?.into_iter().map(job_id).collect();
        let mut taken = self.take(OP, owner, &jobs, &[], &Parked::On(vec![on])).await?;
        Ok(jobs.iter().filter_map(|id| taken.remove(id)).collect())
    }

    async fn pick_up(&self, owner: &Owner, jobs: &[JobId]) -> StoreResult<Vec<JobClaim>> {
        const OP: &str = "pick_up";
        if !self.is_alive(OP, owner).await? {
            return Ok(Vec::new());
        }
        let mut taken = self.take(OP, owner, jobs, &[], &Parked::Whatever).await?;
        Ok(jobs.iter().filter_map(|id| taken.remove(id)).collect())
    }

    async fn pick_up_unreachable(&self, owner: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        self.take_unreachable("pick_up_unreachable", owner, limit).await
    }

    async fn report_progress(&self, reports: &[ProgressReport]) -> StoreResult<Vec<bool>> {
        const OP: &str = "report_progress";
        let mut kept = Vec::with_capacity(reports.len());
        for report in reports {
            let held = doc! { "_id": uuid(report.id), "fence": report.fence.version(), "status": "RUNNING" };
            let progress = bson::serialize_to_bson(&ProgressDoc::from(report.progress())).during(OP)?;
            let set = doc! { "$set": { "progress": progress } };
            kept.push(self.collections.jobs.update_one(held, set).await.during(OP)?.matched_count > 0);
        }
        Ok(kept)
    }

    async fn cancel_recurring_by_key(&self, key: &BusinessKey, reason: &Sanitized) -> StoreResult<u64> {
        let filter = doc! { "queue.business_key": key.as_str() };
        Ok(self.cancel_masters("cancel_recurring_by_key", filter, reason).await?.len() as u64)
    }

    async fn cancel_recurring_by_tag(&self, tag: &Tag, reason: &Sanitized) -> StoreResult<u64> {
        let filter = doc! { "spec.tags": tag.as_str() };
        Ok(self.cancel_masters("cancel_recurring_by_tag", filter, reason).await?.len() as u64)
    }

    async fn cancel_undeclared_recurring(
        &self,
        declared: &Tag,
        keep: &[BusinessKey],
        older_than: Duration,
        reason: &Sanitized,
    ) -> StoreResult<Vec<JobId>> {
        const OP: &str = "cancel_undeclared_recurring";
        if keep.is_empty() {
            return Ok(Vec::new());
        }
        let keep: Vec<_> = keep.iter().map(|key| key.as_str()).collect();
        let filter = doc! {
            "spec.tags": declared.as_str(),
            "queue.business_key": { "$nin": keep },
            "created_at": { "$lt": date(self.now(OP).await? - older_than) },
        };
        self.cancel_masters(OP, filter, reason).await
    }
}

impl MongoStore {
    async fn cancel_masters(
        &self,
        op: &'static str,
        filter: Document,
        reason: &Sanitized,
    ) -> StoreResult<Vec<JobId>> {
        in_unit!(self, op, |unit| unit.cancel_masters(filter.clone(), reason))
    }
}
