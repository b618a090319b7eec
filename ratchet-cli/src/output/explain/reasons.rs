//! The reasons why a job is not running, derived from facts. Pure.

use std::collections::BTreeSet;

use ratchet_api::store::QueueHealth;
use ratchet_api::{
    BatchProgress, Job, JobId, JobStatus, JobType, Node, Owner, ParkedOn, QueueName, ResourceName, Timestamp,
};
use serde::Serialize;

use crate::output::Instant;

/// The known facts about a job and its surroundings.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) job: Job,
    pub(crate) now: Timestamp,
    /// Parents whose end it waits for.
    pub(crate) parents: Vec<Parent>,
    /// The batch whose completion it waits for.
    pub(crate) batch: Option<BatchProgress>,
    pub(crate) queue: QueueHealth,
    pub(crate) nodes: Vec<Node>,
    /// The resource of which it needs a permit.
    pub(crate) resource: Option<Resource>,
    pub(crate) ahead: Ahead,
    /// Whether the newest line of its log says that a circuit breaker delayed it.
    pub(crate) breaker_open: bool,
}

/// A parent that a job waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Parent {
    pub(crate) job: JobId,
    /// Null if it no longer exists.
    pub(crate) status: Option<JobStatus>,
    pub(crate) condition: String,
}

/// A resource with the holders of its permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) name: ResourceName,
    /// `None` if it was never configured.
    pub(crate) limit: Option<u32>,
    pub(crate) holders: Vec<Holder>,
}

/// A job that holds a permit, and the node that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Holder {
    pub(crate) job: JobId,
    pub(crate) node: Option<Owner>,
}

/// Jobs of the same queue that are claimed before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) jobs: u64,
    /// Whether counting stopped at the limit.
    pub(crate) or_more: bool,
}

/// A reason why a job is not running, or need not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(crate) enum Reason {
    Ended {
        status: JobStatus,
        at: Instant,
        why: Option<String>,
        superseded_by: Option<JobId>,
    },
    Running {
        node: Option<Owner>,
        since: Option<Instant>,
        node_alive: bool,
    },
    Stopping {
        node: Option<Owner>,
        why: Option<String>,
    },
    Schedule {
        next_fire: Option<Instant>,
    },
    Paused {
        from: Option<JobStatus>,
    },
    WaitsFor {
        needed: u32,
        jobs: Vec<Parent>,
    },
    WaitsForBatch {
        ended: u64,
        total: u64,
        closed: bool,
    },
    Expired {
        at: Instant,
    },
    NotDue {
        until: Instant,
        failures: u32,
        last_error: Option<String>,
    },
    BreakerOpen {
        until: Instant,
    },
    QueuePaused {
        queue: QueueName,
    },
    NoLiveNode,
    UnknownMethod {
        method: String,
        live_nodes: usize,
        similar: Vec<String>,
        known_to_dead: Vec<Owner>,
    },
    UnservedQueue {
        queue: QueueName,
        served: Vec<String>,
    },
    UnknownResource {
        resource: ResourceName,
    },
    ResourceFull {
        resource: ResourceName,
        limit: u32,
        held_by: Vec<Holder>,
    },
    /// It may have crashed nodes, and waits to run apart from others.
    Suspect {
        crashes: u32,
    },
    NoFreeSlot {
        slots: u32,
        nodes: usize,
    },
    JobsAhead {
        jobs: u64,
        or_more: bool,
        queue: QueueName,
    },
    Ready,
}

/// Every reason, the most important first; never empty.
pub(crate) fn reasons(facts: &Facts) -> Vec<Reason> {
    if let Some(reason) = not_waiting(facts) {
        return vec![reason];
    }
    let mut reasons: Vec<_> = obstacles(facts).into_iter().flatten().collect();
    if reasons.is_empty() {
        reasons.extend(competition(facts).into_iter().flatten());
    }
    if reasons.is_empty() {
        reasons.push(Reason::Ready);
    }
    reasons
}

/// The reason for a job that waits for nothing.
fn not_waiting(Facts { job, now, nodes, .. }: &Facts) -> Option<Reason> {
    if let Some(ending) = &job.ending {
        let why = job.cancel_reason.clone().or_else(|| job.last_error.clone());
        let why = why.filter(|_| job.status != JobStatus::Succeeded);
        let (status, superseded_by) = (job.status, job.superseded_by);
        return Some(Reason::Ended { status, at: ending.terminated_at.into(), why, superseded_by });
    }
    if job.spec.job_type == JobType::Recurring && job.status != JobStatus::Paused {
        let next_fire = job.recurrence.as_ref().and_then(|recurrence| recurrence.next_fire);
        return Some(Reason::Schedule { next_fire: next_fire.map(Instant) });
    }
    let node = job.picked_by.clone();
    let alive = nodes.iter().any(|row| Some(&row.info.owner) == node.as_ref() && is_alive(row, *now));
    match job.status {
        JobStatus::Running => {
            Some(Reason::Running { node, since: job.picked_at.map(Instant), node_alive: alive })
        }
        JobStatus::Canceled => Some(Reason::Stopping { node, why: job.cancel_reason.clone() }),
        _ => None,
    }
}

