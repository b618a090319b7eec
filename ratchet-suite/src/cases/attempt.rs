//! The frame of an attempt around its body: span, context, log, trace, events.

use std::sync::Arc;
use std::time::Duration;

use ratchet_api::spi::JobEventListener;
use ratchet_api::store::{JobFilter, JobStore, PageRequest};
use ratchet_api::{JobEvent, JobEventKind, JobId, JobStatus, Limits, LogLevel};
use ratchet_core::{Backoff, JobContext, JobError, JobFailure, TraceParent, jobs};
use tokio::runtime::Handle;
use tokio::sync::Barrier;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tracing::Level;

use crate::{Fixture, Line, Node};

crate::cases! {
    every_line_that_a_body_logs_carries_its_job_and_node;
    the_context_is_found_from_anywhere_inside_a_body;
    a_line_is_kept_and_emitted_at_its_level;
    what_is_logged_beyond_the_limit_is_dropped;
    a_result_that_is_too_large_is_not_kept_and_the_job_succeeds;
    an_error_that_forbids_a_retry_says_why_in_the_log;
    a_timeout_has_a_warning_of_its_own_and_one_before_it;
    nothing_of_an_attempt_is_left_for_the_next;
    bodies_hold_no_connection;
    a_trace_leads_from_the_request_to_every_attempt;
    a_job_that_a_body_enqueues_belongs_to_its_trace;
    an_end_is_told_only_when_it_can_be_read;
}

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[derive(Clone)]
struct Talker {
    together: Arc<Barrier>,
}

impl Default for Talker {
    fn default() -> Self {
        Self { together: Arc::new(Barrier::new(16)) }
    }
}

#[derive(Debug, thiserror::Error, JobError)]
#[error("declined")]
#[do_not_retry("token=abcdef123456 is not welcome")]
struct Declined;

/// Logs a line and reads the context, which nobody passed to it.
fn helper() -> String {
    tracing::info!("from a helper");
    JobContext::current().job_id().to_string()
}

#[jobs(target = "test.Talker")]
impl Talker {
    #[job]
    async fn talk(&self, ctx: &JobContext) -> Result<Vec<String>, JobFailure> {
        tracing::info!("from the body");
        let scoped = tokio::spawn(ctx.scope(async { helper() })).await?;
        let work = ctx.clone();
        let blocking = tokio::task::spawn_blocking(move || work.scope_blocking(helper)).await?;
        let alone = tokio::spawn(async { JobContext::try_current().is_none() }).await?;
        Ok(vec![helper(), scoped, blocking, alone.to_string()])
    }

    #[job(blocking)]
    fn block(&self) -> Result<String, JobFailure> {
        Ok(helper())
    }

    #[job]
    async fn every_level(&self, ctx: &JobContext) {
        ctx.trace("at TRACE");
        ctx.debug("at DEBUG");
        ctx.info("at INFO");
        ctx.warn("at WARN");
        ctx.error("at ERROR");
    }

    #[job(max_retries = 5)]
    async fn decline(&self) -> Result<(), Declined> {
        Err(Declined)
    }

    #[job(timeout = "50ms")]
    async fn sleep_for_ever(&self) {
        std::future::pending::<()>().await;
    }

    #[job(max_retries = 1)]
    async fn fail_at_first(&self, ctx: &JobContext) -> Result<Attempted, JobFailure> {
        ctx.enqueue(Self::job().every_level()).submit().await?;
        ctx.info(format!("attempt {}", ctx.attempt()));
        match ctx.attempt() {
            1 => Err(JobFailure::new("Told", "to fail")),
            attempt => Ok((attempt, ctx.fence().version())),
        }
    }

    #[job]
    async fn meet(&self, ctx: &JobContext) -> Result<bool, JobFailure> {
        self.together.wait().await;
        Ok(ctx.client().store().find(&[ctx.job_id()]).await?.len() == 1)
    }

    #[job(max_retries = 1)]
    async fn trace(&self, ctx: &JobContext) -> Result<Option<Traced>, JobFailure> {
        if ctx.attempt() == 1 {
            tracing::info!("first");
            return Err(JobFailure::new("Told", "to fail"));
        }
        tracing::info!("second");
        Ok(ctx.trace_context().map(|trace| (trace.parent.to_string(), trace.span.to_string())))
    }

    #[job]
    async fn pass_on(&self, ctx: &JobContext) -> Result<[Option<String>; 3], JobFailure> {
        let with_outcome = ctx.enqueue(Self::job().every_level()).submit().await?;
        let at_once = ctx.client().enqueue(Self::job().every_level()).submit().await?;
        let span = ctx.trace_context().map(|trace| trace.span.to_string());
        Ok([span, Some(with_outcome.id().to_string()), Some(at_once.id().to_string())])
    }
}

/// The number of an attempt, and its fence.
type Attempted = (u32, i64);

/// The span in which a job was enqueued, and that of its attempt.
type Traced = (String, String);

async fn talker(fx: &Fixture) -> Node {
    let fast = Backoff::Fixed(Duration::from_millis(1));
    fx.node(|builder| builder.register(Talker::default()).configure(|options| options.retry.backoff = fast))
        .await
}

