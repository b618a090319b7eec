//! Migrations that run when a scheduler starts.

use ratchet_api::StoreErrorKind;
use ratchet_core::{Call, JobFailure, Method, Ratchet, SchedulerBuilder, StartError};
use ratchet_store_postgres::{PostgresOptions, PostgresStore};
use ratchet_suite::test_store::{Schema, TestStore as _, postgres_url};

fn node(schema: &Schema) -> SchedulerBuilder {
    let mut options = PostgresOptions::default();
    options.namespace = schema.0.clone();
    options.connections = 4;
    let store = PostgresStore::lazy(&postgres_url(), options).expect("the URL is right");
    let method = Method::function("test.plain", "run", |_, ()| async { Ok::<_, JobFailure>(42) });
    Ratchet::builder(store).method(method.expect("names")).allow(["test."])
}

// shows: S175 S178
#[tokio::test]
async fn migrations_end_before_the_first_claim_if_the_migrator_is_a_hook() {
    let schema = Schema::default();
    let Err(StartError::Store(error)) = node(&schema).start().await else { panic!("there are no tables") };
    assert_eq!(error.kind(), StoreErrorKind::NotMigrated);
    assert!(error.to_string().contains("ratchet migrate"), "{error}");

    let migrator = PostgresStore::migrator(&postgres_url(), schema.0.clone()).unwrap();
    let node = node(&schema).hook(migrator).start().await.unwrap();
    let job = node.enqueue(Call::<u32>::new("test.plain", "run")).submit().await.unwrap();
    assert_eq!(job.result().await.unwrap(), 42);
    node.stop().await;
    schema.remove().await;
}
