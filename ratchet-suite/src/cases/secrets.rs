//! Text that jobs produce, by every way out of a job: no secret in it, no forged log line, no more than its limit.

use std::time::Duration;

use ratchet_api::store::{JobFilter, PageRequest};
use ratchet_api::{JobType, Limits, Sanitized, is_deceptive};
use ratchet_core::{Call, JobContext, JobFailure, jobs};

use crate::{Fixture, Line, Node};

crate::cases! {
    no_secret_leaves_a_job_by_any_way;
    no_text_of_a_job_forges_a_log_line;
    what_a_job_tells_about_itself_is_limited;
}

/// The secret, which occurs in no payload.
const CANARY: &str = "hunter2";
const FORGED: &str = "\nERROR forged\u{2028}\u{85}\r\u{9b}2K";

/// Returns texts that carry the secret, as errors and logs do.
fn carriers() -> [String; 8] {
    [
        format!("postgres://app:{CANARY}@db/x"),
        format!("password={CANARY}"),
        format!(r#"{{\"token\":\"{CANARY}\"}}"#),
        format!("Login(Password({CANARY:?}))"),
        format!("sent bearer {CANARY}"),
        format!("Secret {{ value: {CANARY:?} }}"),
        format!("mysql -u app -p{CANARY} shop"),
        format!("Cookie: session={CANARY}"),
    ]
}

fn spilled() -> String {
    carriers().join(", ")
}

#[derive(Debug, thiserror::Error)]
#[error("the outer error of {}", carriers()[1])]
struct Outer(#[source] std::io::Error);

#[derive(Default)]
struct Spills;

#[jobs(target = "test.Spills")]
impl Spills {
    #[job]
    async fn panic(&self) {
        panic!("{}", spilled());
    }

    #[job(blocking)]
    fn panic_blocking(&self) {
        panic!("{}", spilled());
    }

    #[job]
    async fn fail(&self) -> Result<(), JobFailure> {
        Err(JobFailure::new(spilled(), spilled()).do_not_retry(spilled()))
    }

    #[job]
    async fn fail_with_a_cause(&self) -> Result<(), JobFailure> {
        Err(Outer(std::io::Error::other(spilled())).into())
    }

    #[job]
    async fn tell(&self, ctx: &JobContext) {
        for text in carriers() {
            ctx.trace(&text);
            ctx.error(&text);
            ctx.progress(1, 2, text).await;
        }
        ctx.progress(2, 2, spilled()).await;
    }

    #[job]
    async fn ask(&self, ctx: &JobContext) {
        ctx.canceled().await;
    }

    #[job]
    async fn take(&self, number: u32) -> Result<u32, JobFailure> {
        Ok(number)
    }

    #[job]
    async fn after(&self, ctx: &JobContext) {
        ctx.info(format!("{:?}", ctx.cause()));
    }

    #[job]
    async fn forge(&self, ctx: &JobContext) -> Result<(), JobFailure> {
        ctx.info(format!("line{FORGED}"));
        ctx.progress(1, 2, format!("progress{FORGED}")).await;
        Err(JobFailure::new("Forged", format!("error{FORGED}")).do_not_retry(format!("reason{FORGED}")))
    }

    #[job]
    async fn chatter(&self, ctx: &JobContext) {
        (0..10_000).for_each(|_| ctx.debug(""));
        ctx.progress(1, 2, "x".repeat(4 << 20)).await;
    }
}

/// Returns everything that is stored about every job, except its payload and the params that it was given.
async fn all_that_is_known(node: &Node) -> Vec<String> {
    let jobs = node
        .client()
        .store()
        .query_jobs(&JobFilter::default(), &PageRequest::first(1_000))
        .await
        .expect("read")
        .jobs;
    let mut known = Vec::new();
    for job in jobs {
        let id = job.spec.id;
        let story = node.client().store().job_story(id).await.expect("read").expect("there");
        known.push(format!("{story:?}"));
        known.extend([job.last_error, job.cancel_reason].into_iter().flatten());
        known.extend(job.progress.and_then(|progress| progress.message));
        known.extend(job.spec.params.map(|cause| cause.as_str().to_owned()));
        known.extend(story.logs.into_iter().map(|line| line.message));
        for attempt in story.executions {
            known.extend([attempt.error, attempt.error_class].into_iter().flatten());
        }
        known.extend(node.kinds_of(id));
        known.extend(node.lines(id).iter().map(|line| format!("{line:?}")));
    }
    known
}

/// Waits until `wanted` callbacks have ended.
async fn callbacks(node: &Node, wanted: usize) {
    let mut filter = JobFilter::default();
    filter.types = vec![JobType::Callback];
    loop {
        let jobs =
            node.client().store().query_jobs(&filter, &PageRequest::first(100)).await.expect("read").jobs;
        if jobs.iter().filter(|job| job.ending.is_some()).count() >= wanted {
            return;
        }
        tokio::task::yield_now().await;
    }
}

// shows: S108
async fn no_secret_leaves_a_job_by_any_way(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Spills)).await;
    let mut jobs = Vec::new();
    for call in [
        Spills::job().panic(),
        Spills::job().panic_blocking(),
        Spills::job().fail(),
        Spills::job().fail_with_a_cause(),
        Call::new("test.Spills", "take").arg(CANARY),
        Spills::job().tell(),
    ] {
        jobs.push(node.enqueue(call).on_failure(&Spills::job().after()).submit().await.expect("stored"));
    }
    let running = node.enqueue(Spills::job().ask()).submit().await.expect("stored");
    node.until(running.id(), |job| job.picked_by.is_some()).await;
    let waiting =
        node.enqueue(Spills::job().ask()).delay(Duration::from_hours(1)).submit().await.expect("stored");
    for job in [running, waiting] {
        node.client().cancel(job.id(), &spilled()).await.expect("answered");
        jobs.push(job);
    }
    for job in &jobs {
        job.ended().await.expect("it ends");
    }
    callbacks(&node, 5).await;
    node.stop().await;

    let known = all_that_is_known(&node).await;
    assert!(known.len() > 60, "{known:#?}");
    let leaks: Vec<_> = known.iter().filter(|text| text.contains(CANARY)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

// shows: S108
async fn no_text_of_a_job_forges_a_log_line(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Spills)).await;
    let job = node.enqueue(Spills::job().forge()).submit().await.expect("stored");
    let ended = job.ended().await.expect("it ends");
    node.stop().await;
    assert_eq!(
        ended.last_error.expect("it has one"),
        "Forged: error\nERROR forged2K",
        "as it came, but visible"
    );
    let story = node.client().store().job_story(job.id()).await.expect("read").expect("there");
    assert_eq!(story.logs[0].message, "line\nERROR forged2K");
    assert_eq!(
        story.job.progress.and_then(|progress| progress.message).expect("told"),
        "progress\nERROR forged2K"
    );
    let lines = node.lines(job.id());
    for told in [r"line\nERROR forged2K", r"Forged: error\nERROR forged2K", r"reason\nERROR forged2K"] {
        assert!(
            lines.iter().any(|line| line.fields.values().any(|value| value == told)),
            "{told}: {lines:#?}"
        );
    }
    let forged = |line: &&Line| line.fields.values().any(|value| value.chars().any(is_deceptive));
    assert!(!lines.iter().any(|line| forged(&line)), "{lines:#?}");
}

async fn what_a_job_tells_about_itself_is_limited(fx: Fixture) {
    let node = fx.node(|builder| builder.register(Spills)).await;
    let job = node.enqueue(Spills::job().chatter()).submit().await.expect("stored");
    job.result().await.expect("it succeeds");
    let most = Limits::default().log_bytes / Limits::LOG_LINE_OVERHEAD;
    let lines = node.client().store().logs(job.id(), None, 10_000).await.expect("read");
    assert_eq!(lines.len(), most, "empty lines count too");
    let progress = node.until(job.id(), |job| job.progress.is_some()).await.progress.expect("told");
    let message = progress.message.expect("told");
    assert!(
        message.len() <= Sanitized::MAX_LEN && message.ends_with("[truncated]"),
        "{} bytes",
        message.len()
    );
    node.stop().await;
}
