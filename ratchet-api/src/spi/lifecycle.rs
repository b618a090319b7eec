use async_trait::async_trait;

/// Why a hook failed.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Called around the life of a scheduler; schema migration is a `before_start` hook.
///
/// Each is called at most once, in the order of registration. A failing `before_start` keeps the scheduler from
/// starting, and nothing has been claimed by then; a failure of the others is logged and changes nothing.
#[async_trait]
pub trait SchedulerLifecycleHook: Send + Sync + 'static {
    /// Before anything runs.
    async fn before_start(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// After the first node row is written and the poller runs.
    async fn after_start(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// Before draining begins.
    async fn before_stop(&self) -> Result<(), HookError> {
        Ok(())
    }

    /// After everything has stopped, the heartbeat included.
    async fn after_stop(&self) -> Result<(), HookError> {
        Ok(())
    }
}
