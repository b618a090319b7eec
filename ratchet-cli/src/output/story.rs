//! Output of one job in full.

use std::fmt::{self, Write as _};
use std::time::Duration;

use ratchet_api::store::JobStory;
use ratchet_api::{
    DlqAlert, Edge, EdgeState, Execution, ExecutionResult, Fence, Fingerprint, JobId, JobType, LogLevel,
    LogLine, Owner, whole_millis,
};
use ratchet_core::JobCause;
use serde::Serialize;

use super::job::{JobView, Json};
use super::{Instant, Table, span};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Story {
    job: JobView,
    attempts: Vec<Attempt>,
    log: Vec<Line>,
    /// Whether the log has more lines.
    log_has_more: bool,
    waits_for: Vec<EdgeView>,
    waited_for_by: Vec<EdgeView>,
    alerts: Vec<Alert>,
    #[serde(skip)]
    now: Instant,
}

#[derive(Clone, Debug, Serialize)]
struct Attempt {
    fence: Fence,
    result: ExecutionResult,
    /// Failures of the job up to and including this one.
    failures: u32,
    node: Owner,
    started_at: Option<Instant>,
    recorded_at: Instant,
    duration_ms: Option<i64>,
    error_class: Option<String>,
    error: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Line {
    seq: u64,
    fence: Fence,
    at: Instant,
    level: LogLevel,
    message: String,
}

#[derive(Clone, Debug, Serialize)]
struct EdgeView {
    /// The job at the other end.
    job: JobId,
    condition: String,
    expression: Option<Json>,
    state: EdgeState,
}

#[derive(Clone, Debug, Serialize)]
struct Alert {
    at: Instant,
    fingerprint: Fingerprint,
    error_hash: String,
}

impl Story {
    /// The story with at most `lines` of the log.
    pub(crate) fn of(mut story: JobStory, lines: usize, now: Instant) -> Self {
        let log_has_more = story.logs.len() > lines;
        story.logs.truncate(lines);
        Self {
            job: JobView::of(story.job),
            attempts: story.executions.into_iter().map(Attempt::of).collect(),
            log: story.logs.into_iter().map(Line::of).collect(),
            log_has_more,
            waits_for: story.parents.iter().map(|edge| EdgeView::of(edge.parent, edge)).collect(),
            waited_for_by: story.dependents.iter().map(|edge| EdgeView::of(edge.child, edge)).collect(),
            alerts: story.alerts.into_iter().map(Alert::of).collect(),
            now,
        }
    }
}

impl Attempt {
    fn of(execution: Execution) -> Self {
        Self {
            fence: execution.fence,
            result: execution.result,
            failures: execution.attempt,
            node: execution.owner,
            started_at: execution.started_at.map(Instant),
            recorded_at: execution.recorded_at.into(),
            duration_ms: execution.duration.map(whole_millis),
            error_class: execution.error_class,
            error: execution.error,
        }
    }
}

impl Attempt {
    /// The node that ran it. A crashed attempt was ended by another node; the error names the one that ran it.
    fn by(&self) -> String {
        match self.result {
            ExecutionResult::Crashed => format!("taken over by {}", self.node),
            _ => self.node.to_string(),
        }
    }
}

impl Line {
    fn of(line: LogLine) -> Self {
        Self {
            seq: line.seq,
            fence: line.fence,
            at: line.at.into(),
            level: line.level,
            message: line.message,
        }
    }
}

impl EdgeView {
    fn of(job: JobId, edge: &Edge) -> Self {
        let (condition, expression) = edge.condition.to_parts();
        Self { job, condition, expression: expression.as_ref().map(Json::of), state: edge.state }
    }
}

impl Alert {
    fn of(alert: DlqAlert) -> Self {
        Self { at: alert.at.into(), fingerprint: alert.fingerprint, error_hash: alert.error_hash }
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Job {}\n", self.job.id)?;
        write!(f, "{}", self.fields())?;
        section(f, "Attempts", &self.attempts, |attempts| attempt_table(attempts, self.now))?;
        section(f, "Log", &self.log, log_lines)?;
        if self.log_has_more {
            writeln!(f, "  … (more with --log-lines)")?;
        }
        section(f, "Waits for", &self.waits_for, edge_table)?;
        section(f, "Waited for by", &self.waited_for_by, edge_table)?;
        section(f, "Alerts", &self.alerts, |alerts| alert_table(alerts, self.now))
    }
}

/// Writes a heading and the body below it, unless there are no items.
fn section<T>(
    f: &mut fmt::Formatter<'_>,
    heading: &str,
    items: &[T],
    body: impl FnOnce(&[T]) -> String,
) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{heading}")?;
    body(items).lines().try_for_each(|line| writeln!(f, "  {line}"))
}

