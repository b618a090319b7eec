use std::collections::BTreeMap;

use async_trait::async_trait;
use bson::{Bson, DateTime, Document, RawDocumentBuf, Uuid, doc};
use futures::TryStreamExt;
use mongodb::options::FindOptions;
use ratchet_api::store::{
    DeadLetterGroup, DlqAlertStore, ExecutionStore, JobFilter, JobLogStore, JobPage, JobPauseStore,
    JobQueryStore, JobStory, PageRequest, Parking, QueueHealth,
};
use ratchet_api::{
    Batch, BatchId, Fingerprint, Job, JobId, JobStatus, ParkedOn, QueueName, StoreError, StoreResult,
    TargetName, Timestamp,
};
use serde::Deserialize;

use super::record::bounded;
use crate::MongoStore;
use crate::clock::instant;
use crate::codec::{BatchDoc, JobDoc, date, decode, id_of, job_id, job_ids, uuid};
use crate::error::During;
use crate::indexes::parked;

const STORY_LOG_LINES: usize = 1_000;

/// The order of a list.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    LowestFirst,
    NewestFirst,
}

/// A filter by the visible status: a running job whose cancel was accepted is CANCELED.
pub(super) fn statuses(wanted: &[JobStatus]) -> Document {
    let plain: Vec<_> =
        wanted.iter().filter(|status| **status != JobStatus::Running).map(|status| status.as_str()).collect();
    let mut any = vec![doc! { "status": { "$in": plain } }];
    if wanted.contains(&JobStatus::Running) {
        any.push(doc! { "status": "RUNNING", "queue.cancel_requested": { "$ne": true } });
    }
    if wanted.contains(&JobStatus::Canceled) {
        any.push(doc! { "status": "RUNNING", "queue.cancel_requested": true });
    }
    doc! { "$or": any }
}

fn conditions(filter: &JobFilter) -> Vec<Document> {
    let mut all = Vec::new();
    if !filter.statuses.is_empty() {
        all.push(statuses(&filter.statuses));
    }
    if !filter.types.is_empty() {
        let types: Vec<_> = filter.types.iter().map(|job_type| job_type.as_str()).collect();
        all.push(doc! { "spec.job_type": { "$in": types } });
    }
    let texts = [
        ("spec.queue", filter.queue.as_ref().map(|queue| queue.as_str())),
        ("spec.call.target", filter.target.as_ref().map(|target| target.as_str())),
        ("spec.call.method", filter.method.as_ref().map(|method| method.as_str())),
        ("spec.business_key", filter.business_key.as_ref().map(|key| key.as_str())),
        ("spec.caller_principal", filter.caller_principal.as_deref()),
        ("fingerprint", filter.fingerprint.as_ref().map(|fingerprint| fingerprint.as_str())),
    ];
    all.extend(texts.into_iter().filter_map(|(field, text)| Some(doc! { field: text? })));
    all.extend(filter.tags.iter().map(|tag| doc! { "spec.tags": tag.as_str() }));
    all.extend(filter.created_from.map(|from| doc! { "created_at": { "$gte": date(from) } }));
    all.extend(filter.created_until.map(|until| doc! { "created_at": { "$lt": date(until) } }));
    all.extend(filter.ended_from.map(|from| doc! { "ending.terminated_at": { "$gte": date(from) } }));
    all.extend(filter.ended_until.map(|until| doc! { "ending.terminated_at": { "$lt": date(until) } }));
    all
}

#[async_trait]
impl JobQueryStore for MongoStore {
    async fn query_jobs(&self, filter: &JobFilter, page: &PageRequest) -> StoreResult<JobPage> {
        self.page("query_jobs", conditions(filter), page, Direction::NewestFirst).await
    }

    async fn job_story(&self, job: JobId) -> StoreResult<Option<JobStory>> {
        const OP: &str = "job_story";
        let rows = self.raw_jobs(OP, [job]).await?;
        let Some(raw) = rows.get(&job) else { return Ok(None) };
        let mut story = JobStory::of(decode::<JobDoc>(OP, raw)?.read(OP)?);
        story.executions = self.executions(job).await?;
        story.logs = self.logs(job, None, STORY_LOG_LINES).await?;
        story.parents = self.edges_leading_to(OP, vec![job]).await?;
        story.dependents = self.edges_leading_from(OP, vec![job]).await?;
        story.alerts = self.alerts(job).await?;
        Ok(Some(story))
    }

