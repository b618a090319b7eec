//! A link between a node and its database that a case can cut, jam and listen to.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ratchet_api::store::{
    CancelVerdict, ClaimRequest, JobClaimStore, JobStore, JobTerminalStore, NodeStore, Target,
};
use ratchet_api::{
    Beat, BeatReply, JobClaim, Node, NodeInfo, Outcome, Owner, Sanitized, StoreError, StoreErrorKind,
    StoreResult, Timestamp, Verdict,
};

/// A store reached through a cable.
pub(crate) struct Cable<S: ?Sized> {
    inner: Arc<S>,
    line: Arc<Line>,
}

/// Wraps a store in a cable.
pub(crate) fn lay(inner: Arc<dyn JobStore>, line: &Arc<Line>) -> Arc<dyn JobStore> {
    Arc::new(Cable { inner, line: Arc::clone(line) })
}

/// The controls of a cable, and a record of the calls that went through it.
#[derive(Default)]
pub(crate) struct Line {
    cut: AtomicBool,
    refused: AtomicUsize,
    jam: Mutex<bool>,
    cleared: Condvar,
    mute: AtomicBool,
    disowned: AtomicBool,
    takeovers_lost: AtomicBool,
    joined: Mutex<Option<Instant>>,
    beats: AtomicUsize,
    owned: AtomicUsize,
    takeovers: Mutex<Vec<Takeover>>,
    outcomes: Mutex<Vec<Owner>>,
    clock: AtomicI64,
    mended: Mutex<Vec<Duration>>,
}

/// A takeover that moved jobs.
#[derive(Clone, Debug)]
pub(crate) struct Takeover {
    pub(crate) dead: Vec<Owner>,
    pub(crate) jobs: usize,
    /// The time that the node had been a member of the cluster.
    pub(crate) since_join: Duration,
}

impl Line {
    /// Cuts the cable, so that every call fails, or restores it.
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    /// Stops the heartbeat thread, and refuses claims and joins, as if the process were frozen; or lets them go on.
    pub(crate) fn jam(&self, jammed: bool) {
        *self.jam.lock().expect("nobody panics") = jammed;
        self.cleared.notify_all();
    }

    /// Makes claims take jobs and report none.
    pub(crate) fn mute(&self, mute: bool) {
        self.mute.store(mute, Ordering::SeqCst);
    }

    /// Makes the store tell the node that it owns nothing.
    pub(crate) fn disown(&self, disowned: bool) {
        self.disowned.store(disowned, Ordering::SeqCst);
    }

    /// Loses the replies to takeovers.
    pub(crate) fn lose_takeovers(&self) {
        self.takeovers_lost.store(true, Ordering::SeqCst);
    }

    /// Returns how many beats were accepted so far.
    pub(crate) fn beats(&self) -> usize {
        self.beats.load(Ordering::SeqCst)
    }

    /// Returns how often a node asked which jobs it owns.
    pub(crate) fn owned(&self) -> usize {
        self.owned.load(Ordering::SeqCst)
    }