fn saying<'l>(lines: &'l [Line], message: &str) -> Vec<&'l Line> {
    lines.iter().filter(|line| line.message() == message).collect()
}

// shows: S72
async fn every_line_that_a_body_logs_carries_its_job_and_node(fx: Fixture) {
    let node = talker(&fx).await;
    let job = node.enqueue(Talker::job().talk()).submit().await.expect("stored");
    job.result().await.expect("it succeeds");
    let blocking = node.enqueue(Talker::job().block()).submit().await.expect("stored");
    blocking.result().await.expect("it succeeds");
    for (id, message, times) in
        [(job.id(), "from the body", 1), (job.id(), "from a helper", 3), (blocking.id(), "from a helper", 1)]
    {
        let lines = node.lines(id);
        let found = saying(&lines, message);
        assert_eq!(found.len(), times, "{message}: {lines:#?}");
        assert!(found.iter().all(|line| line.field("node") == node.owner().to_string()), "{found:#?}");
    }
    node.stop().await;
}

// shows: S73
async fn the_context_is_found_from_anywhere_inside_a_body(fx: Fixture) {
    let node = talker(&fx).await;
    assert!(JobContext::try_current().is_none(), "this is no body");
    let job = node.enqueue(Talker::job().talk()).submit().await.expect("stored");
    let id = job.id().to_string();
    assert_eq!(job.result().await.expect("it succeeds"), [&id, &id, &id, "true"]);
    let blocking = node.enqueue(Talker::job().block()).submit().await.expect("stored");
    assert_eq!(blocking.result().await.expect("it succeeds"), blocking.id().to_string());
    node.stop().await;
}

async fn a_line_is_kept_and_emitted_at_its_level(fx: Fixture) {
    let node = talker(&fx).await;
    let job = node.enqueue(Talker::job().every_level()).submit().await.expect("stored");
    job.result().await.expect("it succeeds");
    let story = node.client().store().job_story(job.id()).await.expect("read").expect("there");
    let kept: Vec<_> = story.logs.iter().map(|line| (line.level, line.message.clone())).collect();
    let expected = LogLevel::ALL.map(|level| (level, format!("at {}", level.as_str())));
    assert_eq!(kept, expected);
    let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
    for (level, (_, message)) in levels.into_iter().zip(&expected) {
        let lines = node.lines(job.id());
        assert_eq!(saying(&lines, message).iter().map(|line| line.level).collect::<Vec<_>>(), [level]);
    }
    node.stop().await;
}

async fn what_is_logged_beyond_the_limit_is_dropped(fx: Fixture) {
    let little = "at TRACE at DEBUG".len() + 2 * Limits::LOG_LINE_OVERHEAD;
    let node = fx
        .node(|builder| {
            builder.register(Talker::default()).configure(|options| options.limits.log_bytes = little)
        })
        .await;
    let job = node.enqueue(Talker::job().every_level()).submit().await.expect("stored");
    job.result().await.expect("it succeeds");
    let story = node.client().store().job_story(job.id()).await.expect("read").expect("there");
    assert_eq!(story.logs.len(), 2);
    let lines = node.lines(job.id());
    assert_eq!(saying(&lines, "the job logs more than is kept")[0].field("dropped"), "3");
    node.stop().await;
}

async fn a_result_that_is_too_large_is_not_kept_and_the_job_succeeds(fx: Fixture) {
    let node = fx
        .node(|builder| {
            builder.register(Talker::default()).configure(|options| options.limits.result_bytes = 4)
        })
        .await;
    let job = node.enqueue(Talker::job().block()).submit().await.expect("stored");
    let ended = job.ended().await.expect("it ends");
    assert_eq!((ended.status, ended.ending.and_then(|ending| ending.result)), (JobStatus::Succeeded, None));
    node.stop().await;
}

// shows: S93
async fn an_error_that_forbids_a_retry_says_why_in_the_log(fx: Fixture) {
    let node = talker(&fx).await;
    let job = node.enqueue(Talker::job().decline()).submit().await.expect("stored");
    job.result().await.expect_err("it fails");
    let lines = node.lines(job.id());
    let [line] = saying(&lines, "the error forbids a retry")[..] else { panic!("once: {lines:#?}") };
    assert_eq!((line.level, line.field("reason")), (Level::WARN, "token=[REDACTED] is not welcome"));
    node.stop().await;
}

// shows: S107
async fn a_timeout_has_a_warning_of_its_own_and_one_before_it(fx: Fixture) {
    let node = talker(&fx).await;
    let job = node.enqueue(Talker::job().sleep_for_ever()).submit().await.expect("stored");
    job.result().await.expect_err("it fails");
    let warnings: Vec<_> =
        node.lines(job.id()).into_iter().filter(|line| line.level == Level::WARN).collect();
    let said: Vec<_> = warnings.iter().map(Line::message).collect();
    let expected =
        ["the job has used most of its time", "the job takes longer than its timeout and is stopped"];
    assert_eq!(said, expected);
    assert_eq!((warnings[0].field("percent"), warnings[1].field("limit")), ("80", "50ms"));
    node.stop().await;
}

