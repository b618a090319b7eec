use std::time::Duration;

use async_trait::async_trait;
use bson::doc;
use mongodb::options::FindOptions;
use ratchet_api::store::JobBulkStore;
use ratchet_api::{Inserted, JobId, Limits, Refusal, StoreResult, Submission};

use crate::MongoStore;
use crate::codec::{JobDoc, encode, job_id, uuids};
use crate::error::{During, duplicates};
use crate::unit::in_unit;

const INSERT: &str = "insert";
/// The most submissions in one transaction.
pub(crate) const CHUNK: usize = 200;
/// The most jobs inserted in one call; the driver splits it into as few messages as possible.
const PLAIN_CHUNK: usize = 2_000;

#[async_trait]
impl JobBulkStore for MongoStore {
    /// Inserts each run of single submissions in one command; submissions with consequences are units of work.
    async fn insert(&self, submissions: &[Submission]) -> StoreResult<Vec<Inserted>> {
        let mut answers = Vec::with_capacity(submissions.len());
        for run in submissions.chunk_by(|a, b| is_plain(a) == is_plain(b)) {
            if is_plain(&run[0]) {
                for chunk in run.chunks(PLAIN_CHUNK) {
                    answers.extend(self.insert_plain(chunk).await?);
                }
            } else {
                answers.extend(self.insert_whole(run.iter().collect()).await?);
            }
        }
        Ok(answers)
    }

    async fn delete(&self, jobs: &[JobId]) -> StoreResult<u64> {
        in_unit!(self, "delete", |unit| unit.delete(jobs))
    }

    async fn purge_dead_letters(&self, retention: Duration, limit: usize) -> StoreResult<u64> {
        const OP: &str = "purge_dead_letters";
        let before = crate::codec::date(self.now(OP).await? - retention);
        let filter = doc! { "status": "FAILED", "ending.terminated_at": { "$lt": before } };
        let old = self.oldest_ended(OP, filter, limit).await?;
        self.delete(&old).await
    }
}

/// Whether it is a single job whose only uniqueness is a business key, which its own document holds.
fn is_plain(submission: &Submission) -> bool {
    let Submission { jobs, edges, batch, supersedes, fire, .. } = submission;
    let alone = edges.is_empty() && batch.is_none() && supersedes.is_none() && fire.is_none();
    let [job] = jobs.as_slice() else { return false };
    alone && job.spec.idempotency_key.is_none() && job.spec.batch.is_none()
}

impl MongoStore {
    async fn insert_whole(&self, submissions: Vec<&Submission>) -> StoreResult<Vec<Inserted>> {
        let mut answers = Vec::with_capacity(submissions.len());
        for chunk in submissions.chunks(CHUNK) {
            let stored: StoreResult<Vec<Inserted>> = in_unit!(self, INSERT, |unit| unit.insert(chunk));
            answers.extend(stored?);
        }
        Ok(answers)
    }

    async fn insert_plain(&self, submissions: &[Submission]) -> StoreResult<Vec<Inserted>> {
        let now = self.now(INSERT).await?;
        let mut answers = vec![Inserted::New; submissions.len()];
        let (mut places, mut documents) = (Vec::new(), Vec::new());
        for (place, submission) in submissions.iter().enumerate() {
            match submission.validate(&Limits::MAX) {
                Err(invalid) => answers[place] = Inserted::Refused(Refusal::Invalid(invalid)),
                Ok(()) => {
                    places.push(place);
                    documents.push(encode(INSERT, &JobDoc::pending(&submission.jobs[0], 0, now))?);
                }
            }
        }
        if documents.is_empty() {
            return Ok(answers);
        }
        let Err(error) = self.collections.jobs.insert_many(documents).ordered(false).await else {
            return Ok(answers);
        };
        let Some(refused) = duplicates(&error) else { return Err(error).during(INSERT) };
        // A unit finds out what was there first: the job itself, or the holder of its key.
        let refused: Vec<_> = refused.into_iter().map(|index| places[index]).collect();
        let again = refused.iter().map(|place| &submissions[*place]).collect();
        for (place, answer) in refused.into_iter().zip(self.insert_whole(again).await?) {
            answers[place] = answer;
        }
        Ok(answers)
    }

    /// The ids of ended jobs that match, oldest end first.
    pub(crate) async fn oldest_ended(
        &self,
        op: &'static str,
        filter: bson::Document,
        limit: usize,
    ) -> StoreResult<Vec<JobId>> {
        #[derive(serde::Deserialize)]
        struct Row {
            #[serde(rename = "_id")]
            id: bson::Uuid,
        }
        if limit == 0 {
            return Ok(Vec::new());
        }
        // Exactly the order of the index: with one more field, the server would sort all old jobs.
        let oldest = FindOptions::builder()
            .sort(doc! { "ending.terminated_at": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! { "_id": 1 })
            .build();
        let rows: Vec<Row> = self.find(op, &self.collections.jobs, filter, oldest).await?;
        Ok(rows.into_iter().map(|row| job_id(row.id)).collect())
    }
}

impl crate::unit::Unit<'_> {
    /// Removes ended jobs with all their records except idempotency keys. Returns how many.
    pub(crate) async fn delete(&mut self, jobs: &[JobId]) -> StoreResult<u64> {
        let mut ended = self.ended(jobs).await?;
        ended.sort();
        ended.dedup();
        self.remove(&ended).await?;
        Ok(ended.len() as u64)
    }

    pub(crate) async fn remove(&mut self, jobs: &[JobId]) -> StoreResult<()> {
        let ids = uuids(jobs.iter().copied());
        let c = self.collections();
        self.delete_many(
            &c.edges,
            doc! { "$or": [{ "_id.parent": { "$in": &ids } }, { "_id.child": { "$in": &ids } }] },
        )
        .await?;
        self.delete_many(&c.executions, doc! { "_id.job": { "$in": &ids } }).await?;
        self.delete_many(&c.logs, doc! { "job": { "$in": &ids } }).await?;
        self.delete_many(&c.alerts, doc! { "job": { "$in": &ids } }).await?;
        self.delete_many(&c.batches, doc! { "_id": { "$in": &ids } }).await?;
        self.delete_many(&c.jobs, doc! { "_id": { "$in": ids } }).await
    }
}
