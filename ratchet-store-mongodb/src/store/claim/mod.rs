//! Claiming: one read of the best candidates, one update with a token, one read-back.

mod candidates;
mod contention;
mod unreachable;

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::Hint;
use ratchet_api::store::{ClaimRequest, JobClaimStore};
use ratchet_api::{JobClaim, JobId, Owner, QueueLimit, StoreResult, Timestamp};
use serde::Deserialize;

use crate::MongoStore;
use crate::client::ONE_ANSWER;
use crate::clock::instant;
use crate::codec::{claim_fields, decode, read_claim, uuids};
use crate::error::During;
use crate::indexes::claimable;
use crate::store::parking::Parked;

pub(crate) use candidates::Backlog;
use candidates::{Chosen, Seen, order};
pub(crate) use contention::Contention;

const OP: &str = "claim";

#[async_trait]
impl JobClaimStore for MongoStore {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        let mut wanted = request.queues.clone();
        let mut claims: Vec<Vec<JobClaim>> = vec![Vec::new(); wanted.len()];
        loop {
            let Chosen { parts: chosen, parked } = self.choose(request, &wanted).await?;
            let ids: Vec<_> = chosen.iter().flatten().copied().collect();
            if ids.is_empty() {
                break;
            }
            let mut taken = self.take(OP, &request.owner, &ids, &wanted, &parked).await?;
            let lost_some = taken.len() < ids.len();
            for ((part, chosen), claims) in wanted.iter_mut().zip(chosen).zip(&mut claims) {
                let before = claims.len();
                claims.extend(chosen.iter().filter_map(|id| taken.remove(id)));
                part.limit -= claims.len() - before;
            }
            if !lost_some {
                break;
            }
            // Another node took some of them first and holds those now, so the next heads are others.
            self.contention.met();
        }
        for part in &mut claims {
            part.sort_by_key(|claim| {
                order(claim.priority, claim.scheduled_time, claim.id, claim.picked_at, request)
            });
        }
        Ok(claims.into_iter().flatten().collect())
    }

    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        let held = doc! { "status": "RUNNING", "queue.picked_by": owner.as_str() };
        self.read_claims("owned", held).await
    }
}

impl MongoStore {
    /// A pipeline on the nodes: this one, if its lease is running.
    fn alive(&self, owner: &Owner) -> Vec<Document> {
        let mut alive = vec![doc! { "$match": { "_id": owner.as_str() } }];
        alive.extend(self.live_nodes("node"));
        alive
    }

    /// A pipeline on the nodes: those whose lease is running, in a field of this name.
    fn live_nodes(&self, name: &str) -> Vec<Document> {
        let mut alive = doc! { "reaped": false };
        alive.extend(self.present().ahead("lease_until"));
        vec![doc! { "$match": alive }, doc! { "$project": { "_id": 0, name: "$_id" } }]
    }

    pub(super) async fn is_alive(&self, op: &'static str, owner: &Owner) -> StoreResult<bool> {
        let found: Vec<Seen> = self.aggregate(op, &self.collections.nodes, self.alive(owner)).await?;
        Ok(!found.is_empty())
    }

