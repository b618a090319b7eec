//! Wakeups over a message broker that the team already runs: Redis, NATS, Kafka or an in-house bus.
//!
//! A coordinator needs little: to publish a message that says which kind of news there is, and to be told when messages
//! may have been lost. Its contract is at [`ClusterCoordinator`]; the proof is `tests/tck.rs`; see `docs/wakeups.md`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ratchet_core::spi::{ClusterCoordinator, WakeupKind, WakeupListener, WakeupListeners};
use ratchet_core::{JobPriority, StoreResult};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// A stand-in for the broker. Clones talk to the same one.
#[derive(Clone)]
pub struct Broker {
    topic: Arc<Mutex<Sender<Word>>>,
}

/// A message: its sender, and the kind of news. It carries nothing else.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    from: usize,
    kind: WakeupKind,
}

impl Broker {
    /// Creates a broker that keeps a few messages for slow subscribers.
    pub fn new() -> Self {
        Self { topic: Arc::new(Mutex::new(channel(16).0)) }
    }

    /// Cuts the connection of every subscriber.
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
        // No subscriber is no error.
        let _ = self.topic().send(word);
    }
}

impl Default for Broker {
    fn default() -> Self {
        Self::new()
    }
}

/// A coordinator: one node's connection to the others.
pub struct BrokerCoordinator {
    broker: Broker,
    listeners: Arc<WakeupListeners>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl BrokerCoordinator {
    /// Creates the coordinator of a node on this broker.
    pub fn new(broker: Broker) -> Self {
        Self { broker, listeners: Arc::default(), task: Mutex::default() }
    }

    /// Returns an id that no other coordinator in the process has.
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
            // Subscribed before this returns: every later message is received.
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
            // The engine wakes its own node by itself.
            Ok(word) if word.from == me => {}
            Ok(word) => listeners.call([word.kind]),
            // Some messages were lost, and may have been of any kind.
            Err(RecvError::Lagged(_)) => listeners.call(WakeupKind::ALL),
            Err(RecvError::Closed) => {
                words = broker.subscribe();
                listeners.call(WakeupKind::ALL);
            }
        }
    }
}