    async fn queue_health(&self) -> StoreResult<Vec<(QueueName, QueueHealth)>> {
        let mut queues: BTreeMap<QueueName, QueueHealth> = BTreeMap::new();
        for queue in self.paused_queues().await? {
            queues.entry(queue).or_default().paused = true;
        }
        for group in self.health_groups().await? {
            let name = QueueName::readable(group.id.queue.as_str().unwrap_or_default());
            group.add_to(queues.entry(name).or_default());
        }
        Ok(queues.into_iter().collect())
    }

    async fn parkings(&self) -> StoreResult<Vec<Parking>> {
        #[derive(Deserialize)]
        struct Group {
            #[serde(rename = "_id")]
            id: Key,
            jobs: i64,
            oldest: DateTime,
        }
        #[derive(Deserialize)]
        struct Key {
            queue: String,
            on: ParkedOn,
        }
        let pipeline = vec![
            doc! { "$match": parked() },
            doc! { "$group": {
                "_id": { "queue": "$queue.name", "on": "$queue.parked_on" },
                "jobs": { "$sum": 1_i64 }, "oldest": { "$min": "$scheduled_time" },
            } },
            doc! { "$sort": { "_id.queue": 1, "_id.on": 1 } },
        ];
        let groups: Vec<Group> = self.aggregate("parkings", &self.collections.jobs, pipeline).await?;
        let read = |Group { id: Key { queue, on }, jobs, oldest }: Group| Parking {
            queue: QueueName::readable(&queue),
            on,
            jobs: jobs.unsigned_abs(),
            oldest: instant(oldest),
        };
        Ok(groups.into_iter().map(read).collect())
    }

    async fn dead_letters(&self, limit: usize) -> StoreResult<Vec<DeadLetterGroup>> {
        const OP: &str = "dead_letters";
        if limit == 0 {
            return Ok(Vec::new());
        }
        let pipeline = vec![
            doc! { "$match": { "status": "FAILED", "fingerprint": { "$exists": true } } },
            doc! { "$sort": { "ending.terminated_at": -1, "_id": -1 } },
            doc! { "$group": {
                "_id": "$fingerprint", "count": { "$sum": 1_i64 }, "target": { "$first": "$spec.call.target" },
                "error": { "$first": "$last_error" }, "newest": { "$first": "$_id" },
                "last_at": { "$first": "$ending.terminated_at" },
            } },
            doc! { "$sort": { "count": -1, "last_at": -1 } },
            doc! { "$limit": bounded(limit) },
        ];
        let groups: Vec<LetterGroup> = self.aggregate(OP, &self.collections.jobs, pipeline).await?;
        Ok(groups.into_iter().map(LetterGroup::read).collect())
    }

    async fn recurring(&self) -> StoreResult<Vec<Job>> {
        const OP: &str = "recurring";
        let live = doc! { "recurrence": { "$exists": true }, "status": { "$in": ["PENDING", "PAUSED"] } };
        let by_key = FindOptions::builder().sort(doc! { "spec.business_key": 1 }).build();
        let masters: Vec<JobDoc> = self.find(OP, &self.collections.jobs, live, by_key).await?;
        let unreadable = |error: &StoreError| tracing::error!(%error, "a schedule cannot be read");
        Ok(masters.into_iter().filter_map(|master| master.read(OP).inspect_err(unreadable).ok()).collect())
    }

    async fn batches(&self, after: Option<BatchId>, limit: usize) -> StoreResult<Vec<Batch>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let filter =
            after.map_or_else(Document::new, |after| doc! { "_id": { "$lt": uuid(after.parent()) } });
        let newest = FindOptions::builder().sort(doc! { "_id": -1 }).limit(bounded(limit)).build();
        let found: Vec<BatchDoc> = self.find("batches", &self.collections.batches, filter, newest).await?;
        Ok(found.iter().map(BatchDoc::read).collect())
    }
}

