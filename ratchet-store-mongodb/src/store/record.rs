use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Document, doc};
use mongodb::options::FindOptions;
use ratchet_api::store::{DlqAlertStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore};
use ratchet_api::{
    Alerted, DlqAlert, Edge, Execution, JobId, LogLine, NewDlqAlert, NewLogLine, StoreResult, Tag,
};
use serde::Deserialize;

use crate::MongoStore;
use crate::codec::{AlertDoc, ExecutionDoc, JobDoc, LogDoc, date, encode, job_id, salvage, uuid};
use crate::error::{During, is_duplicate};
use crate::unit::in_unit;

#[async_trait]
impl ExecutionStore for MongoStore {
    async fn executions(&self, job: JobId) -> StoreResult<Vec<Execution>> {
        const OP: &str = "executions";
        let rows = self.raw_jobs(OP, [job]).await?;
        let Some(raw) = rows.get(&job) else { return Ok(Vec::new()) };
        let Some(doc) = salvage::<JobDoc>(OP, raw) else { return Ok(Vec::new()) };
        let mut history = Vec::new();
        if doc.spilled {
            let oldest = FindOptions::builder().sort(doc! { "_id.fence": 1 }).build();
            let filter = doc! { "_id.job": uuid(job) };
            history = self.find::<ExecutionDoc>(OP, &self.collections.executions, filter, oldest).await?;
        }
        Ok(history.into_iter().chain(doc.history).map(|row| row.read(job)).collect())
    }
}

/// The line numbers per millisecond, as a power of two.
const LINES_IN_A_MILLISECOND: i64 = 12;

#[async_trait]
impl JobLogStore for MongoStore {
    async fn append_logs(&self, lines: &[NewLogLine]) -> StoreResult<()> {
        let mut by_job: BTreeMap<JobId, Vec<&NewLogLine>> = BTreeMap::new();
        for line in lines {
            by_job.entry(line.job).or_default().push(line);
        }
        for (job, lines) in by_job {
            self.append_lines(job, &lines).await?;
        }
        Ok(())
    }

    async fn logs(&self, job: JobId, after: Option<u64>, limit: usize) -> StoreResult<Vec<LogLine>> {
        const OP: &str = "logs";
        if limit == 0 {
            return Ok(Vec::new());
        }
        let after = i64::try_from(after.unwrap_or_default()).unwrap_or(i64::MAX);
        let filter = doc! { "job": uuid(job), "seq": { "$gt": after } };
        let oldest = FindOptions::builder().sort(doc! { "seq": 1 }).limit(bounded(limit)).build();
        let lines: Vec<LogDoc> = self.find(OP, &self.collections.logs, filter, oldest).await?;
        Ok(lines.into_iter().map(Into::into).collect())
    }

    async fn purge_logs(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        const OP: &str = "purge_logs";
        #[derive(Deserialize)]
        struct Row {
            #[serde(rename = "_id")]
            id: ObjectId,
        }
        if limit == 0 {
            return Ok(0);
        }
        let filter = doc! { "at": { "$lt": date(self.now(OP).await? - retention) } };
        let few =
            FindOptions::builder().sort(doc! { "at": 1 }).limit(bounded(limit)).projection(doc! { "_id": 1 });
        let old: Vec<Row> = self.find(OP, &self.collections.logs, filter, few.build()).await?;
        let ids: Vec<_> = old.into_iter().map(|row| row.id).collect();
        Ok(self.collections.logs.delete_many(doc! { "_id": { "$in": ids } }).await.during(OP)?.deleted_count)
    }
}

/// A bound above every number that a clock gives.
const LAST_LINE: i64 = i64::MAX / 2;

