use async_trait::async_trait;

/// Why a hook failed.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Called around the life of a scheduler; schema migration is a `before_start` hook.
///
/// Each is called at most once, in the order of registration. A failing `before_start` keeps the scheduler from
/// starting, and nothing has been claimed by then; a failure of the others is logged and changes nothing.
///
/// Each call runs on a thread of its own, so it may block, and has a deadline: `timeout.start_hook` before and after a
/// start, `execution.drain_timeout` (at least 1 s) before and after a stop. A call that takes longer has failed and is
/// not waited for; its future is dropped as soon as it yields.
#[async_trait]
pub trait SchedulerLifecycleHook: Send + Sync + 'static {
    /// Before anything runs.
    ///
    /// # Contract
    /// - `hook.before_start`: nothing has been claimed yet; an error keeps the scheduler from starting.
    async fn before_start(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// After the node has joined and the poller runs.
    ///
    /// # Contract
    /// - `hook.after_start`: called once the scheduler is ready; an error is logged.
    async fn after_start(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// Before draining begins.
    ///
    /// # Contract
    /// - `hook.before_stop`: jobs may still start; an error is logged and the stop goes on.
    async fn before_stop(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// After everything has stopped, the heartbeat included.
    ///
    /// # Contract
    /// - `hook.after_stop`: this node holds no job any more; an error is logged.
    async fn after_stop(&self) -> Result<(), HookError> {
        Ok(())
    }
}
