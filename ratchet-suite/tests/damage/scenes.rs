//! Rows in every state that a row can be in, many instances of each, which are recognized by names of their own.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use ratchet_api::store::{NewRecurring, PermitRequest, ProgressReport, Retention};
use ratchet_api::{
    BatchId, Comparison, Condition, DeadReason, Edge, End, ErrorRecord, Fire, JobId, JsonText, LockName,
    LogLevel, NewBatch, NewDlqAlert, NewJob, NewLogLine, Owner, Recurrence, ResourceLimit, ResultTest,
    Submission, Timestamp,
};

use crate::stage::{HOUR, Instance, Stage, call, full, named, text};

pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// Tables that are left out because another scene has their rows in the same state.
    pub(crate) skip: &'static [&'static str],
    pub(crate) build: for<'a> fn(&'a Stage, usize) -> BoxFuture<'a, Vec<Instance>>,
}

const JOB_TABLES: &[&str] = &[
    "scheduler_job",
    "scheduler_job_queue",
    "scheduler_job_tag",
    "scheduler_business_key_reservation",
    "scheduler_idempotency_key",
];

macro_rules! scenes {
    ($($build:ident, $skip:expr;)*) => {
        pub(crate) const SCENES: &[Scene] =
            &[$(Scene { name: stringify!($build), skip: $skip, build: |stage, count| Box::pin($build(stage, count)) }),*];
    };
}

scenes! {
    archived, &[];
    dead_node, JOB_TABLES;
    live_node, JOB_TABLES;
    waiting, &[];
    running, &["scheduler_job_tag", "scheduler_business_key_reservation", "scheduler_idempotency_key"];
    linked, &["scheduler_job_tag", "scheduler_business_key_reservation", "scheduler_idempotency_key"];
    batched, &["scheduler_job_tag", "scheduler_business_key_reservation", "scheduler_idempotency_key"];
    scheduled, &["scheduler_job_tag", "scheduler_idempotency_key", "scheduler_job_queue"];
    paused, &["scheduler_job_tag", "scheduler_business_key_reservation", "scheduler_idempotency_key"];
    failed, &["scheduler_job_tag", "scheduler_idempotency_key"];
    locked, &[];
    paused_queue, JOB_TABLES;
    limited, JOB_TABLES;
}

/// Makes many calls at once.
async fn all<F: Future<Output = Instance>>(calls: impl Iterator<Item = F>) -> Vec<Instance> {
    futures::stream::iter(calls).buffered(16).collect().await
}

fn error() -> ErrorRecord {
    ErrorRecord::new("test.Worker", text("TestError"), text("TestError: told to fail"))
}

async fn archived(stage: &Stage, count: usize) -> Vec<Instance> {
    let jobs = stage.insert(count, full).await;
    let claims = stage.take(&stage.dying, &jobs).await;
    stage.end(&claims, End::Succeeded { result: Some(JsonText::parse("7").expect("JSON")) }).await;
    let at_once = Retention { ended: Duration::ZERO, failed: Duration::ZERO };
    let mut moved = 0;
    while moved < count as u64 {
        moved += stage.store.archive(&at_once, 200).await.expect("an answer");
    }
    stage.singles(&jobs)
}

async fn waiting(stage: &Stage, count: usize) -> Vec<Instance> {
    let jobs = stage.insert(count, full).await;
    stage.singles(&jobs)
}

/// Builds jobs held by a node that dies, after a first attempt that failed, with all that a body can leave behind.
async fn running(stage: &Stage, count: usize) -> Vec<Instance> {
    let jobs = stage.insert(count, full).await;
    let first = stage.take(&stage.dying, &jobs).await;
    stage.end(&first, End::Retry { delay: Duration::ZERO, error: error() }).await;
    let claims = stage.take(&stage.dying, &jobs).await;
    for part in claims.chunks(200) {
        let wants = part.iter().map(|claim| PermitRequest {
            id: claim.id,
            fence: claim.fence,
            resource: named("shared"),
        });
        stage.store.acquire(&stage.dying, &wants.collect::<Vec<_>>()).await.expect("an answer");
        let reports = part.iter().map(|claim| ProgressReport {
            id: claim.id,
            fence: claim.fence,
            done: 1,
            total: Some(2),
            message: Some(text("half")),
        });
        stage.store.report_progress(&reports.collect::<Vec<_>>()).await.expect("an answer");
        let lines = part.iter().map(|claim| NewLogLine {
            job: claim.id,
            fence: claim.fence,
            level: LogLevel::Info,
            message: text("a line"),
        });
        stage.store.append_logs(&lines.collect::<Vec<_>>()).await.expect("an answer");
    }
    stage.singles(&jobs)
}

async fn linked(stage: &Stage, count: usize) -> Vec<Instance> {
    let test = ResultTest { pointer: String::new(), op: Comparison::Eq, value: 7.into() };
    let new = |_| {
        let (parent, child) = (full(), full());
        let edge = Edge::new(parent.spec.id, child.spec.id, Condition::ResultValue(test.clone()));
        let mut both = Submission::default();
        (both.jobs, both.edges) = (vec![parent, child], vec![edge]);
        both
    };
    submit_all(stage, (0..count).map(new).collect()).await
}