    /// Takes those of these jobs that can still be claimed.
    ///
    /// The owner's lease and the pause of the requested queues are checked again afterwards: if either changed before
    /// the jobs were taken, they go back, so that no claim slips past a pause or a recovery that had already returned.
    pub(super) async fn take(
        &self,
        op: &'static str,
        owner: &Owner,
        ids: &[JobId],
        queues: &[QueueLimit],
        parked: &Parked,
    ) -> StoreResult<HashMap<JobId, JobClaim>> {
        let (present, token) = (self.present(), ObjectId::new());
        let ids = uuids(ids.iter().copied());
        let mut free = doc! { "_id": { "$in": &ids } };
        free.extend(claimable());
        free.remove("queue.parked_on");
        free.extend(parked.filter());
        free.extend(present.reached("scheduled_time"));
        let mut take = vec![doc! { "$set": {
            "status": "RUNNING", "fence": next_fence(), "picked_at": present.expr(),
            "queue.picked_by": { "$literal": owner.as_str() }, "queue.token": token,
        } }];
        if !matches!(parked, Parked::Not) {
            take.push(doc! { "$unset": "queue.parked_on" });
        }
        // Only by id: an index of due jobs contains these as well, among all others.
        let taken = self.collections.jobs.update_many(free, take).hint(Hint::Keys(doc! { "_id": 1 }));
        let taken = taken.await.during(op)?.modified_count;
        if taken == 0 {
            return Ok(HashMap::new());
        }
        let mine = doc! { "_id": { "$in": ids }, "queue.token": token };
        let (claims, allowed) = self.read_back(op, owner, &mine, queues).await?;
        let (kept, refused): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| allowed(claim));
        if !refused.is_empty() {
            self.give_up(op, &refused, token).await?;
        }
        Ok(kept.into_iter().map(|claim| (claim.id, claim)).collect())
    }

    async fn read_back(
        &self,
        op: &'static str,
        owner: &Owner,
        mine: &Document,
        queues: &[QueueLimit],
    ) -> StoreResult<(Vec<JobClaim>, impl Fn(&JobClaim) -> bool)> {
        #[derive(Deserialize)]
        struct Check {
            node: Option<String>,
            paused: Option<String>,
        }
        let c = &self.collections;
        let names: Vec<_> = queues.iter().map(|part| part.queue.as_str()).collect();
        let paused = vec![
            doc! { "$match": { "_id": { "$in": names } } },
            doc! { "$project": { "_id": 0, "paused": "$_id" } },
        ];
        let pipeline = vec![
            doc! { "$match": mine },
            doc! { "$project": claim_fields() },
            doc! { "$unionWith": { "coll": c.queues.name(), "pipeline": paused } },
            doc! { "$unionWith": { "coll": c.nodes.name(), "pipeline": self.alive(owner) } },
        ];
        let rows = self.raw_aggregate(op, pipeline).await?;
        let (jobs, checks): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| matches!(row.get("_id"), Ok(Some(_))));
        let checks: Vec<Check> = checks.iter().map(|row| decode(op, row)).collect::<StoreResult<_>>()?;
        let alive = checks.iter().any(|check| check.node.is_some());
        let paused: HashSet<String> = checks.into_iter().filter_map(|check| check.paused).collect();
        let picked = |row: &RawDocumentBuf| row.get_datetime("picked_at").map_or(Timestamp::MIN, instant);
        let claims = jobs.iter().filter_map(|row| read_claim(op, row, picked(row))).collect();
        Ok((claims, move |claim: &JobClaim| alive && !paused.contains(claim.queue.as_str())))
    }

    /// Puts claimed jobs back to PENDING; only the fence stays raised.
    async fn give_up(&self, op: &'static str, claims: &[JobClaim], token: ObjectId) -> StoreResult<()> {
        let ids = uuids(claims.iter().map(|claim| claim.id));
        let mine = doc! { "_id": { "$in": ids }, "status": "RUNNING", "queue.token": token };
        let back = vec![
            doc! { "$set": { "status": "PENDING", "fence": next_fence() } },
            doc! { "$unset": ["queue.picked_by", "queue.token", "picked_at"] },
        ];
        self.collections.jobs.update_many(mine, back).await.during(op)?;
        Ok(())
    }

    /// Reads running jobs as claims, lowest id first.
    pub(super) async fn read_claims(&self, op: &'static str, filter: Document) -> StoreResult<Vec<JobClaim>> {
        let mut fields = claim_fields();
        fields.insert("now", self.present().expr());
        let pipeline =
            vec![doc! { "$match": filter }, doc! { "$sort": { "_id": 1 } }, doc! { "$project": fields }];
        let rows = self.raw_aggregate(op, pipeline).await?;
        let now = |row: &RawDocumentBuf| row.get_datetime("now").map_or(Timestamp::MIN, instant);
        Ok(rows.iter().filter_map(|row| read_claim(op, row, now(row))).collect())
    }

    async fn raw_aggregate(
        &self,
        op: &'static str,
        pipeline: Vec<Document>,
    ) -> StoreResult<Vec<RawDocumentBuf>> {
        let jobs = self.collections.jobs.aggregate(pipeline).batch_size(ONE_ANSWER);
        jobs.with_type::<RawDocumentBuf>().await.during(op)?.try_collect().await.during(op)
    }
}

/// The fence after the next change. One that cannot be raised, or is not a number, becomes the last.
fn next_fence() -> Document {
    const LAST: i64 = i64::MAX - 1;
    let fence = doc! { "$convert": { "input": "$fence", "to": "long", "onError": LAST, "onNull": LAST } };
    doc! { "$add": [{ "$min": [fence, LAST] }, 1_i64] }
}
