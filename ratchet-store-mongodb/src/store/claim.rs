//! Claiming: heads of each priority through the index, one update with a token, one read-back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, Uuid, doc};
use futures::TryStreamExt;
use mongodb::options::Hint;
use ratchet_api::store::{ClaimRequest, JobClaimStore};
use ratchet_api::{JobClaim, JobId, JobPriority, JobStatus, Owner, QueueLimit, StoreResult, Timestamp};
use serde::Deserialize;

use crate::MongoStore;
use crate::client::ONE_ANSWER;
use crate::clock::instant;
use crate::codec::{claim_fields, date, decode, has_job_id, job_id, job_ids, read_claim, uuids};
use crate::error::During;
use crate::indexes::{claimable, parked};
use crate::store::contention::{Share, heads};
use crate::store::parking::Parked;

const OP: &str = "claim";

/// A row of the first read: the claiming node if it is alive, any live node, a paused queue, or a candidate.
#[derive(Deserialize)]
struct Seen {
    node: Option<String>,
    peer: Option<String>,
    paused: Option<String>,
    job: Option<Uuid>,
    queue: Option<String>,
    /// Of which type ever: a claim is the way to find out what is wrong with a job.
    priority: Option<Bson>,
    due: Option<Bson>,
    now: Option<DateTime>,
    /// Something in some queue is parked.
    parked: Option<Bson>,
    /// What this one is parked on.
    parked_on: Option<String>,
    expired: Option<bool>,
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
            // Another node was faster with some of them: it holds those now, so the next heads are others.
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

/// What was seen of each unpaused queue, the best first: of the same effective priority, what falls to this node before the
/// rest.
fn candidates(
    seen: Vec<Seen>,
    paused: &HashSet<String>,
    share: Share,
    request: &ClaimRequest,
) -> HashMap<String, std::vec::IntoIter<Parkable>> {
    let mut best: HashMap<String, Vec<Parkable>> = HashMap::new();
    for row in seen {
        let (Some(job), Some(queue), Some(now)) = (row.job, row.queue, row.now) else { continue };
        let due = row.due.and_then(|due| due.as_datetime().copied()).map_or(Timestamp::MIN, instant);
        let priority = row.priority.and_then(|priority| i16::try_from(priority.as_i32()?).ok());
        let priority = priority.and_then(|ordinal| JobPriority::from_ordinal(ordinal).ok());
        if !paused.contains(&queue) {
            let candidate = order(priority.unwrap_or_default(), due, job_id(job), instant(now), request);
            let on = row.parked_on.filter(|_| row.expired != Some(true));
            best.entry(queue).or_default().push((candidate, on));
        }
    }
    let sorted = |mut rest: Vec<Parkable>| {
        // One that has expired may also be seen as what it is parked on: the former comes first, and counts.
        rest.sort();
        rest.dedup_by_key(|(candidate, _)| candidate.id);
        rest.sort_by_key(|(candidate, _)| (candidate.rank, !share.has(candidate.id)));
        rest.into_iter()
    };
    best.into_iter().map(|(queue, rest)| (queue, sorted(rest))).collect()
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

/// The best jobs of each part of a request, in order, and which parked ones are among them.
struct Chosen {
    parts: Vec<Vec<JobId>>,
    parked: Parked,
}

/// A candidate, and what it is parked on unless it has expired. In order.
type Parkable = (Candidate, Option<String>);

impl MongoStore {
    /// What is to be taken. Nothing if the owner's lease does not run.
    async fn choose(&self, request: &ClaimRequest, wanted: &[QueueLimit]) -> StoreResult<Chosen> {
        let mut limits: BTreeMap<&str, usize> = BTreeMap::new();
        for part in wanted.iter().filter(|part| part.limit > 0) {
            *limits.entry(part.queue.as_str()).or_default() += part.limit;
        }
        let nothing = || Ok(Chosen { parts: vec![Vec::new(); wanted.len()], parked: Parked::Not });
        if limits.is_empty() {
            return nothing();
        }
        let (nodes, divided) = (&self.collections.nodes, self.contention.divide());
        limits.values_mut().for_each(|limit| *limit = heads(*limit, divided));
        let mut pipeline = self.heads(&request.owner, &limits);
        if divided.is_some() {
            let peers = self.live_nodes("peer");
            pipeline.push(doc! { "$unionWith": { "coll": nodes.name(), "pipeline": peers } });
        }
        let mut seen: Vec<Seen> = self.glance(OP, nodes, pipeline).await?;
        if !seen.iter().any(|row| row.node.is_some()) {
            return nothing();
        }
        let share = match divided {
            None => Share::EVERYTHING,
            Some(_) => {
                let peers = seen.iter_mut().filter_map(|row| row.peer.take()).collect();
                self.contention.share(peers, &request.owner)
            }
        };
        let paused: HashSet<String> = seen.iter().filter_map(|row| row.paused.clone()).collect();
        let (mut parked, mut room) = (Parked::Not, None);
        if seen.iter().any(|row| row.parked.is_some()) {
            let has = self.room(OP, &request.owner).await?;
            let (lanes, reasons) = self.parked_heads(OP, &has, &limits).await?;
            let mut pipeline = self.alive(&request.owner);
            let jobs = self.collections.jobs.name();
            pipeline.extend(
                lanes.into_iter().map(|lane| doc! { "$unionWith": { "coll": jobs, "pipeline": lane } }),
            );
            seen.extend(self.glance::<Seen>(OP, nodes, pipeline).await?);
            (parked, room) = (Parked::On(reasons), Some(has));
        }
        let mut best = candidates(seen, &paused, share, request);
        let mut has_room = |on: &Option<String>| match (on, &mut room) {
            (Some(on), Some(room)) => room.take(on),
            (on, _) => on.is_none(),
        };
        let mut of_part = |part: &QueueLimit| match best.get_mut(part.queue.as_str()) {
            None => Vec::new(),
            Some(rest) => {
                let mine = rest.by_ref().filter(|(_, on)| has_room(on));
                mine.take(part.limit).map(|(candidate, _)| candidate.id).collect()
            }
        };
        Ok(Chosen { parts: wanted.iter().map(&mut of_part).collect(), parked })
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
        let mut waiting = parked();
        waiting.insert("queue.name", doc! { "$in": limits.keys().copied().collect::<Vec<_>>() });
        let waiting = vec![
            doc! { "$match": waiting },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "parked": "$queue.parked_on" } },
        ];
        pipeline.push(doc! { "$unionWith": { "coll": c.jobs.name(), "pipeline": waiting } });
        for (queue, limit) in limits {
            for priority in JobPriority::ALL {
                let mut lane = doc! {
                    "status": "PENDING", "blocked_by": 0, "queue.parked_on": null,
                    "queue.name": *queue, "queue.priority": i32::from(priority.ordinal()),
                };
                lane.extend(present.reached("scheduled_time"));
                lane.extend(has_job_id());
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
        let mut alive = vec![doc! { "$match": { "_id": owner.as_str() } }];
        alive.extend(self.live_nodes("node"));
        alive
    }

    /// On the nodes: those whose lease runs, by this name.
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
    /// The owner's lease and the pause of the asked queues are looked at once more afterwards: if either changed before
    /// the jobs were taken, they go back, so that no claim slips past a pause or a recovery that had answered.
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
        // By nothing else: an index of what is due leads to these as well, among all others.
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
        let take = vec![
            doc! { "$set": {
                "status": "RUNNING", "fence": next_fence(), "picked_at": self.present().expr(),
                "queue": { "$mergeObjects": [queue, mine] },
            } },
            doc! { "$unset": "queue.parked_on" },
        ];
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
        let jobs = self.collections.jobs.aggregate(pipeline).batch_size(ONE_ANSWER);
        jobs.with_type::<RawDocumentBuf>().await.during(op)?.try_collect().await.during(op)
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
    // As an expression: a filter by type also takes a list that has a value of this type.
    let not =
        |field: &str, kinds: &[&str]| doc! { "$expr": { "$not": { "$in": [{ "$type": field }, kinds] } } };
    let number = &["int", "long", "double", "decimal"];
    let known: Vec<_> = JobStatus::ALL.iter().map(|status| status.as_str()).collect();
    let levels: Vec<_> = JobPriority::ALL.iter().map(|priority| i32::from(priority.ordinal())).collect();
    let too_long = doc! { "$cond": [
        { "$eq": [{ "$type": "$queue.name" }, "string"] }, { "$gt": [{ "$strLenBytes": "$queue.name" }, 64] }, false,
    ] };
    let never_asked_for = vec![
        not("$queue", &["object"]),
        not("$queue.priority", number),
        doc! { "queue.priority": { "$nin": levels } },
        not("$queue.name", &["string"]),
        not("$queue.parked_on", &["string", "missing"]),
        doc! { "queue.name": "" },
        doc! { "queue.name": { "$regex": "[\\x{00}-\\x{1f}\\x{7f}-\\x{9f}]" } },
        doc! { "$expr": too_long },
        not("$blocked_by", number),
        doc! { "blocked_by": { "$lt": 0 } },
        not("$scheduled_time", &["date"]),
        doc! { "scheduled_time": { "$gt": date(Timestamp::MAX) } },
    ];
    doc! { "_id": job_ids(), "$or": [
        { "status": { "$nin": known } },
        { "$and": [{ "status": "RUNNING" }, not("$queue.picked_by", &["string"])] },
        { "status": "PENDING", "recurrence": { "$exists": false }, "$or": never_asked_for },
    ] }
}
