use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, Uuid, doc};
use futures::TryStreamExt as _;
use mongodb::options::{FindOptions, ReturnDocument};
use ratchet_api::store::NodeStore;
use ratchet_api::{
    Beat, BeatReply, JobClaim, JobId, Node, NodeInfo, Owner, Pulse, StoreError, StoreResult, Timestamp,
    whole_millis,
};
use serde::Deserialize;

use crate::MongoStore;
use crate::clock::instant;
use crate::codec::{NodeDoc, date, has_job_id, salvage, uuids};
use crate::error::During;
use crate::indexes::{claimable_anywhere, parked_anywhere};
use crate::unit::in_unit;

#[async_trait]
impl NodeStore for MongoStore {
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        Ok(Box::new(self.separate()?))
    }

    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()> {
        let present = self.present();
        let joined = doc! {
            "_id": { "$literal": node.owner.as_str() }, "label": { "$literal": &node.label },
            "version": { "$literal": &node.version }, "methods": { "$literal": &node.methods },
            "queues": { "$literal": &node.queues },
            "started_at": present.expr(), "heartbeat_at": present.expr(), "beating_since": present.expr(),
            "beat_gap_ms": 0_i64, "lease_until": present.plus(lease), "reaped": false, "skew_ms": 0_i64, "running": 0, "slots": 0,
            "draining": false,
        };
        // Joining again changes nothing: only beats renew a lease.
        let is_new = doc! { "$eq": [{ "$type": "$started_at" }, "missing"] };
        let keep_or_join = vec![doc! { "$replaceWith": { "$cond": [is_new, joined, "$$ROOT"] } }];
        let id = doc! { "_id": node.owner.as_str() };
        self.collections.nodes.update_one(id, keep_or_join).upsert(true).await.during("join")?;
        Ok(())
    }

    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply> {
        const OP: &str = "beat";
        let present = self.present();
        let gap_ms = whole_millis(beat.gap);
        // A beat repairs a damaged row.
        let time = |field: &str, or: Bson| doc! { "$convert": { "input": field, "to": "date", "onError": or.clone(), "onNull": or } };
        let since_last =
            doc! { "$subtract": [present.expr(), time("$heartbeat_at", date(Timestamp::MIN).into())] };
        let goes_on = doc! { "$and": [
            { "$gte": [&since_last, 0] }, { "$lte": [&since_last, gap_ms] }, { "$lte": ["$beat_gap_ms", gap_ms] },
        ] };
        // Every field reference reads the value from before the update.
        let renew = vec![doc! { "$set": {
            "beating_since": { "$cond": [goes_on, time("$beating_since", present.expr()), present.expr()] }, "beat_gap_ms": gap_ms,
            "heartbeat_at": present.expr(), "lease_until": present.plus(beat.lease),
            "skew_ms": { "$subtract": [date(beat.node_time), present.expr()] },
            "running": i64::from(beat.running), "slots": i64::from(beat.slots), "draining": beat.draining,
        } }];
        let known = doc! { "_id": beat.owner.as_str(), "reaped": false };
        let renewed = self
            .collections
            .nodes
            .find_one_and_update(known, renew)
            .return_document(ReturnDocument::After)
            .await
            .during(OP)?;
        let Some(raw) = renewed else { return Ok(BeatReply::refused(self.now(OP).await?)) };
        let now =
            raw.get_datetime("heartbeat_at").map_err(|error| StoreError::corrupt(OP, &beat.owner, error))?;
        self.news(&beat.owner, beat.lease, self.never_back(instant(now))).await
    }

    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        const OP: &str = "recover";
        if limit == 0 || dead.is_empty() {
            return Ok(Vec::new());
        }
        // A dead owner may have left a transaction open.
        self.end_abandoned(OP).await;
        let token = ObjectId::new();
        let moved: StoreResult<Vec<JobId>> =
            in_unit!(self, OP, |unit| unit.take_over(dead, to, limit, token));
        match moved? {
            moved if moved.is_empty() => Ok(Vec::new()),
            moved => {
                self.read_claims(OP, doc! { "_id": { "$in": uuids(moved) }, "queue.token": token }).await
            }
        }
    }

    async fn leave(&self, owner: &Owner) -> StoreResult<bool> {
        const OP: &str = "leave";
        let held = doc! { "status": "RUNNING", "queue.picked_by": owner.as_str() };
        if !self.first_ids(OP, held, 1).await?.is_empty() {
            return Ok(false);
        }
        self.collections.nodes.delete_one(doc! { "_id": owner.as_str() }).await.during(OP)?;
        Ok(true)
    }

    async fn nodes(&self) -> StoreResult<Vec<Node>> {
        const OP: &str = "nodes";
        let by_start = FindOptions::builder().sort(doc! { "started_at": 1, "_id": 1 }).build();
        let nodes = self.raw_nodes(OP, doc! {}, by_start).await?;
        Ok(nodes.iter().filter_map(|raw| salvage::<NodeDoc>(OP, raw)).map(NodeDoc::read).collect())
    }

    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64> {
        const OP: &str = "purge_nodes";
        #[derive(Deserialize)]
        struct Row {
            #[serde(rename = "_id")]
            owner: String,
        }
        let old = doc! { "$expr": { "$lt": ["$lease_until", self.present().minus(retention)] } };
        let pipeline = vec![
            doc! { "$match": &old },
            self.lookup_held(),
            doc! { "$match": { "held.0": { "$exists": false } } },
        ];
        let idle: Vec<Row> = self.aggregate(OP, &self.collections.nodes, pipeline).await?;
        let owners: Vec<_> = idle.into_iter().map(|row| row.owner).collect();
        let mut gone = doc! { "_id": { "$in": owners } };
        gone.extend(old);
        Ok(self.collections.nodes.delete_many(gone).await.during(OP)?.deleted_count)
    }

    async fn clock_went_back(&self, by: Duration, within: Duration, _limit: usize) -> StoreResult<u64> {
        const OP: &str = "clock_went_back";
        let (present, by_ms) = (self.present(), whole_millis(by));
        let lease = doc! { "$subtract": ["$lease_until", "$heartbeat_at"] };
        let beaten = vec![doc! { "$set": {
            "lease_until": { "$add": [present.expr(), lease] },
            "heartbeat_at": present.expr(), "beating_since": present.expr(),
        } }];
        self.collections.nodes.update_many(present.ahead("heartbeat_at"), beaten).await.during(OP)?;

        let timed = doc! { "$ifNull": ["$retimed_at", { "$last": "$history.recorded_at" }, "$created_at"] };
        let latest = doc! { "$cond": [
            { "$gt": [&timed, present.expr()] }, present.plus(by.saturating_mul(2)), present.plus(by),
        ] };
        let was_due = doc! {
            "status": { "$in": ["PENDING", "PAUSED"] }, "queue.name": { "$exists": true },
            "$expr": { "$and": [
                { "$gt": ["$scheduled_time", present.expr()] },
                { "$lte": ["$scheduled_time", latest] },
                { "$or": [{ "$lt": [&timed, present.minus(within)] }, { "$gt": [&timed, present.expr()] }] },
            ] },
        };
        let due = doc! { "$max": [present.expr(), { "$subtract": ["$scheduled_time", by_ms] }] };
        let now = vec![doc! { "$set": { "scheduled_time": due, "retimed_at": present.expr() } }];
        Ok(self.collections.jobs.update_many(was_due, now).await.during(OP)?.modified_count)
    }
}

