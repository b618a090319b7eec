//! Submitting jobs while everything goes wrong, and keeping book of what was accepted.

use std::time::Duration;

use anyhow::{Result, bail};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use ratchet_api::{Backoff, JobId, SubmitError};
use ratchet_core::{Call, Client, Enqueue};
use tokio::time::{Instant, sleep, sleep_until};

/// The resource that some jobs need, and how many may use it.
pub(crate) const RESOURCE: &str = "torture";
pub(crate) const PERMITS: u32 = 2;
/// So few that live jobs get in each other's way.
const KEYS: u32 = 20;

/// What to submit.
pub(crate) struct Plan {
    pub(crate) jobs: usize,
    pub(crate) seed: u64,
    /// The time in which it should be spread.
    pub(crate) within: Duration,
    /// Whether bodies keep threads busy.
    pub(crate) spin: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Submitted {
    pub(crate) accepted: Vec<JobId>,
    /// Keys that live jobs held.
    pub(crate) refused: usize,
    /// Calls that had to be made again.
    pub(crate) again: usize,
    /// Keys of which a second call got another job.
    pub(crate) strays: Vec<String>,
}

/// Submits them all, however often it takes.
pub(crate) async fn submit(client: &Client, plan: &Plan) -> Result<Submitted> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let (mut submitted, begun) = (Submitted::default(), Instant::now());
    for at in 0..plan.jobs {
        sleep_until(begun + plan.within.mul_f64(at as f64 / plan.jobs as f64)).await;
        let job = Job::random(&mut rng, plan, at);
        let Some(id) = insist(client, &job, &mut submitted).await? else { continue };
        submitted.accepted.push(id);
        if job.twice && insist(client, &job, &mut submitted).await? != Some(id) {
            submitted.strays.push(job.key);
        }
    }
    Ok(submitted)
}

/// Tries again until there is an answer. The key makes one job of however many tries.
async fn insist(client: &Client, job: &Job, submitted: &mut Submitted) -> Result<Option<JobId>> {
    loop {
        match job.enqueue(client).submit().await {
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

struct Job {
    key: String,
    method: &'static str,
    millis: u64,
    business_key: Option<u32>,
    permit: bool,
    delay: Duration,
    /// Submitted again with the same key.
    twice: bool,
}

impl Job {
    /// Most are plain and short.
    fn random(rng: &mut StdRng, plan: &Plan, at: usize) -> Self {
        let method = match rng.random_range(0..10) {
            _ if plan.spin => "spin",
            0 => "fail_once",
            _ => "wait",
        };
        Self {
            key: format!("{}-{at}", plan.seed),
            method,
            millis: if rng.random_bool(0.3) { rng.random_range(100..1_500) } else { rng.random_range(0..10) },
            business_key: rng.random_bool(0.05).then(|| rng.random_range(0..KEYS)),
            permit: rng.random_bool(0.05),
            delay: Duration::from_millis(if rng.random_bool(0.2) { rng.random_range(1..3_000) } else { 0 }),
            twice: rng.random_bool(0.02),
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
