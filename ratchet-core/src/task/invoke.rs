//! Runs a body with a time limit, so that a panic is a failure, and so that it can be told to stop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::FusedFuture as _;
use ratchet_api::options::TimeoutOptions;
use ratchet_api::spi::{Bean, ExecutorProvider};
use ratchet_api::{JobFailure, JsonText, QueueName};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::JobContext;
use crate::cluster::lease::Lease;
use crate::coordinator::slots::Slot;
use crate::registry::{Body, BodyResult, Method};

/// How a body ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself.
    Returned(BodyResult),
    /// Its time was up.
    TimedOut(Duration),
    /// It was told to stop.
    Stopped,
    /// The node stops and does not wait for it any more.
    GivenUp,
}

/// The parts that a body runs with.
pub(crate) struct Invocation<'a> {
    pub(crate) method: &'a Method,
    pub(crate) bean: Option<Bean>,
    pub(crate) args: JsonText,
    pub(crate) queue: &'a QueueName,
    pub(crate) executor: &'a dyn ExecutorProvider,
    /// Kept by a body that blocks until it ends, because nothing can stop it.
    pub(crate) slot: Arc<Slot>,
    /// Whether the job has a permit, which the store takes back with the outcome.
    pub(crate) holds_permit: bool,
    pub(crate) bounds: Bounds<'a>,
}

/// The conditions that may end an attempt before its body returns.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub(crate) ctx: &'a JobContext,
    pub(crate) options: &'a TimeoutOptions,
    pub(crate) timeout: Option<Duration>,
    pub(crate) token: &'a CancellationToken,
    /// Set when the node is about to stop and tells its bodies so.
    pub(crate) closing: &'a CancellationToken,
    /// Set when the node does not wait for it any more.
    pub(crate) abort: &'a CancellationToken,
    pub(crate) lease: &'a Lease,
}

impl Bounds<'_> {
    /// Waits until the body ends, its time is up, or it was told to stop and did not within the grace.
    async fn end(self, body: &mut (impl Future<Output = BodyResult> + Unpin)) -> Ended {
        let Self { ctx, options, timeout, token, closing, abort, .. } = self;
        tokio::select! {
            biased;
            result = &mut *body => return self.returned(result),
            limit = time_is_up(ctx, options, timeout) => {
                token.cancel();
                tracing::warn!(?limit, "the job takes longer than its timeout and is stopped");
                // A result that it still returns comes too late.
                let _ = tokio::time::timeout(options.cancel_grace, body).await;
                return Ended::TimedOut(limit);
            }
            () = abort.cancelled() => {
                token.cancel();
                return Ended::GivenUp;
            }
            () = token.cancelled() => {}
        }
        tokio::select! {
            biased;
            result = &mut *body => self.returned(result),
            () = abort.cancelled() => Ended::GivenUp,
            () = sleep(options.cancel_grace) => match closing.is_cancelled() {
                true => Ended::GivenUp,
                false => Ended::Stopped,
            }
        }
    }

    /// Waits for a body that nothing can stop, while no other node may have its job.
    async fn outlast(self, body: impl Future<Output = BodyResult>, ended: Ended) -> Ended {
        tracing::warn!(
            "the body blocks its thread and goes on; nobody else gets its job or permit meanwhile"
        );
        tokio::select! {
            biased;
            result = body => match ended {
                Ended::GivenUp => self.returned(result),
                ended => ended,
            },
            () = self.lease.lost() => Ended::Stopped,
        }
    }

    /// The end of a body that returned. One that ends early because its node is about to stop has not done its work.
    fn returned(self, result: BodyResult) -> Ended {
        match self.closing.is_cancelled() && self.ctx.noticed() {
            true => Ended::GivenUp,
            false => Ended::Returned(result),
        }
    }
}

impl Invocation<'_> {
    /// Runs the body until it ends or is given up.
    ///
    /// A body that blocks cannot be stopped. While one goes on, its job does not go back to be begun elsewhere, and it
    /// keeps its permit: such an attempt ends with its body, or with the lease.
    pub(crate) async fn run(self) -> Ended {
        let (bounds, holds_permit) = (self.bounds, self.holds_permit);
        let blocks = matches!(self.method.body, Body::Blocking(_));
        let mut body = Box::pin(self.body().fuse());
        let ended = bounds.end(&mut body).await;
        let goes_on = blocks && !body.is_terminated() && bounds.lease.holds();
        match goes_on && (holds_permit || matches!(ended, Ended::GivenUp)) {
            true => bounds.outlast(body, ended).await,
            false => ended,
        }
    }

    async fn body(self) -> BodyResult {
        let Self { method, bean, args, queue, executor, slot, bounds: Bounds { ctx, .. }, .. } = self;
        match &method.body {
            Body::Async(body) => {
                let _slot = slot;
                // The call itself may panic, not only its future.
                let called = catch_unwind(AssertUnwindSafe(|| body(bean, ctx.clone(), args)));
                match called {
                    Ok(future) => {
                        let ended = AssertUnwindSafe(ctx.scope(future)).catch_unwind().await;
                        ended.unwrap_or_else(|panic| Err(panicked(&*panic)))
                    }
                    Err(panic) => Err(panicked(&*panic)),
                }
            }
            Body::Blocking(body) => {
                let (body, ctx) = (Arc::clone(body), ctx.clone());
                let (answer, answered) = oneshot::channel();
                let work = move || {
                    let _slot = slot;
                    let run = || ctx.scope_blocking(|| body(bean, ctx.clone(), args));
                    let ended = catch_unwind(AssertUnwindSafe(run));
                    // After a timeout the receiver is gone.
                    let _ = answer.send(ended.unwrap_or_else(|panic| Err(panicked(&*panic))));
                };
                executor.spawn_blocking(queue, Box::new(work));
                answered
                    .await
                    .unwrap_or_else(|_| Err(JobFailure::new("Lost", "the thread of the job is gone")))
            }
        }
    }
}

/// Warns when most of the time has passed, and completes when all of it has. Never, without a limit.
async fn time_is_up(ctx: &JobContext, options: &TimeoutOptions, timeout: Option<Duration>) -> Duration {
    let (Some(deadline), Some(limit)) = (ctx.deadline(), timeout) else {
        return std::future::pending().await;
    };
    let percent = u32::from(options.soft_percent);
    if percent < 100
        && let Some(soft) = deadline.checked_sub(limit / 100 * (100 - percent))
    {
        sleep_until(soft).await;
        tracing::warn!(percent, ?limit, "the job has used most of its time");
    }
    sleep_until(deadline).await;
    limit
}

/// A panic as a failure. The failure of a panic without text says only that.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> JobFailure {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    JobFailure::new("Panic", text.unwrap_or("it panicked with something that is not text"))
}
