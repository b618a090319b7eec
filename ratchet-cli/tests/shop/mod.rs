//! A store with jobs in every state.

#![allow(dead_code, unused_imports, reason = "each file of tests needs its part")]

mod place;

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::store::{JobStore, JobStoreExt as _, PermitRequest, ProgressReport};
use ratchet_api::{
    BusinessKey, Condition, Edge, End, ErrorRecord, Fence, IdempotencyKey, Inserted, JobClaim, JobFailure,
    JobId, JobPayload, JobType, JsonText, LogLevel, NewDlqAlert, NewJob, NewLogLine, NodeInfo, Outcome,
    Owner, ParkedOn, QueueName, ResourceName, Sanitized, Submission, Tag, Verdict,
};
use ratchet_core::defaults::DefaultErrorSanitizer;
use sqlx::{Connection as _, SqliteConnection};

use crate::program::Target;
pub(crate) use place::{Damage, TestStore, on_every_store};

/// A temporary store, and a node that works on it.
pub(crate) struct Shop {
    pub(crate) place: TestStore,
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) owner: Owner,
}

impl<'a> From<&'a TestStore> for Target<'a> {
    fn from(place: &'a TestStore) -> Self {
        Self { url: place.url(), schema: place.name() }
    }
}

impl<'a> From<&'a Shop> for Target<'a> {
    fn from(shop: &'a Shop) -> Self {
        (&shop.place).into()
    }
}

impl Shop {
    pub(crate) async fn on_sqlite() -> Self {
        Self::open(TestStore::file()).await
    }

    #[cfg(feature = "postgres")]
    pub(crate) async fn on_postgres() -> Self {
        Self::open(TestStore::schema()).await
    }

    #[cfg(feature = "mongodb")]
    pub(crate) async fn on_mongodb() -> Self {
        Self::open(TestStore::database()).await
    }

