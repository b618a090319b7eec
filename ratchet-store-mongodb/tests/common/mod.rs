//! Shared by the tests of this store: a database of their own, and the commands that the store sends to it.

#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::{Document, Uuid};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Collection, Database};
use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::store::{
    ClaimRequest, JobBulkStore as _, JobClaimStore as _, JobTerminalStore as _, NodeStore as _,
};
use ratchet_api::{
    End, ErrorRecord, Inserted, JobClaim, JobFailure, JobId, JobPayload, JsonText, NewJob, NodeInfo, Outcome,
    Owner, Sanitized, StoreClock, Submission, Verdict,
};
use ratchet_servers::Server;
use ratchet_store_mongodb::{MongoOptions, MongoStore};

/// Longer than any test.
pub(crate) const LEASE: Duration = Duration::from_secs(3600);

/// A database of its own with a node in it, dropped at the end of a test that passed.
pub(crate) struct TestDatabase {
    pub(crate) database: Database,
    pub(crate) store: MongoStore,
    pub(crate) owner: Owner,
    sent: Arc<Mutex<Vec<Document>>>,
}

pub(crate) fn url() -> String {
    ratchet_servers::url(Server::Mongodb).unwrap_or_else(|error| panic!("{error}"))
}

impl TestDatabase {
    pub(crate) async fn open(clock: StoreClock) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ratchet_own_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let database = Client::with_uri_str(url()).await.expect("the address is one").database(&name);
        let sent: Arc<Mutex<Vec<Document>>> = Arc::default();
        let heard = Arc::clone(&sent);
        let mut client = ClientOptions::parse(url()).await.expect("the address is one");
        client.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                heard.lock().expect("no holder panics").push(started.command);
            }
        }));
        let options = MongoOptions::default().database(name).clock(clock);
        let store = MongoStore::from_options(client, options).await.expect("the store opens");
        let owner = Owner::incarnate("test");
        store.join(&NodeInfo::new(owner.clone()), LEASE).await.expect("a node joins");
        Self { database, store, owner, sent }
    }

    pub(crate) async fn close(self) {
        self.database.drop().await.expect("the database goes");
    }

    pub(crate) fn jobs(&self) -> Collection<Document> {
        self.database.collection("scheduler_job")
    }

    /// Runs `work` and returns the commands that the store sent meanwhile.
    pub(crate) async fn sent_by<T>(&self, work: impl Future<Output = T>) -> (T, Vec<Document>) {
        self.sent.lock().expect("no holder panics").clear();
        let done = work.await;
        (done, std::mem::take(&mut *self.sent.lock().expect("no holder panics")))
    }

    /// Stores these jobs, each on its own; returns their ids.
    pub(crate) async fn insert(&self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let ids = jobs.iter().map(|job| job.spec.id).collect();
        let submissions: Vec<_> = jobs.into_iter().map(Submission::single).collect();
        for answers in submissions.chunks(1_000) {
            let answers = self.store.insert(answers).await.expect("insert answers");
            assert!(answers.iter().all(|answer| *answer == Inserted::New));
        }
        ids
    }

    pub(crate) async fn claim(&self, limit: usize) -> Vec<JobClaim> {
        self.store.claim(&ClaimRequest::new(self.owner.clone(), limit)).await.expect("claim answers")
    }

    pub(crate) async fn commit(&self, outcome: Outcome) -> Verdict {
        self.store.commit(&self.owner, &[outcome]).await.expect("commit answers").remove(0)
    }
}

pub(crate) fn job() -> NewJob {
    let args = JsonText::parse("[]").expect("this is JSON");
    NewJob::new(JobPayload::new("test.Service", "run", &args).expect("these are names"))
}

pub(crate) fn job_with(change: impl FnOnce(&mut NewJob)) -> NewJob {
    let mut job = job();
    change(&mut job);
    job
}

pub(crate) fn succeeded(claim: &JobClaim) -> Outcome {
    Outcome::new(claim.id, claim.fence, End::Succeeded { result: None })
}

pub(crate) fn error(message: &str) -> ErrorRecord {
    struct Verbatim;
    impl ErrorSanitizer for Verbatim {
        fn sanitize(&self, failure: &JobFailure) -> String {
            failure.message().to_owned()
        }
    }
    let text = |text: &str| Sanitized::new(&Verbatim, &JobFailure::new("", text));
    ErrorRecord::new("test.Service", text("TestError"), text(message))
}

/// The id of a job as the store writes it.
pub(crate) fn uuid(job: JobId) -> Uuid {
    Uuid::from_bytes(job.as_uuid().into_bytes())
}
