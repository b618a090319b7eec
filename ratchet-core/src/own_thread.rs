//! Runs foreign code on a thread of its own, where it may block, and waits for it no longer than a limit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::Instrument as _;
use tracing::instrument::WithSubscriber as _;

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfinished {
    #[error("it did not end within {0:?} and is not waited for any more")]
    Late(Duration),
    #[error("it panicked")]
    Panicked,
    #[error("there is no thread for it: {0}")]
    NoThread(#[from] io::Error),
}

/// Runs a future on a thread of its own, beside the runtime whose timers and sockets it uses. Waits for it no longer than
/// `limit`; after that it is dropped as soon as it yields, and a future that never does keeps its thread and nothing
/// else.
///
/// Not `spawn_blocking`, because a runtime that ends waits for those threads.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Unfinished> {
    let (mut answer, answered) = oneshot::channel();
    let (runtime, work) = (Handle::current(), work.in_current_span().with_current_subscriber());
    thread::Builder::new().name("ratchet-hook".to_owned()).spawn(move || {
        let run = || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    done = work => Some(done),
                    () = answer.closed() => None,
                }
            })
        };
        if let Ok(Some(done)) = catch_unwind(AssertUnwindSafe(run)) {
            // The caller may have stopped waiting.
            let _ = answer.send(done);
        }
    })?;
    match timeout(limit, answered).await {
        Ok(done) => done.map_err(|_| Unfinished::Panicked),
        Err(_) => Err(Unfinished::Late(limit)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn work_ends_with_its_answer_a_panic_or_its_deadline() {
        let sum = on_own_thread(LONG, async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tokio::spawn(async { 40 + 2 }).await.unwrap()
        });
        assert_eq!(sum.await.unwrap(), 42, "timers and tasks of the runtime are there");
        let panics = on_own_thread(LONG, async { panic!("on purpose") }).await;
        assert!(matches!(panics, Err::<(), _>(Unfinished::Panicked)));
        let (unblock, blocked) = mpsc::channel::<()>();
        let blocks = on_own_thread(Duration::from_millis(1), async move { blocked.recv().is_ok() }).await;
        assert!(matches!(blocks, Err(Unfinished::Late(_))), "though its thread is still there");
        drop(unblock);
    }

    #[tokio::test]
    async fn a_future_that_is_late_is_dropped() {
        struct Tells(mpsc::Sender<&'static str>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.send("dropped").unwrap();
            }
        }
        let (tell, told) = mpsc::channel();
        let tells = Tells(tell);
        let hangs = async move {
            std::future::pending::<()>().await;
            drop(tells);
        };
        assert!(on_own_thread(Duration::from_millis(1), hangs).await.is_err());
        assert_eq!(told.recv_timeout(LONG), Ok("dropped"));
    }
}