async fn batched(stage: &Stage, count: usize) -> Vec<Instance> {
    let new = |_| {
        let (parent, mut child) = (full(), full());
        child.spec.batch = Some(BatchId::of(parent.spec.id));
        let mut both = Submission::default();
        (both.jobs, both.batch) = (vec![parent, child], Some(NewBatch { closed: true }));
        both
    };
    submit_all(stage, (0..count).map(new).collect()).await
}

async fn submit_all(stage: &Stage, all: Vec<Submission>) -> Vec<Instance> {
    stage.submit(&all).await;
    let jobs = |both: &Submission| both.jobs.iter().map(|job| job.spec.id).collect::<Vec<_>>();
    all.iter().map(|both| stage.instance(&jobs(both), &[])).collect()
}

/// Builds schedules that have fired once and are due again.
async fn scheduled(stage: &Stage, count: usize) -> Vec<Instance> {
    let now = stage.store.database_time().await.expect("the time");
    let before = Timestamp::from_millis(now.as_millis() - 1_000);
    let saved = all((0..count).map(|_| async {
        let spec = full().spec;
        let (id, key) = (spec.id, spec.business_key.clone().expect("a key"));
        let recurrence = Recurrence::new("0 0 0 1 1 *", "UTC", Some(before));
        stage.store.save_recurring(&NewRecurring::new(key, spec, recurrence)).await.expect("it is saved");
        stage.instance(&[id], &[])
    }));
    let saved = saved.await;
    let fire = |instance: &Instance| {
        let mut fire = Submission::single(NewJob::new(call()));
        fire.fire = Some(Fire { master: instance.jobs[0], instant: before, next_fire: Some(now) });
        fire
    };
    stage.submit(&saved.iter().map(fire).collect::<Vec<_>>()).await;
    saved
}

async fn paused(stage: &Stage, count: usize) -> Vec<Instance> {
    let jobs = stage.insert(count, full).await;
    for part in jobs.chunks(200) {
        let part: Vec<_> = part.iter().map(|job| (*job).into()).collect();
        stage.store.pause(&part).await.expect("an answer");
    }
    stage.singles(&jobs)
}

async fn failed(stage: &Stage, count: usize) -> Vec<Instance> {
    let jobs = stage.insert(count, full).await;
    let claims = stage.take(&stage.dying, &jobs).await;
    stage.end(&claims, End::DeadLetter { error: error(), reason: DeadReason::Exhausted }).await;
    let alerted = jobs.into_iter().map(|job| async move {
        let error = ErrorRecord::new(&job.to_string(), text("TestError"), text("told"));
        let alert = NewDlqAlert {
            job,
            error_hash: "hash".to_owned(),
            fingerprint: error.fingerprint.clone(),
            window: HOUR,
        };
        stage.store.record_alerts(&[alert]).await.expect("it is recorded");
        stage.instance(&[job], &[error.fingerprint.as_str()])
    });
    all(alerted).await
}

async fn nodes(stage: &Stage, count: usize, dies: bool) -> Vec<Instance> {
    let jobs = stage.insert(count, || NewJob::new(call())).await;
    let held = jobs.into_iter().map(|job| async move {
        let owner = Owner::incarnate("other");
        stage.join(&owner).await;
        stage.take(&owner, &[job]).await;
        if dies {
            stage.die(&owner).await;
        }
        stage.instance(&[job], &[owner.as_str()])
    });
    all(held).await
}

async fn dead_node(stage: &Stage, count: usize) -> Vec<Instance> {
    nodes(stage, count, true).await
}

async fn live_node(stage: &Stage, count: usize) -> Vec<Instance> {
    nodes(stage, count, false).await
}

async fn locked(stage: &Stage, count: usize) -> Vec<Instance> {
    all((0..count).map(|_| async {
        let name = JobId::generate().to_string();
        let lock = LockName::new(name.clone()).expect("a name");
        stage.store.try_lock(&lock, HOUR, &stage.dying).await.expect("an answer");
        stage.instance(&[], &[&name])
    }))
    .await
}

async fn paused_queue(stage: &Stage, count: usize) -> Vec<Instance> {
    all((0..count).map(|_| async {
        let name = JobId::generate().to_string();
        stage.store.set_queue_paused(&named(&name), true).await.expect("an answer");
        stage.instance(&[], &[&name])
    }))
    .await
}

async fn limited(stage: &Stage, count: usize) -> Vec<Instance> {
    all((0..count).map(|_| async {
        let mut job = NewJob::new(call());
        let name = job.spec.id.to_string();
        let mut limit = ResourceLimit::new(named(&name), 1);
        limit.retry_delay = HOUR;
        stage.store.configure_resource(&limit).await.expect("it is configured");
        job.spec.resource = Some(limit.name);
        let id = job.spec.id;
        stage.submit(&[Submission::single(job)]).await;
        stage.instance(&[id], &[&name])
    }))
    .await
}
