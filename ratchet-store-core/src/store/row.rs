//! Reads rows into values. A cell that no version of this program wrote makes its own row unreadable, and no other.

use std::time::Duration;

use ratchet_api::{
    Backoff, BatchId, Condition, Edge, Ending, Fence, Job, JobClaim, JobId, JobPayload, JobPriority, JobSpec,
    JobStatus, JsonText, MethodName, Owner, Recurrence, StoreError, StoreErrorKind, StoreResult, Tag,
    TargetName, Timestamp,
};

pub(crate) use crate::driver::Problem;
use crate::driver::{Rare, Row};

/// The cells of a row, by name.
#[derive(Clone, Copy)]
pub(crate) struct Cells<'r>(pub(crate) &'r dyn Row);

/// A type that is read from a cell.
pub(crate) trait FromCell: Sized {
    fn from_cell(row: &dyn Row, column: &str) -> Result<Option<Self>, Problem>;
}

/// `type: kind of cell => how it is read from that;`
macro_rules! from_cell {
    ($($value:ty: $cell:ident => $read:expr;)*) => {$(
        impl FromCell for $value {
            fn from_cell(row: &dyn Row, column: &str) -> Result<Option<Self>, Problem> {
                read_cell(row.$cell(column)?, $read)
            }
        }
    )*};
}

fn read_cell<C, T>(
    cell: Option<C>,
    read: impl FnOnce(C) -> Result<T, Problem>,
) -> Result<Option<T>, Problem> {
    cell.map(read).transpose()
}

/// A number of a narrower type.
fn in_range<T: TryFrom<i64>>(number: i64) -> Result<T, Problem> {
    T::try_from(number).map_err(|_| format!("{number} is out of range").into())
}

from_cell! {
    bool: flag => Ok;
    i64: int => Ok;
    i32: int => in_range;
    String: text => |text| Ok(text.to_owned());
    Vec<String>: texts => Ok;
    Vec<JobId>: ids => |ids| Ok(ids.into_iter().map(JobId::from_uuid).collect());
    Vec<i64>: ints => Ok;
    u32: int => in_range;
    u64: int => in_range;
    Duration: int => |ms| Ok(Duration::from_millis(in_range(ms)?));
    Timestamp: time => Ok;
    JobId: id => |id| Ok(JobId::from_uuid(id));
    BatchId: id => |id| Ok(BatchId::of(JobId::from_uuid(id)));
    Fence: int => |version| Ok(Fence::from_version(version));
    Owner: text => |text| Ok(Owner::from_stored(text));
    JobStatus: text => |text| Ok(text.parse()?);
    ratchet_api::JobType: text => |text| Ok(text.parse()?);
    ratchet_api::EdgeState: text => |text| Ok(text.parse()?);
    ratchet_api::ExecutionResult: text => |text| Ok(text.parse()?);
    ratchet_api::LogLevel: text => |text| Ok(text.parse()?);
    ratchet_api::QueueName: text => |text| Ok(ratchet_api::QueueName::new(text)?);
    ratchet_api::BusinessKey: text => |text| Ok(ratchet_api::BusinessKey::new(text)?);
    ratchet_api::IdempotencyKey: text => |text| Ok(ratchet_api::IdempotencyKey::new(text)?);
    ratchet_api::ResourceName: text => |text| Ok(ratchet_api::ResourceName::new(text)?);
    TargetName: text => |text| Ok(TargetName::new(text)?);
    MethodName: text => |text| Ok(MethodName::new(text)?);
    ratchet_api::ParkedOn: text => |text| Ok(text.parse()?);
    JsonText: text => |text| Ok(JsonText::from_stored(text));
    ratchet_api::Progress: text => |text| Ok(serde_json::from_str(text)?);
    JobPriority: int => |ordinal| Ok(JobPriority::from_ordinal(in_range(ordinal)?)?);
    Vec<Tag>: texts => |tags| Ok(tags.into_iter().map(Tag::new).collect::<Result<_, _>>()?);
}

