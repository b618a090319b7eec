//! Parked jobs: those that lack something that is not their own.

use std::collections::{BTreeMap, HashMap, HashSet};

use bson::{Bson, Document, doc};
use futures::TryStreamExt as _;
use ratchet_api::{JobPriority, Owner, ParkedOn, StoreResult};
use serde::Deserialize;

use crate::MongoStore;
use crate::codec::{LimitDoc, has_job_id, read};
use crate::error::During;
use crate::indexes::{parked, parked_anywhere};

/// The first text after all reasons that begin like a suspect's.
const AFTER_SUSPECTS: &str = "suspect;";

/// Which parked jobs a claim may take.
pub(super) enum Parked {
    /// No parked job.
    Not,
    /// Jobs that are parked on one of these reasons.
    On(Vec<String>),
    /// All parked jobs.
    Whatever,
}

impl Parked {
    /// The filter on `queue.parked_on`.
    pub(super) fn filter(&self) -> Document {
        match self {
            Self::Not => doc! { "queue.parked_on": null },
            Self::On(reasons) => {
                let reasons = reasons.iter().map(|reason| Bson::from(reason.as_str()));
                doc! { "queue.parked_on": { "$in": reasons.chain([Bson::Null]).collect::<Vec<_>>() } }
            }
            Self::Whatever => Document::new(),
        }
    }
}

/// The capacity of an owner for parked jobs at one moment.
pub(super) struct Room {
    methods: HashSet<String>,
    /// Free permits, by resource.
    permits: HashMap<String, i64>,
}

impl Room {
    /// The number of jobs parked on this reason that the owner could take.
    fn left(&self, reason: &str) -> i64 {
        if let Some(method) = reason.strip_prefix(ParkedOn::METHOD) {
            return if self.methods.contains(method) { i64::MAX } else { 0 };
        }
        if reason.starts_with(ParkedOn::SUSPECT) {
            return 0;
        }
        match reason.strip_prefix(ParkedOn::RESOURCE) {
            Some(resource) => self.permits.get(resource).copied().unwrap_or_default(),
            // An unknown reason: nobody knows what the job lacks.
            None => i64::MAX,
        }
    }

    /// Whether there is capacity for one more job, which is then taken.
    pub(super) fn take(&mut self, reason: &str) -> bool {
        let left = self.left(reason);
        if let Some(free) =
            reason.strip_prefix(ParkedOn::RESOURCE).and_then(|resource| self.permits.get_mut(resource))
        {
            *free -= 1;
        }
        left > 0
    }
}

impl MongoStore {
    /// The current capacity of this owner.
    pub(super) async fn room(&self, op: &'static str, owner: &Owner) -> StoreResult<Room> {
        #[derive(Deserialize)]
        struct Methods {
            methods: Vec<String>,
        }
        let c = &self.collections;
        // An unreadable node or resource gives no capacity. Others log it; this is called too often to do so.
        let nodes: Vec<_> =
            c.nodes.find(doc! { "_id": owner.as_str() }).await.during(op)?.try_collect().await.during(op)?;
        let nodes = nodes.iter().filter_map(|raw| read::<Methods>(raw).ok());
        let limits: Vec<_> = c.limits.find(doc! {}).await.during(op)?.try_collect().await.during(op)?;
        let limits = limits.iter().filter_map(|raw| read::<LimitDoc>(raw).ok());
        let free =
            |limit: LimitDoc| (limit.name, i64::from(limit.max_concurrent).saturating_sub(limit.in_use));
        Ok(Room {
            methods: nodes.flat_map(|node| node.methods).collect(),
            permits: limits.map(free).collect(),
        })
    }

    /// The reasons for which jobs of this queue are parked: one step along an index for each.
    async fn reasons(&self, op: &'static str, queue: &str) -> StoreResult<Vec<String>> {
        let mut filter = parked();
        filter.insert("queue.name", queue);
        let found = self.collections.jobs.distinct("queue.parked_on", filter).await.during(op)?;
        Ok(found.into_iter().filter_map(|reason| reason.as_str().map(str::to_owned)).collect())
    }

