//! Claiming: heads of each priority through the index, one update with a token, one read-back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, Uuid, doc};
use futures::TryStreamExt;
use ratchet_api::store::{ClaimRequest, JobClaimStore};
use ratchet_api::{JobClaim, JobId, JobPriority, JobStatus, Owner, QueueLimit, StoreResult, Timestamp};
use serde::Deserialize;

use crate::MongoStore;
use crate::clock::instant;
use crate::codec::{claim_fields, date, decode, job_id, read_claim, uuids};
use crate::error::During;
use crate::indexes::claimable;

const OP: &str = "claim";

/// A row of the first read: the claiming node if it is alive, a paused queue, or a candidate.
#[derive(Deserialize)]
struct Seen {
    node: Option<String>,
    paused: Option<String>,
    job: Option<Uuid>,
    queue: Option<String>,
    /// Of which type ever: a claim is the way to find out what is wrong with a job.
    priority: Option<Bson>,
    due: Option<Bson>,
    now: Option<DateTime>,
}

/// A job that could be claimed, ordered as the contract says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: Reverse<i64>,
    due: Timestamp,
    id: JobId,
}

#[async_trait]
impl JobClaimStore for MongoStore {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        let mut wanted = request.queues.clone();
        let mut claims: Vec<Vec<JobClaim>> = vec![Vec::new(); wanted.len()];
        loop {
            let chosen = self.choose(request, &wanted).await?;
            let ids: Vec<_> = chosen.iter().flatten().copied().collect();
            if ids.is_empty() {
                break;
            }
            let mut taken = self.take(OP, &request.owner, &ids, &wanted).await?;
            let lost_some = taken.len() < ids.len();
            for ((part, chosen), claims) in wanted.iter_mut().zip(chosen).zip(&mut claims) {
                let before = claims.len();
                claims.extend(chosen.iter().filter_map(|id| taken.remove(id)));
                part.limit -= claims.len() - before;
            }
            // Another node was faster with some of them: it holds those now, so the next heads are others.
            if !lost_some {
                break;
            }
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

fn order(
    priority: JobPriority,
    due: Timestamp,
    id: JobId,
    now: Timestamp,
    request: &ClaimRequest,
) -> Candidate {
    let rank = Reverse(priority.boosted(now.since(due), request.boost_interval));
    Candidate { rank, due, id }
}

impl MongoStore {
    /// The best jobs of each part of a request, in order. Nothing if the owner's lease does not run.
    async fn choose(&self, request: &ClaimRequest, wanted: &[QueueLimit]) -> StoreResult<Vec<Vec<JobId>>> {
        let mut limits: BTreeMap<&str, usize> = BTreeMap::new();
        for part in wanted.iter().filter(|part| part.limit > 0) {
            *limits.entry(part.queue.as_str()).or_default() += part.limit;
        }
        let nothing = || Ok(vec![Vec::new(); wanted.len()]);
        if limits.is_empty() {
            return nothing();
        }
        let seen: Vec<Seen> =
            self.glance(OP, &self.collections.nodes, self.heads(&request.owner, &limits)).await?;
        if !seen.iter().any(|row| row.node.is_some()) {
            return nothing();
        }
        let paused: HashSet<String> = seen.iter().filter_map(|row| row.paused.clone()).collect();
        let mut best: HashMap<String, Vec<Candidate>> = HashMap::new();
        for row in seen {
            let (Some(job), Some(queue), Some(now)) = (row.job, row.queue, row.now) else { continue };
            let due = row.due.and_then(|due| due.as_datetime().copied()).map_or(Timestamp::MIN, instant);
            let priority = row.priority.and_then(|priority| i16::try_from(priority.as_i32()?).ok());
            let priority = priority.and_then(|ordinal| JobPriority::from_ordinal(ordinal).ok());
            if !paused.contains(&queue) {
                let candidate = order(priority.unwrap_or_default(), due, job_id(job), instant(now), request);
                best.entry(queue).or_default().push(candidate);
            }
        }
        best.values_mut().for_each(|candidates| candidates.sort());
        let mut of_part = |part: &QueueLimit| match best.get_mut(part.queue.as_str()) {
            None => Vec::new(),
            Some(rest) => rest.drain(..part.limit.min(rest.len())).map(|candidate| candidate.id).collect(),
        };
        Ok(wanted.iter().map(&mut of_part).collect())
    }

    /// One read: is the owner alive, which queues are paused, and the first due jobs of each queue and priority.
    ///
    /// Inside one priority older is always better, so the best `limit` of a queue are among the first `limit` of each.
    fn heads(&self, owner: &Owner, limits: &BTreeMap<&str, usize>) -> Vec<Document> {
        let (c, present) = (&self.collections, self.present());
        let mut pipeline = self.alive(owner);
        let names: Vec<_> = limits.keys().copied().collect();
        let paused = vec![
            doc! { "$match": { "_id": { "$in": names } } },
            doc! { "$project": { "_id": 0, "paused": "$_id" } },
        ];
        pipeline.push(doc! { "$unionWith": { "coll": c.queues.name(), "pipeline": paused } });
        for (queue, limit) in limits {
            for priority in JobPriority::ALL {
                let mut lane = doc! {
                    "status": "PENDING", "blocked_by": 0,
                    "queue.name": *queue, "queue.priority": i32::from(priority.ordinal()),
                };
                lane.extend(present.reached("scheduled_time"));
                let lane = vec![
                    doc! { "$match": lane },
                    doc! { "$sort": { "scheduled_time": 1, "_id": 1 } },
                    doc! { "$limit": i64::try_from(*limit).unwrap_or(i64::MAX) },
                    doc! { "$project": {
                        "_id": 0, "job": "$_id", "queue": "$queue.name", "priority": "$queue.priority",
                        "due": "$scheduled_time", "now": present.expr(),
                    } },
                ];
                pipeline.push(doc! { "$unionWith": { "coll": c.jobs.name(), "pipeline": lane } });
            }
        }
        pipeline
    }

    /// On the nodes: this one, if its lease runs.
    fn alive(&self, owner: &Owner) -> Vec<Document> {
        let mut alive = doc! { "_id": owner.as_str(), "reaped": false };
        alive.extend(self.present().ahead("lease_until"));
        vec![doc! { "$match": alive }, doc! { "$project": { "_id": 0, "node": "$_id" } }]
    }

    pub(super) async fn is_alive(&self, op: &'static str, owner: &Owner) -> StoreResult<bool> {
        let found: Vec<Seen> = self.aggregate(op, &self.collections.nodes, self.alive(owner)).await?;
        Ok(!found.is_empty())
    }

    /// Takes those of these jobs that can still be claimed.
    ///
    /// The owner's lease and the pause of the asked queues are looked at once more afterwards: if either changed before
    /// the jobs were taken, they go back, so that no claim slips past a pause or a recovery that had answered.
    pub(super) async fn take(
        &self,
        op: &'static str,
        owner: &Owner,
        ids: &[JobId],
        queues: &[QueueLimit],
    ) -> StoreResult<HashMap<JobId, JobClaim>> {
        let (present, token) = (self.present(), ObjectId::new());
        let ids = uuids(ids.iter().copied());
        let mut free = doc! { "_id": { "$in": &ids } };
        free.extend(claimable());
        free.extend(present.reached("scheduled_time"));
        let take = vec![doc! { "$set": {
            "status": "RUNNING", "fence": next_fence(), "picked_at": present.expr(),
            "queue.picked_by": { "$literal": owner.as_str() }, "queue.token": token,
        } }];
        let taken = self.collections.jobs.update_many(free, take).await.during(op)?.modified_count;
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

    /// Takes jobs that no claim and no recovery would find. Reads every job.
    pub(super) async fn take_unreachable(
        &self,
        op: &'static str,
        owner: &Owner,
        limit: usize,
    ) -> StoreResult<Vec<JobClaim>> {
        if limit == 0 || !self.is_alive(op, owner).await? {
            return Ok(Vec::new());
        }
        let found = self.first_ids(op, unreachable(), limit).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let token = ObjectId::new();
        let queue = doc! { "$cond": [{ "$eq": [{ "$type": "$queue" }, "object"] }, "$queue", {}] };
        let mine = doc! { "picked_by": { "$literal": owner.as_str() }, "token": token };
        let take = vec![doc! { "$set": {
            "status": "RUNNING", "fence": next_fence(), "picked_at": self.present().expr(),
            "queue": { "$mergeObjects": [queue, mine] },
        } }];
        let mut still = doc! { "_id": { "$in": &found } };
        still.extend(unreachable());
        self.collections.jobs.update_many(still, take).await.during(op)?;
        let mut claims = self.read_claims(op, doc! { "_id": { "$in": found }, "queue.token": token }).await?;
        for claim in &mut claims {
            claim.corrupt.get_or_insert_with(|| "no claim could ever have found it".to_owned());
        }
        Ok(claims)
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

    /// Puts claimed jobs back as if they had not been taken, but for the fence.
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

    /// Running jobs as claims, lowest id first.
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
        let cursor =
            self.collections.jobs.aggregate(pipeline).with_type::<RawDocumentBuf>().await.during(op)?;
        cursor.try_collect().await.during(op)
    }
}

/// The fence after the next change. One that cannot be raised, or is no number, becomes the last.
fn next_fence() -> Document {
    const LAST: i64 = i64::MAX - 1;
    let fence = doc! { "$convert": { "input": "$fence", "to": "long", "onError": LAST, "onNull": LAST } };
    doc! { "$add": [{ "$min": [fence, LAST] }, 1_i64] }
}

/// Jobs that live and that no claim and no recovery finds.
fn unreachable() -> Document {
    let not = |kind: &str| doc! { "$not": { "$type": kind } };
    let known: Vec<_> = JobStatus::ALL.iter().map(|status| status.as_str()).collect();
    let levels: Vec<_> = JobPriority::ALL.iter().map(|priority| i32::from(priority.ordinal())).collect();
    let too_long = doc! { "$cond": [
        { "$eq": [{ "$type": "$queue.name" }, "string"] }, { "$gt": [{ "$strLenBytes": "$queue.name" }, 64] }, false,
    ] };
    let never_asked_for = vec![
        doc! { "queue": not("object") },
        doc! { "queue.priority": { "$nin": levels } },
        doc! { "queue.name": not("string") },
        doc! { "queue.name": "" },
        doc! { "queue.name": { "$regex": "[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]" } },
        doc! { "$expr": too_long },
        doc! { "blocked_by": not("number") },
        doc! { "blocked_by": { "$lt": 0 } },
        doc! { "scheduled_time": not("date") },
        doc! { "scheduled_time": { "$gt": date(Timestamp::MAX) } },
    ];
    doc! { "_id": { "$type": "binData" }, "$or": [
        { "status": { "$nin": known } },
        { "status": "RUNNING", "queue.picked_by": not("string") },
        { "status": "PENDING", "recurrence": { "$exists": false }, "$or": never_asked_for },
    ] }
}
