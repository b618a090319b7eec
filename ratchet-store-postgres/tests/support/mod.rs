//! A place of its own on the real server for each test.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::time::Duration;

use ratchet_api::store::{ClaimRequest, JobBulkStore as _, JobClaimStore as _, NodeStore as _};
use ratchet_api::{Inserted, JobClaim, JobId, NewJob, NodeInfo, Owner, StoreResult, Submission};
use ratchet_store_postgres::{Namespace, PostgresOptions, PostgresStore};
use ratchet_tck::Spoil;
use ratchet_tck::fixture::job;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(3600);

/// A schema with all the tables and a node that has joined.
pub(crate) struct Place {
    pub(crate) schema: String,
    pub(crate) node: Owner,
    /// On the server itself, whatever else stands before it.
    pub(crate) direct: PostgresStore,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let schema = format!("test_{:032x}", rand::random::<u128>());
        let direct = open(&direct_url(), &schema, |options| options.migrate = true).await;
        let node = Owner::incarnate("node");
        direct.join(&NodeInfo::new(node.clone()), LEASE).await.expect("the node joins");
        Self { schema, node, direct }
    }

    /// One more store on the same tables.
    pub(crate) async fn store(&self, url: &str, change: impl FnOnce(&mut PostgresOptions)) -> PostgresStore {
        open(url, &self.schema, change).await
    }

    /// Stores jobs that are due at once.
    pub(crate) async fn fill(&self, jobs: usize) {
        let mut left = jobs;
        while left > 0 {
            let part = left.min(2_000);
            insert(&self.direct, (0..part).map(|_| job())).await;
            left -= part;
        }
    }

    /// Takes up to so many jobs.
    pub(crate) async fn claim(&self, limit: usize) -> Vec<JobClaim> {
        self.direct.claim(&self.claiming(limit)).await.expect("claim answers")
    }

    pub(crate) fn claiming(&self, limit: usize) -> ClaimRequest {
        ClaimRequest::new(self.node.clone(), limit)
    }

    /// A connection of the test's own, with the schema as its search path.
    pub(crate) async fn connection(&self) -> PgConnection {
        connection(&self.schema).await
    }

    pub(crate) async fn close(self) {
        self.direct.close().await;
        drop_schema(&self.schema).await;
    }
}

/// Stores jobs, which must be new.
pub(crate) async fn insert(store: &PostgresStore, jobs: impl Iterator<Item = NewJob>) {
    let jobs: Vec<Submission> = jobs.map(Submission::single).collect();
    let inserted = store.insert(&jobs).await.expect("insert answers");
    assert!(inserted.iter().all(|one| *one == Inserted::New), "{inserted:?}");
}

async fn open(url: &str, schema: &str, change: impl FnOnce(&mut PostgresOptions)) -> PostgresStore {
    PostgresStore::connect(url, options(schema, change)).await.expect("the store opens")
}

/// How to open a store on this schema.
pub(crate) fn options(schema: &str, change: impl FnOnce(&mut PostgresOptions)) -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.namespace = Namespace::schema(schema).expect("a valid name");
    change(&mut options);
    options
}

async fn connection(schema: &str) -> PgConnection {
    let mut connection = PgConnection::connect(&direct_url()).await.expect("the server answers");
    let path = sqlx::query("SELECT set_config('search_path', $1, false)").bind(schema);
    path.execute(&mut connection).await.expect("the path is set");
    connection
}

/// Writes a word that nobody knows into the description of a job.
pub(crate) async fn spoil(schema: String, job: JobId, how: Spoil) -> StoreResult<()> {
    let update = match how {
        Spoil::UnknownType => "UPDATE scheduler_job SET job_type = 'NOBODY' WHERE job_id = $1",
        Spoil::UnknownBackoff => "UPDATE scheduler_job SET backoff_policy = 'NOBODY' WHERE job_id = $1",
    };
    let spoiled = sqlx::query(update).bind(job.as_uuid()).execute(&mut connection(&schema).await).await;
    assert_eq!(spoiled.expect("the row is written").rows_affected(), 1, "job {job} exists");
    Ok(())
}

/// The name comes from a test: hexadecimal digits.
pub(crate) async fn drop_schema(name: &str) {
    let mut connection = PgConnection::connect(&direct_url()).await.expect("the server answers");
    let text = AssertSqlSafe(format!("DROP SCHEMA \"{name}\" CASCADE"));
    sqlx::raw_sql(text).execute(&mut connection).await.expect("the schema goes");
}

pub(crate) fn direct_url() -> String {
    url("RATCHET_TEST_POSTGRES_URL")
}

pub(crate) fn pooled_url() -> String {
    url("RATCHET_TEST_PGBOUNCER_URL")
}

fn url(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set; run `cargo xtask servers up` and `eval \"$(cargo xtask servers env)\"`"
        )
    })
}