// shows: S70
async fn nothing_of_an_attempt_is_left_for_the_next(fx: Fixture) {
    let node = talker(&fx).await;
    let job = node.enqueue(Talker::job().fail_at_first()).submit().await.expect("stored");
    assert_eq!(job.result().await.expect("it succeeds"), (2, 4), "claimed, failed, claimed again");
    let story = node.client().store().job_story(job.id()).await.expect("read").expect("there");
    let logs: Vec<_> = story.logs.iter().map(|line| (line.fence.version(), line.message.as_str())).collect();
    assert_eq!(logs, [(2, "attempt 1"), (4, "attempt 2")]);
    node.told_times(2, |kind| matches!(kind, JobEventKind::Completed { .. })).await;
    let jobs = JobFilter::default();
    let all = node.client().store().query_jobs(&jobs, &PageRequest::first(10)).await.expect("read");
    assert_eq!(all.jobs.len(), 2, "what the failed attempt wanted to enqueue is gone");
    node.stop().await;
}

// shows: S82
async fn bodies_hold_no_connection(fx: Fixture) {
    let node = talker(&fx).await;
    // More than any store of these cases has connections; each goes on only when all are inside.
    let jobs = node.client().enqueue_many((0..16).map(|_| Talker::job().meet())).await.expect("stored");
    for job in jobs {
        assert!(job.expect("stored").result().await.expect("it reads while the others wait"));
    }
    node.stop().await;
}

async fn a_trace_leads_from_the_request_to_every_attempt(fx: Fixture) {
    let node = talker(&fx).await;
    let job = node.enqueue(Talker::job().trace()).trace_parent(CALLER).submit().await.expect("stored");
    let (parent, second) = job.result().await.expect("it succeeds").expect("it has a trace");
    assert_eq!(parent, CALLER);
    let (caller, second): (TraceParent, TraceParent) =
        (CALLER.parse().expect("valid"), second.parse().expect("valid"));
    let lines = node.lines(job.id());
    let (first_line, second_line) = (saying(&lines, "first")[0], saying(&lines, "second")[0]);
    for line in [first_line, second_line] {
        assert_eq!(line.field("trace_id"), format!("{:032x}", caller.trace_id()));
        assert_eq!(line.field("parent_span_id"), format!("{:016x}", caller.span_id()));
    }
    assert_eq!(second_line.field("span_id"), format!("{:016x}", second.span_id()));
    assert_ne!(first_line.field("span_id"), second_line.field("span_id"), "a span for each attempt");

    let nonsense =
        node.enqueue(Talker::job().trace()).trace_parent("nonsense").submit().await.expect("stored");
    assert_eq!(nonsense.result().await.expect("it runs all the same"), None);
    node.stop().await;
}

async fn a_job_that_a_body_enqueues_belongs_to_its_trace(fx: Fixture) {
    let tracer = || Some(CALLER.to_owned()).filter(|_| JobContext::try_current().is_none());
    let node = fx.node(|builder| builder.register(Talker::default()).trace_parent(tracer)).await;
    let job = node.enqueue(Talker::job().pass_on()).submit().await.expect("stored");
    let [span, with_outcome, at_once] = job.result().await.expect("it succeeds");
    assert!(span.as_ref().is_some_and(|span| span.contains("0af7651916cd43dd8448eb211c80319c")), "{span:?}");
    for id in [with_outcome, at_once] {
        let id = id.expect("submitted").parse().expect("an id");
        let job = node.until(id, |_| true).await;
        assert_eq!(job.spec.trace_context, span);
    }
    node.stop().await;
}

/// A listener that reads a job as soon as its end is published.
struct Reader {
    store: Arc<dyn JobStore>,
    runtime: Handle,
    seen: UnboundedSender<(JobId, JobStatus)>,
}

impl JobEventListener for Reader {
    fn on_event(&self, event: &JobEvent) {
        if let JobEventKind::Completed { .. } | JobEventKind::DeadLettered { .. } = event.kind {
            let id = event.header.job_id;
            let read = self.runtime.block_on(self.store.find(&[id])).expect("read").pop().flatten();
            // The receiver is gone if the case is over.
            let _ = self.seen.send((id, read.expect("there").status));
        }
    }
}

// shows: S88 S102
async fn an_end_is_told_only_when_it_can_be_read(fx: Fixture) {
    let (seen, mut told) = unbounded_channel();
    let reader = Reader { store: fx.store().await, runtime: Handle::current(), seen };
    let node = fx.node(|builder| builder.register(Talker::default()).listener(reader)).await;
    let good = node.enqueue(Talker::job().block()).submit().await.expect("stored");
    assert_eq!(told.recv().await, Some((good.id(), JobStatus::Succeeded)));
    let bad = node.enqueue(Talker::job().decline()).submit().await.expect("stored");
    assert_eq!(told.recv().await, Some((bad.id(), JobStatus::Failed)));
    node.stop().await;
}
