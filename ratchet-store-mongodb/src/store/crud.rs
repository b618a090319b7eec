use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::FindOptions;
use ratchet_api::store::{JobCrudStore, Loaded};
use ratchet_api::{BusinessKey, Edge, IdempotencyKey, Job, JobClaim, JobId, Owner, StoreResult};

use crate::MongoStore;
use crate::client::ONE_ANSWER;
use crate::codec::{EdgeDoc, JobDoc, KeyDoc, decode, id_of, job_id, key_hash, salvage, uuids};
use crate::error::During;

#[async_trait]
impl JobCrudStore for MongoStore {
    async fn load(&self, owner: &Owner, claims: &[JobClaim]) -> StoreResult<Vec<Loaded>> {
        const OP: &str = "load";
        let rows = self.raw_jobs(OP, claims.iter().map(|claim| claim.id)).await?;
        let docs: HashMap<JobId, StoreResult<JobDoc>> =
            rows.iter().map(|(id, raw)| (*id, decode::<JobDoc>(OP, raw))).collect();
        let parents = docs.iter().filter(|(_, row)| row.as_ref().is_ok_and(|job| job.edge_count > 0));
        let mut edges: HashMap<JobId, Vec<Edge>> = HashMap::new();
        for edge in self.edges_leading_from(OP, parents.map(|(id, _)| *id).collect()).await? {
            edges.entry(edge.parent).or_default().push(edge);
        }
        let answer = |claim: &JobClaim| match docs.get(&claim.id) {
            None => Loaded::Lost,
            Some(Err(error)) => match held(&rows[&claim.id], owner, claim) {
                true => {
                    let salvaged: Option<JobDoc> = salvage(OP, &rows[&claim.id]);
                    let problem = salvaged.as_ref().and_then(|job| job.corrupt.clone());
                    corrupt(salvaged, problem.unwrap_or_else(|| error.to_string()))
                }
                false => Loaded::Lost,
            },
            Some(Ok(job)) if !job.is_held_by(owner) || job.fence != claim.fence.version() => Loaded::Lost,
            Some(Ok(job)) if job.cancel_requested() => Loaded::CancelRequested,
            Some(Ok(doc)) => {
                match (doc.corrupt.as_ref().or(claim.corrupt.as_ref()), doc.clone().into_job()) {
                    (None, Ok(job)) => {
                        Loaded::Job(Box::new(job), edges.get(&claim.id).cloned().unwrap_or_default())
                    }
                    (Some(problem), _) => corrupt(Some(doc.clone()), problem.clone()),
                    (None, Err(problem)) => corrupt(Some(doc.clone()), problem),
                }
            }
        };
        Ok(claims.iter().map(answer).collect())
    }

    async fn find(&self, jobs: &[JobId]) -> StoreResult<Vec<Option<Job>>> {
        const OP: &str = "find";
        let rows = self.raw_jobs(OP, jobs.iter().copied()).await?;
        let read = |id| rows.get(id).map(|raw| decode::<JobDoc>(OP, raw)?.read(OP)).transpose();
        jobs.iter().map(read).collect()
    }

    async fn find_by_idempotency_key(&self, key: &IdempotencyKey) -> StoreResult<Option<JobId>> {
        const OP: &str = "find_by_idempotency_key";
        let filter = doc! { "_id": key_hash(key) };
        let found: Vec<KeyDoc> =
            self.find(OP, &self.collections.keys, filter, FindOptions::default()).await?;
        Ok(found.first().map(|used| job_id(used.job)))
    }

    async fn find_active_by_business_key(&self, key: &BusinessKey) -> StoreResult<Option<JobId>> {
        const OP: &str = "find_active_by_business_key";
        let holder = self
            .collections
            .jobs
            .find_one(doc! { "queue.business_key": key.as_str() })
            .projection(doc! { "_id": 1 })
            .await
            .during(OP)?;
        Ok(holder.and_then(|raw| id_of(&raw)))
    }
}

/// The answer for an unreadable document, with the readable parts.
fn corrupt(salvaged: Option<JobDoc>, problem: String) -> Loaded {
    let on_failure = salvaged.and_then(|job| job.spec.on_failure?.read().ok());
    Loaded::Corrupt { problem, on_failure }
}

/// Whether an unreadable document at least says that this claim holds it.
fn held(raw: &RawDocumentBuf, owner: &Owner, claim: &JobClaim) -> bool {
    let picked_by = raw.get_document("queue").ok().and_then(|queue| queue.get_str("picked_by").ok());
    let fence = raw.get_i64("fence").unwrap_or(i64::MAX);
    picked_by == Some(owner.as_str()) && fence == claim.fence.version()
}

impl MongoStore {
    pub(crate) async fn raw_jobs(
        &self,
        op: &'static str,
        ids: impl IntoIterator<Item = JobId>,
    ) -> StoreResult<HashMap<JobId, RawDocumentBuf>> {
        let ids = uuids(ids.into_iter().collect::<BTreeSet<_>>());
        let found = self.collections.jobs.find(doc! { "_id": { "$in": ids } }).batch_size(ONE_ANSWER);
        let found = found.await.during(op)?;
        let raw: Vec<RawDocumentBuf> = found.try_collect().await.during(op)?;
        Ok(raw.into_iter().filter_map(|raw| Some((id_of(&raw)?, raw))).collect())
    }

    /// The edges from these jobs to their children: by priority, then in the order they were stored.
    pub(crate) async fn edges_leading_from(
        &self,
        op: &'static str,
        parents: Vec<JobId>,
    ) -> StoreResult<Vec<Edge>> {
        if parents.is_empty() {
            return Ok(Vec::new());
        }
        let mut edges = self.edges(op, doc! { "_id.parent": { "$in": uuids(parents) } }).await?;
        edges.sort_by_key(|edge| (edge.priority, edge.stored_order()));
        Ok(edges.iter().map(EdgeDoc::read).collect())
    }

    /// The edges from parents to these jobs, in the order they were stored.
    pub(crate) async fn edges_leading_to(
        &self,
        op: &'static str,
        children: Vec<JobId>,
    ) -> StoreResult<Vec<Edge>> {
        let mut edges = self.edges(op, doc! { "_id.child": { "$in": uuids(children) } }).await?;
        edges.sort_by_key(EdgeDoc::stored_order);
        Ok(edges.iter().map(EdgeDoc::read).collect())
    }

    async fn edges(&self, op: &'static str, filter: Document) -> StoreResult<Vec<EdgeDoc>> {
        self.find(op, &self.collections.edges, filter, FindOptions::default()).await
    }
}
