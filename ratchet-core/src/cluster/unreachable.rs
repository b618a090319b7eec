//! Jobs that no claim would ever find: their rows were given a queue or a priority that no claim asks for.
//!
//! Finding them means reading every live job, so one node of the cluster does it when nodes start, and once an hour
//! after that.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::StoreResult;
use tokio::time::sleep;

use crate::cluster::recovery::{self, Orphaned};
use crate::engine::Engine;

/// The time between two searches.
const PERIOD: Duration = Duration::from_hours(1);

/// The name of the lease that the searching node takes.
const ACTION: &str = "unreachable-jobs";

/// How many jobs are taken at once.
const BATCH: usize = 100;

/// Searches for them until this life is over. A lease that is held means that its holder has searched, so it is not
/// released.
pub(crate) async fn run(engine: Arc<Engine>) {
    loop {
        if let Err(error) = look(&engine).await {
            tracing::warn!(%error, "the search for jobs that no claim finds failed; it is tried again later");
        }
        tokio::select! {
            () = engine.over() => return,
            () = sleep(PERIOD) => {}
        }
    }
}

async fn look(engine: &Engine) -> StoreResult<()> {
    if !engine.startup.try_acquire(ACTION, PERIOD).await? {
        return Ok(());
    }
    let taken = take_all(engine).await;
    if taken.is_err() {
        // Another node may succeed.
        engine.startup.release(ACTION).await?;
    }
    taken
}

async fn take_all(engine: &Engine) -> StoreResult<()> {
    while engine.takes_work() {
        let claims = engine.node.store.pick_up_unreachable(&engine.owner, BATCH).await?;
        let count = claims.len();
        recovery::settle(engine, recovery::begin(engine, claims), Orphaned::Released).await;
        if count < BATCH {
            break;
        }
    }
    Ok(())
}
