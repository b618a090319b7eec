//! Suspects: jobs whose node died, each of which may have killed it.
//!
//! They wait apart from the other jobs and run again apart from each other, the more so the more nodes have died with
//! them, until a node dies that held no other job: then the job that killed it is known. None is claimed before there
//! is a slot for it, so a node that dies with one had begun it.

use std::sync::atomic::Ordering;

use ratchet_api::store::Parking;
use ratchet_api::{LockName, ParkedOn, QueueName, StoreError, StoreResult};
use tokio::time::{Instant, timeout};

use crate::coordinator::Coordinator;
use crate::engine::Engine;

/// The lock of the node that lets its other jobs end.
const LOCK: &str = "suspects";

/// The time before a node that waited in vain for its other jobs to end waits again, as a multiple of that wait.
const REST: u32 = 10;

/// The isolation in which a suspect may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Apart {
    /// With others like it, on no more than a quarter of the slots.
    Few,
    /// With no other suspect.
    Single,
    /// With no other job at all.
    Alone,
}

impl Apart {
    /// The isolation of a job with which `crashes` nodes have died.
    fn after(crashes: u32, limit: u32) -> Self {
        match crashes {
            _ if crashes >= limit => Self::Alone,
            0 | 1 => Self::Few,
            _ => Self::Single,
        }
    }
}

/// The suspects that may be claimed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Up to this many of those with this isolation.
    Take(Apart, usize),
    /// One, as soon as nothing else runs here.
    AfterTheOthers,
    /// None.
    Nothing,
}

/// Plans the most dangerous suspects first: if there is no room for one of them, it gets its turn when those that run
/// have ended.
fn plan(most: Apart, running: &[Apart], others_run: bool, slots: u32) -> Plan {
    match most {
        Apart::Alone if others_run => Plan::AfterTheOthers,
        Apart::Alone => Plan::Take(Apart::Alone, 1),
        Apart::Single if running.is_empty() => Plan::Take(Apart::Single, 1),
        Apart::Few if running.iter().all(|apart| *apart == Apart::Few) => {
            let quarter = (slots as usize / 4).max(1);
            Plan::Take(Apart::Few, quarter.saturating_sub(running.len()))
        }
        Apart::Single | Apart::Few => Plan::Nothing,
    }
}

/// The suspects of one queue that call the same method and have crashed equally often.
struct Waiting {
    queue: QueueName,
    on: ParkedOn,
    apart: Apart,
}

/// The part of the poller that claims suspects. Nothing else is claimed meanwhile.
pub(super) struct Suspects {
    /// The time before which the node does not wait for its other jobs to end.
    patient_from: Instant,
}

impl Suspects {
    pub(super) fn new() -> Self {
        Self { patient_from: Instant::now() }
    }

    /// Claims the suspects that may run now, if there are any, and waits until one that runs alone has ended.
    pub(super) async fn look(&mut self, engine: &Engine, coordinator: &Coordinator) -> StoreResult<()> {
        // A suspect that has ended leaves room for the next.
        let mut more =
            engine.suspects.swap(false, Ordering::Relaxed) | engine.node.running.has_suspect_gone();
        while more && engine.takes_work() {
            more = self.take(engine, coordinator).await?;
        }
        Ok(())
    }

    /// Claims suspects once; returns whether it claimed any.
    async fn take(&mut self, engine: &Engine, coordinator: &Coordinator) -> StoreResult<bool> {
        let waiting = waiting(engine).await?;
        let limit = engine.node.options.node.crash_limit;
        let running: Vec<Apart> = engine
            .node
            .running
            .crashes_of_suspects()
            .into_iter()
            .map(|crashes| Apart::after(crashes, limit))
            .collect();
        let impatient = Instant::now() < self.patient_from;
        let others_run = !engine.node.running.is_empty();
        // Another node may wait for its jobs to end.
        let reach = |waiting: &&Waiting| waiting.apart != Apart::Alone || !others_run || !impatient;
        let Some(most) = waiting.iter().filter(reach).map(|waiting| waiting.apart).max() else {
            return Ok(false);
        };
        let such = waiting.iter().filter(|waiting| waiting.apart == most);
        match plan(most, &running, others_run, engine.node.slots.total()) {
            Plan::Nothing => Ok(false),
            Plan::Take(Apart::Alone, _) => self.run_alone(engine, coordinator, such).await,
            Plan::Take(_, most) => take(engine, coordinator, such, most).await.map(|taken| taken > 0),
            Plan::AfterTheOthers => self.run_after_the_others(engine, coordinator, such).await,
        }
    }

