//! Outcomes that a real server refuses: because of its own state, or because of their content.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::doc;
use ratchet_api::{JobStatus, Timestamp};
use ratchet_core::{JobFailure, Ratchet, Readiness, Scheduler, jobs};
use ratchet_store_core::{Dialect, Statement};
use ratchet_suite::test_store::{Collections, Schema, TestStore, postgres_url};
use serde_json::value::RawValue;
use sqlx::{Connection as _, PgConnection};

/// A store on a server that can be made to refuse outcomes.
#[async_trait]
trait Strict: TestStore {
    /// Makes the server refuse every outcome.
    async fn refuse_all(&self);

    /// Makes the server refuse results that are lists in lists in lists.
    async fn refuse_deep_lists(&self);

    /// Makes the server accept everything again.
    async fn take_all(&self);
}

/// Fails like a missing grant.
const TAKE_GRANT: &str = "
    CREATE FUNCTION ratchet.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'permission denied for table scheduler_job_execution' USING ERRCODE = '42501';
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON ratchet.scheduler_job_execution
        FOR EACH ROW EXECUTE FUNCTION ratchet.refuse()";
const CHECK_RESULTS: &str =
    "ALTER TABLE ratchet.scheduler_job ADD CONSTRAINT no_deep_list CHECK (job_result::text <> '[[[]]]')";
const GIVE_GRANT: &str = "DROP TRIGGER refuse ON ratchet.scheduler_job_execution";

async fn execute(schema: &Schema, text: &'static str) {
    let mut connection = PgConnection::connect(&postgres_url()).await.expect("the server answers");
    let text = Statement::compile(text, Dialect::Postgres, &schema.0).expect("the text is right").sql();
    sqlx::raw_sql(text).execute(&mut connection).await.expect("it runs");
}

#[async_trait]
impl Strict for Schema {
    async fn refuse_all(&self) {
        execute(self, TAKE_GRANT).await;
    }

    async fn refuse_deep_lists(&self) {
        execute(self, CHECK_RESULTS).await;
    }

    async fn take_all(&self) {
        execute(self, GIVE_GRANT).await;
    }
}

#[async_trait]
impl Strict for Collections {
    /// Adds a foreign index that fails on the ending of every job: it reads the ending as a place on earth.
    async fn refuse_all(&self) {
        let index = doc! { "key": { "ending": "2dsphere" }, "name": "places" };
        let create = doc! { "createIndexes": "scheduler_job", "indexes": [index] };
        self.database().await.run_command(create).await.expect("it is made");
    }

    async fn refuse_deep_lists(&self) {
        let no_deep_list = doc! { "ending.result": { "$ne": "[[[]]]" } };
        let change = doc! { "collMod": "scheduler_job", "validator": no_deep_list };
        self.database().await.run_command(change).await.expect("it is changed");
    }

    async fn take_all(&self) {
        let drop = doc! { "dropIndexes": "scheduler_job", "index": "places" };
        self.database().await.run_command(drop).await.expect("it goes");
    }
}

const LEASE: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
struct Worker {
    runs: Arc<AtomicU32>,
}

#[jobs(target = "test.Worker")]
impl Worker {
    /// Returns lists nested `depth` deep.
    #[job]
    async fn nest(&self, depth: usize) -> Result<Box<RawValue>, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(RawValue::from_string(format!("{}{}", "[".repeat(depth), "]".repeat(depth)))?)
    }
}

async fn node(place: &impl TestStore, worker: &Worker) -> Scheduler {
    let builder = Ratchet::builder_shared(place.connect().await).register(worker.clone());
    let builder = builder.allow(["test."]).configure(|options| {
        options.node.lease = LEASE;
        options.node.beat = Duration::from_millis(200);
        options.node.recovery_interval = Duration::from_millis(200);
        options.retry.drain_interval = Duration::from_millis(100);
    });
    builder.start().await.expect("the node starts")
}

async fn last_beat(node: &Scheduler) -> Timestamp {
    node.client().store().nodes().await.expect("read").pop().expect("the node has a row").heartbeat_at
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_grant_is_missing_outcomes_wait_and_no_body_runs_twice() {
    all_are_refused_for_a_while(Schema::migrated().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_an_index_refuses_every_end_outcomes_wait_and_no_body_runs_twice() {
    all_are_refused_for_a_while(Collections::default()).await;
}

async fn all_are_refused_for_a_while(place: impl Strict) {
    let worker = Worker::default();
    let node = node(&place, &worker).await;
    place.refuse_all().await;
    let calls = (0..10).map(|_| Worker::job().nest(1));
    let jobs: Vec<_> =
        node.client().enqueue_many(calls).await.expect("stored").into_iter().map(Result::unwrap).collect();
    while worker.runs.load(Ordering::SeqCst) < 10 || node.readiness() != Readiness::Degraded {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // In this time the node checks twice which jobs it owns.
    let beaten = last_beat(&node).await;
    while last_beat(&node).await.since(beaten) < LEASE * 5 / 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    place.take_all().await;
    for job in jobs {
        assert_eq!(job.result().await.expect("it succeeds").get(), "[]");
        let job = job.job().await.expect("read").expect("there");
        assert_eq!((job.status, job.crash_count), (JobStatus::Succeeded, 0));
    }
    assert_eq!(worker.runs.load(Ordering::SeqCst), 10);
    node.stop().await;
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_the_server_refuses_costs_no_second_run_of_anybody() {
    one_is_refused(Schema::migrated().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_a_validator_refuses_costs_no_second_run_of_anybody() {
    one_is_refused(Collections::default()).await;
}

async fn one_is_refused(place: impl Strict) {
    let worker = Worker::default();
    let node = node(&place, &worker).await;
    place.refuse_deep_lists().await;
    let calls = (0..100).map(|number| Worker::job().nest(if number == 50 { 3 } else { 1 }));
    let jobs: Vec<_> =
        node.client().enqueue_many(calls).await.expect("stored").into_iter().map(Result::unwrap).collect();
    for (number, job) in jobs.iter().enumerate() {
        let job = loop {
            let job = job.job().await.expect("read").expect("there");
            if job.status.is_terminal() {
                break job;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(job.status, JobStatus::Succeeded, "{number}");
        let result = job.ending.and_then(|ending| ending.result);
        assert_eq!(result.is_some(), number != 50, "only that one is not kept");
    }
    assert_eq!(worker.runs.load(Ordering::SeqCst), 100);
    node.stop().await;
    place.remove().await;
}