impl MongoStore {
    /// One page of jobs that meet all conditions; unreadable rows are named.
    pub(super) async fn page(
        &self,
        op: &'static str,
        mut conditions: Vec<Document>,
        page: &PageRequest,
        direction: Direction,
    ) -> StoreResult<JobPage> {
        let (sort, beyond) = match direction {
            Direction::LowestFirst => (1, "$gt"),
            Direction::NewestFirst => (-1, "$lt"),
        };
        conditions.extend(page.after.map(|after| doc! { "_id": { beyond: uuid(after) } }));
        conditions.push(doc! { "_id": job_ids() });
        // One more than asked for, to tell whether another page follows.
        let options =
            FindOptions::builder().sort(doc! { "_id": sort }).limit(bounded(page.limit.saturating_add(1)));
        let jobs = self.collections.jobs.find(doc! { "$and": conditions }).with_options(options.build());
        let rows: Vec<RawDocumentBuf> = jobs.await.during(op)?.try_collect().await.during(op)?;
        let mut result = JobPage::default();
        let mut last = None;
        for raw in rows.iter().take(page.limit) {
            let Some(id) = id_of(raw) else { continue };
            last = Some(id);
            match decode::<JobDoc>(op, raw).and_then(|doc| doc.read(op)) {
                Ok(job) => result.jobs.push(job),
                Err(_) => result.unreadable.push(id),
            }
        }
        result.next = last.filter(|_| rows.len() > page.limit);
        Ok(result)
    }

    async fn health_groups(&self) -> StoreResult<Vec<HealthGroup>> {
        let now = self.present().expr();
        let pipeline = vec![
            doc! { "$match": { "recurrence": { "$exists": false }, "status": { "$in": [
                "PENDING", "RUNNING", "PAUSED", "FAILED", "SUCCEEDED", "CANCELED",
            ] } } },
            doc! { "$group": {
                "_id": {
                    "queue": { "$ifNull": ["$spec.queue", ""] }, "status": "$status", "priority": "$spec.priority",
                    "blocked": { "$gt": ["$blocked_by", 0] }, "parked": { "$gt": ["$queue.parked_on", null] },
                    "early": { "$gt": ["$scheduled_time", &now] },
                },
                "count": { "$sum": 1_i64 }, "oldest": { "$min": "$scheduled_time" },
            } },
            doc! { "$set": { "now": now } },
        ];
        self.aggregate("queue_health", &self.collections.jobs, pipeline).await
    }
}

/// Jobs with the same state, as a queue's health counts them.
#[derive(Deserialize)]
struct HealthGroup {
    #[serde(rename = "_id")]
    id: HealthKey,
    count: i64,
    oldest: Option<Bson>,
    now: DateTime,
}

#[derive(Deserialize)]
struct HealthKey {
    /// Of any type, like the priority: a damaged job is counted like any other.
    queue: Bson,
    status: JobStatus,
    priority: Option<Bson>,
    blocked: bool,
    parked: bool,
    early: bool,
}

impl HealthGroup {
    fn add_to(&self, health: &mut QueueHealth) {
        let count = self.count.unsigned_abs();
        match self.id.status {
            JobStatus::Pending if self.id.blocked => health.blocked += count,
            JobStatus::Pending if self.id.early => health.scheduled += count,
            JobStatus::Pending if self.id.parked => health.parked += count,
            JobStatus::Pending => {
                health.ready += count;
                let level =
                    self.id.priority.as_ref().and_then(|priority| usize::try_from(priority.as_i32()?).ok());
                if let Some(level) = level.and_then(|level| health.ready_by_priority.get_mut(level)) {
                    *level += count;
                }
                let oldest = self.oldest.as_ref().and_then(Bson::as_datetime);
                let wait = oldest.map(|oldest| instant(self.now).since(instant(*oldest)));
                health.oldest_wait = health.oldest_wait.max(wait);
            }
            JobStatus::Running => health.running += count,
            JobStatus::Paused => health.set_aside += count,
            JobStatus::Failed => health.failed += count,
            JobStatus::Succeeded | JobStatus::Canceled => {}
        }
    }
}

/// Dead letters with the same fingerprint.
#[derive(Deserialize)]
struct LetterGroup {
    /// Of any type, like the other fields: a damaged job is reported like any other.
    #[serde(rename = "_id")]
    fingerprint: Bson,
    count: i64,
    target: Option<Bson>,
    error: Option<Bson>,
    newest: Uuid,
    last_at: Option<Bson>,
}

impl LetterGroup {
    fn read(self) -> DeadLetterGroup {
        let text = |value: Option<&Bson>| value.and_then(Bson::as_str).unwrap_or_default().to_owned();
        let target = TargetName::readable(&text(self.target.as_ref()));
        let fingerprint = Fingerprint::from_stored(text(Some(&self.fingerprint)));
        let last_at = self.last_at.as_ref().and_then(Bson::as_datetime);
        let last_at = last_at.map_or(Timestamp::MIN, |at| instant(*at));
        let error = text(self.error.as_ref());
        let mut group = DeadLetterGroup::new(fingerprint, target, error, job_id(self.newest), last_at);
        group.count = self.count.unsigned_abs();
        group
    }
}
