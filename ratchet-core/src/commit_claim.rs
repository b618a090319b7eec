//! Records outcomes and claims jobs, in one store call where both wait: one transaction and one wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{JobClaim, Outcome, Owner, StoreError, StoreErrorKind, StoreResult, Verdict};

use crate::cluster::lease::Lease;
use crate::coalesce::Coalescer;
use crate::coordinator::slots::Slots;
use crate::drain::Draining;

/// The most items in one call.
const MAX_BATCH: usize = 1_000;

/// The most calls at once. More gain nothing on any database that was measured.
const LANES: usize = 2;

/// The number of outcomes that must fail one by one, none of them for its content, to show that it is not their fault.
const ENOUGH_PROBES: u32 = 2;

/// The way of outcomes and claims to the store, which batches them.
#[derive(Clone)]
pub(crate) struct CommitClaim {
    calls: Coalescer<Item, Answer>,
    recorded: Arc<AtomicU64>,
}

/// The parts that a call needs.
#[derive(Clone)]
struct Line {
    store: Arc<dyn JobStore>,
    lease: Arc<Lease>,
    recorded: Arc<AtomicU64>,
}

enum Item {
    Outcome(Box<Offer>),
    Claim(Box<ClaimTerms>),
}

/// An outcome on its way to the store.
pub(crate) struct Offer {
    pub(crate) outcome: Outcome,
    /// Whether it is sent alone, because it failed by itself before: no other outcome waits for it.
    pub(crate) alone: bool,
}

/// The terms of a claim. The request is made of them at the time of the call, so that slots that become free while other
/// calls are under way are asked for too.
pub(crate) struct ClaimTerms {
    pub(crate) slots: Slots,
    pub(crate) draining: Draining,
    pub(crate) batch_size: usize,
    /// The number of the queue that is served first.
    pub(crate) first: usize,
    pub(crate) boost_interval: Option<Duration>,
}

impl ClaimTerms {
    /// The request for as many jobs as there is room for. A node that stops asks for none, or it would claim again the
    /// jobs that it hands back by the same call.
    fn request(&self, owner: &Owner) -> ClaimRequest {
        let room = match self.draining.has_begun() {
            true => Vec::new(),
            false => self.slots.room(self.batch_size, self.first),
        };
        let mut request = ClaimRequest::of_queues(owner.clone(), room);
        request.boost_interval = self.boost_interval;
        request
    }
}

enum Answer {
    Verdict(StoreResult<Verdict>),
    Claims(ClaimRequest, StoreResult<Vec<JobClaim>>),
}

impl CommitClaim {
    pub(crate) fn new(store: &Arc<dyn JobStore>, lease: &Arc<Lease>) -> Self {
        let recorded = Arc::<AtomicU64>::default();
        let line =
            Line { store: Arc::clone(store), lease: Arc::clone(lease), recorded: Arc::clone(&recorded) };
        Self { calls: Coalescer::new(MAX_BATCH, LANES, line, exchange), recorded }
    }

    /// How many outcomes the store has taken so far.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Records an outcome.
    ///
    /// # Errors
    /// If the store fails. The outcome may be recorded nevertheless; sending it again does no harm.
    pub(crate) async fn commit(&self, offer: Offer) -> StoreResult<Verdict> {
        match self.calls.send(Item::Outcome(Box::new(offer))).await? {
            Answer::Verdict(verdict) => verdict,
            Answer::Claims(..) => Err(unanswered("commit")),
        }
    }

    /// Claims jobs. Also returns the request.
    ///
    /// # Errors
    /// If the store fails. Jobs may be claimed nevertheless.
    pub(crate) async fn claim(&self, terms: ClaimTerms) -> StoreResult<(ClaimRequest, Vec<JobClaim>)> {
        // Urgent: slots may be idle.
        match self.calls.send_urgent(Item::Claim(Box::new(terms))).await? {
            Answer::Claims(request, claims) => Ok((request, claims?)),
            Answer::Verdict(_) => Err(unanswered("claim")),
        }
    }
}

