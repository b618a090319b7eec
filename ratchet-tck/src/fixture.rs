//! The environment of a case: connections, a clock, nodes, and jobs in any state.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::store::{JobClaimStore, JobStore};
use ratchet_api::{
    ErrorRecord, Inserted, Job, JobClaim, JobFailure, JobId, JobPayload, JobStatus, JsonText, ManualClock,
    NewJob, NodeInfo, Outcome, Owner, Sanitized, StoreClock, Submission, Timestamp, Verdict,
};
use tokio::sync::Barrier;

use crate::{Namespace, Spoil, StoreHarness};

/// The environment of one case. Clones share it.
#[derive(Clone)]
pub struct Fixture {
    harness: Arc<dyn StoreHarness>,
    namespace: Arc<Mutex<Option<Arc<Namespace>>>>,
    clock: ManualClock,
}

/// A node: a connection of its own and a running lease.
#[derive(Clone)]
pub struct Peer {
    /// Its connection.
    pub store: Arc<dyn JobStore>,
    /// Its identity.
    pub owner: Owner,
}

impl Fixture {
    /// A lease longer than any case.
    pub const LONG: Duration = Duration::from_secs(10_000 * 24 * 3600);

    pub(crate) fn new(harness: Arc<dyn StoreHarness>, namespace: Namespace) -> Self {
        let namespace = Arc::new(Mutex::new(Some(Arc::new(namespace))));
        Self { harness, namespace, clock: ManualClock::default() }
    }

    fn namespace(&self) -> Arc<Namespace> {
        self.namespace
            .lock()
            .expect("no case panics while it holds the lock")
            .clone()
            .expect("the case is running")
    }

    pub(crate) async fn close(self) {
        let namespace = self.namespace.lock().expect("no case panics while it holds the lock").take();
        if let Some(namespace) = namespace.and_then(Arc::into_inner) {
            namespace.close().await;
        }
    }

    /// Returns the clock of every connection of this case.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Returns the time on that clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Opens one more connection.
    pub async fn connect(&self) -> Arc<dyn JobStore> {
        self.connect_by(StoreClock::Manual(self.clock.clone())).await
    }

    /// Opens one more connection that decides by this clock.
    pub async fn connect_by(&self, clock: StoreClock) -> Arc<dyn JobStore> {
        self.harness.connect(&self.namespace(), clock).await.expect("the harness connects")
    }

    /// Starts a node on a connection of its own, with a lease longer than the case.
    pub async fn node(&self, label: &str) -> Peer {
        self.node_with_lease(label, Self::LONG).await
    }

    /// Starts a node on a connection of its own.
    pub async fn node_with_lease(&self, label: &str, lease: Duration) -> Peer {
        let peer = Peer { store: self.connect().await, owner: Owner::incarnate(label) };
        peer.store.join(&NodeInfo::new(peer.owner.clone()), lease).await.expect("a node joins");
        peer
    }

    /// Starts a node that lists these methods.
    pub async fn node_that_knows(&self, label: &str, methods: &[&str]) -> Peer {
        let peer = Peer { store: self.connect().await, owner: Owner::incarnate(label) };
        let mut info = NodeInfo::new(peer.owner.clone());
        info.methods = methods.iter().map(ToString::to_string).collect();
        peer.store.join(&info, Self::LONG).await.expect("a node joins");
        peer
    }

    /// Damages a stored row behind the store's back; returns `false` if this harness cannot.
    pub async fn spoil(&self, job: JobId, how: Spoil) -> bool {
        match self.namespace().spoiler() {
            Some(spoil) => {
                spoil(job, how).await.expect("the harness spoils the row");
                true
            }
            None => false,
        }
    }

    /// Runs `contender` on `count` tasks that start together, and returns what each returned.
    pub async fn race<T, F>(&self, count: usize, contender: impl Fn(usize) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let barrier = Arc::new(Barrier::new(count));
        let tasks = (0..count).map(|i| {
            let (barrier, contender) = (Arc::clone(&barrier), contender(i));
            tokio::spawn(async move {
                barrier.wait().await;
                contender.await
            })
        });
        join_all(tasks).await.into_iter().map(|task| task.expect("no contender panics")).collect()
    }
}

