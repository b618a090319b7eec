//! The parts of a node: bodies that follow the model's script, a listener and a breaker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use futures::future::BoxFuture;
use ratchet_api::spi::{Gate, JobEventListener, ResilienceStrategy};
use ratchet_api::{JobEvent, JobEventKind, JobId};
use ratchet_core::{JobContext, JobFailure, jobs};

use super::super::life::BREAKER_DELAY;
use super::super::step::End;
use super::{World, lock};

/// A service whose bodies follow the model's script.
pub(super) struct Body {
    pub(super) world: Weak<World>,
    pub(super) node: usize,
}

#[jobs(target = "test.Body")]
impl Body {
    #[job]
    async fn run(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        live(self.world.clone(), self.node, ctx.clone()).await
    }

    #[job(breaker = "service")]
    async fn guarded(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        live(self.world.clone(), self.node, ctx.clone()).await
    }
}

/// Runs a body according to its script.
fn live(world: Weak<World>, node: usize, ctx: JobContext) -> BoxFuture<'static, Result<(), JobFailure>> {
    Box::pin(async move {
        let Some(world) = world.upgrade() else { return Ok(()) };
        let (job, run) = match world.enter(node, &ctx) {
            Ok(entered) => entered,
            Err(problem) => return broken(&world, problem),
        };
        for step in run.meanwhile {
            if let Err(problem) = world.step(&step, Some((&ctx, job))).await {
                return broken(&world, format!("{problem}\n  after {step:?} while it ran"));
            }
        }
        world.life().end(job, run.end);
        drop(world);
        end(run.end, &ctx).await
    })
}

/// Records the problem, and ends the body.
fn broken(world: &World, problem: String) -> Result<(), JobFailure> {
    lock(&world.problem).get_or_insert(problem);
    Ok(())
}

async fn end(end: End, ctx: &JobContext) -> Result<(), JobFailure> {
    let failure = JobFailure::new("Told", "to fail");
    match end {
        End::Succeed => Ok(()),
        End::Fail => Err(failure),
        End::DoNotRetry => Err(failure.do_not_retry("no use")),
        End::RetryAfter(delay) => Err(failure.retry_after(delay)),
        End::Snooze(delay) => Err(JobFailure::snooze(delay)),
        // A panic without the panic hook: thousands of intended panics would fill the output.
        End::Panic => std::panic::resume_unwind(Box::new("told to panic")),
        End::Hang => {
            ctx.canceled().await;
            Ok(())
        }
    }
}

/// A listener that records the events of a node's attempts.
#[derive(Clone, Default)]
pub(super) struct Told(pub(super) Arc<Mutex<Vec<(JobId, &'static str)>>>);

impl JobEventListener for Told {
    fn on_event(&self, event: &JobEvent) {
        let what = match event.kind {
            JobEventKind::Started => "Started",
            JobEventKind::Completed { .. } => "Completed",
            JobEventKind::Failed { .. } => "Failed",
            JobEventKind::Retrying { .. } => "Retrying",
            JobEventKind::DeadLettered { .. } => "DeadLettered",
            _ => return,
        };
        lock(&self.0).push((event.header.job_id, what));
    }
}

/// A breaker that the case opens and closes.
pub(super) struct Switch(pub(super) Arc<AtomicBool>);

impl ResilienceStrategy for Switch {
    fn enter(&self, _: &str) -> Gate {
        match self.0.load(Ordering::SeqCst) {
            true => Gate::Reject { retry_in: BREAKER_DELAY },
            false => Gate::Admit,
        }
    }
    fn report(&self, _: &str, _: Option<&JobFailure>) {}
    fn abandon(&self, _: &str) {}
}
