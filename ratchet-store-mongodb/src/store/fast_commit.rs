//! Commit of outcomes that concern no other document, in one command: similar successes share an update, the others
//! have one each.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Uuid, doc};
use mongodb::options::FindOptions;
use ratchet_api::{
    End, ErrorRecord, ExecutionResult, Fence, HandBackReason, JobId, JobStatus, Outcome, Owner, Recorded,
    Run, StoreResult, Timestamp, Verdict,
};
use serde::Deserialize;

use crate::MongoStore;
use crate::clock::{Present, instant};
use crate::codec::{JobDoc, date, job_id, millis, uuid, uuids};
use crate::store::fast_success;

const OP: &str = "commit";

#[derive(Deserialize)]
struct Written {
    #[serde(rename = "_id")]
    id: Uuid,
    scheduled_time: DateTime,
}

impl MongoStore {
    /// Records plain outcomes. `None` for every outcome that needs a unit of work: one with effects, a lost or replayed
    /// one, a canceled job, or a job with edges, a batch or a permit.
    ///
    /// One round trip if all were plain and ended; one more to read which were, or when they are due again.
    pub(super) async fn commit_plain(
        &self,
        owner: &Owner,
        outcomes: &[Outcome],
    ) -> StoreResult<Vec<Option<Verdict>>> {
        let mut seen = HashSet::new();
        let mut is_plain = |outcome: &Outcome| outcome.effects.is_empty() && seen.insert(outcome.id);
        let plain: Vec<bool> = outcomes.iter().map(&mut is_plain).collect();
        let candidates: Vec<_> =
            outcomes.iter().zip(&plain).filter(|(_, plain)| **plain).map(|(o, _)| o).collect();
        if candidates.is_empty() {
            return Ok(vec![None; outcomes.len()]);
        }
        let (call, present) = (ObjectId::new(), self.present());
        let (mut updates, others) = fast_success::updates(owner, &candidates, call, present);
        updates.extend(others.into_iter().map(|outcome| Plain { owner, outcome, call, present }.update()));
        let found = self.update_each(OP, &self.collections.jobs, updates).await?;
        let all = found == candidates.len() as u64;
        let due_known = candidates.iter().all(|outcome| match delay_of(&outcome.end) {
            None => true,
            Some(_) => present.known().is_some() && !outcome.end.keeps_due(),
        });
        let written = match all && due_known {
            true => None,
            false => Some(self.written_by(call, &candidates).await?),
        };
        let verdict = |outcome: &Outcome| {
            let mut recorded = Recorded::default();
            let read_due = written.as_ref().and_then(|written| written.get(&outcome.id)).copied();
            if read_due.is_none() && !all {
                return None;
            }
            // All were recorded. A job that was not found has moved on since: another owner claimed and ended it.
            if let Some(delay) = delay_of(&outcome.end) {
                recorded.next_due = read_due.map(instant).or(present.known().map(|now| now + delay));
            }
            Some(Verdict::Recorded(recorded))
        };
        Ok(outcomes.iter().zip(plain).map(|(outcome, plain)| plain.then(|| verdict(outcome))?).collect())
    }

    /// The jobs that this call changed, and when they are due.
    async fn written_by(
        &self,
        call: ObjectId,
        outcomes: &[&Outcome],
    ) -> StoreResult<HashMap<JobId, DateTime>> {
        let ids = uuids(outcomes.iter().map(|outcome| outcome.id));
        let few = FindOptions::builder().projection(doc! { "scheduled_time": 1 }).build();
        let filter = doc! { "_id": { "$in": ids }, "commit": call };
        let rows: Vec<Written> = self.find(OP, &self.collections.jobs, filter, few).await?;
        Ok(rows.into_iter().map(|row| (job_id(row.id), row.scheduled_time)).collect())
    }
}

