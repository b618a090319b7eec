//! A job from submission to result, without a macro.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_core::defaults::PackagePrefixClassPolicy;
use ratchet_core::{Backoff, Call, JobContext, JobFailure, Method, Ratchet, ResultError, Scheduler};
use ratchet_store_memory::MemoryStore;

/// Adds up, and fails as often as it is told to.
#[derive(Default)]
struct Sums {
    failures: AtomicU32,
}

fn add(a: i64, b: i64) -> Call<i64> {
    Call::new("math.Sums", "add").arg(&a).arg(&b)
}

async fn scheduler(sums: Sums) -> Scheduler {
    let method = Method::of_bean(
        "math.Sums",
        "add",
        |sums: Arc<Sums>, ctx: JobContext, (a, b): (i64, i64)| async move {
            if sums.failures.load(Ordering::Relaxed) >= ctx.attempt() {
                return Err(JobFailure::new("Unlucky", "password=hunter2 was wrong"));
            }
            Ok(a + b)
        },
    );
    let builder = Ratchet::builder(MemoryStore::new()).method(method.expect("the names are good"));
    let builder = builder.bean_of("math.Sums", sums).class_policy(PackagePrefixClassPolicy::allow(["math."]));
    builder.start().await.expect("the scheduler starts")
}

// shows: S9 S86
#[tokio::test]
async fn a_job_runs_and_its_result_comes_back() {
    let scheduler = scheduler(Sums::default()).await;
    let handle = scheduler.enqueue(add(40, 2)).submit().await.expect("the job is stored");
    assert_eq!(handle.result().await.expect("it succeeds"), 42);
    scheduler.stop().await;
}

#[tokio::test]
async fn a_job_that_fails_is_tried_again() {
    let scheduler = scheduler(Sums { failures: 2.into() }).await;
    let job = scheduler.enqueue(add(40, 2)).max_retries(2).backoff(Backoff::Fixed(Duration::from_millis(1)));
    let handle = job.submit().await.expect("the job is stored");
    assert_eq!(handle.result().await.expect("the third attempt succeeds"), 42);
    let executions = scheduler.store().executions(handle.id()).await.expect("history is kept");
    assert_eq!(executions.len(), 3);
    scheduler.stop().await;
}

#[tokio::test]
async fn a_job_that_fails_too_often_is_a_dead_letter() {
    let scheduler = scheduler(Sums { failures: 9.into() }).await;
    let handle = scheduler.enqueue(add(1, 1)).submit().await.expect("the job is stored");
    let error = handle.result().await.expect_err("it fails");
    assert!(matches!(&error, ResultError::Failed { error, .. } if error.starts_with("Unlucky: ")), "{error}");
    scheduler.stop().await;
}