    /// Lets the other jobs of this node end, if no other node does so, and then runs one alone.
    async fn run_after_the_others(
        &mut self,
        engine: &Engine,
        coordinator: &Coordinator,
        such: impl Iterator<Item = &Waiting>,
    ) -> StoreResult<bool> {
        let patience = engine.node.options.node.lease;
        self.patient_from = Instant::now() + patience * REST;
        let name = LockName::new(LOCK).map_err(|error| StoreError::invalid("try_lock", error.to_string()))?;
        let Some(lock) = engine.node.store.try_lock(&name, patience * 2, &engine.owner).await? else {
            return Ok(false);
        };
        tracing::info!(node = %engine.owner, "claims pause until the jobs that run here have ended: a job is to run alone");
        let ended = tokio::select! {
            () = engine.over() => false,
            ended = timeout(patience, engine.node.running.emptied()) => ended.is_ok(),
        };
        let taken = match ended {
            true => self.run_alone(engine, coordinator, such).await,
            false => Ok(false),
        };
        if let Err(error) = engine.node.store.unlock(&lock).await {
            tracing::debug!(%error, lock = LOCK, "lock not released; it ends by itself");
        }
        taken
    }

    /// Claims one and waits for its end.
    async fn run_alone(
        &mut self,
        engine: &Engine,
        coordinator: &Coordinator,
        such: impl Iterator<Item = &Waiting>,
    ) -> StoreResult<bool> {
        let taken = take(engine, coordinator, such, 1).await?;
        if taken == 0 {
            return Ok(false);
        }
        self.patient_from = Instant::now();
        tokio::select! {
            () = engine.over() => {}
            () = engine.node.running.emptied() => {}
        }
        Ok(true)
    }
}

/// The suspects that this node can run.
async fn waiting(engine: &Engine) -> StoreResult<Vec<Waiting>> {
    let limit = engine.node.options.node.crash_limit;
    let parkings = engine.node.store.parkings().await?;
    let known = |parking: Parking| match &parking.on {
        ParkedOn::Suspect { crashes, method } if engine.node.registry.knows(method) => {
            let apart = Apart::after(*crashes, limit);
            Some(Waiting { queue: parking.queue, on: parking.on, apart })
        }
        _ => None,
    };
    Ok(parkings.into_iter().filter_map(known).collect())
}

/// Claims and begins up to `most` of these, no more than there are free slots. Returns how many.
async fn take(
    engine: &Engine,
    coordinator: &Coordinator,
    such: impl Iterator<Item = &Waiting>,
    most: usize,
) -> StoreResult<usize> {
    let mut taken = 0;
    for Waiting { queue, on, .. } in such {
        let limit = engine.node.slots.free(queue).min(most - taken);
        if limit == 0 {
            continue;
        }
        let claims = engine.node.store.pick_up_parked(&engine.owner, queue, on, limit).await?;
        taken += claims.len();
        coordinator.accept_suspects(claims, on).await;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Apart::{Alone, Few, Single};

    // shows: S136
    #[test]
    fn the_more_nodes_died_with_a_job_the_fewer_others_run_beside_it() {
        assert_eq!([1, 2, 3, 4].map(|crashes| Apart::after(crashes, 3)), [Few, Single, Alone, Alone]);
        assert_eq!(
            [1, 2, 3, 9, 10].map(|crashes| Apart::after(crashes, 10)),
            [Few, Single, Single, Single, Alone]
        );
        assert_eq!(Apart::after(1, 1), Alone);
    }

    #[test]
    fn a_quarter_of_the_slots_is_for_those_that_crashed_once() {
        assert_eq!(plan(Few, &[], true, 50), Plan::Take(Few, 12));
        assert_eq!(plan(Few, &[Few; 10], true, 50), Plan::Take(Few, 2));
        assert_eq!(plan(Few, &[Few; 12], true, 50), Plan::Take(Few, 0));
        assert_eq!(plan(Few, &[], false, 3), Plan::Take(Few, 1));
        assert_eq!(plan(Few, &[Single], true, 50), Plan::Nothing);
    }

    #[test]
    fn who_crashed_twice_runs_with_no_other_suspect_and_who_may_be_last_with_nobody() {
        assert_eq!(plan(Single, &[], true, 50), Plan::Take(Single, 1));
        for running in [Few, Single] {
            assert_eq!(plan(Single, &[running], true, 50), Plan::Nothing);
        }
        assert_eq!(plan(Alone, &[], false, 50), Plan::Take(Alone, 1));
        assert_eq!(plan(Alone, &[], true, 50), Plan::AfterTheOthers);
    }
}
