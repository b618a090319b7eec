use std::thread;

use ratchet_api::QueueName;
use ratchet_api::spi::{ExecutorProvider, JobFuture};
use tokio::runtime::{Handle, TryCurrentError};

/// An executor that runs the attempts of every queue on one tokio runtime, and each blocking body on a thread of its
/// own.
///
/// Blocking bodies do not run on the runtime's blocking pool: a runtime that ends waits for that, and with it the
/// process. A body that never returns would keep a stopped service from ending.
#[derive(Clone, Debug)]
pub struct TokioExecutor(Handle);

impl TokioExecutor {
    /// An executor on the runtime of `handle`.
    pub const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// An executor on the runtime that this is called on.
    ///
    /// # Errors
    /// If it is not called on a runtime.
    pub fn try_current() -> Result<Self, TryCurrentError> {
        Handle::try_current().map(Self)
    }
}

impl ExecutorProvider for TokioExecutor {
    fn spawn(&self, _queue: &QueueName, attempt: JobFuture) {
        drop(self.0.spawn(attempt));
    }

    fn spawn_blocking(&self, _queue: &QueueName, work: Box<dyn FnOnce() + Send + 'static>) {
        let runtime = self.0.clone();
        let run = move || {
            let _runtime = runtime.enter();
            work();
        };
        if let Err(error) = thread::Builder::new().name("ratchet-job".to_owned()).spawn(run) {
            tracing::error!(%error, "no thread can be started for a blocking body, which does not run");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

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
        let (unblock, blocked) = mpsc::channel();
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

    #[test]
    fn a_runtime_that_ends_does_not_wait_for_blocking_work() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let executor = TokioExecutor::new(runtime.handle().clone());
        let ((begin, begun), (unblock, blocked)) = (mpsc::channel(), mpsc::channel::<()>());
        executor.spawn_blocking(
            &QueueName::default(),
            Box::new(move || {
                begin.send(Handle::try_current().is_ok()).unwrap();
                blocked.recv().unwrap();
            }),
        );
        assert!(begun.recv().unwrap(), "it has the runtime at hand");
        drop(runtime);
        unblock.send(()).expect("it is still there");
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
