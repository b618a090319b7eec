//! Submissions: from the description of a job to its row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ratchet_api::{JobEventKind, JobPriority, JobStatus, SubmitError, Timestamp};
use ratchet_core::{
    Call, JobContext, JobFailure, JobTarget as _, Method, Ratchet, ResultError, StartError, jobs,
};

use crate::Fixture;

crate::cases! {
    a_job_runs_and_its_result_comes_back;
    a_duplicate_is_a_handle_of_the_first_job_and_no_error;
    a_duplicate_key_of_another_method_is_refused;
    an_alias_is_no_other_method;
    the_id_of_a_job_that_a_body_enqueues_exists_after_its_commit;
    a_business_key_is_held_until_its_job_has_ended;
    everything_that_is_said_about_a_job_is_stored;
    a_delayed_job_waits_and_then_runs_without_a_poll;
    a_replaced_job_never_runs;
    a_job_that_has_started_is_not_replaced;
    a_job_that_expires_while_it_waits_is_canceled;
    an_expired_job_is_canceled_instead_of_run;
    many_jobs_are_submitted_and_all_run;
    a_mistake_in_the_description_is_told_by_the_submission;
    a_target_that_the_policy_denies_is_refused_at_submission;
    a_job_that_a_body_enqueues_exists_only_if_the_body_succeeds;
    a_node_that_cannot_work_does_not_start_and_says_why;
    a_service_may_be_shared_and_what_may_run_be_named_in_parts;
    a_client_submits_and_a_node_elsewhere_runs_it;
}

/// A service that counts.
#[derive(Clone, Default)]
struct Counter {
    calls: Arc<AtomicU32>,
}

#[jobs(target = "test.Counter")]
impl Counter {
    #[job]
    async fn add(&self, number: u32) -> Result<u32, JobFailure> {
        Ok(self.calls.fetch_add(number, Ordering::SeqCst) + number)
    }

    #[job]
    async fn hand_out(&self, ctx: &JobContext) -> Result<[String; 4], JobFailure> {
        let submit = |key: &str| ctx.enqueue(Self::job().add(1)).idempotency_key(key).submit();
        let new = submit("new").await?;
        let waited = new.result().await.expect_err("it is not stored").to_string();
        let ids = [new, submit("new").await?, submit("taken").await?].map(|job| job.id().to_string());
        let [new, again, taken] = ids;
        Ok([new, again, taken, waited])
    }

    #[job]
    async fn add_later(&self, ctx: &JobContext, number: u32, fails: bool) -> Result<(), JobFailure> {
        ctx.enqueue(Self::job().add(number)).submit().await?;
        match fails {
            true => Err(JobFailure::new("Told", "to fail")),
            false => Ok(()),
        }
    }
}

// shows: S1 S2 S9 S14 S86
async fn a_job_runs_and_its_result_comes_back(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let job = node.enqueue(Counter::job().add(42)).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it succeeds"), 42);
    node.stop().await;
}

// shows: S12 S17 S183
async fn a_duplicate_is_a_handle_of_the_first_job_and_no_error(fx: Fixture) {
    let client = fx.client().await;
    let submit = || client.enqueue(Counter::job().add(1)).idempotency_key("order-7").submit();
    let (first, second) = (submit().await.expect("stored"), submit().await.expect("no error"));
    assert_eq!(first.id(), second.id());
    assert!(!first.is_duplicate() && second.is_duplicate());
}

async fn a_duplicate_key_of_another_method_is_refused(fx: Fixture) {
    let client = fx.client().await;
    let first =
        client.enqueue(Counter::job().add(1)).idempotency_key("order-7").submit().await.expect("stored");
    let other = || client.enqueue(Counter::job().add_later(1, false)).idempotency_key("order-7");
    let mismatch = |error: SubmitError| {
        let SubmitError::IdempotencyMismatch { key, holder, method } = error else { panic!("{error}") };
        (key, holder, method)
    };
    let expected = ("order-7".to_owned(), first.id(), "test.Counter.add".to_owned());
    assert_eq!(mismatch(other().submit().await.expect_err("it is other work")), expected);
    let mut many = client.enqueue_many([other()]).await.expect("the store answers");
    assert_eq!(mismatch(many.remove(0).expect_err("it is other work")), expected);
}