impl Story {
    fn fields(&self) -> Fields {
        let (job, now) = (&self.job, self.now);
        let mut fields = Fields::default();
        fields.add("status", job.status);
        fields.maybe("paused from", job.paused_from);
        fields.maybe("canceled because", job.cancel_reason.as_ref());
        fields.add("call", &job.call);
        fields.add("arguments", job.call.arguments());
        match cause(job) {
            Some(cause) => fields.add("because of", cause),
            None => fields.maybe("params", job.params.as_ref()),
        }
        fields.add("type", job.job_type);
        fields.add("queue", &job.queue);
        fields.add("priority", format!("{:?}", job.priority).to_uppercase());
        let tags: Vec<_> = job.tags.iter().map(|tag| tag.as_str()).collect();
        fields.maybe("tags", Some(tags.join(", ")).filter(|tags| !tags.is_empty()));
        fields.maybe("business key", job.business_key.as_ref());
        fields.maybe("idempotency key", job.idempotency_key.as_ref());
        fields.maybe("resource", job.resource.as_ref());
        fields.maybe("submitted by", job.caller_principal.as_ref());
        fields.maybe("trace", job.trace_context.as_ref());
        fields.add("created", job.created_at.seen_from(now));
        fields.add("due", job.due_at.seen_from(now));
        fields.maybe("expires", job.expires_at.map(|at| at.seen_from(now)));
        fields.add("failures", job.tries());
        fields.add("backoff", &job.backoff);
        fields.maybe("timeout", job.timeout_ms.map(millis));
        fields.maybe("crashes", Some(job.crash_count).filter(|crashes| *crashes > 0));
        fields.maybe("last error", job.last_error.as_ref());
        fields.maybe("runs on", job.picked_by.as_ref());
        fields.maybe("runs since", job.picked_at.map(|at| at.seen_from(now)));
        fields.maybe("progress", job.progress.as_ref().map(progress));
        fields.maybe("parked on", job.parked_on.as_ref());
        fields.maybe("blocked by", Some(job.blocked_by).filter(|parents| *parents > 0));
        fields.maybe("replaced by", job.superseded_by);
        fields.maybe("batch", job.batch);
        fields.maybe("on success", job.on_success.as_ref());
        fields.maybe("on failure", job.on_failure.as_ref());
        if let Some(recurrence) = &job.recurrence {
            fields.add("schedule", format!("{} ({})", recurrence.cron, recurrence.zone));
            fields.maybe("next fire", recurrence.next_fire.map(|at| at.seen_from(now)));
        }
        if let Some(ending) = &job.ending {
            fields.add("ended", ending.ended_at.seen_from(now));
            fields.maybe("waited", ending.queue_wait_ms.map(millis));
            fields.maybe("ran for", ending.duration_ms.map(millis));
            fields.maybe("result", ending.result.as_ref());
        }
        fields
    }
}

/// Names and values in two columns.
#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn add(&mut self, name: &'static str, value: impl fmt::Display) {
        self.0.push((name, value.to_string()));
    }

    fn maybe(&mut self, name: &'static str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in &self.0 {
            let mut name = *name;
            for line in value.split('\n') {
                writeln!(f, "{}", format!("  {name:<width$}  {line}").trim_end())?;
                name = "";
            }
        }
        Ok(())
    }
}

/// The cause of a callback, shown in place of its params.
fn cause(job: &JobView) -> Option<String> {
    let params = job.params.as_ref().filter(|_| job.job_type == JobType::Callback)?;
    let JobCause { job_id, status, error, cut, .. } = serde_json::from_str(&params.to_string()).ok()?;
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    let mut text = format!("job {job_id}, which is {status}{error}");
    for (part, bytes) in cut {
        let part = format!("{part:?}").to_lowercase();
        let _ = write!(text, "\nits {part} of {bytes} bytes is not whole here: see that job");
    }
    Some(text)
}

fn attempt_table(attempts: &[Attempt], now: Instant) -> String {
    let mut table = Table::new(["FENCE", "RESULT", "RECORDED", "TOOK", "NODE", "ERROR"]);
    for attempt in attempts {
        table.row([
            attempt.fence.to_string(),
            attempt.result.to_string(),
            attempt.recorded_at.seen_from(now),
            attempt.duration_ms.map(millis).unwrap_or_default(),
            attempt.by(),
            attempt.error.clone().unwrap_or_default(),
        ]);
    }
    table.to_string()
}

fn log_lines(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let message = line.message.replace('\n', "\n    ");
        let _ = writeln!(text, "{}  {:<5}  {message}", line.at, line.level.as_str());
    }
    text
}

fn edge_table(edges: &[EdgeView]) -> String {
    let mut table = Table::new(["JOB", "STATE", "CONDITION"]);
    for edge in edges {
        let expression = edge.expression.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        table.row([
            edge.job.to_string(),
            edge.state.as_str().to_owned(),
            format!("{}{expression}", edge.condition),
        ]);
    }
    table.to_string()
}

fn alert_table(alerts: &[Alert], now: Instant) -> String {
    let mut table = Table::new(["AT", "FINGERPRINT"]);
    for alert in alerts {
        table.row([alert.at.seen_from(now), alert.fingerprint.as_str().to_owned()]);
    }
    table.to_string()
}

fn progress(progress: &ratchet_api::Progress) -> String {
    let total = progress.total.map(|total| format!(" of {total}")).unwrap_or_default();
    let message = progress.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{}{total}{message}", progress.done)
}

fn millis(millis: i64) -> String {
    span(Duration::from_millis(millis.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use ratchet_api::{Execution, Timestamp};

    use super::*;

    #[test]
    fn who_takes_a_job_over_is_not_who_crashed() {
        let (job, owner) = (JobId::generate(), Owner::incarnate("b"));
        let by = |result| {
            let execution = Execution::new(job, Fence::FIRST, owner.clone(), result, 0, Timestamp::MIN);
            Attempt::of(execution).by()
        };
        assert_eq!(by(ExecutionResult::Failed), owner.to_string());
        assert_eq!(by(ExecutionResult::Crashed), format!("taken over by {owner}"));
    }
}
