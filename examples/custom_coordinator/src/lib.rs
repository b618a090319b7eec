//! Wakeups over a message broker that the team runs anyway: Redis, NATS, Kafka, a bus of the company.
//!
//! A coordinator needs very little of it: to publish a word that says what it is about and no more, and to be told when words may have been
//! lost. What it owes is written at [`ClusterCoordinator`]; the proof is `tests/tck.rs`; `docs/wakeups.md` explains the rest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ratchet_core::spi::{ClusterCoordinator, WakeupKind, WakeupListener, WakeupListeners};
use ratchet_core::{JobPriority, StoreResult};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Stands for the broker. Clones talk to the same one.
#[derive(Clone)]
pub struct Broker {
    topic: Arc<Mutex<Sender<Word>>>,
}

/// Who tells, and what it is about. There is nothing else to say.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    from: usize,
    kind: WakeupKind,
}

impl Broker {
    /// A broker that keeps a few words for those who are slow.
    pub fn new() -> Self {
        Self { topic: Arc::new(Mutex::new(channel(16).0)) }
    }

    /// Every subscriber loses its connection.
    pub fn restart(&self) {
        *self.topic() = channel(16).0;
    }

    fn topic(&self) -> MutexGuard<'_, Sender<Word>> {
        self.topic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self) -> Receiver<Word> {
        self.topic().subscribe()
    }

    fn publish(&self, word: Word) {
        // Nobody may listen: that is no error.
        let _ = self.topic().send(word);
    }
}

impl Default for Broker {
    fn default() -> Self {
        Self::new()
    }
}

/// One node's way to the others.
pub struct BrokerCoordinator {
    broker: Broker,
    listeners: Arc<WakeupListeners>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl BrokerCoordinator {
    /// For a node whose broker this is.
    pub fn new(broker: Broker) -> Self {
        Self { broker, listeners: Arc::default(), task: Mutex::default() }
    }

    /// Tells this node apart from all others.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.listeners).addr()
    }

    fn tell(&self, kind: WakeupKind) {
        if !self.listeners.is_closed() {
            self.broker.publish(Word { from: self.id(), kind });
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.listeners.close();
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }
}

#[async_trait]
impl ClusterCoordinator for BrokerCoordinator {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        self.tell(WakeupKind::NewWork);
        Ok(())
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.tell(WakeupKind::CancelRequested);
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        let mut task = self.task();
        if self.listeners.add(listener) && task.is_none() {
            // Subscribed before this returns: nothing that is told from now on is missed.
            let words = self.broker.subscribe();
            let listen = listen(self.broker.clone(), words, self.id(), Arc::clone(&self.listeners));
            *task = Some(tokio::spawn(listen));
        }
        Ok(())
    }

    async fn shutdown(&self) {
        self.stop();
    }
}

impl Drop for BrokerCoordinator {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn listen(broker: Broker, mut words: Receiver<Word>, me: usize, listeners: Arc<WakeupListeners>) {
    loop {
        match words.recv().await {
            // The engine wakes its own node itself.
            Ok(word) if word.from == me => {}
            Ok(word) => listeners.call([word.kind]),
            // Some were lost, and may have been of any kind.
            Err(RecvError::Lagged(_)) => listeners.call(WakeupKind::ALL),
            Err(RecvError::Closed) => {
                words = broker.subscribe();
                listeners.call(WakeupKind::ALL);
            }
        }
    }
}
