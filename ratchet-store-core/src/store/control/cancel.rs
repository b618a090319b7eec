//! Calling jobs off.

use std::collections::HashMap;

use ratchet_api::store::{CancelVerdict, Target};
use ratchet_api::{JobStatus, Sanitized, StoreResult, Timestamp};

use super::{again, hold_targets, is_stale};
use crate::store::SqlStore;
use crate::store::follow::{Calling, Follow};
use crate::store::hold::{Held, Place, Queued};
use crate::store::info::present;
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
    let held = hold_targets(session, targets).await?;
    let now = present(session).await?;
    let mut verdicts = Vec::with_capacity(targets.len());
    for (place, target) in targets.iter().enumerate() {
        // An earlier one may have taken this one along.
        let held = if place == 0 { held.get(&target.id).cloned() } else { again(session, target.id).await? };
        verdicts.push(match held {
            None => CancelVerdict::Unknown,
            Some(held) if is_stale(target, &held) => CancelVerdict::Stale(held.status()),
            Some(held) if held.status().is_terminal() => CancelVerdict::AlreadyEnded(held.status()),
            Some(held) => cancel_one(session, &held, reason, now).await?,
        });
    }
    Ok(verdicts)
}

async fn cancel_one(
    session: &mut Session<'_>,
    held: &Held,
    reason: &str,
    now: Timestamp,
) -> StoreResult<CancelVerdict> {
    let mut follow = Follow::new(now, 1);
    let (running, edges) = match &held.place {
        Place::Queue(Queued { status, edge_count, .. }) => (*status == JobStatus::Running, *edge_count),
        Place::Schedule { .. } | Place::Ended(_) => {
            let cancel = session.sql().cancel_schedules.bind().arg("reason", reason);
            cancel.arg("now", now).arg("job_ids", vec![held.id]).run(session).await?;
            return Ok(CancelVerdict::Canceled { dependents: Vec::new() });
        }
    };
    if running {
        let request = session.sql().request_cancel.bind().arg("reason", reason);
        request.arg("now", now).arg("job_id", held.id).run(session).await?;
    } else {
        let calling = Calling { reason: Some(reason), ..Calling::default() };
        follow.end_waiting(session, &[(held.id, 0)], calling).await?;
    }
    if edges > 0 {
        let ended = HashMap::from([(held.id, (JobStatus::Canceled, 0))]);
        follow.decide_open(session, &ended, Vec::new()).await?;
    }
    let dependents = follow.finish(session).await?.swap_remove(0).canceled;
    Ok(match running {
        true => CancelVerdict::Requested { dependents },
        false => CancelVerdict::Canceled { dependents },
    })
}
