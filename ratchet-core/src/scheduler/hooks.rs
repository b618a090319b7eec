//! Calls lifecycle hooks, in their order, each with a deadline.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ratchet_api::spi::{ErrorSanitizer, HookError, SchedulerLifecycleHook};
use ratchet_api::{JobFailure, Sanitized};

use super::{SchedulerBuilder, StartError};
use crate::own_thread::on_own_thread;
use crate::panics::PanicReport;

/// The lifecycle hooks of a node.
pub(super) struct Hooks {
    hooks: Vec<Arc<dyn SchedulerLifecycleHook>>,
    sanitizer: Arc<dyn ErrorSanitizer>,
    /// How long one call around a start may take.
    start_limit: Duration,
}

type Call = fn(&dyn SchedulerLifecycleHook) -> BoxFuture<'_, Result<(), HookError>>;

impl Hooks {
    pub(super) fn of(builder: &mut SchedulerBuilder) -> Self {
        Self {
            hooks: std::mem::take(&mut builder.hooks),
            sanitizer: builder.sanitizer(),
            start_limit: builder.options.timeout.start_hook,
        }
    }

    /// Calls each in turn. The first that refuses ends the start.
    pub(super) async fn before_start(&self) -> Result<(), StartError> {
        for hook in &self.hooks {
            self.call(hook, self.start_limit, |hook| hook.before_start()).await.map_err(StartError::Hook)?;
        }
        Ok(())
    }

    pub(super) async fn after_start(&self) {
        self.tell("after_start", self.start_limit, |hook| hook.after_start()).await;
    }

    pub(super) async fn before_stop(&self, limit: Duration) {
        self.tell("before_stop", limit, |hook| hook.before_stop()).await;
    }

    pub(super) async fn after_stop(&self, limit: Duration) {
        self.tell("after_stop", limit, |hook| hook.after_stop()).await;
    }

    /// Calls each in turn. A failure changes nothing.
    async fn tell(&self, name: &'static str, limit: Duration, method: Call) {
        for hook in &self.hooks {
            if let Err(error) = self.call(hook, limit, method).await {
                let failure = JobFailure::new("", error.to_string());
                let error = Sanitized::new(&*self.sanitizer, &failure);
                tracing::warn!(hook = name, %error, "a lifecycle hook failed");
            }
        }
    }

    /// Calls a hook where it may block, and waits no longer than `limit`.
    async fn call(
        &self,
        hook: &Arc<dyn SchedulerLifecycleHook>,
        limit: Duration,
        method: Call,
    ) -> Result<(), HookError> {
        let (hook, report) = (Arc::clone(hook), PanicReport::of_hook(Arc::clone(&self.sanitizer)));
        on_own_thread(limit, report.scope(async move { method(&*hook).await })).await?
    }
}
