//! Outcomes that concern no other document: one update each, all in one command.

use std::collections::{HashMap, HashSet};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Uuid, doc};
use mongodb::options::FindOptions;
use ratchet_api::{
    End, ErrorRecord, ExecutionResult, HandBackReason, JobId, JobStatus, Outcome, Owner, Recorded, Run,
    StoreResult, Verdict,
};
use serde::Deserialize;

use crate::MongoStore;
use crate::clock::{Present, instant};
use crate::codec::{JobDoc, job_id, millis, uuid, uuids};

const OP: &str = "commit";

#[derive(Deserialize)]
struct Written {
    #[serde(rename = "_id")]
    id: Uuid,
    scheduled_time: DateTime,
}

impl MongoStore {
    /// Records what is plain. `None` for every outcome that needs a closer look: one with effects, a lost or replayed
    /// one, a cancelled job, or a job with edges, a batch or a permit.
    ///
    /// One round trip if everything was plain and ended; one more to tell which were, or when they are due again.
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
        let updates =
            candidates.iter().map(|outcome| Plain { owner, outcome, call, present }.update()).collect();
        let found = self.update_each(OP, &self.collections.jobs, updates).await?;
        let all = found == candidates.len() as u64;
        let due_known =
            present.known().is_some() || candidates.iter().all(|outcome| delay_of(&outcome.end).is_none());
        let written = match all && due_known {
            true => None,
            false => Some(self.written_by(call, &candidates).await?),
        };
        let verdict = |outcome: &Outcome| {
            let mut recorded = Recorded::default();
            let read_due = match &written {
                None => None,
                Some(written) => Some(*written.get(&outcome.id)?),
            };
            if let Some(delay) = delay_of(&outcome.end) {
                recorded.next_due = present.known().map(|now| now + delay).or(read_due.map(instant));
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

fn delay_of(end: &End) -> Option<std::time::Duration> {
    match end {
        End::Retry { delay, .. } | End::HandBack { delay, .. } => Some(*delay),
        _ => None,
    }
}

/// One plain outcome on its way.
struct Plain<'o> {
    owner: &'o Owner,
    outcome: &'o Outcome,
    call: ObjectId,
    present: Present,
}

impl Plain<'_> {
    /// The filter holds every reason why it might not be plain after all.
    fn update(&self) -> Document {
        let mut filter = doc! {
            "_id": uuid(self.outcome.id), "fence": self.outcome.fence.version(), "status": "RUNNING",
            "queue.picked_by": self.owner.as_str(), "queue.cancel_requested": { "$ne": true },
            "queue.permits": { "$exists": false }, format!("history.{}", JobDoc::HISTORY - 1): { "$exists": false },
        };
        filter.extend(computable());
        let pipeline = match &self.outcome.end {
            End::Retry { .. } | End::HandBack { .. } => self.give_back(),
            _ => {
                filter.extend(doc! { "edge_count": 0, "spec.batch": { "$exists": false } });
                self.finish()
            }
        };
        doc! { "q": filter, "u": pipeline }
    }

    /// The job ends, and its queue part goes with everything that it reserved.
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
            End::Retry { .. } | End::HandBack { .. } => return self.give_back(),
        };
        set.insert("ending", ending);
        self.pipeline(status, Some(result), attempts, set, unset)
    }

    /// The job waits again.
    fn give_back(&self) -> Vec<Document> {
        let mut set = Document::new();
        let (delay, result, attempts) = match &self.outcome.end {
            End::Retry { delay, error } => {
                set.insert("last_error", literal(error.message.as_str()));
                (*delay, Some(ExecutionResult::Failed), 1)
            }
            End::HandBack { delay, reason: HandBackReason::Crashed } => {
                set.insert("crash_count", doc! { "$add": ["$crash_count", 1] });
                (*delay, Some(ExecutionResult::Crashed), 0)
            }
            End::HandBack { delay, .. } => (*delay, self.outcome.run.map(|_| ExecutionResult::Snoozed), 0),
            End::Succeeded { .. } | End::DeadLetter { .. } | End::Canceled { .. } => return self.finish(),
        };
        set.insert("scheduled_time", self.present.plus(delay));
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
        if let End::Retry { error, .. } | End::DeadLetter { error, .. } = &self.outcome.end {
            let ErrorRecord { class, message, .. } = error;
            row.extend(doc! { "error_class": literal(class.as_str()), "error": literal(message.as_str()) });
        }
        row
    }

    /// When the body started and ended, counted back from the present.
    fn run(&self) -> Option<(Bson, Bson)> {
        let Run { started_ago, ran_for } = self.outcome.run?;
        let started = self.present.minus(started_ago);
        let ran = millis(ran_for).min(ratchet_api::Timestamp::MAX.as_millis());
        let ended = doc! { "$min": [{ "$add": [started.clone(), ran] }, self.present.expr()] };
        Some((started, ended.into()))
    }
}

/// What the updates compute with can be computed with: one that fails would fail those beside it.
fn computable() -> Document {
    let history = doc! { "$or": [{ "history": { "$exists": false } }, { "history": { "$type": "array" } }] };
    doc! {
        "attempts": { "$type": "number" }, "crash_count": { "$type": "number" }, "picked_at": { "$type": "date" },
        "scheduled_time": { "$type": "date" }, "$and": [history],
    }
}

/// Text that the server must not read as a field or an operator.
fn literal(text: &str) -> Document {
    doc! { "$literal": text }
}
