//! Natural batching: what arrives while a call is under way forms the next call.
//!
//! A single item is sent at once and pays nothing; many items share round trips. Another call is made beside the one
//! under way only for many items, for an urgent one, or if the first call takes long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};
use tokio::sync::{Notify, oneshot};

/// The time after which a call under way no longer delays another one.
const PATIENCE: Duration = Duration::from_millis(20);

/// A function that sends many items with one call, and answers in the same number and order.
type SendMany<I, O> = dyn Fn(Vec<I>) -> BoxFuture<'static, StoreResult<Vec<O>>> + Send + Sync;

/// Batches single items into calls.
pub(crate) struct Coalescer<I, O> {
    shared: Arc<Shared<I, O>>,
}

struct Shared<I, O> {
    send: Box<SendMany<I, O>>,
    /// The most items in one call.
    most: usize,
    /// The most calls at once.
    lanes: usize,
    state: Mutex<State<I, O>>,
    /// Notified when a quarter of a full call waits, or an urgent item.
    worthwhile: Notify,
}

struct State<I, O> {
    waiting: Vec<(I, oneshot::Sender<StoreResult<O>>)>,
    /// Tasks that make calls.
    lanes: usize,
    /// Calls under way.
    calls: usize,
    /// How many calls were ever begun.
    begun: u64,
}