async fn an_alias_is_no_other_method(fx: Fixture) {
    let named = |target: &str, method: &str| {
        Method::function(target, method, |_, ()| async { Ok::<_, JobFailure>(()) }).expect("names")
    };
    let renamed = named("test.New", "run").alias("test.Old", "go").expect("names");
    let node = fx.node(|builder| builder.method(renamed)).await;
    let submit = async |target: &'static str, method: &'static str| {
        node.enqueue(Call::<()>::new(target, method)).idempotency_key("k").submit().await
    };
    let first = submit("test.Old", "go").await.expect("stored");
    let second = submit("test.New", "run").await.expect("it is the same work");
    assert_eq!((second.id(), second.is_duplicate()), (first.id(), true));
    node.stop().await;
}

async fn the_id_of_a_job_that_a_body_enqueues_exists_after_its_commit(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let taken = node.enqueue(Counter::job().add(1)).idempotency_key("taken").submit().await.expect("stored");
    let job = node.enqueue(Counter::job().hand_out()).submit().await.expect("stored");
    let [new, again, known, waited] = job.result().await.expect("it succeeds");
    assert_eq!(known, taken.id().to_string(), "of the job that has the key");
    assert_eq!(again, new, "one key, one job");
    assert!(waited.contains("is not there yet; do not wait for it in that body"), "{waited}");
    let id = new.parse().expect("an id");
    node.until(id, |job| job.status == JobStatus::Succeeded).await;
    node.stop().await;
}

// shows: S13 S18 S184
async fn a_business_key_is_held_until_its_job_has_ended(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let later = Duration::from_secs(3_600);
    let first =
        node.enqueue(Counter::job().add(1)).business_key("k").delay(later).submit().await.expect("stored");
    let second = node.enqueue(Counter::job().add(1)).business_key("k").submit().await;
    assert!(
        matches!(second, Err(SubmitError::KeyTaken { holder, .. }) if holder == first.id()),
        "{second:?}"
    );
    assert!(node.client().cancel(first.id(), "make room").await.expect("answered"));
    let third =
        node.enqueue(Counter::job().add(1)).business_key("k").submit().await.expect("the key is free");
    third.result().await.expect("it succeeds");
    node.enqueue(Counter::job().add(1)).business_key("k").submit().await.expect("the key is free again");
    node.stop().await;
}

// shows: S16 S20 S21
async fn everything_that_is_said_about_a_job_is_stored(fx: Fixture) {
    let client = fx.client().await;
    let instant = Timestamp::from_millis(4_000_000_000_000);
    let job = client.enqueue(Counter::job().add(1)).priority(JobPriority::Low).queue("mail").max_retries(3);
    let job = job.timeout(Duration::from_secs(9)).resource("smtp").tags([" Big ", "", "small"]).at(instant);
    let job =
        job.param("order", 7).param("name", "ada").expires_at(instant).on_failure(&Counter::job().add(2));
    let job = job.submit().await.expect("stored").job().await.expect("read").expect("there");
    let spec = job.spec;
    assert_eq!((spec.priority, spec.queue.as_str(), spec.max_retries), (JobPriority::Low, "mail", 3));
    assert_eq!((spec.timeout, job.scheduled_time), (Some(Duration::from_secs(9)), instant));
    assert_eq!(spec.resource.expect("given").as_str(), "smtp");
    assert_eq!(spec.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), ["big", "small"]);
    assert_eq!(spec.params.expect("given").as_str(), r#"{"name":"ada","order":7}"#);
    assert_eq!(spec.expires_at, Some(instant));
    assert_eq!(spec.on_failure.expect("given").method().as_str(), "add");
}

// shows: S23
async fn a_delayed_job_waits_and_then_runs_without_a_poll(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let job =
        node.enqueue(Counter::job().add(1)).delay(Duration::from_millis(300)).submit().await.expect("stored");
    let stored = job.job().await.expect("read").expect("there");
    assert!(stored.scheduled_time > stored.created_at);
    let ended = job.ended().await.expect("it ends");
    let started = ended.ending.and_then(|ending| ending.started_at).expect("it ran");
    assert!(started >= ended.scheduled_time, "not before its time");
    node.stop().await;
}

