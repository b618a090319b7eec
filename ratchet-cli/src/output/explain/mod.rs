//! Output of the reasons why a job is not running.

mod reasons;

pub(crate) use reasons::{Ahead, Facts, Holder, Parent, Reason, Resource, reasons};

use std::fmt;

use ratchet_api::{Execution, ExecutionResult, JobId, JobStatus, StoreError};
use serde::Serialize;

use super::{Instant, escape};

/// The causes that the store cannot know.
const UNKNOWN_HERE: &str =
    "which circuit breakers are open, class policies and rate limits; each node knows its own";

/// The explanation of why a job is not running.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Explanation {
    job: JobId,
    status: JobStatus,
    reasons: Vec<Reason>,
    /// Other possible causes, which the store cannot know.
    not_known_here: Option<&'static str>,
    #[serde(skip)]
    call: String,
    #[serde(skip)]
    now: Instant,
}

impl Explanation {
    pub(crate) fn of(facts: &Facts) -> Self {
        let payload = &facts.job.spec.payload;
        let waits = matches!(facts.job.status, JobStatus::Pending) && facts.job.recurrence.is_none();
        Self {
            job: facts.job.spec.id,
            status: facts.job.status,
            reasons: reasons(facts),
            not_known_here: waits.then_some(UNKNOWN_HERE),
            call: payload.call_name(),
            now: facts.now.into(),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}  {}", self.job, self.call, self.status)?;
        for reason in &self.reasons {
            writeln!(f, "  - {}", Told { reason, now: self.now })?;
        }
        match self.not_known_here {
            Some(unknown) => writeln!(f, "Not known here: {unknown}."),
            None => Ok(()),
        }
    }
}

/// A job whose row cannot be read, with the problem and its current state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Unreadable {
    job: JobId,
    problem: String,
    /// The result of its last attempt.
    result: Option<ExecutionResult>,
    error: Option<String>,
    at: Option<Instant>,
}

impl Unreadable {
    pub(crate) fn of(job: JobId, problem: &StoreError, attempt: Option<Execution>) -> Self {
        let problem = problem.to_string();
        let Some(attempt) = attempt else {
            return Self { job, problem, result: None, error: None, at: None };
        };
        let at = Some(attempt.recorded_at.into());
        Self { job, problem, result: Some(attempt.result), error: attempt.error, at }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  its row cannot be read", self.job)?;
        writeln!(f, "  - {}", escape::one_line(&self.problem))?;
        match (&self.result, &self.at) {
            (Some(result), Some(at)) => {
                let error = self.error.as_deref().map(escape::one_line);
                writeln!(f, "  - its last attempt: {result} at {at}: {}", error.unwrap_or_default())
            }
            _ => writeln!(f, "  - no attempt is on record; a node that meets it ends it as a dead letter"),
        }
    }
}