impl Cells<'_> {
    /// A cell that is never null.
    pub(crate) fn get<T: FromCell>(self, name: &str) -> Result<T, Problem> {
        self.opt(name)?.ok_or_else(|| format!("{name}: null").into())
    }

    /// A cell that may be null.
    pub(crate) fn opt<T: FromCell>(self, name: &str) -> Result<Option<T>, Problem> {
        T::from_cell(self.0, name).map_err(|problem| format!("{name}: {problem}").into())
    }

    /// A count or a flag that may come as null instead of 0 or false, which is cheaper to transfer.
    pub(crate) fn or_none<T: FromCell + Default>(self, name: &str) -> Result<T, Problem> {
        Ok(self.opt(name)?.unwrap_or_default())
    }

    /// A text for people; empty if it is damaged or missing.
    pub(crate) fn shown(self, name: &str) -> String {
        self.opt(name).ok().flatten().unwrap_or_default()
    }

    /// A count, clamped to its range; 0 if it is damaged or missing.
    pub(crate) fn clamped(self, name: &str) -> u32 {
        let count = self.opt::<i64>(name).ok().flatten().unwrap_or_default();
        u32::try_from(count.max(0)).unwrap_or(u32::MAX)
    }

    /// A cell that only a broken statement could get wrong.
    pub(crate) fn must<T: FromCell>(self, op: &'static str, name: &str) -> StoreResult<T> {
        self.get(name).map_err(|problem| broken(op, problem))
    }

    /// A cell that only a broken statement could get wrong, and where null has a meaning.
    pub(crate) fn must_opt<T: FromCell>(self, op: &'static str, name: &str) -> StoreResult<Option<T>> {
        self.opt(name).map_err(|problem| broken(op, problem))
    }
}

fn broken(op: &'static str, problem: Problem) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, op, "a row cannot be read").with_source(problem)
}

