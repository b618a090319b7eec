//! The steps that bring rows into the states of the scenes.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::spi::ErrorSanitizer;
use ratchet_api::store::JobStore;
use ratchet_api::{
    Backoff, Beat, End, Inserted, JobClaim, JobFailure, JobId, JobPayload, JobSpec, JsonText, NewJob,
    NodeInfo, Outcome, Owner, Sanitized, Submission, Tag, Timestamp, Verdict,
};

use crate::tables::Tables;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
const LAST_LEASE: Duration = Duration::from_secs(1);

/// The environment that all scenes of a world share.
pub(crate) struct Stage {
    pub(crate) store: Arc<dyn JobStore>,
    /// A node that dies once all rows are set up.
    pub(crate) dying: Owner,
    pub(crate) cells: Arc<dyn Tables>,
}

/// One of many equal instances of a scene: its names, as cells write them. The index of a name is the role of its row.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) names: Vec<String>,
    pub(crate) jobs: Vec<JobId>,
    /// Its names that are not ids, as they were given.
    pub(crate) texts: Vec<String>,
}

pub(crate) fn call() -> JobPayload {
    JobPayload::new("test.Worker", "work", &JsonText::parse("[]").expect("JSON")).expect("names")
}

pub(crate) fn named<N: TryFrom<String, Error: std::fmt::Debug>>(name: &str) -> N {
    name.to_owned().try_into().expect("a name")
}

pub(crate) fn text(text: &str) -> Sanitized {
    struct Verbatim;
    impl ErrorSanitizer for Verbatim {
        fn sanitize(&self, failure: &JobFailure) -> String {
            failure.message().to_owned()
        }
    }
    Sanitized::new(&Verbatim, &JobFailure::new("", text))
}

/// Makes a job that has a value in every field.
pub(crate) fn full() -> NewJob {
    let mut spec = JobSpec::new(call());
    let name = spec.id.to_string();
    spec.params = Some(JsonText::parse("{\"a\":1}").expect("JSON"));
    spec.max_retries = 1;
    spec.backoff = Backoff::Fixed(Duration::from_millis(1));
    spec.timeout = Some(HOUR);
    spec.expires_at = Some(Timestamp::node_now() + HOUR);
    spec.idempotency_key = Some(named(&name));
    spec.business_key = Some(named(&name));
    spec.resource = Some(named("shared"));
    spec.tags = vec![Tag::new(name).expect("a tag")];
    spec.caller_principal = Some("somebody".to_owned());
    spec.trace_context = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    spec.on_success = Some(call());
    spec.on_failure = Some(call());
    spec.into()
}

impl Stage {
    pub(crate) fn instance(&self, jobs: &[JobId], texts: &[&str]) -> Instance {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let names = texts.iter().map(|text| self.cells.text(text));
        let names = names.chain(jobs.iter().map(|job| self.cells.id(*job))).collect();
        Instance { names, jobs: jobs.to_vec(), texts }
    }

    pub(crate) async fn submit(&self, submissions: &[Submission]) {
        for part in submissions.chunks(200) {
            let stored = self.store.insert(part).await.expect("they are stored");
            assert!(stored.iter().all(|stored| *stored == Inserted::New), "{stored:?}");
        }
    }

    pub(crate) async fn insert(&self, count: usize, new: impl Fn() -> NewJob) -> Vec<JobId> {
        let all: Vec<Submission> = (0..count).map(|_| Submission::single(new())).collect();
        self.submit(&all).await;
        all.iter().filter_map(Submission::id).collect()
    }

    pub(crate) async fn take(&self, owner: &Owner, jobs: &[JobId]) -> Vec<JobClaim> {
        let mut claims = Vec::new();
        for part in jobs.chunks(200) {
            claims.extend(self.store.pick_up(owner, part).await.expect("an answer"));
        }
        assert_eq!(claims.len(), jobs.len());
        claims
    }

    pub(crate) async fn end(&self, claims: &[JobClaim], end: End) {
        let outcomes: Vec<Outcome> =
            claims.iter().map(|claim| Outcome::new(claim.id, claim.fence, end.clone())).collect();
        for part in outcomes.chunks(200) {
            let verdicts = self.store.commit(&self.dying, part).await.expect("an answer");
            assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Recorded(_))), "{verdicts:?}");
        }
    }

    pub(crate) fn singles(&self, jobs: &[JobId]) -> Vec<Instance> {
        jobs.iter().map(|job| self.instance(&[*job], &[])).collect()
    }

    pub(crate) async fn join(&self, owner: &Owner) {
        self.store.join(&NodeInfo::new(owner.clone()), HOUR).await.expect("it joins");
    }

    /// Beats for the last time, with a lease long enough for others to prove the owner's death.
    pub(crate) async fn die(&self, owner: &Owner) {
        self.store.beat(&Beat::new(owner.clone(), LAST_LEASE)).await.expect("a last beat");
    }
}
