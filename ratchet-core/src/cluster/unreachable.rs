//! Jobs that no claim would ever find: somebody wrote a queue or a priority into their rows that nobody asks for.
//!
//! Finding them means to read every live job, so one node of the cluster looks once an hour.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{HandBackReason, LockName, StoreResult};
use tokio::time::sleep;

use crate::cluster::recovery;
use crate::engine::Engine;

/// How long after a look the next one follows.
const PERIOD: Duration = Duration::from_hours(1);

/// How many jobs are taken at once.
const BATCH: usize = 100;

/// Looks for them until this life is over. Whoever holds the lock has looked; it is not given back.
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
    let lock = LockName::new("unreachable-jobs")?;
    if engine.store.try_lock(&lock, PERIOD, &engine.owner).await?.is_none() {
        return Ok(());
    }
    while engine.takes_work() {
        let claims = engine.store.pick_up_unreachable(&engine.owner, BATCH).await?;
        let count = claims.len();
        recovery::settle(engine, recovery::begin(engine, claims), HandBackReason::Released).await;
        if count < BATCH {
            break;
        }
    }
    Ok(())
}