fn delay_of(end: &End) -> Option<Duration> {
    match end {
        End::Retry { delay, .. } | End::HandBack { delay, .. } => Some(*delay),
        End::Park { .. } => Some(Duration::ZERO),
        _ => None,
    }
}

/// A plain outcome, about to be written.
struct Plain<'o> {
    owner: &'o Owner,
    outcome: &'o Outcome,
    call: ObjectId,
    present: Present,
}

impl Plain<'_> {
    fn update(&self) -> Document {
        let (mut filter, pipeline) = match &self.outcome.end {
            End::Retry { .. } | End::HandBack { .. } | End::Park { .. } => {
                (plain(self.owner, self.outcome.fence), self.give_back())
            }
            _ => (plain_end(self.owner, self.outcome.fence), self.finish()),
        };
        filter.insert("_id", uuid(self.outcome.id));
        doc! { "q": filter, "u": pipeline, "hint": BY_ID.clone() }
    }

    /// The update stages that end the job and remove its queue part with everything that it reserved.
    fn finish(&self) -> Vec<Document> {
        let mut unset = vec!["queue", "picked_at"];
        let mut ending = doc! {
            "terminated_at": self.present.expr(),
            "queue_wait_ms": { "$max": [0_i64, { "$subtract": ["$picked_at", "$scheduled_time"] }] },
        };
        if let Some((started, ended)) = self.run() {
            ending.extend(doc! { "started_at": started, "ended_at": ended });
        }
        let mut set = Document::new();
        let (status, result, attempts) = match &self.outcome.end {
            End::DeadLetter { error, reason } => {
                set.extend(doc! {
                    "last_error": literal(error.message.as_str()),
                    "fingerprint": literal(error.fingerprint.as_str()),
                    "crash_count": { "$add": ["$crash_count", i32::from(self.outcome.is_crash())] },
                });
                (JobStatus::Failed, ExecutionResult::Failed, i32::from(reason.consumes_attempt()))
            }
            End::Canceled { reason } => {
                set.insert("cancel_reason", literal(reason.as_str()));
                (JobStatus::Canceled, ExecutionResult::Canceled, 0)
            }
            End::Succeeded { result } => {
                if let Some(result) = result {
                    ending.insert("result", literal(result.as_str()));
                }
                unset.push("last_error");
                (JobStatus::Succeeded, ExecutionResult::Succeeded, 0)
            }
            End::Retry { .. } | End::HandBack { .. } | End::Park { .. } => return self.give_back(),
        };
        set.insert("ending", ending);
        self.pipeline(status, Some(result), attempts, set, unset)
    }

    /// The update stages that make the job PENDING again.
    fn give_back(&self) -> Vec<Document> {
        let mut set = Document::new();
        let (delay, result, attempts) = match &self.outcome.end {
            End::Retry { delay, error } => {
                set.insert("last_error", literal(error.message.as_str()));
                (*delay, Some(ExecutionResult::Failed), 1)
            }
            End::HandBack { delay, reason: HandBackReason::Crashed } => {
                set.insert("crash_count", doc! { "$add": ["$crash_count", 1] });
                if let Some(error) = &self.outcome.crash {
                    set.insert("last_error", literal(error.message.as_str()));
                }
                (*delay, Some(ExecutionResult::Crashed), 0)
            }
            End::HandBack { delay, .. } => (*delay, self.outcome.run.map(|_| ExecutionResult::Snoozed), 0),
            End::Park { .. } => (Duration::ZERO, self.outcome.run.map(|_| ExecutionResult::Snoozed), 0),
            End::Succeeded { .. } | End::DeadLetter { .. } | End::Canceled { .. } => return self.finish(),
        };
        let due = match self.outcome.end.keeps_due() {
            true => doc! { "$min": ["$scheduled_time", self.present.expr()] }.into(),
            false => self.present.plus(delay),
        };
        set.insert("scheduled_time", due);
        if let Some(on) = self.outcome.parked_on() {
            set.insert("queue.parked_on", literal(&on.to_string()));
        }
        let unset = vec!["queue.picked_by", "queue.token", "picked_at", "progress"];
        self.pipeline(JobStatus::Pending, result, attempts, set, unset)
    }

    fn pipeline(
        &self,
        status: JobStatus,
        result: Option<ExecutionResult>,
        attempts: i32,
        mut set: Document,
        unset: Vec<&str>,
    ) -> Vec<Document> {
        let attempts = doc! { "$add": ["$attempts", attempts] };
        set.extend(doc! {
            "status": status.as_str(), "fence": self.outcome.fence.next().version(), "commit": self.call,
            "attempts": &attempts,
        });
        if let Some(result) = result {
            let history = doc! { "$ifNull": ["$history", []] };
            set.insert("history", doc! { "$concatArrays": [history, [self.execution(result, attempts)]] });
        }
        vec![doc! { "$set": set }, doc! { "$unset": unset }]
    }

    fn execution(&self, result: ExecutionResult, attempt: Document) -> Document {
        let mut row = doc! {
            "fence": self.outcome.fence.version(), "owner": literal(self.owner.as_str()), "result": result.as_str(),
            "attempt": attempt, "recorded_at": self.present.expr(),
        };
        if let Some((started, ended)) = self.run() {
            row.insert("duration_ms", doc! { "$subtract": [ended, started.clone()] });
            row.insert("started_at", started);
        }
        if let Some(error) = self.outcome.error() {
            let ErrorRecord { class, message, .. } = error;
            row.extend(doc! { "error_class": literal(class.as_str()), "error": literal(message.as_str()) });
        }
        row
    }

    /// The start and end of the body, counted back from the present.
    fn run(&self) -> Option<(Bson, Bson)> {
        let Run { started_ago, ran_for } = self.outcome.run?;
        let started = self.present.minus(started_ago);
        let ran = millis(ran_for).min(Timestamp::MAX.as_millis());
        let ended = doc! { "$min": [{ "$add": [started.clone(), ran] }, self.present.expr()] };
        Some((started, ended.into()))
    }
}

