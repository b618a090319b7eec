//! Submits jobs during the faults and records which were accepted.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ratchet_api::{Backoff, JobId, SubmitError};
use ratchet_core::{Call, Client, Enqueue};
use tokio::time::{Instant, sleep, sleep_until};

use crate::ledger::now;

/// The resource that some jobs need, and its limit.
pub(crate) const RESOURCE: &str = "torture";
pub(crate) const PERMITS: u32 = 2;
/// The number of business keys: few, so that live jobs collide.
const KEYS: u32 = 20;

/// The jobs to submit.
pub(crate) struct Plan {
    pub(crate) jobs: usize,
    pub(crate) seed: u64,
    /// The time over which they are spread.
    pub(crate) within: Duration,
    /// Whether bodies keep threads busy.
    pub(crate) spin: bool,
    /// The number of jobs that end the process that runs them.
    pub(crate) guilty: usize,
}

/// The ways to end a process, each a method of the jobs.
const GUILTY: [&str; 4] = ["abort", "exit", "overflow", "exhaust"];

impl Plan {
    /// The way in which job number `at` ends its process, if it does. These jobs are spread evenly.
    fn guilty(&self, at: usize) -> Option<&'static str> {
        let number = at * self.guilty / self.jobs.max(1);
        let is_last_of_its_part = (at + 1) * self.guilty / self.jobs.max(1) > number;
        is_last_of_its_part.then(|| GUILTY[number % GUILTY.len()])
    }
}

/// The result of submitting.
#[derive(Debug, Default)]
pub(crate) struct Submitted {
    pub(crate) accepted: Vec<JobId>,
    /// The times of acceptance, in milliseconds since the epoch by the clock of this machine.
    pub(crate) accepted_at: Vec<i64>,
    /// The jobs that end the process that runs them.
    pub(crate) guilty: HashSet<JobId>,
    /// The number of submits refused because a live job held the key.
    pub(crate) refused: usize,
    /// The number of repeated calls.
    pub(crate) again: usize,
    /// Keys for which a repeated call created another job.
    pub(crate) strays: Vec<String>,
}

/// The submits in flight at a time, so that a short outage of the database delays none of them for long.
const AT_ONCE: usize = 4;

/// Submits all jobs, retrying as often as needed.
pub(crate) async fn submit(client: &Client, plan: &Plan) -> Result<Submitted> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let begun = Instant::now();
    let jobs = (0..plan.jobs).map(|at| (at, Job::random(&mut rng, plan, at)));
    let submit = |(at, job): (usize, Job)| async move {
        sleep_until(begun + plan.within.mul_f64(at as f64 / plan.jobs as f64)).await;
        job.submit(client).await
    };
    let submits = stream::iter(jobs).map(submit).buffer_unordered(AT_ONCE);
    submits.try_fold(Submitted::default(), async |all, one| Ok(all.with(one))).await
}

impl Submitted {
    fn with(mut self, other: Self) -> Self {
        self.accepted.extend(other.accepted);
        self.accepted_at.extend(other.accepted_at);
        self.guilty.extend(other.guilty);
        self.refused += other.refused;
        self.again += other.again;
        self.strays.extend(other.strays);
        self
    }
}

struct Job {
    key: String,
    method: &'static str,
    millis: u64,
    business_key: Option<u32>,
    permit: bool,
    delay: Duration,
    /// Whether it is submitted twice with the same key.
    twice: bool,
    guilty: bool,
}

impl Job {
    /// A random job; most have a short body and no key or resource.
    fn random(rng: &mut StdRng, plan: &Plan, at: usize) -> Self {
        let key = format!("{}-{at}", plan.seed);
        if let Some(method) = plan.guilty(at) {
            let (business_key, permit, delay) = (None, false, Duration::ZERO);
            return Self { key, method, millis: 5, business_key, permit, delay, twice: false, guilty: true };
        }
        let method = match rng.random_range(0..10) {
            _ if plan.spin => "spin",
            0 => "fail_once",
            _ => "wait",
        };
        Self {
            key,
            method,
            millis: if rng.random_bool(0.3) { rng.random_range(100..1_500) } else { rng.random_range(0..10) },
            business_key: rng.random_bool(0.05).then(|| rng.random_range(0..KEYS)),
            permit: rng.random_bool(0.05),
            delay: Duration::from_millis(if rng.random_bool(0.2) { rng.random_range(1..3_000) } else { 0 }),
            twice: rng.random_bool(0.02),
            guilty: false,
        }
    }

    /// Submits this job alone.
    async fn submit(&self, client: &Client) -> Result<Submitted> {
        let mut submitted = Submitted::default();
        let Some(id) = self.submit_until_answered(client, &mut submitted).await? else {
            return Ok(submitted);
        };
        submitted.accepted.push(id);
        submitted.accepted_at.push(now());
        submitted.guilty.extend(self.guilty.then_some(id));
        if self.twice && self.submit_until_answered(client, &mut submitted).await? != Some(id) {
            submitted.strays.push(self.key.clone());
        }
        Ok(submitted)
    }

    /// Retries until there is an answer. The idempotency key makes all tries one job.
    async fn submit_until_answered(
        &self,
        client: &Client,
        submitted: &mut Submitted,
    ) -> Result<Option<JobId>> {
        loop {
            match self.enqueue(client).submit().await {
                Ok(handle) => return Ok(Some(handle.id())),
                Err(SubmitError::KeyTaken { .. }) => {
                    submitted.refused += 1;
                    return Ok(None);
                }
                Err(SubmitError::Store(error)) if error.is_transient() => {
                    submitted.again += 1;
                    sleep(Duration::from_millis(50)).await;
                }
                Err(error) => bail!("a job was not accepted: {error}"),
            }
        }
    }

    fn enqueue(&self, client: &Client) -> Enqueue<()> {
        let mut job = client
            .enqueue(Call::new("torture.Work", self.method).arg(&self.millis))
            .idempotency_key(self.key.clone())
            .max_retries(5)
            .delay(self.delay)
            .backoff(Backoff::Fixed(Duration::from_millis(100)));
        if let Some(key) = self.business_key {
            job = job.business_key(format!("key-{key}"));
        }
        if self.permit {
            job = job.resource(RESOURCE);
        }
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guilty_are_spread_evenly_and_differ() {
        let guilty = |guilty| {
            let plan = Plan { jobs: 1_000, seed: 1, within: Duration::ZERO, spin: false, guilty };
            (0..1_000).filter_map(|at| Some((at, plan.guilty(at)?))).collect::<Vec<_>>()
        };
        assert_eq!(guilty(0), []);
        assert_eq!(guilty(1), [(999, "abort")]);
        let five = [(199, "abort"), (399, "exit"), (599, "overflow"), (799, "exhaust"), (999, "abort")];
        assert_eq!(guilty(5), five);
    }
}