fn is_alive(node: &Node, now: Timestamp) -> bool {
    !node.reaped && node.lease_until > now
}

/// The obstacles that would exist on an empty cluster too.
fn obstacles(facts: &Facts) -> [Option<Reason>; 9] {
    let Facts { job, now, batch, queue, .. } = facts;
    let waiting = job.blocked_by > 0;
    [
        (job.status == JobStatus::Paused).then_some(Reason::Paused { from: job.paused_from }),
        (waiting && (batch.is_none() || !facts.parents.is_empty()))
            .then(|| Reason::WaitsFor { needed: job.blocked_by, jobs: facts.parents.clone() }),
        batch.as_ref().filter(|_| waiting).map(|batch| Reason::WaitsForBatch {
            ended: batch.completed + batch.failed,
            total: batch.total,
            closed: batch.closed,
        }),
        job.spec.expires_at.filter(|at| at <= now).map(|at| Reason::Expired { at: at.into() }),
        (job.scheduled_time > *now).then(|| match (facts.breaker_open, job.scheduled_time.into()) {
            (true, until) => Reason::BreakerOpen { until },
            (false, until) => {
                Reason::NotDue { until, failures: job.attempts, last_error: job.last_error.clone() }
            }
        }),
        queue.paused.then(|| Reason::QueuePaused { queue: job.spec.queue.clone() }),
        nobody_can(facts),
        facts.resource.as_ref().and_then(refusal),
        match job.parked_on {
            Some(ParkedOn::Suspect { crashes, .. }) => Some(Reason::Suspect { crashes }),
            _ => None,
        },
    ]
}

/// The reason why no live node can take this job.
fn nobody_can(Facts { job, now, nodes, .. }: &Facts) -> Option<Reason> {
    let (payload, queue) = (&job.spec.payload, &job.spec.queue);
    let method = payload.call_name();
    let knows = |node: &&Node| node.info.methods.contains(&method);
    let (alive, dead): (Vec<&Node>, Vec<&Node>) = nodes.iter().partition(|node| is_alive(node, *now));
    if alive.is_empty() {
        return Some(Reason::NoLiveNode);
    }
    let able: Vec<_> = alive.iter().copied().filter(|node| knows(node)).collect();
    if able.is_empty() {
        let live_nodes = alive.len();
        let similar = distinct(alive.iter().flat_map(|node| &node.info.methods).filter(|known| {
            let known = known.rsplit_once('.');
            known.is_some_and(|(target, name)| {
                target == payload.target().as_str() || name == payload.method().as_str()
            })
        }));
        let known_to_dead = dead.into_iter().filter(knows).map(|node| node.info.owner.clone()).collect();
        return Some(Reason::UnknownMethod { method, live_nodes, similar, known_to_dead });
    }
    // A node of an older program lists no queues.
    let serves = |node: &&Node| {
        node.info.queues.is_empty() || node.info.queues.iter().any(|name| name == queue.as_str())
    };
    match able.iter().any(serves) {
        true => None,
        false => {
            let served = distinct(able.iter().flat_map(|node| &node.info.queues));
            Some(Reason::UnservedQueue { queue: queue.clone(), served })
        }
    }
}

/// Each name once, sorted.
fn distinct<'n>(names: impl Iterator<Item = &'n String>) -> Vec<String> {
    names.collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

fn refusal(Resource { name, limit, holders }: &Resource) -> Option<Reason> {
    match *limit {
        None => Some(Reason::UnknownResource { resource: name.clone() }),
        Some(limit) if holders.len() >= limit as usize => {
            Some(Reason::ResourceFull { resource: name.clone(), limit, held_by: holders.clone() })
        }
        Some(_) => None,
    }
}

/// The obstacles caused by other jobs.
fn competition(Facts { job, now, nodes, ahead, .. }: &Facts) -> [Option<Reason>; 2] {
    let Ahead { jobs, or_more } = *ahead;
    let alive: Vec<_> = nodes.iter().filter(|node| is_alive(node, *now)).collect();
    let full = !alive.is_empty() && alive.iter().all(|node| node.slots > 0 && node.running >= node.slots);
    let slots = alive.iter().map(|node| node.slots).sum();
    [
        full.then_some(Reason::NoFreeSlot { slots, nodes: alive.len() }),
        (jobs > 0).then(|| Reason::JobsAhead { jobs, or_more, queue: job.spec.queue.clone() }),
    ]
}

#[cfg(test)]
mod tests;