/// The hint for updates: they find their jobs by id; any other index would be worse.
pub(super) static BY_ID: LazyLock<Document> = LazyLock::new(|| doc! { "_id": 1 });

/// A filter that matches only if no reason makes the outcome other than plain.
fn plain(owner: &Owner, fence: Fence) -> Document {
    let mut filter = doc! {
        "fence": fence.version(), "status": "RUNNING", "queue.picked_by": owner.as_str(),
        "queue.cancel_requested": { "$ne": true }, "queue.permits": { "$exists": false },
        format!("history.{}", JobDoc::HISTORY - 1): { "$exists": false },
    };
    filter.extend(computable());
    filter
}

/// The same filter for an outcome that ends its job.
pub(super) fn plain_end(owner: &Owner, fence: Fence) -> Document {
    let mut filter = plain(owner, fence);
    filter.extend(doc! { "edge_count": 0, "spec.batch": { "$exists": false } });
    filter
}

/// A filter for documents whose fields have the types that the updates compute with. As expressions: a filter by type
/// also accepts a list that contains a value of the type.
fn computable() -> Document {
    let in_calendar = |field: &str| {
        doc! { "$and": [
            { "$eq": [{ "$type": field }, "date"] },
            { "$gte": [field, date(Timestamp::MIN)] }, { "$lte": [field, date(Timestamp::MAX)] },
        ] }
    };
    doc! { "$expr": { "$and": [
        { "$isNumber": "$attempts" }, { "$isNumber": "$crash_count" }, in_calendar("$picked_at"),
        in_calendar("$scheduled_time"), { "$in": [{ "$type": "$history" }, ["missing", "array"]] },
    ] } }
}

/// Text as a literal, so that the server does not read it as a field or an operator.
fn literal(text: &str) -> Document {
    doc! { "$literal": text }
}
