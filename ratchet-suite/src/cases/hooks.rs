//! Hooks and plug points that hang or block hold up neither a start nor a stop.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::{ClusterCoordinator, HookError, SchedulerLifecycleHook, WakeupListener};
use ratchet_api::{JobPriority, StoreResult};
use ratchet_core::{Call, JobFailure, Method, Ratchet, Readiness, SchedulerBuilder, StartError};
use tokio::sync::Notify;

use crate::{Fixture, Node};

crate::cases! {
    a_hook_that_hangs_after_the_start_is_given_up_at_its_deadline;
    a_start_that_nobody_waits_for_leaves_no_node;
    a_hook_that_blocks_its_thread_holds_up_neither_start_nor_stop;
    a_hook_that_blocks_before_the_start_refuses_it_at_its_deadline;
    a_coordinator_that_blocks_holds_up_no_stop;
    the_error_of_a_hook_is_logged_without_secrets_on_one_line;
}

/// A gate that holds its callers' threads until it is dropped.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let closed = self.0.0.lock().expect("nobody panics");
        drop(self.0.1.wait_while(closed, |open| !*open).expect("nobody panics"));
    }

    fn open(&self) {
        *self.0.0.lock().expect("nobody panics") = true;
        self.0.1.notify_all();
    }
}

fn echo(builder: SchedulerBuilder) -> SchedulerBuilder {
    let echo = |_, (text,): (String,)| async move { Ok::<_, JobFailure>(text) };
    builder.method(Method::function("test.Echo", "run", echo).expect("the names are good"))
}

fn soon(options: &mut RatchetOptions) {
    options.timeout.start_hook = Duration::from_millis(200);
    options.execution.drain_timeout = Duration::from_millis(200);
}

async fn works(node: &Node) {
    let job =
        node.enqueue(Call::<String>::new("test.Echo", "run").arg("hello")).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it runs"), "hello");
}

/// A hook that hangs after the start.
#[derive(Clone, Default)]
struct Hangs(Arc<Notify>);

#[async_trait]
impl SchedulerLifecycleHook for Hangs {
    async fn after_start(&self) -> Result<(), HookError> {
        self.0.notify_one();
        std::future::pending().await
    }
}

// shows: S63
async fn a_hook_that_hangs_after_the_start_is_given_up_at_its_deadline(fx: Fixture) {
    let node = fx.node(|builder| echo(builder).configure(soon).hook(Hangs::default())).await;
    works(&node).await;
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
}

// shows: S63
async fn a_start_that_nobody_waits_for_leaves_no_node(fx: Fixture) {
    let (hook, client) = (Hangs::default(), fx.client().await);
    let builder = Ratchet::builder_shared(fx.store().await);
    let builder = echo(builder).allow(["test."]).hook(hook.clone());
    let mut start = Box::pin(builder.start());
    tokio::select! {
        _ = &mut start => panic!("its hook does not end"),
        () = hook.0.notified() => {}
    }
    assert_eq!(client.store().nodes().await.expect("read").len(), 1, "it works by then");
    drop(start);
    while !client.store().nodes().await.expect("read").is_empty() {
        tokio::task::yield_now().await;
    }
}

/// A hook that blocks its thread at every step after the start was allowed.
#[derive(Clone, Default)]
struct Blocks(Gate);

#[async_trait]
impl SchedulerLifecycleHook for Blocks {
    async fn after_start(&self) -> Result<(), HookError> {
        self.0.pass();
        Ok(())
    }
    async fn before_stop(&self) -> Result<(), HookError> {
        self.0.pass();
        Ok(())
    }
    async fn after_stop(&self) -> Result<(), HookError> {
        self.0.pass();
        Ok(())
    }
}

// shows: S63
async fn a_hook_that_blocks_its_thread_holds_up_neither_start_nor_stop(fx: Fixture) {
    // More hooks than the runtime has threads.
    let hook = Blocks::default();
    let blocked =
        |builder| (0..3).fold(echo(builder).configure(soon), |builder, _| builder.hook(hook.clone()));
    let node = fx.node(blocked).await;
    works(&node).await;
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
    assert!(node.client().store().nodes().await.expect("read").is_empty(), "it has left");
    hook.0.open();
}

/// A hook that blocks its thread before the start.
#[derive(Clone, Default)]
struct BlocksAtStart(Gate);

#[async_trait]
impl SchedulerLifecycleHook for BlocksAtStart {
    async fn before_start(&self) -> Result<(), HookError> {
        self.0.pass();
        Ok(())
    }
}

// shows: S63
async fn a_hook_that_blocks_before_the_start_refuses_it_at_its_deadline(fx: Fixture) {
    let (hook, client) = (BlocksAtStart::default(), fx.client().await);
    let builder = echo(Ratchet::builder_shared(fx.store().await)).configure(soon).hook(hook.clone());
    let refused = builder.allow(["test."]).start().await;
    let Err(StartError::Hook(error)) = refused else { panic!("it does not start") };
    assert_eq!(error.to_string(), "it did not end within 200ms and is not waited for any more");
    assert!(client.store().nodes().await.expect("read").is_empty(), "it never joined");
    hook.0.open();
}

/// A coordinator whose shutdown blocks.
#[derive(Clone, Default)]
struct Stubborn(Gate);

#[async_trait]
impl ClusterCoordinator for Stubborn {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        Ok(())
    }
    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        Ok(())
    }
    async fn register_wakeup_listener(&self, _: WakeupListener) -> StoreResult<()> {
        Ok(())
    }
    async fn shutdown(&self) {
        self.0.pass();
    }
}

async fn a_coordinator_that_blocks_holds_up_no_stop(fx: Fixture) {
    let stubborn = Stubborn::default();
    let node = fx.node(|builder| echo(builder).configure(soon).cluster(stubborn.clone())).await;
    works(&node).await;
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
    stubborn.0.open();
}

/// A hook whose error contains a secret.
struct Tells;

#[async_trait]
impl SchedulerLifecycleHook for Tells {
    async fn after_start(&self) -> Result<(), HookError> {
        Err("no route to redis://:hunter2@cache\nERROR forged".into())
    }
}

async fn the_error_of_a_hook_is_logged_without_secrets_on_one_line(fx: Fixture) {
    // Log lines are found by the node that they are about, which the span around the start names.
    let label = format!("hooked-{}", ratchet_api::JobId::generate());
    let span = tracing::error_span!("start", node = label);
    let start = fx.node(|builder| echo(builder).hook(Tells));
    let node = tracing::Instrument::instrument(start, span).await;
    let lines = crate::lines::about(&label);
    let failed = lines.iter().find(|line| line.message() == "a lifecycle hook failed").expect("it is logged");
    assert_eq!(failed.field("error"), r"no route to redis://[REDACTED]@cache\nERROR forged");
    assert_eq!(failed.field("hook"), "after_start");
    node.stop().await;
}
