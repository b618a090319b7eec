//! Steering by hand. Jobs of one call are steered in order in one transaction, with all of them locked first, in the
//! order of their ids.
//!
//! Jobs that nothing hangs on do not meet each other, so a run of them is steered by the same few statements whatever
//! its length. The others are steered one after the other.

mod cancel;
mod pause;
mod retry;

pub(crate) use cancel::cancel;

use std::collections::HashMap;

use ratchet_api::store::Target;
use ratchet_api::{JobId, StoreResult};

use crate::store::hold::{Held, hold};
use crate::store::session::Session;

/// Locks what is to be steered, or reads it again as this call has left it.
async fn hold_targets(session: &mut Session<'_>, targets: &[Target]) -> StoreResult<HashMap<JobId, Held>> {
    let ids: Vec<JobId> = targets.iter().map(|target| target.id).collect();
    hold(session, &ids).await
}

/// Reads a job that is locked already as this call has left it.
async fn again(session: &mut Session<'_>, id: JobId) -> StoreResult<Option<Held>> {
    Ok(hold(session, &[id]).await?.remove(&id))
}

/// Whether the caller saw another version of the job.
fn is_stale(target: &Target, held: &Held) -> bool {
    target.fence.is_some_and(|fence| fence != held.fence)
}