/// A reason, rendered at a given time.
struct Told<'a> {
    reason: &'a Reason,
    now: Instant,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = |at: &Instant| at.seen_from(self.now);
        let because = |why: &Option<String>| {
            why.as_ref().map(|why| format!(": {}", escape::one_line(why))).unwrap_or_default()
        };
        let on = |node: &Option<_>| node.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string);
        match self.reason {
            Reason::Ended { status, at, why, superseded_by } => {
                write!(f, "it ended as {status} at {}{}", when(at), because(why))?;
                match superseded_by {
                    Some(job) => write!(f, "; job {job} took its place"),
                    None if *status == JobStatus::Failed => write!(f, "; `ratchet jobs retry` runs it again"),
                    None => Ok(()),
                }
            }
            Reason::Running { node, since, node_alive } => {
                let since = since.as_ref().map(|since| format!(" since {}", when(since))).unwrap_or_default();
                write!(f, "it runs on {}{since}", on(node))?;
                match node_alive {
                    true => Ok(()),
                    false => write!(f, ", which is dead; another node takes it over soon"),
                }
            }
            Reason::Stopping { node, why } => {
                write!(f, "it is canceled{}, but its body still runs on {}", because(why), on(node))
            }
            Reason::Schedule { next_fire: Some(at) } => {
                write!(f, "it is a schedule and never runs itself; it makes its next job at {}", when(at))
            }
            Reason::Schedule { next_fire: None } => write!(f, "it is a schedule that is never due again"),
            Reason::Paused { from } => {
                let from = from.map(|from| format!(" (it was {from})")).unwrap_or_default();
                write!(f, "it is paused{from}; `ratchet jobs resume` lets it go on")
            }
            Reason::WaitsFor { needed, jobs } if jobs.is_empty() => {
                write!(
                    f,
                    "it waits for {needed} jobs, none of which is there any more; cancel it, or submit it again"
                )
            }
            Reason::WaitsFor { needed, jobs } => {
                write!(f, "it waits for {needed} of these jobs:")?;
                for Parent { job, status, condition } in jobs {
                    let status = status.map_or_else(|| "gone".to_owned(), |status| status.to_string());
                    write!(f, "\n      {job}  {status}  needs {condition}")?;
                }
                Ok(())
            }
            Reason::WaitsForBatch { ended, total, closed } => {
                let open = if *closed { "" } else { ", and more may be added" };
                write!(f, "it waits for its batch: {ended} of {total} jobs have ended{open}")
            }
            Reason::Expired { at } => {
                write!(f, "it expired at {}; it is canceled as soon as a node comes to it", when(at))
            }
            Reason::NotDue { until, failures: 0, .. } => write!(f, "it is not due until {}", when(until)),
            Reason::NotDue { until, failures, last_error } => {
                write!(
                    f,
                    "it failed {failures} times and is tried again at {}{}",
                    when(until),
                    because(last_error)
                )
            }
            Reason::BreakerOpen { until } => {
                write!(
                    f,
                    "a circuit breaker was open when a node took it; it is tried again at {}",
                    when(until)
                )
            }
            Reason::QueuePaused { queue } => {
                write!(f, "its queue {queue} is paused; `ratchet queues resume {queue}` lets it go on")
            }
            Reason::NoLiveNode => write!(f, "no node is alive"),
            Reason::UnknownMethod { method, live_nodes, similar, known_to_dead } => {
                let are = if *live_nodes == 1 {
                    "1 is alive".to_owned()
                } else {
                    format!("{live_nodes} are alive")
                };
                write!(f, "no live node knows {} ({are})", escape::one_line(method))?;
                if let [node, ..] = known_to_dead.as_slice() {
                    write!(f, "; {node} did, and is dead")?;
                }
                match similar.as_slice() {
                    [] => Ok(()),
                    similar => write!(
                        f,
                        "; they know {}: if it was renamed to that, give the new method the alias {}",
                        escape::one_line(&similar.join(", ")),
                        escape::one_line(method)
                    ),
                }
            }
            Reason::UnservedQueue { queue, served } => write!(
                f,
                "no live node that knows its method serves its queue {queue}; they serve {}",
                escape::one_line(&served.join(", "))
            ),
            Reason::UnknownResource { resource } => {
                write!(
                    f,
                    "it needs a permit of {resource}, which nobody has configured; give it a limit: `ratchet resources set {resource} LIMIT`"
                )
            }
            Reason::ResourceFull { resource, limit, held_by } => {
                write!(f, "it needs a permit of {resource}, and all {limit} are taken:")?;
                for Holder { job, node } in held_by {
                    write!(f, "\n      {job} on {}", on(node))?;
                }
                Ok(())
            }
            Reason::Suspect { crashes } => {
                let nodes = if *crashes == 1 { "1 node has" } else { &format!("{crashes} nodes have") };
                write!(
                    f,
                    "{nodes} died with it, so it waits to run apart from other jobs, the more so the more have died"
                )
            }
            Reason::NoFreeSlot { slots, nodes } => {
                write!(f, "all {slots} slots of the {nodes} live nodes are taken")
            }
            Reason::JobsAhead { jobs, or_more, queue } => {
                let or_more = if *or_more { "at least " } else { "" };
                let jobs = if *jobs == 1 { "1 job is".to_owned() } else { format!("{jobs} jobs are") };
                write!(f, "{or_more}{jobs} before it in queue {queue}")
            }
            Reason::Ready => write!(f, "nothing is in its way: a node should take it any moment"),
        }
    }
}