impl MongoStore {
    /// Appends lines to a log. Numbers follow the clock, so that they keep rising after a purge, and within one instant
    /// the last line. Two writers may pick the same number; the unique index makes one of them try again.
    async fn append_lines(&self, job: JobId, lines: &[&NewLogLine]) -> StoreResult<()> {
        const OP: &str = "append_logs";
        #[derive(Deserialize)]
        struct Last {
            seq: i64,
        }
        loop {
            let now = self.now(OP).await?;
            let newest = FindOptions::builder().sort(doc! { "seq": -1 }).limit(1);
            let newest = newest.projection(doc! { "_id": 0, "seq": 1 }).build();
            // Greater numbers were written by hand.
            let filter = doc! { "job": uuid(job), "seq": { "$lt": LAST_LINE } };
            let last: Vec<Last> = self.find(OP, &self.collections.logs, filter, newest).await?;
            let first =
                (now.as_millis() << LINES_IN_A_MILLISECOND).max(last.first().map_or(0, |line| line.seq) + 1);
            let numbered = (first..).zip(lines).map(|(seq, line)| LogDoc {
                job: uuid(job),
                seq,
                fence: line.fence.version(),
                at: date(now),
                level: line.level,
                message: line.message.as_str().to_owned(),
            });
            let documents: Vec<_> = numbered.map(|line| encode(OP, &line)).collect::<StoreResult<_>>()?;
            // Ordered: the first line of a refused call collides, so nothing of it was written.
            match self.collections.logs.insert_many(documents).ordered(true).await {
                Err(error) if is_duplicate(&error) => {}
                done => return done.map(|_| ()).during(OP),
            }
        }
    }
}

#[async_trait]
impl TagStore for MongoStore {
    async fn add_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool> {
        let tags: Vec<_> = tags.iter().map(|tag| tag.as_str()).collect();
        let add = doc! { "$addToSet": { "spec.tags": { "$each": tags } } };
        self.change_tags("add_tags", job, add).await
    }

    async fn remove_tags(&self, job: JobId, tags: &[Tag]) -> StoreResult<bool> {
        let tags: Vec<_> = tags.iter().map(|tag| tag.as_str()).collect();
        self.change_tags("remove_tags", job, doc! { "$pullAll": { "spec.tags": tags } }).await
    }

    async fn jobs_by_tag(&self, tag: &Tag, after: Option<JobId>, limit: usize) -> StoreResult<Vec<JobId>> {
        #[derive(Deserialize)]
        struct Row {
            #[serde(rename = "_id")]
            id: bson::Uuid,
        }
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut filter = doc! { "spec.tags": tag.as_str() };
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": uuid(after) });
        }
        let few = FindOptions::builder()
            .sort(doc! { "_id": 1 })
            .limit(bounded(limit))
            .projection(doc! { "_id": 1 });
        let rows: Vec<Row> = self.find("jobs_by_tag", &self.collections.jobs, filter, few.build()).await?;
        Ok(rows.into_iter().map(|row| job_id(row.id)).collect())
    }
}

impl MongoStore {
    async fn change_tags(&self, op: &'static str, job: JobId, change: Document) -> StoreResult<bool> {
        let updated = self.collections.jobs.update_one(doc! { "_id": uuid(job) }, change).await.during(op)?;
        Ok(updated.matched_count > 0)
    }
}

#[async_trait]
impl WorkflowConditionStore for MongoStore {
    async fn edges_from(&self, parents: &[JobId]) -> StoreResult<Vec<Edge>> {
        self.edges_leading_from("edges_from", parents.to_vec()).await
    }

    async fn edges_to(&self, children: &[JobId]) -> StoreResult<Vec<Edge>> {
        self.edges_leading_to("edges_to", children.to_vec()).await
    }
}

#[async_trait]
impl DlqAlertStore for MongoStore {
    async fn record_alerts(&self, alerts: &[NewDlqAlert]) -> StoreResult<Vec<Alerted>> {
        in_unit!(self, "record_alerts", |unit| unit.record_alerts(alerts))
    }

    async fn alerts(&self, job: JobId) -> StoreResult<Vec<DlqAlert>> {
        let oldest = FindOptions::builder().sort(doc! { "at": 1, "_id": 1 }).build();
        let filter = doc! { "job": uuid(job) };
        let alerts: Vec<AlertDoc> = self.find("alerts", &self.collections.alerts, filter, oldest).await?;
        Ok(alerts.into_iter().map(Into::into).collect())
    }
}

pub(super) fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
