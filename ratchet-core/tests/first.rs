//! A job from submission to result, without a macro.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::{Backoff, Call, JobContext, JobFailure, Method, Ratchet, ResultError, Scheduler};
use ratchet_store_memory::MemoryStore;

/// A service that adds numbers up, and fails as often as it is told to.
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
    let builder = builder.bean_of("math.Sums", Arc::new(sums)).allow(["math."]);
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
    let executions = scheduler.client().store().executions(handle.id()).await.expect("history is kept");
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

/// One thread that runs the task that was spawned last before the rest, as every thread of the runtime does.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn jobs_that_were_claimed_together_begin_in_claim_order() {
    let started = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&started);
    let note = Method::function("math.Order", "note", move |_, (number,): (u32,)| {
        notes.lock().expect("nobody panics").push(number);
        async { Ok::<_, JobFailure>(()) }
    });
    let store = Arc::new(MemoryStore::new());
    let client = Ratchet::client_shared(store.clone());
    let calls = (0..20_u32).map(|number| Call::<()>::new("math.Order", "note").arg(&number));
    let jobs = client.enqueue_many(calls).await.expect("they are stored");
    let builder = Ratchet::builder_shared(store).method(note.expect("the names are good"));
    let builder = builder.allow(["math."]);
    let scheduler = builder.start().await.expect("the scheduler starts");
    for job in jobs {
        job.expect("it is stored").result().await.expect("it succeeds");
    }
    scheduler.stop().await;
    assert_eq!(*started.lock().expect("nobody panics"), (0..20).collect::<Vec<_>>());
}
