//! Jobs whose method no live node has known for longer than the operator allows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ratchet_api::{DeadReason, JobFailure, ParkedOn, StoreResult, Timestamp};
use tokio::time::{Instant, sleep};

use crate::cluster::recovery;
use crate::engine::Engine;
use crate::task::bury;

/// How many jobs are taken at once.
const BATCH: usize = 100;

/// The longest time between two searches.
const LONGEST_PERIOD: Duration = Duration::from_mins(1);

/// Ends them until this life is over, if there is a limit. Every node searches for itself: a node that has not been
/// watching for as long as the limit ends nothing.
pub(crate) async fn run(engine: Arc<Engine>) {
    let Some(limit) = engine.node.options.execution.unknown_target_limit else { return };
    let mut unknown = Unknown::default();
    loop {
        if let Err(error) = look(&engine, &mut unknown, limit).await {
            tracing::warn!(%error, "the search for methods that no node knows failed; it is tried again later");
        }
        tokio::select! {
            () = engine.over() => return,
            () = sleep((limit / 4).min(LONGEST_PERIOD)) => {}
        }
    }
}

/// The methods that no live node knows, each with the time since when this node has seen none.
#[derive(Default)]
struct Unknown(HashMap<String, Instant>);

impl Unknown {
    /// Records which methods jobs wait for and which live nodes know. Returns those unknown for at least `limit`.
    fn note(
        &mut self,
        parked: &HashSet<String>,
        known: &HashSet<String>,
        now: Instant,
        limit: Duration,
    ) -> Vec<String> {
        self.0.retain(|method, _| parked.contains(method) && !known.contains(method));
        for method in parked.difference(known) {
            self.0.entry(method.clone()).or_insert(now);
        }
        let overdue = self.0.iter().filter(|(_, since)| now - **since >= limit);
        overdue.map(|(method, _)| method.clone()).collect()
    }
}

async fn look(engine: &Engine, unknown: &mut Unknown, limit: Duration) -> StoreResult<()> {
    let parkings = engine.node.store.parkings().await?;
    let method = |on: &ParkedOn| match on {
        ParkedOn::Method(name) => Some(name.clone()),
        _ => None,
    };
    let parked: HashSet<String> = parkings.iter().filter_map(|parking| method(&parking.on)).collect();
    let mut known = HashSet::new();
    if !parked.is_empty() {
        let nodes = engine.node.store.nodes().await?;
        // This node beats too, so the newest beat is not long ago.
        let now = nodes.iter().map(|node| node.heartbeat_at).max().unwrap_or(Timestamp::MAX);
        let alive = nodes.into_iter().filter(|node| node.is_alive(now));
        known.extend(alive.flat_map(|node| node.info.methods));
    }
    let overdue = unknown.note(&parked, &known, Instant::now(), limit);
    for parking in &parkings {
        let Some(name) = method(&parking.on).filter(|name| overdue.contains(name)) else { continue };
        let text = format!("no node has known method `{name}` for {limit:?}");
        let failure = JobFailure::new("UnknownTarget", text);
        while engine.takes_work() {
            let claims =
                engine.node.store.pick_up_parked(&engine.owner, &parking.queue, &parking.on, BATCH).await?;
            let count = claims.len();
            for (running, claim) in recovery::begin(engine, claims) {
                bury(engine, &running, &claim, &failure, DeadReason::UnknownTarget).await;
            }
            if count < BATCH {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> HashSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_method_is_overdue_when_nobody_has_known_it_for_the_whole_limit() {
        let (mut unknown, start, limit) = (Unknown::default(), Instant::now(), Duration::from_secs(10));
        let mut note = |secs, parked: &[&str], known: &[&str]| {
            unknown.note(&set(parked), &set(known), start + Duration::from_secs(secs), limit)
        };
        assert_eq!(note(0, &["a", "b"], &["b"]), [""; 0]);
        assert_eq!(note(9, &["a", "b"], &[]), [""; 0]);
        assert_eq!(note(10, &["a", "b"], &[]), ["a"]);
        assert_eq!(note(12, &["a", "b"], &["a"]), [""; 0], "somebody knows it again");
        assert_eq!(note(21, &["a"], &[]), [""; 0], "and it counts from then");
        assert_eq!(note(31, &["a"], &[]), ["a"]);
        assert_eq!(note(41, &["b"], &[]), [""; 0], "nothing of it waited meanwhile");
    }
}