    async fn open(place: TestStore) -> Self {
        let store = place.open().await;
        let owner = Owner::incarnate("baker");
        store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(3_600)).await.unwrap();
        Self { place, store, owner }
    }

    /// Removes the store after a test that passed.
    pub(crate) async fn close(self) {
        drop(self.store);
        self.place.remove().await;
    }

    /// A job that waits in a queue.
    pub(crate) async fn pending(&self, queue: &str) -> JobId {
        let mut job = call("shop.Till");
        job.spec.queue = QueueName::new(queue).unwrap();
        self.submit(job).await
    }

    pub(crate) async fn tagged(&self, tags: &[&str]) -> JobId {
        let mut job = call("shop.Till");
        job.spec.tags = tags.iter().map(|tag| Tag::new(*tag).unwrap()).collect();
        self.submit(job).await
    }

    pub(crate) async fn keyed(&self, key: &str) -> JobId {
        let mut job = call("shop.Till");
        job.spec.business_key = Some(BusinessKey::new(key).unwrap());
        self.submit(job).await
    }

    /// A job that the node runs.
    pub(crate) async fn running(&self, queue: &str) -> JobId {
        let job = self.pending(queue).await;
        self.claim(&[job]).await;
        job
    }

    /// A job that runs and holds a permit.
    pub(crate) async fn holding(&self, resource: &str) -> JobId {
        let id = self.running("default").await;
        let claims = self.store.owned(&self.owner).await.unwrap();
        let fence = claims.iter().find(|claim| claim.id == id).unwrap().fence;
        let resource = ResourceName::new(resource).unwrap();
        self.store.acquire(&self.owner, &[PermitRequest { id, fence, resource }]).await.unwrap();
        id
    }

    /// A job that waits for a node that knows its method.
    pub(crate) async fn parked(&self) -> JobId {
        let id = self.submit(call("shop.Nobody")).await;
        for claim in self.claim(&[id]).await {
            let on = ParkedOn::Method("shop.Nobody.bake".to_owned());
            let outcome = Outcome::new(id, claim.fence, End::Park { on });
            let verdicts = self.store.commit(&self.owner, &[outcome]).await.unwrap();
            assert!(verdicts.iter().all(Verdict::is_settled));
        }
        id
    }

    /// Dead letters with the same fingerprint.
    pub(crate) async fn failed(&self, message: &str, count: usize) -> Vec<JobId> {
        let jobs: Vec<_> = (0..count).map(|_| Submission::single(call("shop.Oven"))).collect();
        let ids: Vec<_> = jobs.iter().filter_map(Submission::id).collect();
        self.store.insert(&jobs).await.unwrap();
        for claim in self.claim(&ids).await {
            self.fail(&claim, message).await;
        }
        ids
    }

    pub(crate) async fn failed_with_key(&self, key: &str) -> JobId {
        let job = self.keyed(key).await;
        for claim in self.claim(&[job]).await {
            self.fail(&claim, "no bank").await;
        }
        job
    }

    /// A dead letter with an alert, and the job that waited for its success.
    pub(crate) async fn chain(&self) -> (JobId, JobId) {
        let (parent, child) = (call("shop.Oven"), call("shop.Mail"));
        let (first, second) = (parent.spec.id, child.spec.id);
        let mut submission = Submission::single(parent);
        submission.jobs.push(child);
        submission.edges.push(Edge::new(first, second, Condition::Success));
        assert_eq!(self.store.insert(&[submission]).await.unwrap(), [Inserted::New]);
        for claim in self.claim(&[first]).await {
            self.fail(&claim, "no eggs").await;
        }
        let fingerprint = error("no eggs").fingerprint;
        let window = Duration::from_secs(60);
        let alert =
            NewDlqAlert { job: first, error_hash: "0123456789abcdef".to_owned(), fingerprint, window };
        self.store.record_alerts(&[alert]).await.unwrap();
        (first, second)
    }

    /// Reports progress of a running job: `done` of its ten cakes.
    pub(crate) async fn progress(&self, job: JobId, done: u64, message: &str) {
        let claim =
            self.store.owned(&self.owner).await.unwrap().into_iter().find(|claim| claim.id == job).unwrap();
        let message = Some(sanitized(&JobFailure::new("", message)));
        let report = ProgressReport { id: job, fence: claim.fence, done, total: Some(10), message };
        assert_eq!(self.store.report_progress(&[report]).await.unwrap(), [true]);
    }

    /// The callback after a failure.
    pub(crate) async fn callback(&self, failed: JobId) -> JobId {
        let mut job = call("shop.Mail");
        job.spec.job_type = JobType::Callback;
        let cause = format!(r#"{{"job_id":"{failed}","status":"FAILED","error":"no eggs"}}"#);
        job.spec.params = Some(JsonText::parse(cause).unwrap());
        self.submit(job).await
    }

    /// Adds numbered lines to the log of a job.
    pub(crate) async fn log(&self, job: JobId, lines: usize) {
        let line = |number| NewLogLine {
            job,
            fence: Fence::FIRST.next(),
            level: LogLevel::Info,
            message: sanitized(&JobFailure::new("", format!("line {number}"))),
        };
        self.store.append_logs(&(0..lines).map(line).collect::<Vec<_>>()).await.unwrap();
    }

    /// A node, a running job and a dead letter with hostile text in every text field. Every text that may have several
    /// lines has a second one that begins with `forged`.
    pub(crate) async fn hostile(&self, text: &str, name: &str) -> (JobId, JobId) {
        let forged = format!("{text}\nforged");
        let mut node = NodeInfo::new(Owner::incarnate(name));
        (node.label, node.version, node.methods) = (forged.clone(), forged.clone(), vec![name.to_owned()]);
        self.store.join(&node, Duration::from_secs(3_600)).await.unwrap();
        let job = |key: &str| {
            let arguments = JsonText::parse(serde_json::json!([name]).to_string()).unwrap();
            let mut job = NewJob::new(JobPayload::new(name, name, &arguments).unwrap());
            let spec = &mut job.spec;
            spec.queue = QueueName::new(name).unwrap();
            spec.tags = vec![Tag::new(name).unwrap()];
            spec.business_key = Some(BusinessKey::new(key).unwrap());
            spec.idempotency_key = Some(IdempotencyKey::new(format!("{forged} {}", spec.id)).unwrap());
            spec.caller_principal = Some(forged.clone());
            spec.trace_context = Some(forged.clone());
            spec.params = Some(JsonText::parse(serde_json::json!({ name: text }).to_string()).unwrap());
            job
        };
        let failed = self.submit(job(&forged)).await;
        for claim in self.claim(&[failed]).await {
            self.fail(&claim, &forged).await;
        }
        let running = self.submit(job(&forged)).await;
        self.claim(&[running]).await;
        self.progress(running, 1, &forged).await;
        let line = NewLogLine {
            job: running,
            fence: Fence::FIRST.next(),
            level: LogLevel::Info,
            message: sanitized(&JobFailure::new("", forged.as_str())),
        };
        self.store.append_logs(&[line]).await.unwrap();
        self.store.cancel(&[running.into()], &sanitized(&JobFailure::new("", forged))).await.unwrap();
        (running, failed)
    }

    /// Marks the file as migrated by a newer program.
    pub(crate) async fn came_from_the_future(&self) {
        let mut file = SqliteConnection::connect(&format!("sqlite:{}", self.place.url())).await.unwrap();
        let row = "INSERT INTO ratchet_schema_version (version, applied_at, description, checksum) \
                   VALUES ('999', 0, 'flying cars', 'x')";
        sqlx::raw_sql(row).execute(&mut file).await.unwrap();
    }

    pub(crate) async fn submit(&self, job: NewJob) -> JobId {
        let id = job.spec.id;
        assert_eq!(self.store.insert(&[Submission::single(job)]).await.unwrap(), [Inserted::New]);
        id
    }

    pub(crate) async fn claim(&self, jobs: &[JobId]) -> Vec<JobClaim> {
        let claims = self.store.pick_up(&self.owner, jobs).await.unwrap();
        assert_eq!(claims.len(), jobs.len());
        claims
    }

    async fn fail(&self, claim: &JobClaim, message: &str) {
        let verdict = self.store.mark_failed(&self.owner, claim, error(message)).await.unwrap();
        assert!(verdict.is_settled(), "{verdict:?}");
    }
}

/// A job with arguments whose text must survive.
pub(crate) fn call(target: &str) -> NewJob {
    NewJob::new(JobPayload::new(target, "bake", &JsonText::parse(r#"["cake",1.50]"#).unwrap()).unwrap())
}

fn error(message: &str) -> ErrorRecord {
    let class = sanitized(&JobFailure::new("OvenError", ""));
    ErrorRecord::new("shop.Oven", class, sanitized(&JobFailure::new("OvenError", message)))
}

fn sanitized(failure: &JobFailure) -> Sanitized {
    Sanitized::new(&DefaultErrorSanitizer::default(), failure)
}
