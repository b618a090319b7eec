//! Outcomes that a real PostgreSQL does not take: because of its own state, or because of what is in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_api::{JobStatus, Timestamp};
use ratchet_core::defaults::PackagePrefixClassPolicy;
use ratchet_core::{JobFailure, Ratchet, Readiness, Scheduler, jobs};
use ratchet_store_core::{Dialect, Statement};
use ratchet_suite::place::{Place as _, Schema, postgres_url};
use serde_json::value::RawValue;
use sqlx::{Connection as _, PgConnection};

/// From now on no outcome is recorded, as if a grant were missing.
const TAKE_GRANT: &str = "
    CREATE FUNCTION ratchet.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'permission denied for table scheduler_job_execution' USING ERRCODE = '42501';
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON ratchet.scheduler_job_execution
        FOR EACH ROW EXECUTE FUNCTION ratchet.refuse()";
const GIVE_GRANT: &str = "DROP TRIGGER refuse ON ratchet.scheduler_job_execution";

const LEASE: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
struct Worker {
    runs: Arc<AtomicU32>,
}

#[jobs(target = "test.Worker")]
impl Worker {
    /// Answers lists in lists, this deep.
    #[job]
    async fn nest(&self, depth: usize) -> Result<Box<RawValue>, JobFailure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(RawValue::from_string(format!("{}{}", "[".repeat(depth), "]".repeat(depth)))?)
    }
}

async fn node(schema: &Schema, worker: &Worker) -> Scheduler {
    let builder = Ratchet::builder_shared(schema.connect().await).bean(worker.clone());
    let builder = builder.class_policy(PackagePrefixClassPolicy::allow(["test."])).configure(|options| {
        options.node.lease = LEASE;
        options.node.beat = Duration::from_millis(200);
        options.node.recovery_interval = Duration::from_millis(200);
        options.retry.drain_interval = Duration::from_millis(100);
    });
    builder.start().await.expect("the node starts")
}

async fn last_beat(node: &Scheduler) -> Timestamp {
    node.store().nodes().await.expect("read").pop().expect("the node has a row").heartbeat_at
}

async fn empty_schema() -> Schema {
    let schema = Schema::default();
    let migrator = ratchet_store_postgres::PostgresStore::migrator(&postgres_url(), schema.0.clone());
    migrator.expect("the URL is right").migrate(|_| {}).await.expect("the tables are made");
    schema
}

async fn run(schema: &Schema, text: &'static str) {
    let mut connection = PgConnection::connect(&postgres_url()).await.expect("the server answers");
    let text = Statement::compile(text, Dialect::Postgres, &schema.0).expect("the text is right").sql();
    sqlx::raw_sql(text).execute(&mut connection).await.expect("it runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_grant_is_missing_outcomes_wait_and_no_body_runs_twice() {
    let (schema, worker) = (empty_schema().await, Worker::default());
    let node = node(&schema, &worker).await;
    run(&schema, TAKE_GRANT).await;
    let calls = (0..10).map(|_| Worker::job().nest(1));
    let jobs: Vec<_> =
        node.enqueue_many(calls).await.expect("stored").into_iter().map(Result::unwrap).collect();
    while worker.runs.load(Ordering::SeqCst) < 10 || node.readiness() != Readiness::Degraded {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // In this time the node looks twice which jobs are its own.
    let beaten = last_beat(&node).await;
    while last_beat(&node).await.since(beaten) < LEASE * 5 / 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    run(&schema, GIVE_GRANT).await;
    for job in jobs {
        assert_eq!(job.result().await.expect("it succeeds").get(), "[]");
        let job = job.job().await.expect("read").expect("there");
        assert_eq!((job.status, job.crash_count), (JobStatus::Succeeded, 0));
    }
    assert_eq!(worker.runs.load(Ordering::SeqCst), 10);
    node.stop().await;
    schema.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_nested_too_deeply_costs_no_second_run_of_anybody() {
    let (schema, worker) = (empty_schema().await, Worker::default());
    let node = node(&schema, &worker).await;
    let calls = (0..100).map(|number| Worker::job().nest(if number == 50 { 30_000 } else { 1 }));
    let jobs: Vec<_> =
        node.enqueue_many(calls).await.expect("stored").into_iter().map(Result::unwrap).collect();
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
        assert_eq!(result.is_some(), number != 50, "only the deep one is not kept");
    }
    assert_eq!(worker.runs.load(Ordering::SeqCst), 100);
    node.stop().await;
    schema.remove().await;
}
