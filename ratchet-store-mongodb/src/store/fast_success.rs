//! Commit of successes that concern no other document: one update for many jobs, in which the server looks up the
//! differing values by the job's id. With one update per job, the server spends most time on reading and planning them.

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use ratchet_api::{End, ExecutionResult, Fence, JobStatus, JsonText, Outcome, Owner, Run, Timestamp};

use super::fast_commit::{BY_ID, plain_end};
use crate::clock::Present;
use crate::codec::{date, millis, uuids};

/// The most jobs in one update: the server compares each id with all of them.
const GROUP: usize = 100;

/// A success with the values that it writes.
struct Success<'o> {
    outcome: &'o Outcome,
    run: Option<Run>,
    result: Option<&'o JsonText>,
}

/// The updates that record similar successes, and the outcomes that are left over.
pub(super) fn updates<'o>(
    owner: &Owner,
    outcomes: &[&'o Outcome],
    call: ObjectId,
    present: Present,
) -> (Vec<Document>, Vec<&'o Outcome>) {
    let mut alike: BTreeMap<(Fence, bool, bool), Vec<Success<'o>>> = BTreeMap::new();
    let mut others = Vec::new();
    for outcome in outcomes {
        match &outcome.end {
            End::Succeeded { result } => {
                let success = Success { outcome, run: outcome.run, result: result.as_ref() };
                let kind = (outcome.fence, outcome.run.is_some(), result.is_some());
                alike.entry(kind).or_default().push(success);
            }
            _ => others.push(*outcome),
        }
    }
    let mut updates = Vec::new();
    for ((fence, ..), alike) in alike {
        for group in alike.chunks(GROUP) {
            match group {
                [alone] => others.push(alone.outcome),
                group => updates.push(update(owner, fence, group, call, present)),
            }
        }
    }
    (updates, others)
}

/// One update for jobs that share a fence, all with or all without a run, and all with or all without a result.
fn update(owner: &Owner, fence: Fence, group: &[Success<'_>], call: ObjectId, present: Present) -> Document {
    let ids = uuids(group.iter().map(|success| success.outcome.id));
    let mut filter = plain_end(owner, fence);
    filter.insert("_id", doc! { "$in": &ids });
    // Picks the value for this job from those of the group.
    let its = |values: Vec<Bson>| doc! { "$arrayElemAt": [{ "$literal": values }, "$at"] };
    let mut ending = doc! {
        "terminated_at": present.expr(),
        "queue_wait_ms": { "$max": [0_i64, { "$subtract": ["$picked_at", "$scheduled_time"] }] },
    };
    let mut attempt = doc! {
        "fence": "$fence", "owner": { "$literal": owner.as_str() },
        "result": ExecutionResult::Succeeded.as_str(), "attempt": "$attempts", "recorded_at": present.expr(),
    };
    let runs: Vec<Run> = group.iter().filter_map(|success| success.run).collect();
    let mut stages = vec![doc! { "$set": { "at": { "$indexOfArray": [{ "$literal": ids }, "$_id"] } } }];
    if !runs.is_empty() {
        let ago = its(runs.iter().map(|run| bounded(run.started_ago).into()).collect());
        let ran = its(runs.iter().map(|run| bounded(run.ran_for).into()).collect());
        let started = doc! { "$max": [date(Timestamp::MIN), { "$subtract": [present.expr(), ago] }] };
        stages.push(doc! { "$set": { "started": started, "ran": ran } });
        let ended = doc! { "$min": [{ "$add": ["$started", "$ran"] }, present.expr()] };
        attempt
            .extend(doc! { "started_at": "$started", "duration_ms": { "$subtract": [&ended, "$started"] } });
        ending.extend(doc! { "started_at": "$started", "ended_at": ended });
    }
    let results: Vec<Bson> =
        group.iter().filter_map(|success| Some(Bson::from(success.result?.as_str()))).collect();
    if !results.is_empty() {
        ending.insert("result", its(results));
    }
    let history = doc! { "$concatArrays": [{ "$ifNull": ["$history", []] }, [attempt]] };
    stages.push(doc! { "$set": {
        "status": JobStatus::Succeeded.as_str(), "fence": fence.next().version(), "commit": call,
        "history": history, "ending": ending,
    } });
    stages.push(doc! { "$unset": ["queue", "picked_at", "last_error", "at", "started", "ran"] });
    doc! { "q": filter, "u": stages, "multi": true, "hint": BY_ID.clone() }
}

/// The milliseconds of `duration`, bounded so that the server can add them to a date without overflow.
fn bounded(duration: std::time::Duration) -> i64 {
    millis(duration).min(Timestamp::MAX.as_millis())
}
