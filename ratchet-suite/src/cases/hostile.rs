//! Jobs that misbehave in every way. Each ends as documented, the others finish, and nothing is lost.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ratchet_api::options::RatchetOptions;
use ratchet_api::spi::RetryPolicy;
use ratchet_api::store::{JobFilter, PageRequest};
use ratchet_api::{
    InvalidSubmission, Job, JobPayload, JobStatus, JsonText, Limits, LogLevel, ParkedOn, ResourceLimit,
    ResourceName, SubmitError,
};
use ratchet_core::{
    Call, JobFailure, JobHandle, Method, Ratchet, Readiness, ResultError, SchedulerBuilder, jobs,
};
use serde_json::value::RawValue;
use tokio::sync::{Barrier, Notify};

use crate::{Fixture, Node};

crate::cases! {
    hostile_jobs_end_as_documented_and_the_others_finish;
    an_async_body_that_never_yields_keeps_its_slot_and_the_others_finish;
    a_stop_waits_no_longer_for_a_body_that_never_yields;
    a_payload_at_the_limit_runs_and_one_above_it_is_refused;
    limits_are_set_in_one_place_for_a_node_and_for_a_client;
    a_result_at_the_limit_is_kept_and_one_above_it_is_not;
    a_job_with_an_unknown_target_waits_for_a_node_that_knows_it;
    a_job_with_an_unknown_target_is_a_dead_letter_if_the_operator_says_so;
    arguments_that_no_longer_decode_use_the_retries_up_and_stay_as_they_were;
    a_plug_that_panics_costs_one_job_and_no_slot;
    a_body_that_panics_when_it_is_dropped_is_a_dead_letter;
}

const SLOTS: u32 = 4;
const DOOR: &str = "door";

/// A gate that holds its callers' threads until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let closed = self.0.0.lock().expect("nobody panics");
        drop(self.0.1.wait_while(closed, |open| !*open).expect("nobody panics"));
    }

    fn open(&self) {
        *self.0.0.lock().expect("nobody panics") = true;
        self.0.1.notify_all();
    }
}

/// A value that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("even now");
    }
}

#[derive(Clone)]
struct Hostile {
    entered: Arc<Notify>,
    gate: Gate,
    together: Arc<Barrier>,
}

impl Default for Hostile {
    fn default() -> Self {
        let together = Arc::new(Barrier::new(SLOTS as usize));
        Self { entered: Arc::default(), gate: Gate::default(), together }
    }
}

#[jobs(target = "test.Hostile")]
impl Hostile {
    #[job]
    async fn echo(&self, text: String) -> Result<String, JobFailure> {
        Ok(text)
    }

    /// Returns lists nested `depth` deep.
    #[job]
    async fn nest(&self, depth: usize) -> Result<Box<RawValue>, JobFailure> {
        Ok(RawValue::from_string(format!("{}{}", "[".repeat(depth), "]".repeat(depth)))?)
    }

    #[job]
    async fn length(&self, text: String) -> Result<usize, JobFailure> {
        Ok(text.len())
    }

    /// Ends only once the whole barrier runs at the same time.
    #[job]
    async fn meet(&self) {
        self.together.wait().await;
    }

    #[job]
    async fn panic(&self) {
        panic!("password=hunter2 is wrong");
    }

    #[job(timeout = "20ms")]
    async fn sleep_for_ever(&self) {
        std::future::pending::<()>().await;
    }

    #[job(blocking, timeout = "20ms")]
    fn block_for_ever(&self) {
        self.gate.pass();
    }

    #[job(timeout = "20ms")]
    async fn never_yield(&self) {
        self.entered.notify_one();
        self.gate.pass();
    }

    #[job(timeout = "20ms")]
    async fn explode_when_dropped(&self) {
        let bomb = Bomb;
        std::future::pending::<()>().await;
        drop(bomb);
    }
}

fn few(options: &mut RatchetOptions) {
    options.execution.queue("default").slots = SLOTS;
}

async fn node(fx: &Fixture, hostile: &Hostile) -> Node {
    fx.node(|builder| builder.register(hostile.clone()).configure(few)).await
}

async fn open_door(node: &Node) {
    let mut limit = ResourceLimit::new(ResourceName::new(DOOR).expect("a name"), SLOTS);
    limit.retry_delay = Duration::from_millis(5);
    node.client().store().configure_resource(&limit).await.expect("stored");
}

async fn submit<R>(node: &Node, call: Call<R>) -> JobHandle<R> {
    node.enqueue(call).resource(DOOR).submit().await.expect("stored")
}

