//! Jobs that no claim would ever find: somebody wrote a queue or a priority into their rows that nobody asks for.
//!
//! Finding them means to read every live job, so one node of the cluster looks when nodes start, and once an hour after that.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::StoreResult;
use tokio::time::sleep;

use crate::cluster::recovery::{self, Orphaned};
use crate::engine::Engine;

/// How long after a look the next one follows.
const PERIOD: Duration = Duration::from_hours(1);

/// What the lease of whoever looks is called.
const ACTION: &str = "unreachable-jobs";

/// How many jobs are taken at once.
const BATCH: usize = 100;

/// Looks for them until this life is over. Whoever holds the lease has looked, so it is not given back.
pub(crate) async fn run(engine: Arc<Engine>) {
    loop {
        if let Err(error) = look(&engine).await {
            tracing::warn!(%error, "looking for jobs that no claim finds failed; it is tried again later");
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
        // Another node may have more luck.
        engine.startup.release(ACTION).await?;
    }
    taken
}

async fn take_all(engine: &Engine) -> StoreResult<()> {
    while engine.takes_work() {
        let claims = engine.store.pick_up_unreachable(&engine.owner, BATCH).await?;
        let count = claims.len();
        recovery::settle(engine, recovery::begin(engine, claims), Orphaned::Released).await;
        if count < BATCH {
            break;
        }
    }
    Ok(())
}