async fn a_replaced_job_never_runs(fx: Fixture) {
    let counter = Counter::default();
    let calls = Arc::clone(&counter.calls);
    let node = fx.node(|builder| builder.register(counter)).await;
    let later = Duration::from_secs(3_600);
    let old = node.enqueue(Counter::job().add(100)).delay(later).business_key("order-7");
    let old = old.submit().await.expect("stored");
    // Each replacement takes over the place and the key of its predecessor.
    let newer = node.client().replace(old.id(), Counter::job().add(10)).delay(later).business_key("order-7");
    let newer = newer.submit().await.expect("stored");
    node.client().pause(newer.id()).await.expect("answered");
    let newest = node.client().replace(newer.id(), Counter::job().add(1)).business_key("order-7");
    let newest = newest.submit().await.expect("stored");
    newest.result().await.expect("it succeeds");
    for (replaced, by) in [(&old, &newer), (&newer, &newest)] {
        let job = replaced.job().await.expect("read").expect("there");
        assert_eq!((job.status, job.superseded_by), (JobStatus::Canceled, Some(by.id())));
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    node.told_times(2, |kind| matches!(kind, JobEventKind::Canceled { .. })).await;
    assert!(node.kinds_of(old.id())[0].contains("previous_status: Pending"), "listeners are told");
    node.stop().await;
}

async fn a_job_that_has_started_is_not_replaced(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let old = node.enqueue(Counter::job().add(1)).submit().await.expect("stored");
    old.result().await.expect("it succeeds");
    let refused =
        node.client().replace(old.id(), Counter::job().add(1)).submit().await.expect_err("it is too late");
    assert!(matches!(refused, SubmitError::Refused(_)), "{refused}");
    let read = old.job().await.expect("read").expect("there");
    assert_eq!((read.status, read.superseded_by), (JobStatus::Succeeded, None));
    node.stop().await;
}

async fn a_job_that_expires_while_it_waits_is_canceled(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let now = node.client().store().database_time().await.expect("answered");
    let job = node.enqueue(Counter::job().add(1)).delay(Duration::from_millis(50));
    let job = job.expires_at(now + Duration::from_millis(20)).submit().await.expect("stored");
    let ended = job.ended().await.expect("it ends");
    assert_eq!((ended.status, ended.attempts), (JobStatus::Canceled, 0));
    assert!(ended.ending.is_some_and(|ending| ending.started_at.is_none()), "no body ran");
    node.stop().await;
}

async fn an_expired_job_is_canceled_instead_of_run(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let past = Timestamp::from_millis(1_000);
    let job = node.enqueue(Counter::job().add(1)).expires_at(past).submit().await.expect("stored");
    assert!(
        matches!(job.result().await, Err(ResultError::Canceled { reason, .. }) if reason.contains("expired"))
    );
    node.stop().await;
}

async fn many_jobs_are_submitted_and_all_run(fx: Fixture) {
    let counter = Counter::default();
    let calls = Arc::clone(&counter.calls);
    let node = fx.node(|builder| builder.register(counter)).await;
    let jobs = node.client().enqueue_many((0..500).map(|_| Counter::job().add(1))).await.expect("stored");
    for job in jobs {
        job.expect("each is").ended().await.expect("it ends");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 500);
    node.stop().await;
}

async fn a_mistake_in_the_description_is_told_by_the_submission(fx: Fixture) {
    let client = fx.client().await;
    let long = "k".repeat(256);
    let refused = client.enqueue(Counter::job().add(1)).idempotency_key(long).submit().await;
    assert!(matches!(refused, Err(SubmitError::Invalid(_))), "{refused:?}");
    let refused = client.enqueue(Counter::job().add(1)).param("big", "x".repeat(20_000)).submit().await;
    assert!(matches!(refused, Err(SubmitError::Invalid(_))), "{refused:?}");
}

// shows: S78
async fn a_target_that_the_policy_denies_is_refused_at_submission(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    let evil: Call<()> = Call::new("evil.Counter", "add").arg(&1);
    let refused = node.enqueue(evil.clone()).submit().await;
    assert!(matches!(refused, Err(SubmitError::Denied { .. })), "{refused:?}");
    let refused = node.enqueue(Counter::job().add(1)).on_success(&evil).submit().await;
    assert!(matches!(refused, Err(SubmitError::Denied { .. })), "callbacks too: {refused:?}");
    node.stop().await;
}

async fn a_job_that_a_body_enqueues_exists_only_if_the_body_succeeds(fx: Fixture) {
    let counter = Counter::default();
    let calls = Arc::clone(&counter.calls);
    let node = fx.node(|builder| builder.register(counter)).await;
    let bad = node.enqueue(Counter::job().add_later(100, true)).submit().await.expect("stored");
    bad.result().await.expect_err("it fails");
    let good = node.enqueue(Counter::job().add_later(1, false)).submit().await.expect("stored");
    good.result().await.expect("it succeeds");
    node.told_times(2, |kind| matches!(kind, JobEventKind::Completed { .. })).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    node.stop().await;
}

/// A service with the target of another one and a method of its own.
struct Rival;

#[jobs(target = "test.Counter")]
impl Rival {
    #[job]
    async fn subtract(&self) {}
}

// shows: S78
async fn a_node_that_cannot_work_does_not_start_and_says_why(fx: Fixture) {
    let builder = || async { Ratchet::builder_shared(fx.store().await) };
    let counter = || Counter::default();
    let error = builder().await.register(counter()).start().await.expect_err("nothing may run");
    assert!(matches!(error, StartError::EmptyPolicy), "{error}");
    let error = builder().await.allow(["test."]).start().await.expect_err("nothing to run");
    assert!(matches!(error, StartError::NothingRegistered), "{error}");
    let twice = builder().await.register(counter()).register(Rival).allow(["test."]);
    let error = twice.start().await.expect_err("two services for one target");
    assert!(
        matches!(&error, StartError::TwoServices(target) if target.as_str() == "test.Counter"),
        "{error}"
    );
    let method = || Counter::methods().expect("good names").pop().expect("it has methods");
    let twice = builder().await.register(counter()).method(method()).allow(["test."]);
    let error = twice.start().await.expect_err("two bodies for one name");
    assert!(matches!(&error, StartError::Twice(names) if names.0[0].starts_with("test.Counter.")), "{error}");
    let alone = || async { builder().await.method(method()).allow(["test."]) };
    let error = alone().await.start().await.expect_err("a method without its bean");
    assert!(matches!(&error, StartError::NoBean(target) if target.as_str() == "test.Counter"), "{error}");
    let error = alone().await.bean_of("test.Counter", Arc::new(Rival)).start().await;
    let error = error.expect_err("a bean of another type");
    assert!(matches!(error, StartError::NoBean(_)), "{error}");
    let other = builder().await.register(counter()).allow(["other."]);
    let error = other.start().await.expect_err("what is registered may not run");
    assert!(matches!(error, StartError::Denied(_)), "{error}");
    let wrong = builder()
        .await
        .register(counter())
        .allow(["test."])
        .configure(|options| options.polling.batch_size = 0);
    let error = wrong.start().await.expect_err("options out of range");
    assert!(error.to_string().contains("batch_size"), "{error}");
}

async fn a_service_may_be_shared_and_what_may_run_be_named_in_parts(fx: Fixture) {
    let counter = Arc::new(Counter::default());
    let shared = Arc::clone(&counter);
    let builder = Ratchet::builder_shared(fx.store().await).allow(["other."]).register(shared);
    let node = builder.allow(["test.Counter"]).start().await.expect("both are allowed");
    let job = node.enqueue(Counter::job().add(3)).submit().await.expect("stored");
    job.result().await.expect("it succeeds");
    assert_eq!(counter.calls.load(Ordering::SeqCst), 3, "the very object was called");
    node.stop().await;
}

// shows: S3 S4
async fn a_client_submits_and_a_node_elsewhere_runs_it(fx: Fixture) {
    let job = fx.client().await.enqueue(Counter::job().add(3)).submit().await.expect("stored");
    let node = fx.node(|builder| builder.register(Counter::default())).await;
    assert_eq!(job.result().await.expect("it succeeds"), 3);
    node.stop().await;
}
