//! The helpers of this crate's tests.

#![allow(dead_code, reason = "each test uses some of it")]

use std::time::Duration;

use ratchet_api::store::{
    ClaimRequest, JobClaimStore as _, JobFilter, JobQueryStore as _, JobTerminalStore as _, NodeStore as _,
    PageRequest,
};
use ratchet_api::{End, JobClaim, JobPayload, JsonText, NewJob, NodeInfo, Outcome, Owner};
use ratchet_store_sqlite::SqliteStore;

/// A plain job.
pub(crate) fn job() -> NewJob {
    let args = JsonText::parse("[]").expect("JSON");
    NewJob::new(JobPayload::new("mail.Sender", "send", &args).expect("names"))
}

/// The number of stored jobs.
pub(crate) async fn count(store: &SqliteStore) -> usize {
    let page = PageRequest::first(1_000);
    store.query_jobs(&JobFilter::default(), &page).await.expect("an answer").jobs.len()
}

/// A success.
pub(crate) fn succeeded(claim: &JobClaim) -> Outcome {
    Outcome::new(claim.id, claim.fence, End::Succeeded { result: None })
}

/// Claims every due job, which must be so many, and ends it.
pub(crate) async fn drain(store: &SqliteStore, jobs: usize) {
    let owner = Owner::incarnate("drain");
    store.join(&NodeInfo::new(owner.clone()), Duration::from_secs(600)).await.expect("it joins");
    let claims = store.claim(&ClaimRequest::new(owner.clone(), 1_000)).await.expect("claims");
    assert_eq!(claims.len(), jobs);
    let outcomes: Vec<Outcome> = claims.iter().map(succeeded).collect();
    let verdicts = store.commit(&owner, &outcomes).await.expect("verdicts");
    assert!(verdicts.iter().all(ratchet_api::Verdict::is_settled), "{verdicts:?}");
}
