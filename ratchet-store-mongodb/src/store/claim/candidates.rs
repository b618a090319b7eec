//! The candidates of a claim: the first due jobs of each queue and priority, merged by effective priority.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use bson::{Bson, DateTime, Document, Uuid, doc};
use ratchet_api::store::ClaimRequest;
use ratchet_api::{JobId, JobPriority, Owner, QueueLimit, StoreResult, Timestamp};
use serde::Deserialize;

use super::OP;
use super::contention::{Share, heads};
use crate::MongoStore;
use crate::clock::instant;
use crate::codec::{has_job_id, job_id};
use crate::indexes::parked;
use crate::store::parking::Parked;

/// A row of the first read: the claiming node if it is alive, any live node, a paused queue, or a candidate.
#[derive(Deserialize)]
pub(super) struct Seen {
    pub(super) node: Option<String>,
    peer: Option<String>,
    paused: Option<String>,
    job: Option<Uuid>,
    queue: Option<String>,
    /// Of any type: a damaged job is claimed so that its problem is found.
    priority: Option<Bson>,
    due: Option<Bson>,
    now: Option<DateTime>,
    /// Set if a job of some queue is parked.
    parked: Option<Bson>,
    /// The reason for which this job is parked.
    parked_on: Option<String>,
    expired: Option<bool>,
}

/// Whether the last claim saw more due jobs than it wanted.
///
/// Without a backlog, one read across all priorities of a queue finds every due job, at a third of the cost of five
/// reads of one priority each. With a backlog it would find the oldest jobs and not the best.
#[derive(Debug)]
pub(crate) struct Backlog(AtomicBool);

impl Default for Backlog {
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl Backlog {
    fn expected(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn seen(&self, is_there: bool) {
        self.0.store(is_there, Ordering::Relaxed);
    }
}

/// How the due jobs of a queue are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heads {
    /// The oldest across all priorities, one more than wanted. If there is no such extra job, these are all.
    Together,
    /// The oldest of each priority. They include the best, because within one priority older is always better.
    ByPriority,
}

impl Heads {
    /// Whether due jobs may be left after `seen` were read.
    fn leave_some(self, seen: usize, limit: usize) -> bool {
        match self {
            Self::Together => seen > limit,
            Self::ByPriority => seen >= limit,
        }
    }
}

/// A claimable job, ordered as the contract says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    rank: Reverse<i64>,
    due: Timestamp,
    id: JobId,
}

/// The candidates of each unpaused queue, the best first: within one effective priority, those of this node's share
/// come before the rest.
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
        // An expired job may be read twice, also as parked: the expired entry sorts first and is kept.
        rest.sort();
        rest.dedup_by_key(|(candidate, _)| candidate.id);
        // Where its own share is used up, a node goes on with the last jobs of another one, whose node takes the first.
        rest.sort_by(|(one, _), (other, _)| {
            let (near, far) = (share.distance(one.id), share.distance(other.id));
            let in_share = if near == 0 { one.cmp(other) } else { other.cmp(one) };
            one.rank.cmp(&other.rank).then(near.cmp(&far)).then(in_share)
        });
        rest.into_iter()
    };
    best.into_iter().map(|(queue, rest)| (queue, sorted(rest))).collect()
}

pub(super) fn order(
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
pub(super) struct Chosen {
    pub(super) parts: Vec<Vec<JobId>>,
    pub(super) parked: Parked,
}

/// A candidate with the reason for which it is parked, unless it has expired. Sorts like the candidate.
type Parkable = (Candidate, Option<String>);

impl MongoStore {
    /// The jobs to take. Empty if the owner's lease is over.
    pub(super) async fn choose(&self, request: &ClaimRequest, wanted: &[QueueLimit]) -> StoreResult<Chosen> {
        let mut limits: BTreeMap<&str, usize> = BTreeMap::new();
        for part in wanted.iter().filter(|part| part.limit > 0) {
            *limits.entry(part.queue.as_str()).or_default() += part.limit;
        }
        let nothing = || Ok(Chosen { parts: vec![Vec::new(); wanted.len()], parked: Parked::Not });
        if limits.is_empty() {
            return nothing();
        }
        let divided = self.contention.divide();
        limits.values_mut().for_each(|limit| *limit = heads(*limit, divided));
        let mut seen = self.look(&request.owner, &limits, divided.is_some()).await?;
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
            seen.extend(self.glance::<Seen>(OP, &self.collections.nodes, pipeline).await?);
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

    /// Reads the input of a claim's decision, candidates included.
    async fn look(
        &self,
        owner: &Owner,
        limits: &BTreeMap<&str, usize>,
        with_peers: bool,
    ) -> StoreResult<Vec<Seen>> {
        let nodes = &self.collections.nodes;
        let mut heads = match with_peers || self.backlog.expected() {
            true => Heads::ByPriority,
            false => Heads::Together,
        };
        loop {
            let mut pipeline = self.heads(owner, limits, heads);
            if with_peers {
                let peers = self.live_nodes("peer");
                pipeline.push(doc! { "$unionWith": { "coll": nodes.name(), "pipeline": peers } });
            }
            let seen: Vec<Seen> = self.glance(OP, nodes, pipeline).await?;
            let of = |queue: &str| seen.iter().filter(|row| row.queue.as_deref() == Some(queue)).count();
            let some_left = limits.iter().any(|(queue, limit)| heads.leave_some(of(queue), *limit));
            self.backlog.seen(some_left);
            if !some_left || heads == Heads::ByPriority {
                return Ok(seen);
            }
            heads = Heads::ByPriority;
        }
    }

    /// A pipeline with the first read: whether the owner is alive, paused queues, parked jobs, and the first due jobs.
    fn heads(&self, owner: &Owner, limits: &BTreeMap<&str, usize>, heads: Heads) -> Vec<Document> {
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
        let ordinals = JobPriority::ALL.map(|priority| i32::from(priority.ordinal()));
        for (queue, limit) in limits {
            let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
            let lanes = match heads {
                Heads::Together => vec![(doc! { "$in": ordinals.to_vec() }.into(), limit.saturating_add(1))],
                Heads::ByPriority => ordinals.map(|ordinal| (Bson::from(ordinal), limit)).to_vec(),
            };
            for (priority, limit) in lanes {
                let mut lane = doc! {
                    "status": "PENDING", "blocked_by": 0, "queue.parked_on": null,
                    "queue.name": *queue, "queue.priority": priority,
                };
                lane.extend(present.reached("scheduled_time"));
                lane.extend(has_job_id());
                let lane = vec![
                    doc! { "$match": lane },
                    doc! { "$sort": { "scheduled_time": 1, "_id": 1 } },
                    doc! { "$limit": limit },
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
}
