use async_trait::async_trait;

/// The error of a failed hook.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Hooks around the start and the stop of a scheduler; schema migration is a `before_start` hook.
///
/// Each is called at most once, in the order of registration. A failing `before_start` keeps the scheduler from
/// starting, and nothing has been claimed by then; a failure of the others is logged and changes nothing.
///
/// Each call runs on a thread of its own, so it may block, and has a deadline: `timeout.start_hook` before and after a
/// start, `execution.drain_timeout` (at least 1 s) before and after a stop. A call that takes longer counts as failed
/// and is abandoned; its future is dropped as soon as it yields.
#[async_trait]
pub trait SchedulerLifecycleHook: Send + Sync + 'static {
    /// Called before anything runs.
    ///
    /// # Contract
    /// - `hook.before_start`: nothing has been claimed yet; an error keeps the scheduler from starting.
    async fn before_start(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// Called after the node has joined and the poller runs.
    ///
    /// # Contract
    /// - `hook.after_start`: called once the scheduler is ready; an error is logged.
    async fn after_start(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// Called before draining begins.
    ///
    /// # Contract
    /// - `hook.before_stop`: jobs may still start; an error is logged and the stop goes on.
    async fn before_stop(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// Called after everything has stopped, the heartbeat included.
    ///
    /// # Contract
    /// - `hook.after_stop`: this node holds no job any more; an error is logged.
    async fn after_stop(&self) -> Result<(), HookError> {
        Ok(())
    }
}
