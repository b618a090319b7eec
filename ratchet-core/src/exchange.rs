//! Outcomes out and jobs in: by one call to the store where they meet, which is one transaction and one wait for the disk.

use std::sync::Arc;

use ratchet_api::store::{ClaimRequest, JobStore};
use ratchet_api::{JobClaim, Outcome, Owner, StoreError, StoreErrorKind, StoreResult, Verdict};

use crate::cluster::lease::Lease;
use crate::coalesce::Coalescer;

/// The most items in one call.
const MOST: usize = 1_000;

/// The most calls at once. More buy nothing on any database that was measured.
const LANES: usize = 2;

/// Puts outcomes together, and claims with them.
#[derive(Clone)]
pub(crate) struct Exchange(Coalescer<Item, Answer>);

enum Item {
    Outcome(Box<Outcome>),
    /// What is wanted by the time of the call.
    Claim(Box<dyn FnOnce() -> ClaimRequest + Send>),
}

enum Answer {
    Verdict(Option<Verdict>),
    Claims(ClaimRequest, StoreResult<Vec<JobClaim>>),
}

impl Exchange {
    pub(crate) fn new(store: &Arc<dyn JobStore>, lease: &Arc<Lease>) -> Self {
        Self(Coalescer::new(MOST, LANES, (Arc::clone(store), Arc::clone(lease)), exchange))
    }

    /// Records an outcome.
    ///
    /// # Errors
    /// If the store fails. It may be recorded all the same; sent again it does no harm.
    pub(crate) async fn commit(&self, outcome: Outcome) -> StoreResult<Verdict> {
        match self.0.send(Item::Outcome(Box::new(outcome))).await? {
            Answer::Verdict(Some(verdict)) => Ok(verdict),
            _ => Err(StoreError::new(StoreErrorKind::Transient, "commit", "an outcome got no verdict")),
        }
    }

    /// Claims what `wanted` asks for when the call is made: what becomes free while other calls are under way is asked for
    /// too. Answers also what that was.
    ///
    /// # Errors
    /// If the store fails. Jobs may be claimed all the same.
    pub(crate) async fn claim(
        &self,
        wanted: impl FnOnce() -> ClaimRequest + Send + 'static,
    ) -> StoreResult<(ClaimRequest, Vec<JobClaim>)> {
        // Slots may be idle.
        match self.0.send_urgent(Item::Claim(Box::new(wanted))).await? {
            Answer::Claims(request, claims) => Ok((request, claims?)),
            Answer::Verdict(_) => {
                Err(StoreError::new(StoreErrorKind::Transient, "claim", "a claim got no answer"))
            }
        }
    }
}

async fn exchange(
    (store, lease): (Arc<dyn JobStore>, Arc<Lease>),
    items: Vec<Item>,
) -> StoreResult<Vec<Answer>> {
    // Here, and not only where it is sent from: it may have waited for other calls, or the whole process for its turn.
    if !lease.holds() {
        return Err(StoreError::new(StoreErrorKind::Other, "commit", "the lease of this node is lost"));
    }
    let (mut outcomes, mut requests, mut answers) = (Vec::new(), Vec::new(), Vec::with_capacity(items.len()));
    for item in items {
        match item {
            Item::Outcome(outcome) => {
                outcomes.push(*outcome);
                answers.push(None);
            }
            Item::Claim(wanted) => {
                let request = wanted();
                requests.push(request.clone());
                answers.push(Some(request));
            }
        }
    }
    let (verdicts, claims) = call(&*store, lease.owner(), &outcomes, requests.first()).await?;
    let (mut verdicts, mut claims) = (verdicts.into_iter(), claims.into_iter());
    let answer = |request: Option<ClaimRequest>| match request {
        None => Answer::Verdict(verdicts.next()),
        // A node has one poller, which waits for its answer.
        Some(request) => Answer::Claims(request, claims.next().unwrap_or_else(|| Ok(Vec::new()))),
    };
    Ok(answers.into_iter().map(answer).collect())
}

