//! Manual control: cancel, pause, resume, retry. The jobs of one call are handled in order in one transaction, with all
//! of them locked first, in the order of their ids.
//!
//! Jobs without dependents do not affect each other, so a run of them takes the same few statements whatever its
//! length. The others are handled one after the other.

mod cancel;
mod pause;
mod retry;

pub(crate) use cancel::cancel;

use std::collections::HashMap;

use ratchet_api::store::Target;
use ratchet_api::{JobId, StoreResult};

use crate::store::lock_rows::{LockedJob, lock_rows};
use crate::store::session::Session;

/// Locks the targets, or reads them again as this call has left them.
async fn lock_targets(
    session: &mut Session<'_>,
    targets: &[Target],
) -> StoreResult<HashMap<JobId, LockedJob>> {
    let ids: Vec<JobId> = targets.iter().map(|target| target.id).collect();
    lock_rows(session, &ids).await
}

/// Reads a locked job again, as this call has left it.
async fn again(session: &mut Session<'_>, id: JobId) -> StoreResult<Option<LockedJob>> {
    Ok(lock_rows(session, &[id]).await?.remove(&id))
}

/// Whether the caller saw another version of the job.
fn is_stale(target: &Target, held: &LockedJob) -> bool {
    target.fence.is_some_and(|fence| fence != held.fence)
}