impl Peer {
    /// Stores one job that must be new.
    pub async fn insert(&self, job: NewJob) -> JobId {
        let id = job.spec.id;
        assert_eq!(self.submit(Submission::single(job)).await, Inserted::New);
        id
    }

    /// Stores one submission.
    pub async fn submit(&self, submission: Submission) -> Inserted {
        let mut inserted = self.store.insert(&[submission]).await.expect("insert answers");
        assert_eq!(inserted.len(), 1, "one verdict for one submission");
        inserted.remove(0)
    }

    /// Reads a job that must exist.
    pub async fn job(&self, id: JobId) -> Job {
        self.find(id).await.unwrap_or_else(|| panic!("job {id} exists"))
    }

    /// Reads a job.
    pub async fn find(&self, id: JobId) -> Option<Job> {
        let mut found = self.store.find(&[id]).await.expect("find answers");
        assert_eq!(found.len(), 1, "one answer for one id");
        found.remove(0)
    }

    /// Returns the status of a job.
    pub async fn status(&self, id: JobId) -> JobStatus {
        self.job(id).await.status
    }

    /// Claims up to `limit` jobs of the default queue.
    pub async fn claim(&self, limit: usize) -> Vec<JobClaim> {
        let request = ratchet_api::store::ClaimRequest::new(self.owner.clone(), limit);
        self.store.claim(&request).await.expect("claim answers")
    }

    /// Claims one job of the default queue, which must be there.
    pub async fn claim_one(&self) -> JobClaim {
        self.claim(1).await.pop().expect("a job is due")
    }

    /// Stores a job and claims it.
    pub async fn running(&self, job: NewJob) -> JobClaim {
        let id = self.insert(job).await;
        self.take(id).await
    }

    /// Claims this very job, which must be claimable.
    pub async fn take(&self, id: JobId) -> JobClaim {
        let mut claims = self.store.pick_up(&self.owner, &[id]).await.expect("pick-up answers");
        assert_eq!(claims.len(), 1, "job {id} can be taken");
        claims.remove(0)
    }

    /// Commits one outcome.
    pub async fn commit(&self, outcome: Outcome) -> Verdict {
        let mut verdicts = self.store.commit(&self.owner, &[outcome]).await.expect("commit answers");
        assert_eq!(verdicts.len(), 1, "one verdict for one outcome");
        verdicts.remove(0)
    }

    /// Ends a claimed job like this, without run and effects; the outcome must be recorded.
    pub async fn end(&self, claim: &JobClaim, end: ratchet_api::End) {
        let verdict = self.commit(Outcome::new(claim.id, claim.fence, end)).await;
        assert!(matches!(verdict, Verdict::Recorded(_)), "{verdict:?}");
    }

    /// Returns its connection, limited to claiming.
    pub fn claims(&self) -> Arc<dyn JobClaimStore> {
        Arc::clone(&self.store) as Arc<dyn JobClaimStore>
    }
}

/// Makes an ordinary call.
pub fn payload() -> JobPayload {
    call("[]")
}

/// Makes a call with these arguments.
pub fn call(args: &str) -> JobPayload {
    let args = JsonText::parse(args).expect("the arguments are JSON");
    JobPayload::new("tck.Service", "run", &args).expect("the names are valid")
}

/// Makes an ordinary job, due at once.
pub fn job() -> NewJob {
    NewJob::new(payload())
}

/// Makes an ordinary job with something changed.
pub fn job_with(change: impl FnOnce(&mut NewJob)) -> NewJob {
    let mut new = job();
    change(&mut new);
    new
}

/// Wraps text as if a sanitizer had let it pass.
pub fn text(text: &str) -> Sanitized {
    struct Verbatim;
    impl ErrorSanitizer for Verbatim {
        fn sanitize(&self, failure: &JobFailure) -> String {
            failure.message().to_owned()
        }
    }
    Sanitized::new(&Verbatim, &JobFailure::new("", text))
}

/// Makes an error record with this message.
pub fn error(message: &str) -> ErrorRecord {
    ErrorRecord::new("tck.Service", text("TestError"), text(message))
}

/// Boxes a future, for tables of steps.
pub fn boxed<T>(future: impl Future<Output = T> + Send + 'static) -> BoxFuture<'static, T> {
    Box::pin(future)
}