fn unanswered(op: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Transient, op, "the call ended without an answer for this item")
}

async fn exchange(line: Line, items: Vec<Item>) -> StoreResult<Vec<Answer>> {
    // Checked here, and not only by the sender: the item may have waited for other calls, or the process may have been
    // frozen.
    if !line.lease.holds() {
        return Err(StoreError::new(StoreErrorKind::Other, "commit", "the lease of this node is lost"));
    }
    let (mut together, mut alone, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    // Where the answer to each item comes from.
    let sources: Vec<Source> = items
        .into_iter()
        .map(|item| match item {
            Item::Outcome(offer) => {
                let (source, outcomes) = match offer.alone {
                    true => (Source::Alone, &mut alone),
                    false => (Source::Together, &mut together),
                };
                outcomes.push(offer.outcome);
                source
            }
            Item::Claim(terms) => {
                let request = terms.request(line.owner());
                requests.push(request.clone());
                Source::Claim(request)
            }
        })
        .collect();
    let (together, claims) = line.call(&together, requests.first()).await;
    let mut together = together.into_iter();
    let mut singles = Vec::with_capacity(alone.len());
    for outcome in alone {
        singles.extend(line.commit(&[outcome]).await);
    }
    let (mut singles, mut claims) = (singles.into_iter(), claims.into_iter());
    let missing = || Err(unanswered("commit"));
    let answer = |source| match source {
        Source::Together => Answer::Verdict(together.next().unwrap_or_else(missing)),
        Source::Alone => Answer::Verdict(singles.next().unwrap_or_else(missing)),
        // A node has one poller, which waits for its answer.
        Source::Claim(request) => Answer::Claims(request, claims.next().unwrap_or_else(|| Ok(Vec::new()))),
    };
    Ok(sources.into_iter().map(answer).collect())
}

enum Source {
    Together,
    Alone,
    Claim(ClaimRequest),
}

/// The answer to each outcome.
type Verdicts = Vec<StoreResult<Verdict>>;

impl Line {
    /// Records outcomes and claims jobs, by one call if possible.
    async fn call(
        &self,
        outcomes: &[Outcome],
        request: Option<&ClaimRequest>,
    ) -> (Verdicts, Option<StoreResult<Vec<JobClaim>>>) {
        let Some(request) = request.filter(|request| !request.queues.is_empty()) else {
            return (self.commit(outcomes).await, None);
        };
        if outcomes.is_empty() {
            return (Vec::new(), Some(self.store.claim(request).await));
        }
        match self.store.commit_and_claim(self.owner(), outcomes, request).await {
            Ok((verdicts, claims)) => (self.taken(verdicts), Some(Ok(claims))),
            Err(error) if error.is_transient() => {
                (vec![Err(error.clone()); outcomes.len()], Some(Err(error)))
            }
            // Either may be at fault, and an outcome must not be given up for the sake of a claim.
            Err(_) => (self.commit(outcomes).await, Some(self.store.claim(request).await)),
        }
    }

    /// Records outcomes. A refused batch is split until the outcome at fault stands alone, so that its neighbours are
    /// recorded.
    async fn commit(&self, outcomes: &[Outcome]) -> Verdicts {
        let mut verdicts = Vec::with_capacity(outcomes.len());
        // A stack: the next part is last.
        let mut parts = vec![outcomes];
        let (mut recorded, mut failed) = (false, 0);
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            let error = match self.store.commit(self.owner(), part).await {
                Ok(answers) => {
                    verdicts.extend(self.taken(answers));
                    recorded = true;
                    continue;
                }
                Err(error) => error,
            };
            if part.len() > 1 && !error.is_transient() {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
                continue;
            }
            verdicts.extend(part.iter().map(|_| Err(error.clone())));
            failed += u32::from(error.kind() != StoreErrorKind::RefusedContent);
            if error.is_transient() || failed >= ENOUGH_PROBES && !recorded {
                let rest = parts.iter().map(|part| part.len()).sum();
                verdicts.extend(std::iter::repeat_n(Err(error), rest));
                break;
            }
        }
        verdicts
    }

    fn taken(&self, verdicts: Vec<Verdict>) -> Verdicts {
        let settled = verdicts.iter().filter(|verdict| verdict.is_settled()).count();
        self.recorded.fetch_add(settled as u64, Ordering::Relaxed);
        verdicts.into_iter().map(Ok).collect()
    }

    fn owner(&self) -> &Owner {
        self.lease.owner()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use ratchet_api::options::QueueOptions;
    use ratchet_api::store::{CancelVerdict, JobClaimStore, JobTerminalStore, Target};
    use ratchet_api::{End, Fence, JobId, QueueName, Sanitized};
    use ratchet_store_memory::MemoryStore;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::coordinator::rate_limit::RateClock;
    use crate::drain::{Drain, Readiness};

    /// A store that records its calls, each of which needs a permit, and gives trivial answers.
    struct Noting {
        inner: MemoryStore,
        calls: Mutex<Vec<String>>,
        gate: Semaphore,
        /// The failure of calls that commit and claim.
        both_fail: Option<StoreErrorKind>,
        /// The failure of calls with an outcome of this job, or with any outcome if it is `None`.
        commit_fails: Mutex<Option<(Option<JobId>, StoreErrorKind)>>,
    }

    impl Noting {
        fn new(permits: usize, both_fail: Option<StoreErrorKind>) -> Arc<Self> {
            let (inner, calls) = (MemoryStore::new(), Mutex::default());
            let gate = Semaphore::new(permits);
            Arc::new(Self { inner, calls, gate, both_fail, commit_fails: Mutex::default() })
        }

        async fn note(&self, call: String) {
            self.calls.lock().unwrap().push(call);
            self.gate.acquire().await.unwrap().forget();
        }

        async fn until(&self, calls: usize) {
            while self.calls.lock().unwrap().len() < calls {
                tokio::task::yield_now().await;
            }
        }
    }

    #[async_trait]
    impl JobTerminalStore for Noting {
        async fn commit(&self, _: &Owner, outcomes: &[Outcome]) -> StoreResult<Vec<Verdict>> {
            self.note(format!("commit {}", outcomes.len())).await;
            let fails = *self.commit_fails.lock().unwrap();
            if let Some((at_fault, kind)) = fails
                && at_fault.is_none_or(|id| outcomes.iter().any(|outcome| outcome.id == id))
            {
                return Err(StoreError::new(kind, "commit", "as told"));
            }
            Ok(vec![Verdict::AlreadyRecorded; outcomes.len()])
        }
        async fn cancel(&self, _: &[Target], _: &Sanitized) -> StoreResult<Vec<CancelVerdict>> {
            Ok(Vec::new())
        }
    }

    #[async_trait]
    impl JobClaimStore for Noting {
        async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<JobClaim>> {
            self.note(format!("claim {}", request.queues[0].limit)).await;
            Err(StoreError::new(StoreErrorKind::Other, "claim", "no claims here"))
        }
        async fn owned(&self, _: &Owner) -> StoreResult<Vec<JobClaim>> {
            Ok(Vec::new())
        }
        async fn commit_and_claim(
            &self,
            _: &Owner,
            outcomes: &[Outcome],
            request: &ClaimRequest,
        ) -> StoreResult<(Vec<Verdict>, Vec<JobClaim>)> {
            self.note(format!("commit {} and claim {}", outcomes.len(), request.queues[0].limit)).await;
            match self.both_fail {
                Some(kind) => Err(StoreError::new(kind, "commit_and_claim", "as told")),
                None => Ok((vec![Verdict::LeaseLost; outcomes.len()], Vec::new())),
            }
        }
    }

    ratchet_api::delegate_store!(Noting => inner:
        StoreInfo, JobCrudStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, JobBulkStore, BatchStore, LockStore,
        NodeStore, ArchiveStore, ExecutionStore, JobLogStore, TagStore, WorkflowConditionStore, BatchMetricsStore,
        DlqAlertStore, ResourcePermitStore, RecurringStore, JobQueryStore);

    fn owner() -> Owner {
        Owner::incarnate("test")
    }

    fn outcome() -> Outcome {
        Outcome::new(JobId::generate(), Fence::FIRST, End::Succeeded { result: None })
    }

    /// The slots of the default queue.
    fn slots(count: u32) -> Slots {
        let options = QueueOptions { slots: count, ..QueueOptions::default() };
        let clock: RateClock = Arc::new(tokio::time::Instant::now);
        Slots::new([(QueueName::default(), options)], 0.0, &clock)
    }

    fn terms(slots: &Slots, drain: &Drain) -> ClaimTerms {
        let (slots, draining) = (slots.clone(), drain.watch());
        ClaimTerms { slots, draining, batch_size: 100, first: 0, boost_interval: None }
    }

    fn offer() -> Offer {
        Offer { outcome: outcome(), alone: false }
    }

    /// Eight outcomes in one call, of which the sixth, or all, fail like this. Also returns the calls and how many were
    /// recorded.
    async fn eight(kind: StoreErrorKind, all: bool) -> (Vec<bool>, Vec<String>, u64) {
        let store = Noting::new(100, None);
        let exchange = exchange(&store);
        let offers: Vec<_> = (0..8).map(|_| offer()).collect();
        *store.commit_fails.lock().unwrap() = Some(((!all).then(|| offers[5].outcome.id), kind));
        let answers = futures::future::join_all(offers.into_iter().map(|offer| exchange.commit(offer))).await;
        let calls = store.calls.lock().unwrap().clone();
        (answers.iter().map(Result::is_ok).collect(), calls, exchange.recorded())
    }

    #[tokio::test]
    async fn a_refused_batch_is_split_until_the_one_at_fault_stands_alone() {
        for kind in [StoreErrorKind::RefusedContent, StoreErrorKind::Other] {
            let (answers, calls, recorded) = eight(kind, false).await;
            assert_eq!(answers, [true, true, true, true, true, false, true, true]);
            let split = [8, 4, 4, 2, 1, 1, 2].map(|size| format!("commit {size}"));
            assert_eq!((calls.as_slice(), recorded), (split.as_slice(), 7));
        }
    }

    #[tokio::test]
    async fn trouble_of_the_store_itself_is_not_looked_for_in_every_outcome() {
        let (answers, calls, recorded) = eight(StoreErrorKind::Other, true).await;
        assert_eq!((answers, recorded), (vec![false; 8], 0));
        assert_eq!(calls, [8, 4, 2, 1, 1].map(|size| format!("commit {size}")));
        let (answers, calls, _) = eight(StoreErrorKind::Transient, true).await;
        assert_eq!((answers, calls), (vec![false; 8], vec!["commit 8".to_owned()]));
        let (_, calls, _) = eight(StoreErrorKind::RefusedContent, true).await;
        assert_eq!(calls.len(), 15, "each may be at fault");
    }

    #[tokio::test]
    async fn an_outcome_that_was_refused_before_goes_alone() {
        let store = Noting::new(10, None);
        let exchange = exchange(&store);
        let suspect = Offer { alone: true, ..offer() };
        let (one, two, three) =
            tokio::join!(exchange.commit(offer()), exchange.commit(suspect), exchange.commit(offer()));
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        assert_eq!(*store.calls.lock().unwrap(), ["commit 2", "commit 1"]);
    }

    fn exchange(store: &Arc<Noting>) -> CommitClaim {
        exchange_under(store, Lease::endless(owner()))
    }

    fn exchange_under(store: &Arc<Noting>, lease: Lease) -> CommitClaim {
        let store: Arc<dyn JobStore> = Arc::clone(store) as _;
        CommitClaim::new(&store, &Arc::new(lease))
    }

    #[tokio::test]
    async fn outcomes_and_a_claim_that_wait_together_share_a_call_which_asks_for_what_is_free_by_then() {
        let store = Noting::new(0, None);
        let (exchange, drain) = (exchange(&store), Drain::default());
        let slots = slots(7);
        let mut tickets: Vec<_> = (0..6).filter_map(|_| slots.take(&QueueName::default())).collect();
        let commit = |exchange: &CommitClaim| {
            tokio::spawn({
                let exchange = exchange.clone();
                async move { exchange.commit(offer()).await }
            })
        };
        let mut early = Vec::new();
        for calls in 1..=LANES {
            early.push(commit(&exchange));
            store.until(calls).await;
        }
        let late = [commit(&exchange), commit(&exchange)];
        let claim = tokio::spawn({
            let (exchange, terms) = (exchange.clone(), terms(&slots, &drain));
            async move { exchange.claim(terms).await }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        tickets.clear();
        store.gate.add_permits(LANES + 1);
        for early in early {
            assert_eq!(early.await.unwrap().unwrap(), Verdict::AlreadyRecorded);
        }
        for late in late {
            assert_eq!(late.await.unwrap().unwrap(), Verdict::LeaseLost);
        }
        assert_eq!(claim.await.unwrap().unwrap().0.queues[0].limit, 7);
        assert_eq!(*store.calls.lock().unwrap(), ["commit 1", "commit 1", "commit 2 and claim 7"]);
    }

    /// An outcome and a claim in one call.
    async fn both(store: &Arc<Noting>) -> (StoreResult<Verdict>, StoreResult<(ClaimRequest, Vec<JobClaim>)>) {
        let exchange = exchange(store);
        tokio::join!(exchange.commit(offer()), exchange.claim(terms(&slots(1), &Drain::default())))
    }

    #[tokio::test]
    async fn a_lost_reply_leaves_both_unsure() {
        let store = Noting::new(10, Some(StoreErrorKind::Transient));
        let (committed, claimed) = both(&store).await;
        assert!(committed.unwrap_err().is_transient() && claimed.unwrap_err().is_transient());
        assert_eq!(*store.calls.lock().unwrap(), ["commit 1 and claim 1"]);
    }

    #[tokio::test]
    async fn a_claim_that_cannot_be_made_gives_no_outcome_up() {
        let store = Noting::new(10, Some(StoreErrorKind::Other));
        let (committed, claimed) = both(&store).await;
        assert_eq!(committed.unwrap(), Verdict::AlreadyRecorded);
        assert!(claimed.is_err());
        assert_eq!(*store.calls.lock().unwrap(), ["commit 1 and claim 1", "commit 1", "claim 1"]);
    }

    #[tokio::test]
    async fn whoever_has_no_room_claims_nothing() {
        let store = Noting::new(0, None);
        let slots = slots(1);
        let _ticket = slots.take(&QueueName::default());
        let (_, claims) = exchange(&store).claim(terms(&slots, &Drain::default())).await.unwrap();
        assert!(claims.is_empty() && store.calls.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_node_that_begins_to_stop_while_its_claim_waits_asks_for_nothing() {
        let (store, drain) = (Noting::new(0, None), Drain::default());
        let terms = terms(&slots(5), &drain);
        drain.advance(Readiness::Draining);
        let (request, claims) = exchange(&store).claim(terms).await.unwrap();
        assert!(request.queues.is_empty() && claims.is_empty());
        assert!(store.calls.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn whoever_has_lost_its_lease_sends_nothing() {
        let store = Noting::new(10, None);
        let lease = Lease::endless(owner());
        lease.lose("told so");
        let exchange = exchange_under(&store, lease);
        let error = exchange.commit(offer()).await.unwrap_err();
        assert!(!error.is_transient(), "there is no use in trying again");
        assert!(exchange.claim(terms(&slots(1), &Drain::default())).await.is_err());
        assert!(store.calls.lock().unwrap().is_empty());
    }
}