impl<I, O> Clone for Coalescer<I, O> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<I, O> Coalescer<I, O>
where
    I: Send + 'static,
    O: Send + 'static,
{
    /// Calls `send` with a clone of `with` and at most `most` items, and at most `lanes` times at once. It answers in
    /// the same number and order.
    pub(crate) fn new<W, F>(
        most: usize,
        lanes: usize,
        with: W,
        send: impl Fn(W, Vec<I>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        W: Clone + Send + Sync + 'static,
        F: Future<Output = StoreResult<Vec<O>>> + Send + 'static,
    {
        let send: Box<SendMany<I, O>> = Box::new(move |items| send(with.clone(), items).boxed());
        let state = Mutex::new(State { waiting: Vec::new(), lanes: 0, calls: 0, begun: 0 });
        Self {
            shared: Arc::new(Shared {
                send,
                most: most.max(1),
                lanes: lanes.max(1),
                state,
                worthwhile: Notify::new(),
            }),
        }
    }

    /// Like [`send`](Self::send), for an item that justifies a call by itself.
    pub(crate) async fn send_urgent(&self, item: I) -> StoreResult<O> {
        self.shared.worthwhile.notify_one();
        self.send(item).await
    }

    /// Sends one item together with the others that wait.
    ///
    /// # Errors
    /// An error of the call is an error for each of its items.
    ///
    /// # Cancellation safety
    /// The item is sent even if the caller stops waiting for the answer.
    pub(crate) async fn send(&self, item: I) -> StoreResult<O> {
        let (answer, answered) = oneshot::channel();
        let starts = {
            let mut state = self.shared.lock();
            state.waiting.push((item, answer));
            let starts = state.lanes < self.shared.lanes;
            state.lanes += usize::from(starts);
            if state.waiting.len() == self.shared.most.div_ceil(4) {
                self.shared.worthwhile.notify_one();
            }
            starts
        };
        if starts {
            // A task of its own, so that a caller who stops waiting does not stop the others' call.
            tokio::spawn(Arc::clone(&self.shared).work());
        }
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl<I, O> Shared<I, O> {
    fn lock(&self) -> std::sync::MutexGuard<'_, State<I, O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls until nothing waits.
    async fn work(self: Arc<Self>) {
        loop {
            self.gather().await;
            self.let_others_go_first().await;
            let Some(batch) = self.next() else { return };
            let (items, answers): (Vec<I>, Vec<_>) = batch.into_iter().unzip();
            let sent = (self.send)(items).await;
            self.lock().calls -= 1;
            deliver(sent, answers);
            // Checked at once: a body that never yields may be next on this thread, and would hold up the whole lane.
            if self.ends() {
                return;
            }
        }
    }

    /// Ends the lane if nothing waits.
    fn ends(&self) -> bool {
        let mut state = self.lock();
        let ends = state.waiting.is_empty();
        state.lanes -= usize::from(ends);
        ends
    }

    /// Yields as long as more items arrive, so that callers about to send something join this call.
    async fn gather(&self) {
        let mut seen = 0;
        loop {
            tokio::task::yield_now().await;
            let waiting = self.lock().waiting.len();
            if waiting <= seen || waiting >= self.most {
                return;
            }
            seen = waiting;
        }
    }

    /// Delays a call beside another one until many items wait, an urgent one arrives, or the other call takes long.
    async fn let_others_go_first(&self) {
        let mut seen = self.lock().begun;
        while self.lock().calls > 0 {
            let worthwhile = tokio::time::timeout(PATIENCE, self.worthwhile.notified()).await.is_ok();
            let state = self.lock();
            if worthwhile || state.begun == seen || state.waiting.is_empty() {
                return;
            }
            seen = state.begun;
        }
    }

    /// The items of the next call; if there are none, the lane ends.
    fn next(&self) -> Option<Vec<(I, oneshot::Sender<StoreResult<O>>)>> {
        let mut state = self.lock();
        if state.waiting.is_empty() {
            state.lanes -= 1;
            return None;
        }
        state.calls += 1;
        state.begun += 1;
        let rest = state.waiting.len().min(self.most);
        Some(state.waiting.drain(..rest).collect())
    }
}

fn deliver<O>(sent: StoreResult<Vec<O>>, answers: Vec<oneshot::Sender<StoreResult<O>>>) {
    match sent {
        Ok(outputs) => {
            for (output, answer) in outputs.into_iter().zip(answers) {
                // The caller may have stopped waiting.
                let _ = answer.send(Ok(output));
            }
        }
        Err(error) => {
            for answer in answers {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }
}

fn gone() -> StoreError {
    StoreError::new(StoreErrorKind::Transient, "coalesce", "the call ended without an answer for this item")
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    type Doubling = (Coalescer<u32, u32>, Arc<Mutex<Vec<usize>>>, Arc<Semaphore>);

    /// Doubles numbers, records the size of each call, and waits for a permit before it answers.
    fn doubling(most: usize, lanes: usize) -> Doubling {
        let (sizes, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
        let with = (Arc::clone(&sizes), Arc::clone(&gate));
        let coalescer = Coalescer::new(most, lanes, with, |(seen, permits), items: Vec<u32>| async move {
            seen.lock().unwrap().push(items.len());
            permits.acquire().await.unwrap().forget();
            match items.contains(&13) {
                true => Err(StoreError::new(StoreErrorKind::Transient, "double", "unlucky")),
                false => Ok(items.into_iter().map(|item| item * 2).collect()),
            }
        });
        (coalescer, sizes, gate)
    }

    async fn all(coalescer: &Coalescer<u32, u32>, items: std::ops::Range<u32>) -> Vec<StoreResult<u32>> {
        futures::future::join_all(items.map(|item| coalescer.send(item))).await
    }

    #[tokio::test]
    async fn what_arrives_during_a_call_forms_the_next_one() {
        let (coalescer, sizes, gate) = doubling(100, 1);
        let first = tokio::spawn({
            let coalescer = coalescer.clone();
            async move { coalescer.send(1).await }
        });
        while sizes.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let rest = tokio::spawn(async move { all(&coalescer, 2..12).await });
        tokio::task::yield_now().await;
        gate.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap(), 2);
        let rest: Vec<u32> = rest.await.unwrap().into_iter().map(Result::unwrap).collect();
        assert_eq!(rest, (2..12).map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(*sizes.lock().unwrap(), [1, 10]);
    }

    #[tokio::test]
    async fn no_call_is_larger_than_allowed_and_no_more_are_under_way() {
        let (coalescer, sizes, gate) = doubling(3, 2);
        let answers = tokio::spawn(async move { all(&coalescer, 0..10).await });
        while sizes.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert_eq!(sizes.lock().unwrap().len(), 2, "two calls wait, and no third begins");
        gate.add_permits(10);
        assert!(answers.await.unwrap().iter().all(Result::is_ok));
        assert!(sizes.lock().unwrap().iter().all(|size| *size <= 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_long_holds_up_nobody() {
        let (coalescer, sizes, gate) = doubling(100, 2);
        let sent = |item| {
            let coalescer = coalescer.clone();
            tokio::spawn(async move { coalescer.send(item).await.unwrap() })
        };
        let (first, begun) = (sent(1), tokio::time::Instant::now());
        while sizes.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let others = [sent(2), sent(3)];
        while sizes.lock().unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(begun.elapsed() >= PATIENCE);
        assert_eq!(*sizes.lock().unwrap(), [1, 2], "those who waited went together");
        gate.add_permits(2);
        assert_eq!(first.await.unwrap(), 2);
        for (other, doubled) in others.into_iter().zip([4, 6]) {
            assert_eq!(other.await.unwrap(), doubled);
        }
    }

    #[tokio::test]
    async fn an_error_reaches_every_item_of_its_call_and_no_other() {
        let (coalescer, _, gate) = doubling(100, 1);
        gate.add_permits(2);
        assert!(coalescer.send(13).await.unwrap_err().is_transient());
        assert_eq!(coalescer.send(1).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_is_sent_also_if_its_sender_stops_waiting() {
        let (coalescer, sizes, gate) = doubling(100, 1);
        assert!(tokio::time::timeout(Duration::from_millis(1), coalescer.send(1)).await.is_err());
        gate.add_permits(2);
        assert_eq!(coalescer.send(2).await.unwrap(), 4);
        assert_eq!(sizes.lock().unwrap().iter().sum::<usize>(), 2);
    }
}