/// One row of the news for a beat.
#[derive(Deserialize)]
struct News {
    /// Of any type, like the times: one damaged job must not cost a node its lease.
    dead: Option<Bson>,
    cancel: Option<Bson>,
    holds: Option<Bson>,
    parked: Option<Bson>,
    due: Option<Bson>,
    next_due: Option<Bson>,
    next_fire: Option<Bson>,
}

fn id_in(value: &Bson) -> Option<JobId> {
    let Bson::Binary(binary) = value else { return None };
    uuid::Uuid::from_slice(&binary.bytes).ok().map(JobId::from_uuid)
}

impl MongoStore {
    /// Reads everything that a beat reports, in one query.
    async fn news(&self, owner: &Owner, lease: Duration, now: Timestamp) -> StoreResult<BeatReply> {
        const OP: &str = "beat";
        let (jobs, present) = (self.collections.jobs.name(), self.present());
        let union = |pipeline: Vec<Document>| doc! { "$unionWith": { "coll": jobs, "pipeline": pipeline } };
        let mut pipeline = self.dead_owners();
        pipeline.push(union(vec![
            doc! { "$match": {
                "status": "RUNNING", "queue.picked_by": owner.as_str(), "queue.cancel_requested": true,
            } },
            doc! { "$project": { "_id": 0, "cancel": "$_id" } },
        ]));
        pipeline.push(union(vec![
            doc! { "$match": { "status": "RUNNING", "queue.picked_by": owner.as_str() } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "holds": "$_id" } },
        ]));
        pipeline.push(union(self.first_open("due", present.reached("scheduled_time"))));
        pipeline.push(union(vec![
            doc! { "$match": parked_anywhere() },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "parked": "$queue.parked_on" } },
        ]));
        pipeline.push(union(self.first_open("next_due", present.ahead("scheduled_time"))));
        pipeline.push(union(vec![
            doc! { "$match": {
                "status": "PENDING", "recurrence.next_fire": { "$exists": true, "$type": "date" },
            } },
            doc! { "$sort": { "recurrence.next_fire": 1 } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, "next_fire": "$recurrence.next_fire" } },
        ]));
        let (mut reply, mut any_parked) = (BeatReply::accepted(now), false);
        for news in self.aggregate::<News>(OP, &self.collections.jobs, pipeline).await? {
            reply.dead.extend(news.dead.as_ref().and_then(Bson::as_str).map(Owner::from_stored));
            reply.cancel_requested.extend(news.cancel.as_ref().and_then(id_in));
            reply.holds_jobs |= news.holds.is_some();
            reply.due_work |= news.due.is_some();
            any_parked |= news.parked.is_some();
            let time = |time: Option<Bson>| time.and_then(|time| time.as_datetime().copied()).map(instant);
            reply.next_due = reply.next_due.or(time(news.next_due));
            reply.next_fire = reply.next_fire.or(time(news.next_fire));
        }
        if any_parked {
            let queues = self.open_parked_queues(OP).await?;
            reply.due_work = reply.due_work || self.could_pull(OP, owner, &queues).await?;
            reply.suspects = self.suspects_wait(OP, &queues).await?;
        }
        reply.dead.sort();
        reply.cancel_requested.sort();
        if !reply.dead.is_empty() {
            reply.pulses = self.pulses(&reply.dead, lease).await?;
        }
        Ok(reply)
    }

    /// The pulses that prove these deaths. An unreadable row proves nothing and hinders no other proof: its node counts
    /// as one that has never beaten, with the lease of the asking node.
    async fn pulses(&self, dead: &[Owner], lease: Duration) -> StoreResult<Vec<Pulse>> {
        const OP: &str = "beat";
        let pulse = |raw: &RawDocumentBuf| match bson::deserialize_from_slice::<NodeDoc>(raw.as_bytes()) {
            Ok(node) => Some(node.read().pulse()),
            Err(_) => Some(Pulse::unreadable(Owner::from_stored(raw.get_str("_id").ok()?), lease)),
        };
        let dead = doc! { "_id": { "$in": dead.iter().map(Owner::as_str).collect::<Vec<_>>() } };
        let silent = self.raw_nodes(OP, dead.clone(), FindOptions::default()).await?;
        let longest = silent.iter().filter_map(pulse).map(|pulse| pulse.lease).max().unwrap_or_default();
        let recent = doc! { "$expr": { "$gt": ["$lease_until", self.present().minus(longest)] } };
        let bearing = doc! { "$or": [dead, recent] };
        let known = self.raw_nodes(OP, bearing, FindOptions::default()).await?;
        Ok(known.iter().filter_map(pulse).collect())
    }

    async fn raw_nodes(
        &self,
        op: &'static str,
        filter: Document,
        options: FindOptions,
    ) -> StoreResult<Vec<RawDocumentBuf>> {
        let found = self.collections.nodes.find(filter).with_options(options).await.during(op)?;
        found.try_collect().await.during(op)
    }

    /// A pipeline on the jobs: owners that hold jobs and whose lease is over or who are unknown.
    fn dead_owners(&self) -> Vec<Document> {
        let mut alive = doc! { "reaped": false };
        alive.extend(self.present().ahead("lease_until"));
        let alive = vec![
            doc! { "$match": { "$expr": { "$eq": ["$_id", "$$owner"] } } },
            doc! { "$match": alive },
            doc! { "$project": { "_id": 1 } },
        ];
        vec![
            // The first field of an index has to be named, or all jobs are read.
            doc! { "$match": { "status": "RUNNING", "queue.picked_by": { "$exists": true } } },
            doc! { "$group": { "_id": "$queue.picked_by" } },
            doc! { "$lookup": {
                "from": self.collections.nodes.name(), "let": { "owner": "$_id" }, "pipeline": alive, "as": "alive",
            } },
            doc! { "$match": { "alive.0": { "$exists": false } } },
            doc! { "$project": { "_id": 0, "dead": "$_id" } },
        ]
    }

    /// A pipeline on the jobs: the earliest due time of claimable jobs in unpaused queues.
    fn first_open(&self, name: &str, when: Document) -> Vec<Document> {
        let mut open = claimable_anywhere();
        open.extend(has_job_id());
        open.extend(when);
        vec![
            doc! { "$match": open },
            doc! { "$sort": { "scheduled_time": 1 } },
            doc! { "$lookup": {
                "from": self.collections.queues.name(), "localField": "queue.name", "foreignField": "_id",
                "as": "paused",
            } },
            doc! { "$match": { "paused.0": { "$exists": false } } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 0, name: "$scheduled_time" } },
        ]
    }

    /// A lookup on the nodes: one of the jobs that each of them holds.
    fn lookup_held(&self) -> Document {
        let one = vec![
            doc! { "$match": { "status": "RUNNING", "$expr": { "$eq": ["$queue.picked_by", "$$owner"] } } },
            doc! { "$limit": 1 },
            doc! { "$project": { "_id": 1 } },
        ];
        let jobs = self.collections.jobs.name();
        doc! { "$lookup": { "from": jobs, "let": { "owner": "$_id" }, "pipeline": one, "as": "held" } }
    }

    /// The lowest ids of jobs that match.
    pub(super) async fn first_ids(
        &self,
        op: &'static str,
        filter: Document,
        limit: usize,
    ) -> StoreResult<Vec<Uuid>> {
        #[derive(Deserialize)]
        struct Row {
            #[serde(rename = "_id")]
            id: Uuid,
        }
        let few = FindOptions::builder()
            .sort(doc! { "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! { "_id": 1 })
            .build();
        let rows: Vec<Row> = self.find(op, &self.collections.jobs, filter, few).await?;
        Ok(rows.into_iter().map(|row| row.id).collect())
    }
}