    /// A pipeline on the jobs: for each queue and priority, the first due ones that are parked on what this owner has,
    /// and the expired ones, which any owner can end. Each with its reason.
    pub(super) async fn parked_heads(
        &self,
        op: &'static str,
        room: &Room,
        limits: &BTreeMap<&str, usize>,
    ) -> StoreResult<(Vec<Vec<Document>>, Vec<String>)> {
        let (mut lanes, mut pulled) = (Vec::new(), Vec::new());
        for (queue, limit) in limits {
            let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
            let reasons = self.reasons(op, queue).await?;
            for reason in reasons.iter().filter(|reason| room.left(reason) > 0) {
                for priority in JobPriority::ALL {
                    let lane = doc! {
                        "queue.name": *queue, "queue.parked_on": reason,
                        "queue.priority": i32::from(priority.ordinal()),
                    };
                    lanes.push(self.parked_lane(lane, false, limit.min(room.left(reason))));
                }
            }
            let mut expired = self.present().reached("spec.expires_at");
            expired.extend(doc! { "queue.name": *queue });
            lanes.push(self.parked_lane(expired, true, limit));
            pulled.extend(reasons);
        }
        Ok((lanes, pulled))
    }

    fn parked_lane(&self, which: Document, expired: bool, limit: i64) -> Vec<Document> {
        let present = self.present();
        let mut conditions = vec![parked(), which, present.reached("scheduled_time"), has_job_id()];
        let mut sort = doc! { "scheduled_time": 1, "_id": 1 };
        if expired {
            conditions.push(doc! { "spec.expires_at": { "$exists": true } });
            sort = doc! { "spec.expires_at": 1, "_id": 1 };
        }
        vec![
            doc! { "$match": { "$and": conditions } },
            doc! { "$sort": sort },
            doc! { "$limit": limit },
            doc! { "$project": {
                "_id": 0, "job": "$_id", "queue": "$queue.name", "priority": "$queue.priority",
                "due": "$scheduled_time", "now": present.expr(), "parked_on": "$queue.parked_on",
                "expired": { "$literal": expired },
            } },
        ]
    }

    /// The unpaused queues in which jobs are parked.
    pub(super) async fn open_parked_queues(&self, op: &'static str) -> StoreResult<Vec<String>> {
        let c = &self.collections;
        let queues = c.jobs.distinct("queue.name", parked_anywhere()).await.during(op)?;
        let paused = c.queues.distinct("_id", doc! {}).await.during(op)?;
        let open = queues.iter().filter(|queue| !paused.contains(queue)).filter_map(Bson::as_str);
        Ok(open.map(str::to_owned).collect())
    }

    /// Whether this owner could take a parked job of one of these queues.
    pub(super) async fn could_pull(
        &self,
        op: &'static str,
        owner: &Owner,
        queues: &[String],
    ) -> StoreResult<bool> {
        #[derive(Deserialize)]
        struct Found {}
        let limits: BTreeMap<&str, usize> = queues.iter().map(|queue| (queue.as_str(), 1)).collect();
        if limits.is_empty() {
            return Ok(false);
        }
        let room = self.room(op, owner).await?;
        let (lanes, _) = self.parked_heads(op, &room, &limits).await?;
        for lane in lanes {
            if !self.glance::<Found>(op, &self.collections.jobs, lane).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a due job of one of these queues is parked as a suspect.
    pub(super) async fn suspects_wait(&self, op: &'static str, queues: &[String]) -> StoreResult<bool> {
        let mut suspect = parked();
        suspect.extend(doc! {
            "queue.name": { "$in": queues },
            "queue.parked_on": { "$gte": ParkedOn::SUSPECT, "$lt": AFTER_SUSPECTS },
        });
        suspect.extend(has_job_id());
        suspect.extend(self.present().reached("scheduled_time"));
        Ok(self.collections.jobs.find_one(suspect).await.during(op)?.is_some())
    }
}
