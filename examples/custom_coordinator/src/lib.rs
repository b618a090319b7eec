//! Wakeups over a message broker that the team runs anyway: Redis, NATS, Kafka, a bus of the company.
//!
//! A coordinator needs very little of it: to publish a word that holds no data, and to be told when words may have been
//! lost. What it owes is written at [`ClusterCoordinator`]; the proof is `tests/tck.rs`; `docs/wakeups.md` explains the rest.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, WakeupListener};
use ratchet_api::{JobPriority, StoreResult};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Stands for the broker. Clones talk to the same one.
#[derive(Clone)]
pub struct Broker {
    topic: Arc<Mutex<Sender<Word>>>,
}

/// Who tells. There is nothing else to say.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    from: usize,
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
    listening: Arc<Mutex<Listening>>,
}

#[derive(Default)]
struct Listening {
    listeners: Vec<WakeupListener>,
    task: Option<JoinHandle<()>>,
    stopped: bool,
}

impl BrokerCoordinator {
    /// For a node whose broker this is.
    pub fn new(broker: Broker) -> Self {
        Self { broker, listening: Arc::default() }
    }

    /// Tells this node apart from all others.
    fn id(&self) -> usize {
        Arc::as_ptr(&self.listening).addr()
    }
}

fn lock(listening: &Mutex<Listening>) -> MutexGuard<'_, Listening> {
    listening.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl ClusterCoordinator for BrokerCoordinator {
    async fn notify_new_work(&self, _: JobPriority) -> StoreResult<()> {
        if !lock(&self.listening).stopped {
            self.broker.publish(Word { from: self.id() });
        }
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        let mut listening = lock(&self.listening);
        if listening.stopped {
            return Ok(());
        }
        listening.listeners.push(listener);
        if listening.task.is_none() {
            // Subscribed before this returns: nothing that is told from now on is missed.
            let words = self.broker.subscribe();
            let listen = listen(self.broker.clone(), words, self.id(), Arc::clone(&self.listening));
            listening.task = Some(tokio::spawn(listen));
        }
        Ok(())
    }

    async fn shutdown(&self) {
        let mut listening = lock(&self.listening);
        listening.stopped = true;
        listening.listeners.clear();
        if let Some(task) = listening.task.take() {
            task.abort();
        }
    }
}

impl Drop for BrokerCoordinator {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.listening).task.take() {
            task.abort();
        }
    }
}

async fn listen(broker: Broker, mut words: Receiver<Word>, me: usize, listening: Arc<Mutex<Listening>>) {
    loop {
        match words.recv().await {
            // The engine wakes its own node itself.
            Ok(word) if word.from == me => continue,
            Ok(_) => {}
            // Some were lost, but this is still a reason to look.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => words = broker.subscribe(),
        }
        // Under the lock, so that none is called once a shutdown has returned.
        lock(&listening).listeners.iter().for_each(|listener| listener());
    }
}