async fn failed<R>(job: &JobHandle<R>) -> String {
    let job = job.ended().await.expect("it ends");
    assert_eq!(job.status, JobStatus::Failed);
    job.last_error.expect("it has one")
}

/// Checks that no slot or permit leaked: runs one job for each, none of which ends without the others.
async fn every_slot_and_permit_is_free(node: &Node) {
    let mut jobs = Vec::new();
    for _ in 0..SLOTS {
        jobs.push(submit(node, Hostile::job().meet()).await);
    }
    for job in jobs {
        job.result().await.expect("there is room for all");
    }
}

async fn all_jobs(node: &Node) -> Vec<Job> {
    node.client()
        .store()
        .query_jobs(&JobFilter::default(), &PageRequest::first(1_000))
        .await
        .expect("read")
        .jobs
}

// shows: S84 S91 S98 S99 S106 S108
async fn hostile_jobs_end_as_documented_and_the_others_finish(fx: Fixture) {
    let hostile = Hostile::default();
    let node = node(&fx, &hostile).await;
    open_door(&node).await;
    let panics = submit(&node, Hostile::job().panic()).await;
    let sleeps = submit(&node, Hostile::job().sleep_for_ever()).await;
    // It names no resource, since it would keep the permit until its thread is free.
    let blocks = node.enqueue(Hostile::job().block_for_ever()).submit().await.expect("stored");
    let unknown = submit(&node, Call::<()>::new("test.Nobody", "run")).await;
    let undecodable = submit(&node, Call::<()>::new("test.Hostile", "echo").arg(&[1, 2])).await;
    let huge = submit(&node, Hostile::job().length("x".repeat(200 * 1024))).await;
    let mut good = Vec::new();
    for number in 0..20 {
        good.push(submit(&node, Hostile::job().echo(number.to_string())).await);
    }
    for (number, job) in good.iter().enumerate() {
        assert_eq!(job.result().await.expect("it is not disturbed"), number.to_string());
    }
    assert_eq!(failed(&panics).await, "Panic: password=[REDACTED] is wrong");
    assert!(failed(&sleeps).await.starts_with("Timeout: "));
    assert!(failed(&blocks).await.starts_with("Timeout: "), "though its thread is still there");
    assert!(failed(&undecodable).await.starts_with("UndecodableArguments: "));
    assert_eq!(huge.result().await.expect("it succeeds"), 200 * 1024);

    hostile.gate.open();
    every_slot_and_permit_is_free(&node).await;
    node.stop().await;
    let jobs = all_jobs(&node).await;
    assert_eq!(jobs.len(), 26 + SLOTS as usize, "nothing is lost");
    let live: Vec<_> = jobs.iter().filter(|job| job.ending.is_none()).collect();
    let [job] = live[..] else { panic!("all but one have ended") };
    assert_eq!((job.spec.id, job.status, job.attempts), (unknown.id(), JobStatus::Pending, 0));
    for job in [&panics, &sleeps, &blocks] {
        let job = job.job().await.expect("read").expect("there");
        assert_eq!((job.attempts, job.crash_count), (1, 0), "one attempt, once");
    }
}

async fn an_async_body_that_never_yields_keeps_its_slot_and_the_others_finish(fx: Fixture) {
    let hostile = Hostile::default();
    let node = node(&fx, &hostile).await;
    open_door(&node).await;
    let stuck = submit(&node, Hostile::job().never_yield()).await;
    hostile.entered.notified().await;
    for number in 0..20 {
        let job = submit(&node, Hostile::job().echo(number.to_string())).await;
        assert_eq!(job.result().await.expect("it is not disturbed"), number.to_string());
    }
    let running = stuck.job().await.expect("read").expect("there");
    assert_eq!(running.status, JobStatus::Running, "nobody can stop it before it yields");
    hostile.gate.open();
    stuck.result().await.expect("it has done its work, if late");
    every_slot_and_permit_is_free(&node).await;
    node.stop().await;
}

// shows: S62
async fn a_stop_waits_no_longer_for_a_body_that_never_yields(fx: Fixture) {
    let hostile = Hostile::default();
    let soon = |options: &mut RatchetOptions| options.execution.drain_timeout = Duration::from_millis(20);
    let node = fx.node(|builder| builder.register(hostile.clone()).configure(soon)).await;
    let stuck = node.enqueue(Hostile::job().never_yield()).submit().await.expect("stored");
    hostile.entered.notified().await;
    node.stop().await;
    assert_eq!(node.readiness(), Readiness::Stopped);
    let left = stuck.job().await.expect("read").expect("there");
    assert_eq!(left.picked_by, Some(node.owner()), "it is recovered after the lease");
    hostile.gate.open();
}