/// Reads all rows with `read`; a row that cannot be read is an error that names it by its `job_id`.
pub(crate) fn read_all<T>(
    op: &'static str,
    rows: &[Box<dyn Row>],
    read: impl Fn(Cells<'_>) -> Result<T, Problem>,
) -> StoreResult<Vec<T>> {
    let named = |row: &dyn Row, problem: Problem| match Cells(row).get::<JobId>("job_id") {
        Ok(id) => StoreError::corrupt(op, id, problem),
        Err(_) => StoreError::new(StoreErrorKind::Corrupt, op, format!("a row cannot be read: {problem}")),
    };
    rows.iter().map(|row| read(Cells(row)).map_err(|problem| named(row, problem))).collect()
}

/// Reads the rows that can be read. One that cannot is logged with its `job_id`, and does not hide its neighbours.
pub(crate) fn read_readable<T>(
    op: &'static str,
    what: &'static str,
    rows: &[Box<dyn Row>],
    read: impl Fn(Cells<'_>) -> Result<T, Problem>,
) -> Vec<T> {
    rows.iter().filter_map(|row| read_if_readable(op, what, Cells(row), &read)).collect()
}

/// Reads one row, or logs with its `job_id` that it cannot be read.
pub(crate) fn read_if_readable<T>(
    op: &'static str,
    what: &'static str,
    cells: Cells<'_>,
    read: impl Fn(Cells<'_>) -> Result<T, Problem>,
) -> Option<T> {
    let unreadable = |problem: &Problem| {
        let job = cells.get::<JobId>("job_id").ok().map(|id| id.to_string());
        tracing::error!(op, job, %problem, "row skipped: {what} cannot be read");
    };
    read(cells).inspect_err(unreadable).ok()
}

/// A row of `vw_jobs`.
pub(crate) fn job(cells: Cells<'_>) -> Result<Job, Problem> {
    let mut job = common(cells, cells.get("job_id")?)?;
    job.fence = cells.get("version")?;
    job.status = cells.get("status")?;
    job.scheduled_time = cells.get("scheduled_time")?;
    job.attempts = cells.get("attempts")?;
    job.crash_count = cells.get("crash_count")?;
    job.picked_by = cells.opt("picked_by")?;
    job.picked_at = cells.opt("picked_at")?;
    // A value that this version does not know keeps nobody from reading the job.
    job.parked_on = cells.opt("parked_on").unwrap_or_default();
    job.paused_from = cells.opt("paused_from_status")?;
    job.cancel_reason = cells.opt("cancel_reason")?;
    job.superseded_by = cells.opt("superseded_by")?;
    job.ending = ending(cells)?;
    job.recurrence = recurrence(cells)?;
    let spec = &mut job.spec;
    spec.job_type = cells.get("job_type")?;
    spec.queue = cells.get("queue")?;
    spec.priority = cells.get("priority")?;
    spec.max_retries = cells.get("max_retries")?;
    spec.timeout = cells.opt("timeout_ms")?;
    spec.business_key = cells.opt("business_key")?;
    Ok(job)
}

/// A job that this owner holds by this claim, from a row of job/load.sql with the columns that the claim lacks.
pub(crate) fn held(cells: Cells<'_>, owner: &Owner, claim: &JobClaim) -> Result<Job, Problem> {
    let mut job = common(cells, claim.id)?;
    job.fence = claim.fence;
    job.status = JobStatus::Running;
    job.scheduled_time = claim.scheduled_time;
    job.attempts = claim.attempts;
    job.crash_count = claim.crash_count;
    job.picked_by = Some(owner.clone());
    job.picked_at = Some(claim.picked_at);
    let spec = &mut job.spec;
    spec.job_type = claim.job_type;
    spec.queue = claim.queue.clone();
    spec.priority = claim.priority;
    spec.max_retries = claim.max_retries;
    spec.timeout = claim.timeout;
    spec.business_key.clone_from(&claim.business_key);
    Ok(job)
}

/// The columns that a claim does not carry. They are read in the order of job/load.sql, which is the cheapest.
fn common(cells: Cells<'_>, id: JobId) -> Result<Job, Problem> {
    let payload = payload(cells, "payload", "target", "method")?.ok_or("payload: missing")?;
    let mut spec = JobSpec::with_id(id, payload);
    let policy = cells.0.text("backoff_policy").map_err(|problem| format!("backoff_policy: {problem}"))?;
    let policy = policy.ok_or("backoff_policy: null")?;
    spec.backoff = Backoff::from_parts(policy, cells.or_none("backoff_param_ms")?)?;
    spec.idempotency_key = cells.opt("idempotency_key")?;
    spec.trace_context = cells.opt("trace_context")?;
    let mut job = Job::pending(spec.into(), 0, cells.get("created_at")?);
    job.edge_count = cells.or_none("edge_count")?;
    match cells.0.rare()? {
        Rare::Here => read_rare(cells, &mut job)?,
        Rare::Nowhere => {}
        Rare::Apart(row) => read_rare(Cells(&row), &mut job)?,
    }
    Ok(job)
}

/// The failure callback of a job whose row cannot be read, if at least the callback can.
pub(crate) fn on_failure(cells: Cells<'_>) -> Option<JobPayload> {
    let read = |cells| payload(cells, "on_failure_payload", "on_failure_target", "on_failure_method");
    let found = match cells.0.rare().ok()? {
        Rare::Here => read(cells),
        Rare::Nowhere => Ok(None),
        Rare::Apart(row) => read(Cells(&row)),
    };
    found.ok().flatten()
}

/// Reads the rare columns, in which most jobs have nothing.
fn read_rare(cells: Cells<'_>, job: &mut Job) -> Result<(), Problem> {
    let spec = &mut job.spec;
    spec.params = cells.opt("params")?;
    spec.expires_at = cells.opt("expires_at")?;
    spec.resource = cells.opt("resource_name")?;
    spec.tags = cells.opt("tags")?.unwrap_or_default();
    spec.caller_principal = cells.opt("caller_principal")?;
    spec.on_success = payload(cells, "on_success_payload", "on_success_target", "on_success_method")?;
    spec.on_failure = payload(cells, "on_failure_payload", "on_failure_target", "on_failure_method")?;
    spec.batch = cells.opt("batch_id")?;
    job.depends_on = cells.opt("depends_on")?;
    job.blocked_by = cells.get("blocked_by")?;
    job.open_parents = cells.get("open_parents")?;
    job.last_error = cells.opt("last_error")?;
    job.progress = cells.opt("progress")?;
    Ok(())
}

pub(crate) fn payload(
    cells: Cells<'_>,
    text: &str,
    target: &str,
    method: &str,
) -> Result<Option<JobPayload>, Problem> {
    let Some(text) = cells.opt(text)? else { return Ok(None) };
    Ok(Some(JobPayload::from_stored(cells.get(target)?, cells.get(method)?, text)))
}

fn ending(cells: Cells<'_>) -> Result<Option<Ending>, Problem> {
    if cells.opt::<JobStatus>("terminal_status")?.is_none() {
        return Ok(None);
    }
    let mut ending = Ending::at(cells.get("terminated_at")?);
    ending.started_at = cells.opt("execution_start_time")?;
    ending.ended_at = cells.opt("execution_end_time")?;
    ending.queue_wait = cells.opt("queue_wait_ms")?;
    ending.result = cells.opt("job_result")?;
    Ok(Some(ending))
}

fn recurrence(cells: Cells<'_>) -> Result<Option<Recurrence>, Problem> {
    let Some(cron) = cells.opt::<String>("cron_expr")? else { return Ok(None) };
    Ok(Some(Recurrence::new(cron, cells.get::<String>("zone_id")?, cells.opt("next_fire")?)))
}

/// A row of `scheduler_job_queue` that is RUNNING. One that cannot be read is marked as `corrupt`.
pub(crate) fn claim(cells: Cells<'_>) -> Result<JobClaim, Problem> {
    intact_claim(cells).or_else(|problem| corrupt_claim(cells, &problem))
}

/// Reads an intact claim, in the order of claim/claim.sql, which is the cheapest.
fn intact_claim(cells: Cells<'_>) -> Result<JobClaim, Problem> {
    let (id, fence, queue): (_, Fence, _) =
        (cells.get("job_id")?, cells.get("version")?, cells.get("queue")?);
    if fence.is_last() {
        return Err("version: nothing can raise it any more".into());
    }
    let mut claim = JobClaim::new(id, fence, queue, cells.get("scheduled_time")?, cells.get("picked_at")?);
    claim.job_type = cells.get("job_type")?;
    claim.priority = cells.get("priority")?;
    claim.attempts = cells.or_none("attempts")?;
    claim.crash_count = cells.or_none("crash_count")?;
    claim.max_retries = cells.or_none("max_retries")?;
    claim.timeout = cells.opt("timeout_ms")?;
    claim.business_key = cells.opt("business_key")?;
    claim.edge_count = cells.or_none("edge_count")?;
    claim.cancel_requested = cells.or_none("cancel_requested")?;
    claim.expired = cells.or_none("expired")?;
    Ok(claim)
}

/// Reads the readable part of a damaged claim, which must be enough to end it: its id and its fence.
fn corrupt_claim(cells: Cells<'_>, problem: &Problem) -> Result<JobClaim, Problem> {
    let queue = cells.get("queue").unwrap_or_default();
    let time = |name| cells.get(name).unwrap_or(Timestamp::MIN);
    let (scheduled_time, picked_at) = (time("scheduled_time"), time("picked_at"));
    let mut claim =
        JobClaim::new(cells.get("job_id")?, cells.get("version")?, queue, scheduled_time, picked_at);
    claim.job_type = cells.get("job_type").unwrap_or_default();
    claim.priority = cells.get("priority").unwrap_or_default();
    claim.attempts = cells.or_none("attempts").unwrap_or_default();
    claim.crash_count = cells.or_none("crash_count").unwrap_or_default();
    claim.edge_count = cells.or_none("edge_count").unwrap_or_default();
    claim.cancel_requested = cells.or_none("cancel_requested").unwrap_or_default();
    claim.corrupt = Some(problem.to_string());
    Ok(claim)
}

/// A row of `scheduler_job_edge` with the expression of its condition. A condition that cannot be read counts as one
/// that nobody can evaluate, so that the edge is refused when its parent ends and keeps no parent from ending.
pub(crate) fn edge(cells: Cells<'_>) -> Result<Edge, Problem> {
    let condition = condition(cells).unwrap_or_else(|problem| {
        tracing::error!(%problem, "edge condition cannot be read: an open edge will be refused");
        Condition::Custom("unreadable".into())
    });
    let mut edge = Edge::new(cells.get("parent_id")?, cells.get("child_id")?, condition);
    edge.priority = cells.get("priority")?;
    edge.state = cells.get("state")?;
    Ok(edge)
}

fn condition(cells: Cells<'_>) -> Result<Condition, Problem> {
    let (name, expression) = (cells.get::<String>("condition_type")?, cells.opt("expression")?);
    Ok(Condition::from_parts(&name, expression.as_ref())?)
}
