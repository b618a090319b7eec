use ratchet_api::QueueName;
use ratchet_api::spi::{ExecutorProvider, JobFuture};
use tokio::runtime::{Handle, TryCurrentError};

/// Runs the attempts of every queue on one tokio runtime, and blocking bodies on its blocking pool.
///
/// The pool has 512 threads unless the runtime was built with `max_blocking_threads`; a node with more slots for
/// blocking bodies than that needs a larger one.
#[derive(Clone, Debug)]
pub struct TokioExecutor(Handle);

impl TokioExecutor {
    /// Runs attempts on the runtime of `handle`.
    pub const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// Runs attempts on the runtime that this is called on.
    ///
    /// # Errors
    /// If it is not called on one.
    pub fn try_current() -> Result<Self, TryCurrentError> {
        Handle::try_current().map(Self)
    }
}

impl ExecutorProvider for TokioExecutor {
    fn spawn(&self, _queue: &QueueName, attempt: JobFuture) {
        drop(self.0.spawn(attempt));
    }

    fn spawn_blocking(&self, _queue: &QueueName, work: Box<dyn FnOnce() + Send + 'static>) {
        drop(self.0.spawn_blocking(work));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    // shows: S67
    #[tokio::test]
    async fn an_attempt_runs_without_being_waited_for() {
        let executor = TokioExecutor::try_current().unwrap();
        let (go, gone) = oneshot::channel::<()>();
        let (done, finished) = oneshot::channel();
        executor.spawn(
            &QueueName::default(),
            Box::pin(async move {
                gone.await.unwrap();
                done.send(42).unwrap();
            }),
        );
        go.send(()).unwrap();
        assert_eq!(finished.await, Ok(42));
    }

    #[tokio::test]
    async fn blocking_work_holds_up_no_attempt() {
        let executor = TokioExecutor::try_current().unwrap();
        let (unblock, blocked) = std::sync::mpsc::channel();
        let (done, finished) = oneshot::channel();
        executor.spawn_blocking(
            &QueueName::default(),
            Box::new(move || {
                blocked.recv().unwrap();
                done.send(()).unwrap();
            }),
        );
        // The test's runtime has one thread: if it were blocked, this would not run.
        executor.spawn(&QueueName::default(), Box::pin(async move { unblock.send(()).unwrap() }));
        finished.await.unwrap();
    }

    // shows: S67
    #[test]
    fn attempts_run_on_the_runtime_that_was_given() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (done, finished) = oneshot::channel();
        TokioExecutor::new(runtime.handle().clone()).spawn(
            &QueueName::default(),
            Box::pin(async move { done.send(Handle::current().id()).unwrap() }),
        );
        assert_eq!(runtime.block_on(finished), Ok(runtime.handle().id()));
        assert!(TokioExecutor::try_current().is_err(), "there is no runtime out here");
    }

    #[tokio::test]
    async fn a_panicking_attempt_harms_nobody() {
        let executor = TokioExecutor::try_current().unwrap();
        let (done, finished) = oneshot::channel::<()>();
        executor.spawn(
            &QueueName::default(),
            Box::pin(async move {
                let _dropped_by_the_panic = done;
                panic!("on purpose");
            }),
        );
        assert!(finished.await.is_err());
    }
}
