//! A node in a schema of its own, for tests that also look at the server.

use std::time::Duration;

use ratchet_api::store::{ClaimRequest, JobBulkStore as _, JobClaimStore as _, NodeStore as _};
use ratchet_api::{Inserted, JobClaim, NewJob, NodeInfo, Owner, Submission};
use ratchet_store_postgres::{PostgresOptions, PostgresStore};
use ratchet_tck::fixture::job;
use sqlx::PgConnection;

use super::TestDatabase;

/// Longer than any test.
pub(crate) const LEASE: Duration = Duration::from_secs(3600);

/// A node that has joined.
pub(crate) struct Node {
    pub(crate) place: TestDatabase,
    pub(crate) owner: Owner,
    /// A store on the server itself, whatever stands before it.
    pub(crate) store: PostgresStore,
}

impl Node {
    pub(crate) async fn new() -> Self {
        let place = TestDatabase::new("test").await;
        let (store, owner) = (place.store().await, Owner::incarnate("node"));
        store.join(&NodeInfo::new(owner.clone()), LEASE).await.expect("the node joins");
        Self { place, owner, store }
    }

    /// One more store on the same tables.
    pub(crate) async fn peer(&self, url: &str, change: impl FnOnce(&mut PostgresOptions)) -> PostgresStore {
        let mut options = self.place.options();
        change(&mut options);
        PostgresStore::connect(url, options).await.expect("the store opens")
    }

    /// Stores jobs that are due at once.
    pub(crate) async fn fill(&self, jobs: usize) {
        const AT_ONCE: usize = 2_000;
        for first in (0..jobs).step_by(AT_ONCE) {
            insert(&self.store, (first..jobs.min(first + AT_ONCE)).map(|_| job())).await;
        }
    }

    /// Claims up to so many jobs.
    pub(crate) async fn claim(&self, limit: usize) -> Vec<JobClaim> {
        self.store.claim(&self.claiming(limit)).await.expect("claim answers")
    }

    pub(crate) fn claiming(&self, limit: usize) -> ClaimRequest {
        ClaimRequest::new(self.owner.clone(), limit)
    }

    /// A connection of the test, with the schema in its search path.
    pub(crate) async fn session(&self) -> PgConnection {
        let mut connection = self.place.connection().await;
        let path = sqlx::query("SELECT set_config('search_path', $1, false)").bind(self.place.name());
        path.execute(&mut connection).await.expect("the path is set");
        connection
    }

    pub(crate) async fn close(self) {
        self.store.close().await;
        self.place.drop().await;
    }
}

/// Stores jobs, which must be new.
pub(crate) async fn insert(store: &PostgresStore, jobs: impl Iterator<Item = NewJob>) {
    let jobs: Vec<Submission> = jobs.map(Submission::single).collect();
    let inserted = store.insert(&jobs).await.expect("insert answers");
    assert!(inserted.iter().all(|one| *one == Inserted::New), "{inserted:?}");
}

/// Asks the server until the condition holds: the server does not report it by itself.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let patience = tokio::time::Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(tokio::time::Instant::now() < patience, "it did not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
