//! Live jobs that no claim and no recovery finds, because their documents are damaged.

use bson::oid::ObjectId;
use bson::{Document, doc};
use ratchet_api::{JobClaim, JobPriority, JobStatus, Owner, StoreResult, Timestamp};

use super::next_fence;
use crate::MongoStore;
use crate::codec::{date, job_ids};
use crate::error::During;

impl MongoStore {
    /// Takes live jobs that no claim and no recovery finds. Reads every job.
    pub(in crate::store) async fn take_unreachable(
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
}

/// A filter for live jobs that no claim and no recovery finds.
fn unreachable() -> Document {
    // As an expression: a filter by type also accepts a list that contains a value of the type.
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