/// One call, if it can be.
async fn call(
    store: &dyn JobStore,
    owner: &Owner,
    outcomes: &[Outcome],
    request: Option<&ClaimRequest>,
) -> StoreResult<(Vec<Verdict>, Option<StoreResult<Vec<JobClaim>>>)> {
    let Some(request) = request.filter(|request| !request.queues.is_empty()) else {
        let verdicts = if outcomes.is_empty() { Vec::new() } else { store.commit(owner, outcomes).await? };
        return Ok((verdicts, None));
    };
    if outcomes.is_empty() {
        return Ok((Vec::new(), Some(store.claim(request).await)));
    }
    match store.commit_and_claim(owner, outcomes, request).await {
        Ok((verdicts, claims)) => Ok((verdicts, Some(Ok(claims)))),
        Err(error) if error.is_transient() => Err(error),
        // Whose fault it is cannot be told, and an outcome must not be given up for the sake of a claim.
        Err(_) => Ok((store.commit(owner, outcomes).await?, Some(store.claim(request).await))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use ratchet_api::store::{CancelVerdict, JobClaimStore, JobTerminalStore, Target};
    use ratchet_api::{End, Fence, JobId, Sanitized};
    use ratchet_store_memory::MemoryStore;
    use tokio::sync::Semaphore;

    use super::*;

    /// Notes the calls, each of which needs a permit, and answers them with nothing much.
    struct Noting {
        inner: MemoryStore,
        calls: Mutex<Vec<String>>,
        gate: Semaphore,
        /// How calls fail that commit and claim.
        both_fail: Option<StoreErrorKind>,
    }

    impl Noting {
        fn new(permits: usize, both_fail: Option<StoreErrorKind>) -> Arc<Self> {
            let (inner, calls) = (MemoryStore::new(), Mutex::default());
            Arc::new(Self { inner, calls, gate: Semaphore::new(permits), both_fail })
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

    fn exchange(store: &Arc<Noting>) -> Exchange {
        exchange_under(store, Lease::endless(owner()))
    }

    fn exchange_under(store: &Arc<Noting>, lease: Lease) -> Exchange {
        let store: Arc<dyn JobStore> = Arc::clone(store) as _;
        Exchange::new(&store, &Arc::new(lease))
    }

    #[tokio::test]
    async fn outcomes_and_a_claim_that_wait_together_share_a_call_which_asks_for_what_is_free_by_then() {
        let store = Noting::new(0, None);
        let (exchange, free) = (exchange(&store), Arc::new(AtomicUsize::new(1)));
        let commit = |exchange: &Exchange| {
            tokio::spawn({
                let exchange = exchange.clone();
                async move { exchange.commit(outcome()).await }
            })
        };
        let mut early = Vec::new();
        for calls in 1..=LANES {
            early.push(commit(&exchange));
            store.until(calls).await;
        }
        let late = [commit(&exchange), commit(&exchange)];
        let claim = tokio::spawn({
            let (exchange, free) = (exchange.clone(), Arc::clone(&free));
            async move { exchange.claim(move || ClaimRequest::new(owner(), free.load(Ordering::SeqCst))).await }
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        free.store(7, Ordering::SeqCst);
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
        tokio::join!(exchange.commit(outcome()), exchange.claim(|| ClaimRequest::new(owner(), 1)))
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
        let nothing = || ClaimRequest::of_queues(owner(), Vec::new());
        let (_, claims) = exchange(&store).claim(nothing).await.unwrap();
        assert!(claims.is_empty() && store.calls.lock().unwrap().is_empty());
    }
    #[tokio::test]
    async fn whoever_has_lost_its_lease_sends_nothing() {
        let store = Noting::new(10, None);
        let lease = Lease::endless(owner());
        lease.lose("told so");
        let exchange = exchange_under(&store, lease);
        let error = exchange.commit(outcome()).await.unwrap_err();
        assert!(!error.is_transient(), "there is no use in trying again");
        assert!(exchange.claim(|| ClaimRequest::new(owner(), 1)).await.is_err());
        assert!(store.calls.lock().unwrap().is_empty());
    }
}
