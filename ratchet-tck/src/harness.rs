//! The interface that a store author implements.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use ratchet_api::store::JobStore;
use ratchet_api::{JobId, StoreClock, StoreResult};

/// Makes stores for the suite. Two methods, nothing else.
#[async_trait]
pub trait StoreHarness: Send + Sync + 'static {
    /// Makes an empty namespace that no other case sees. A missing server is an error that names the variable to set.
    async fn namespace(&self) -> StoreResult<Namespace>;

    /// Connects one more node to the same data: a connection (pool) of its own, deciding by `clock`.
    async fn connect(&self, namespace: &Namespace, clock: StoreClock) -> StoreResult<Arc<dyn JobStore>>;
}

type Close = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send + Sync>;
type InterruptFn = Arc<dyn Fn() -> BoxFuture<'static, StoreResult<()>> + Send + Sync>;
type SpoilFn = Arc<dyn Fn(JobId, Spoil) -> BoxFuture<'static, StoreResult<()>> + Send + Sync>;

/// An isolated namespace for one case: a schema, a database, a file.
pub struct Namespace {
    name: String,
    close: Option<Close>,
    spoil: Option<SpoilFn>,
    interrupt: Option<InterruptFn>,
}

/// A way to damage a stored row behind the store's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// An unknown word as the job type.
    UnknownType,
    /// An unknown word as the backoff policy.
    UnknownBackoff,
    /// A value that no store writes, in a part of the queue state that a claim reads.
    QueueState,
    /// The greatest version that a row can hold.
    LastVersion,
    /// A deleted queue state.
    QueueStateGone,
    /// Priority 7, which no claim asks for.
    Priority,
    /// An empty queue name, wherever it is stored.
    QueueName,
    /// An empty target name.
    TargetName,
    /// Version 1, as it was before the first claim.
    FirstVersion,
    /// The greatest number that a row can hold, on the newest line of the job's log.
    LogNumber,
    /// An owner that no node has; not even text, if the database has no rule against that.
    OwnerName,
    /// A value that no store writes, in the record of beats of its owner's node.
    OwnerBeats,
}

impl Namespace {
    /// Creates a namespace with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), close: None, spoil: None, interrupt: None }
    }

    /// Cleans up after the case, whether it passed or not.
    #[must_use]
    pub fn on_close<F>(mut self, close: impl FnOnce() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.close = Some(Box::new(move || Box::pin(close())));
        self
    }

    /// Damages a stored job behind the store's back, so that the suite can check the effect on it and on the others.
    #[must_use]
    pub fn on_spoil<F>(mut self, spoil: impl Fn(JobId, Spoil) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = StoreResult<()>> + Send + 'static,
    {
        self.spoil = Some(Arc::new(move |job, how| Box::pin(spoil(job, how))));
        self
    }

    /// Makes every node lose wakeups for a moment, as by cutting its connection, so that the suite can see it recover.
    #[must_use]
    pub fn on_interrupt<F>(mut self, interrupt: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = StoreResult<()>> + Send + 'static,
    {
        self.interrupt = Some(Arc::new(move || Box::pin(interrupt())));
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn spoiler(&self) -> Option<SpoilFn> {
        self.spoil.clone()
    }

    pub(crate) fn interrupter(&self) -> Option<InterruptFn> {
        self.interrupt.clone()
    }

    pub(crate) async fn close(mut self) {
        if let Some(close) = self.close.take() {
            close().await;
        }
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Namespace").field(&self.name).finish()
    }
}