/// Returns a text with which the payload of `length` has `payload_bytes` bytes.
fn text_for(payload_bytes: usize) -> String {
    let empty = JsonText::of(&[""]).expect("JSON");
    let empty = JobPayload::new("test.Hostile", "length", &empty).expect("names");
    "x".repeat(payload_bytes - empty.text().as_str().len())
}

async fn a_payload_at_the_limit_runs_and_one_above_it_is_refused(fx: Fixture) {
    let node = node(&fx, &Hostile::default()).await;
    let limit = Limits::default().payload_bytes;
    let text = text_for(limit);
    let jobs = (0..8).map(|_| node.enqueue(Hostile::job().length(text.clone())).submit());
    for job in futures::future::join_all(jobs).await {
        assert_eq!(job.expect("stored").result().await.expect("it runs"), text.len());
    }
    let refused = node.enqueue(Hostile::job().length(text_for(limit + 1))).submit().await;
    let Err(SubmitError::Invalid(InvalidSubmission::TooLarge { what, len, max })) = refused else {
        panic!("it is refused, not {refused:?}")
    };
    assert_eq!((what, len, max), ("payload", limit + 1, limit));
    let deep: Call<()> = Call::new("test.Hostile", "length").arg(&nested(65));
    let refused = node.enqueue(deep).submit().await;
    assert!(matches!(refused, Err(SubmitError::Invalid(InvalidSubmission::TooDeep { .. }))), "{refused:?}");
    assert_eq!(all_jobs(&node).await.len(), 8, "nothing of what was refused is stored");
    node.stop().await;
}

async fn limits_are_set_in_one_place_for_a_node_and_for_a_client(fx: Fixture) {
    let (default, raised) = (Limits::default(), 1024 * 1024);
    let raise = |options: &mut RatchetOptions| {
        options.limits.payload_bytes = raised;
        options.limits.result_bytes = raised;
    };
    let node = fx.node(|builder| builder.register(Hostile::default()).configure(raise)).await;
    let client = Ratchet::builder_shared(fx.store().await).configure(raise).client().expect("good options");
    let (text, over) = (text_for(raised), text_for(raised + 1));
    assert!(text.len() > default.payload_bytes);
    let jobs = [
        node.enqueue(Hostile::job().length(text.clone())).submit().await,
        client.enqueue(Hostile::job().length(text.clone())).submit().await,
    ];
    for job in jobs {
        assert_eq!(job.expect("stored").result().await.expect("it runs"), text.len());
    }
    let refused = client.enqueue(Hostile::job().length(over)).submit().await.expect_err("above the limit");
    assert!(
        matches!(refused, SubmitError::Invalid(InvalidSubmission::TooLarge { max, .. }) if max == raised)
    );
    let too_much = Ratchet::builder_shared(fx.store().await)
        .configure(|options| options.limits.payload_bytes = Limits::HARD_CAP_BYTES + 1)
        .client();
    assert!(too_much.expect_err("out of range").to_string().contains("payload_bytes"));
    node.stop().await;
}

fn nested(depth: usize) -> serde_json::Value {
    (0..depth).fold(serde_json::Value::Null, |inner, _| serde_json::Value::Array(vec![inner]))
}

// shows: S86
async fn a_result_at_the_limit_is_kept_and_one_above_it_is_not(fx: Fixture) {
    let node = node(&fx, &Hostile::default()).await;
    // The quotes of the JSON string count as well.
    let fits = "x".repeat(Limits::default().result_bytes - 2);
    let kept = node.enqueue(Hostile::job().echo(fits.clone())).submit().await.expect("stored");
    assert_eq!(kept.result().await.expect("it is there"), fits);
    let dropped = node.enqueue(Hostile::job().echo(fits + "x")).submit().await.expect("stored");
    let ended = dropped.ended().await.expect("it ends");
    assert_eq!(ended.status, JobStatus::Succeeded);
    assert_eq!(ended.ending.and_then(|ending| ending.result), None);
    let missing = dropped.result().await.expect_err("it is not kept");
    let said = "not kept: 65,537 bytes, the limit is 65,536 (`limits.result_bytes`)";
    assert!(missing.to_string().contains(said), "{missing}");
    let ResultError::NotKept { id, reason } = missing else { panic!("it says why") };
    assert_eq!((id, reason.as_deref()), (dropped.id(), Some(said)));
    assert_eq!(node.until_logged(dropped.id(), "the result is not kept: ").await.level, LogLevel::Warn);

    let kept = node.enqueue(Hostile::job().nest(64)).submit().await.expect("stored");
    assert_eq!(kept.result().await.expect("it is there").get().len(), 2 * 64);
    let deep = node.enqueue(Hostile::job().nest(65)).submit().await.expect("stored");
    let ended = deep.ended().await.expect("it ends");
    assert_eq!(ended.status, JobStatus::Succeeded);
    let missing = deep.result().await.expect_err("it is not kept").to_string();
    assert!(missing.contains("not kept: 65 levels, the limit is 64 (`limits.json_depth`)"), "{missing}");
    let awaited = node.enqueue(Hostile::job().nest(30_000)).on_success(&Hostile::job().echo("".to_owned()));
    let said = "ResultTooDeep: 30,000 levels, the limit is 64 (`limits.json_depth`)";
    assert_eq!(failed(&awaited.submit().await.expect("stored")).await, said);
    node.stop().await;
}

