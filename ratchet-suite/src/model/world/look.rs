//! Comparison of engine and model.

use std::collections::BTreeSet;
use std::time::Duration;

use ratchet_api::{JobId, JobStatus, ParkedOn};

use super::super::life::{self, Parked};
use super::super::step::KEYS;
use super::{Problem, World, lock, same, trouble};

/// The interval at which a listener's events are compared, and the longest wait for them.
const LOOK: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(10);

impl World {
    /// Compares everything that a reader can see.
    pub(super) async fn compare(&self) -> Result<(), Problem> {
        let life = self.life().clone();
        let ids: Vec<JobId> = life.jobs.iter().map(|job| job.id).collect();
        let found = self.store.find(&ids).await.map_err(trouble)?;
        for (place, (expected, found)) in life.jobs.iter().zip(found).enumerate() {
            let found = found.ok_or_else(|| format!("job {place} is gone"))?;
            compare_job(expected, &found).map_err(|problem| format!("job {place}: {problem}"))?;
            self.compare_history(place, expected)
                .await
                .map_err(|problem| format!("job {place}: {problem}"))?;
        }
        for key in (0..KEYS).filter(|key| life.jobs.iter().any(|job| job.order.business_key == Some(*key))) {
            let holder = self.store.find_active_by_business_key(&self.business_key(key)).await;
            let expected = life.holder(key).map(|job| life.jobs[job].id);
            same("the holder of a key", &expected, &holder.map_err(trouble)?)?;
        }
        let resources = self.store.resources().await.map_err(trouble)?;
        let own = resources.into_iter().find(|used| used.limit.name == self.resource());
        let holders: BTreeSet<JobId> = own.into_iter().flat_map(|used| used.holders).collect();
        let expected = life.jobs.iter().filter(|job| job.has_permit).map(|job| job.id).collect();
        same("the holders of permits", &expected, &holders)?;
        for (node, expected) in life.told.iter().enumerate() {
            self.compare_told(node, expected).await?;
        }
        Ok(())
    }

    /// Compares the events of a node. Listeners are called a little later, so this waits for the expected number.
    async fn compare_told(&self, node: usize, expected: &Vec<(JobId, &'static str)>) -> Result<(), Problem> {
        let told = || lock(&self.told[node].0).clone();
        let enough = async {
            while told().len() < expected.len() {
                tokio::time::sleep(LOOK).await;
            }
        };
        // If events are still missing after the timeout, the comparison below reports it.
        let _ = tokio::time::timeout(PATIENCE, enough).await;
        same("what was told", expected, &told())
    }

    /// Compares the history of a job, if it moved since the last comparison.
    async fn compare_history(&self, place: usize, expected: &life::Job) -> Result<(), Problem> {
        if lock(&self.compared).get(&place) == Some(&expected.version) {
            return Ok(());
        }
        let history = self.store.executions(expected.id).await.map_err(trouble)?;
        let history = history.iter().map(|row| (row.fence.version(), row.result, row.attempt)).collect();
        same("the history", &expected.history, &history)?;
        lock(&self.compared).insert(place, expected.version);
        Ok(())
    }

    /// Compares everything at the end: all histories, and idempotency keys, which never change.
    pub(super) async fn compare_all(&self) -> Result<(), Problem> {
        lock(&self.compared).clear();
        self.compare().await?;
        for key in 0..KEYS {
            let first = self.store.find_by_idempotency_key(&self.idempotency_key(key)).await;
            same("the first job of a key", &self.life().first_with(key), &first.map_err(trouble)?)?;
        }
        Ok(())
    }
}

fn compare_job(expected: &life::Job, found: &ratchet_api::Job) -> Result<(), Problem> {
    let running = expected.status == JobStatus::Running;
    same("status", &expected.seen(), &found.status)?;
    same("attempts", &expected.attempts, &found.attempts)?;
    same("fence", &expected.version, &found.fence.version())?;
    same("due", &expected.due, &found.scheduled_time)?;
    let parked = found.parked_on.as_ref().map(|on| match on {
        ParkedOn::Method(_) => Parked::OnMethod,
        _ => Parked::OnResource,
    });
    same("parked", &expected.parked, &parked)?;
    same("paused from", &expected.paused_from, &found.paused_from)?;
    same("superseded by", &expected.superseded_by, &found.superseded_by)?;
    same("has an error", &expected.has_error, &found.last_error.is_some())?;
    same("has an owner", &running, &found.picked_by.is_some())?;
    same("has ended", &expected.status.is_terminal(), &found.ending.is_some())?;
    if matches!(expected.status, JobStatus::Pending | JobStatus::Paused) {
        let waits = (found.blocked_by as usize, found.open_parents as usize);
        same("parents needed and open", &(expected.blocked_by(), expected.open_parents()), &waits)?;
    }
    Ok(())
}