    /// Waits until `count` more beats were accepted.
    pub(crate) async fn more_beats(&self, count: usize) {
        let enough = self.beats() + count;
        while self.beats() < enough {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until `count` more calls were refused by a cut cable.
    pub(crate) async fn more_refusals(&self, count: usize) {
        let enough = self.refused.load(Ordering::SeqCst) + count;
        while self.refused.load(Ordering::SeqCst) < enough {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Adds this many milliseconds to the database time that beats report.
    pub(crate) fn set_clock(&self, millis: i64) {
        self.clock.store(millis, Ordering::SeqCst);
    }

    /// Returns the length of each backward clock step that the node reported to the store.
    pub(crate) fn mended(&self) -> Vec<Duration> {
        self.mended.lock().expect("nobody panics").clone()
    }

    pub(crate) fn takeovers(&self) -> Vec<Takeover> {
        self.takeovers.lock().expect("nobody panics").clone()
    }

    /// Returns the sender of each outcome.
    pub(crate) fn outcomes(&self) -> Vec<Owner> {
        self.outcomes.lock().expect("nobody panics").clone()
    }

    fn pass(&self) -> StoreResult<()> {
        match self.cut.load(Ordering::SeqCst) {
            true => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                Err(StoreError::new(StoreErrorKind::Unavailable, "cable", "it is cut"))
            }
            false => Ok(()),
        }
    }

    /// Fails while the process is "frozen", since a frozen process begins nothing.
    fn begin(&self) -> StoreResult<()> {
        self.pass()?;
        match *self.jam.lock().expect("nobody panics") {
            true => Err(StoreError::new(StoreErrorKind::Unavailable, "cable", "it is jammed")),
            false => Ok(()),
        }
    }

    fn hear_outcomes(&self, owner: &Owner, outcomes: &[Outcome]) {
        self.outcomes.lock().expect("nobody panics").extend(outcomes.iter().map(|_| owner.clone()));
    }
}

#[async_trait]
impl<S: NodeStore + ?Sized> NodeStore for Cable<S> {
    async fn dedicated(&self) -> StoreResult<Box<dyn NodeStore>> {
        self.line.pass()?;
        let inner: Arc<dyn NodeStore> = Arc::from(self.inner.dedicated().await?);
        Ok(Box::new(Cable { inner, line: Arc::clone(&self.line) }))
    }
    async fn join(&self, node: &NodeInfo, lease: Duration) -> StoreResult<()> {
        self.line.begin()?;
        *self.line.joined.lock().expect("nobody panics") = Some(Instant::now());
        self.inner.join(node, lease).await
    }
    async fn beat(&self, beat: &Beat) -> StoreResult<BeatReply> {
        let jam = self.line.jam.lock().expect("nobody panics");
        drop(self.line.cleared.wait_while(jam, |jammed| *jammed).expect("nobody panics"));
        self.line.pass()?;
        let mut reply = self.inner.beat(beat).await?;
        let shown = reply.db_now.as_millis() + self.line.clock.load(Ordering::SeqCst);
        reply.db_now = Timestamp::from_millis(shown);
        self.line.beats.fetch_add(usize::from(reply.accepted), Ordering::SeqCst);
        Ok(reply)
    }
    async fn recover(&self, dead: &[Owner], to: &Owner, limit: usize) -> StoreResult<Vec<JobClaim>> {
        self.line.pass()?;
        let joined = *self.line.joined.lock().expect("nobody panics");
        let since_join = joined.map_or(Duration::ZERO, |joined| joined.elapsed());
        let moved = self.inner.recover(dead, to, limit).await?;
        if !moved.is_empty() {
            let takeover = Takeover { dead: dead.to_vec(), jobs: moved.len(), since_join };
            self.line.takeovers.lock().expect("nobody panics").push(takeover);
        }
        if self.line.takeovers_lost.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Transient, "recover", "the reply was lost"));
        }
        Ok(moved)
    }
    async fn leave(&self, owner: &Owner) -> StoreResult<bool> {
        self.line.pass()?;
        self.inner.leave(owner).await
    }
    async fn nodes(&self) -> StoreResult<Vec<Node>> {
        self.inner.nodes().await
    }
    async fn purge_nodes(&self, retention: Duration) -> StoreResult<u64> {
        self.inner.purge_nodes(retention).await
    }
    async fn clock_went_back(&self, by: Duration, within: Duration, limit: usize) -> StoreResult<u64> {
        self.line.pass()?;
        self.line.mended.lock().expect("nobody panics").push(by);
        self.inner.clock_went_back(by, within, limit).await
    }
}

#[async_trait]
impl JobTerminalStore for Cable<dyn JobStore> {
    async fn commit(&self, owner: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
        self.line.pass()?;
        self.line.hear_outcomes(owner, outcomes);
        self.inner.commit(owner, outcomes).await
    }
    async fn cancel(&self, jobs: &[Target], reason: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
        self.line.pass()?;
        self.inner.cancel(jobs, reason).await
    }
}

#[async_trait]
impl JobClaimStore for Cable<dyn JobStore> {
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
        self.line.begin()?;
        let claims = self.inner.claim(request).await?;
        Ok(if self.line.mute.load(Ordering::SeqCst) { Vec::new() } else { claims })
    }
    async fn owned(&self, owner: &Owner) -> StoreResult<Vec<JobClaim>> {
        self.line.pass()?;
        self.line.owned.fetch_add(1, Ordering::SeqCst);
        let owned = self.inner.owned(owner).await?;
        Ok(if self.line.disowned.load(Ordering::SeqCst) { Vec::new() } else { owned })
    }
    async fn commit_and_claim(
        &self,
        owner: &Owner,
        outcomes: &[Outcome],
        request: &ClaimRequest,
    ) -> StoreResult<(Vec<Verdict>, Vec<JobClaim>)> {
        self.line.pass()?;
        self.line.hear_outcomes(owner, outcomes);
        self.line.begin()?;
        self.inner.commit_and_claim(owner, outcomes, request).await
    }
}

ratchet_api::delegate_store!(Cable<dyn JobStore> => inner:
    StoreInfo, JobCrudStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore, BatchStore, LockStore,
    ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore, BatchMetricsStore, DlqAlertStore,
    ResourcePermitStore, RecurringStore, JobQueryStore);