/// Registers a service for the target `test.Nobody`.
fn knows(builder: SchedulerBuilder) -> SchedulerBuilder {
    let method = Method::function("test.Nobody", "run", |_, ()| async { Ok::<_, JobFailure>("at last") });
    builder.method(method.expect("the names are good"))
}

async fn a_job_with_an_unknown_target_waits_for_a_node_that_knows_it(fx: Fixture) {
    let ignorant = node(&fx, &Hostile::default()).await;
    let job = ignorant.enqueue(Call::<String>::new("test.Nobody", "run")).submit().await.expect("stored");
    let parked = ignorant.until(job.id(), |job| job.parked_on.is_some()).await;
    assert_eq!((parked.status, parked.attempts, parked.crash_count), (JobStatus::Pending, 0, 0));
    assert_eq!(parked.parked_on, Some(ParkedOn::Method("test.Nobody.run".to_owned())));
    // Later jobs are not held up by the unknown one, which is not claimed again.
    let other = ignorant.enqueue(Hostile::job().echo("x".into())).submit().await.expect("stored");
    other.result().await.expect("it runs");
    assert_eq!(job.job().await.expect("read").expect("there").fence, parked.fence);
    ignorant.stop().await;
    let wise = fx.node(knows).await;
    assert_eq!(job.result().await.expect("it runs"), "at last");
    wise.stop().await;
}

async fn a_job_with_an_unknown_target_is_a_dead_letter_if_the_operator_says_so(fx: Fixture) {
    let impatient = |options: &mut RatchetOptions| {
        options.execution.unknown_target_limit = Some(Duration::from_millis(100));
    };
    let node = fx.node(|builder| builder.register(Hostile::default()).configure(impatient)).await;
    let job = node.enqueue(Call::<()>::new("test.Nobody", "run")).submit().await.expect("stored");
    assert_eq!(failed(&job).await, "UnknownTarget: no node has known method `test.Nobody.run` for 100ms");
    node.stop().await;
}

// shows: S91 S95
async fn arguments_that_no_longer_decode_use_the_retries_up_and_stay_as_they_were(fx: Fixture) {
    let node = node(&fx, &Hostile::default()).await;
    let old: Call<()> = Call::new("test.Hostile", "echo").arg(&serde_json::json!({ "text": 1 }));
    let job = node.enqueue(old).max_retries(2).submit().await.expect("stored");
    assert!(failed(&job).await.starts_with("UndecodableArguments: "));
    let job = job.job().await.expect("read").expect("there");
    assert_eq!(job.attempts, 3);
    let text = job.spec.payload.text().as_str().to_owned();
    assert!(text.contains(r#"[{"text":1}]"#), "{text}");
    node.stop().await;
}

/// A retry policy that panics when it is asked.
struct Moody;

impl RetryPolicy for Moody {
    fn should_retry(&self, _: u32, _: &JobFailure) -> bool {
        panic!("do not ask me");
    }
}

// shows: S84
async fn a_plug_that_panics_costs_one_job_and_no_slot(fx: Fixture) {
    let hostile = Hostile::default();
    let node = fx.node(|builder| builder.register(hostile.clone()).configure(few).retry_policy(Moody)).await;
    open_door(&node).await;
    let job = submit(&node, Hostile::job().panic()).await;
    assert_eq!(failed(&job).await, "Panic: do not ask me");
    every_slot_and_permit_is_free(&node).await;
    node.stop().await;
}

// shows: S84
async fn a_body_that_panics_when_it_is_dropped_is_a_dead_letter(fx: Fixture) {
    let hostile = Hostile::default();
    let node = node(&fx, &hostile).await;
    open_door(&node).await;
    let job = submit(&node, Hostile::job().explode_when_dropped()).await;
    assert_eq!(failed(&job).await, "Panic: even now");
    every_slot_and_permit_is_free(&node).await;
    node.stop().await;
}
