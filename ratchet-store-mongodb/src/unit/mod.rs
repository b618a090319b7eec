//! A unit of work: one transaction that reads, decides in plain Rust, and writes what changed.
//!
//! Documents are read once and changed in memory; the end of the unit writes the differences. The transaction reads
//! from one snapshot, and MongoDB refuses a write to a document that another one changed since, so whatever was read
//! and then written has not changed in between. Every decision here rests on documents that it also writes; that is
//! why an edge raises its parent's edge count, a child its batch's total and a permit its resource's use. A refused
//! write runs the whole unit again.

mod abandoned;
mod alert;
mod commit;
mod control;
mod ends;
mod flush;
mod insert;
mod load;
mod recover;
mod removal;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use bson::{Document, Uuid};
use mongodb::ClientSession;
use mongodb::options::ReadConcern;
use rand::RngExt;
use ratchet_api::{JobId, StoreError, StoreErrorKind, StoreResult, Timestamp};

use crate::client::{MongoStore, durable, primary};
use crate::codec::{BatchDoc, EdgeDoc, ExecutionDoc, FireId, JobDoc, KeyDoc, LimitDoc, PermitId};
use crate::error::{During, is_unknown_commit};
pub(crate) use abandoned::driver_info;

/// A document with its stored form, if it was stored.
pub(crate) struct Held<T> {
    stored: Option<Document>,
    pub(crate) doc: T,
}

impl<T> Held<T> {
    fn new(doc: T) -> Self {
        Self { stored: None, doc }
    }
}

/// The session of a transaction.
enum Session<'s> {
    /// A session of its own: the unit begins and commits.
    Own(Box<ClientSession>),
    /// A user's session: the user commits.
    Theirs(&'s mut ClientSession),
}

impl Deref for Session<'_> {
    type Target = ClientSession;

    fn deref(&self) -> &ClientSession {
        match self {
            Self::Own(session) => session,
            Self::Theirs(session) => session,
        }
    }
}

impl DerefMut for Session<'_> {
    fn deref_mut(&mut self) -> &mut ClientSession {
        match self {
            Self::Own(session) => session,
            Self::Theirs(session) => session,
        }
    }
}

/// One transaction, or a part of a user's.
pub(crate) struct Unit<'s> {
    store: &'s MongoStore,
    session: Session<'s>,
    op: &'static str,
    pub(crate) now: Timestamp,
    jobs: BTreeMap<JobId, Held<JobDoc>>,
    /// Not in stored order: callers that need it sort.
    edges: BTreeMap<(JobId, JobId), Held<EdgeDoc>>,
    batches: BTreeMap<JobId, Held<BatchDoc>>,
    limits: BTreeMap<String, Held<LimitDoc>>,
    keys: HashMap<Vec<u8>, Held<KeyDoc>>,
    fires: Vec<FireId>,
    permits: Vec<PermitId>,
    freed: Vec<PermitId>,
    spilled: Vec<(Uuid, ExecutionDoc)>,
    /// The jobs that were looked up, found or not.
    asked_jobs: BTreeSet<JobId>,
    asked_edges: BTreeSet<JobId>,
    asked_batches: BTreeSet<JobId>,
}

impl<'s> Unit<'s> {
    pub(crate) async fn begin(store: &'s MongoStore, op: &'static str) -> StoreResult<Self> {
        let now = store.now(op).await?;
        let mut session = store.client.start_session().await.during(op)?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(durable())
            .selection_criteria(primary())
            .await
            .during(op)?;
        Ok(Self::on(Session::Own(Box::new(session)), store, op, now))
    }

    /// Works within a transaction that has begun, and does not commit it.
    pub(crate) async fn join(
        store: &'s MongoStore,
        session: &'s mut ClientSession,
        op: &'static str,
    ) -> StoreResult<Self> {
        let now = store.now(op).await?;
        Ok(Self::on(Session::Theirs(session), store, op, now))
    }

    fn on(session: Session<'s>, store: &'s MongoStore, op: &'static str, now: Timestamp) -> Self {
        Self {
            store,
            session,
            op,
            now,
            jobs: BTreeMap::new(),
            edges: BTreeMap::new(),
            batches: BTreeMap::new(),
            limits: BTreeMap::new(),
            keys: HashMap::new(),
            fires: Vec::new(),
            permits: Vec::new(),
            freed: Vec::new(),
            spilled: Vec::new(),
            asked_jobs: BTreeSet::new(),
            asked_edges: BTreeSet::new(),
            asked_batches: BTreeSet::new(),
        }
    }

    /// Writes what changed, and leaves the commit to the user.
    pub(crate) async fn leave<T>(mut self, answer: StoreResult<T>) -> StoreResult<T> {
        let answer = answer?;
        self.flush().await?;
        Ok(answer)
    }

    /// Writes what changed and commits. A unit that failed is dropped, which aborts its transaction.
    ///
    /// A unit that changed nothing commits as well: only then is its answer known to be on a majority.
    pub(crate) async fn finish<T>(mut self, answer: StoreResult<T>) -> StoreResult<T> {
        let answer = answer?;
        self.flush().await?;
        self.commit_transaction().await?;
        Ok(answer)
    }

    async fn commit_transaction(&mut self) -> StoreResult<()> {
        const TRIES: usize = 5;
        for _ in 1..TRIES {
            match self.session.commit_transaction().await {
                Err(error) if is_unknown_commit(&error) => {}
                done => return done.during(self.op),
            }
        }
        // Not to be run again as a whole: the commit may have happened. A repeated call by the caller is recognized.
        self.session.commit_transaction().await.map_err(|_| {
            StoreError::new(
                StoreErrorKind::Unavailable,
                self.op,
                "whether the transaction was committed is unknown",
            )
        })
    }
}

/// The number of runs of a unit.
#[derive(Default)]
pub(crate) struct Tries(u32);

impl Tries {
    const MAX_ATTEMPTS: u32 = 60;
    const LONGEST_PAUSE: u64 = 64;
    /// After this many refusals in a row, the transaction in the way may be that of a dead process.
    const SUSPICIOUS: u32 = 20;

    /// Waits a little before the next run, and after every 20th one aborts abandoned transactions. Returns the error
    /// if running again would not help, or after too many runs.
    ///
    /// A duplicate key means that another transaction stored it after this one's snapshot; the next run reads it.
    pub(crate) async fn again(&mut self, store: &MongoStore, error: StoreError) -> StoreResult<()> {
        let passing = matches!(error.kind(), StoreErrorKind::Transient | StoreErrorKind::Conflict);
        self.0 += 1;
        if !passing || self.0 >= Self::MAX_ATTEMPTS {
            return Err(error);
        }
        let longest = (1 << self.0.min(10)).min(Self::LONGEST_PAUSE);
        let pause = rand::rng().random_range(0..=longest * 1_000);
        tokio::time::sleep(Duration::from_micros(pause)).await;
        if self.0.is_multiple_of(Self::SUSPICIOUS) {
            store.end_abandoned(error.op()).await;
        }
        Ok(())
    }
}

/// Runs the work of a unit until no other transaction was faster.
macro_rules! in_unit {
    ($store:expr, $op:expr, |$unit:ident| $work:expr) => {{
        let mut tries = $crate::unit::Tries::default();
        loop {
            let done = match $crate::unit::Unit::begin($store, $op).await {
                Ok(mut $unit) => {
                    let answer = $work.await;
                    $unit.finish(answer).await
                }
                Err(error) => Err(error),
            };
            match done {
                Err(error) => tries.again($store, error).await?,
                done => break done,
            }
        }
    }};
}
pub(crate) use in_unit;
