//! Canceling jobs.

use std::collections::{HashMap, HashSet};

use ratchet_api::store::{CancelVerdict, Target};
use ratchet_api::{JobId, JobStatus, Sanitized, StoreResult, Timestamp};

use super::{is_stale, lock_targets};
use crate::store::SqlStore;
use crate::store::cascade::{Calling, Cascade};
use crate::store::info::present;
use crate::store::lock_rows::{LockedJob, Queued, RowState};
use crate::store::session::Session;

pub(crate) async fn cancel(
    store: &SqlStore,
    targets: &[Target],
    reason: &Sanitized,
) -> StoreResult<Vec<CancelVerdict>> {
    store.transaction("cancel", |session| Box::pin(cancel_all(session, targets, reason.as_str()))).await
}

async fn cancel_all(
    session: &mut Session<'_>,
    targets: &[Target],
    reason: &str,
) -> StoreResult<Vec<CancelVerdict>> {
    let mut verdicts = Vec::with_capacity(targets.len());
    let mut held = lock_targets(session, targets).await?;
    let now = present(session).await?;
    while let Some(rest) = targets.get(verdicts.len()..).filter(|rest| !rest.is_empty()) {
        if !verdicts.is_empty() {
            // An earlier target may have canceled some of these by its cascade.
            held = lock_targets(session, rest).await?;
        }
        let run = &rest[..independent(rest, &held)];
        verdicts.extend(cancel_run(session, run, &held, reason, now).await?);
    }
    Ok(verdicts)
}

/// How many of the first targets can be canceled at once: none of them changes the state that another one finds.
fn independent(targets: &[Target], held: &HashMap<JobId, LockedJob>) -> usize {
    let mut met = HashSet::new();
    for (place, target) in targets.iter().enumerate() {
        if !met.insert(target.id) {
            return place;
        }
        let Some(job) = held.get(&target.id) else { continue };
        if has_dependents(job) {
            return place.max(1);
        }
        // The end of a child may complete its batch, which releases the parent.
        met.extend(job.batch.map(|batch| batch.parent()));
    }
    targets.len()
}

fn has_dependents(held: &LockedJob) -> bool {
    matches!(&held.place, RowState::Queue(Queued { edge_count: 1.., .. }))
}

async fn cancel_run(
    session: &mut Session<'_>,
    run: &[Target],
    held: &HashMap<JobId, LockedJob>,
    reason: &str,
    now: Timestamp,
) -> StoreResult<Vec<CancelVerdict>> {
    let (mut waiting, mut running, mut schedules) = (Vec::new(), Vec::new(), Vec::new());
    let (mut decide, mut verdicts) = (HashMap::new(), Vec::with_capacity(run.len()));
    for (cause, target) in run.iter().enumerate() {
        let verdict = judge(target, held.get(&target.id));
        if let (Some(job), CancelVerdict::Canceled { .. } | CancelVerdict::Requested { .. }) =
            (held.get(&target.id), &verdict)
        {
            match (&job.place, &verdict) {
                (RowState::Queue(_), CancelVerdict::Requested { .. }) => running.push(job.id),
                (RowState::Queue(_), _) => waiting.push((job.id, cause)),
                (RowState::Schedule { .. } | RowState::Ended(_), _) => schedules.push(job.id),
            }
            if has_dependents(job) {
                decide.insert(job.id, (JobStatus::Canceled, cause));
            }
        }
        verdicts.push(verdict);
    }
    if !schedules.is_empty() {
        let cancel = session.sql().cancel_schedules.bind().arg("reason", reason);
        cancel.arg("now", now).arg("job_ids", schedules).run(session).await?;
    }
    if !running.is_empty() {
        let request = session.sql().request_cancel.bind().arg("reason", reason);
        request.arg("now", now).arg("job_ids", running).run(session).await?;
    }
    let mut follow = Cascade::new(now, run.len());
    let calling = Calling { reason: Some(reason), ..Calling::default() };
    follow.end_waiting(session, &waiting, calling).await?;
    follow.decide_open(session, &decide, Vec::new()).await?;
    for (verdict, led_to) in verdicts.iter_mut().zip(follow.finish(session).await?) {
        if let CancelVerdict::Canceled { dependents } | CancelVerdict::Requested { dependents } = verdict {
            *dependents = led_to.canceled;
        }
    }
    Ok(verdicts)
}

/// Decides the effect of a cancel on the job itself.
fn judge(target: &Target, held: Option<&LockedJob>) -> CancelVerdict {
    let Some(held) = held else { return CancelVerdict::Unknown };
    match held.status() {
        status if is_stale(target, held) => CancelVerdict::Stale(status),
        status if status.is_terminal() => CancelVerdict::AlreadyEnded(status),
        JobStatus::Running => CancelVerdict::Requested { dependents: Vec::new() },
        _ => CancelVerdict::Canceled { dependents: Vec::new() },
    }
}
