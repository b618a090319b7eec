//! `ratchet explain`

use std::cmp::Reverse;
use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use ratchet_api::options::StoreOptions;
use ratchet_api::store::{ArchiveFilter, JobFilter, JobStore, PageRequest, QueueHealth};
use ratchet_api::{
    ArchivedJob, BatchId, Edge, EdgeState, Job, JobId, JobStatus, LogLine, StoreError, StoreErrorKind,
    Timestamp,
};
use ratchet_core::DEFERRED_BY_BREAKER;

use crate::output::Output;
use crate::output::explain::{Ahead, Explanation, Facts, Holder, Parent, Resource, Unreadable};
use crate::store::StoreArgs;

/// The most jobs of a queue that are compared with a job, and the page size in which they are read.
const MAX_SCANNED: usize = 10_000;
const PAGE: usize = 1_000;

/// `ratchet explain`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ratchet explain 0193297a-5c1e-7d4b-8f3a-0242ac120002
  ratchet explain 0193297a-5c1e-7d4b-8f3a-0242ac120002 --json | jq -r '.reasons[].reason'")]
pub(crate) struct Arguments {
    /// The id of the job
    id: JobId,
}

pub(crate) async fn run(arguments: &Arguments, place: &StoreArgs, output: Output) -> Result<ExitCode> {
    let (client, id) = (place.open().await?, arguments.id);
    let store = client.store();
    let found = match store.find(&[id]).await {
        Err(error) if error.kind() == StoreErrorKind::Corrupt => {
            let attempt = store.executions(id).await?.pop();
            output.show(&Unreadable::of(id, &error, attempt))?;
            return Ok(ExitCode::SUCCESS);
        }
        found => found?.pop().flatten(),
    };
    let Some(job) = found else {
        match archived(store, id).await? {
            Some(job) => bail!("job {id} was archived at {}; it ended as {}", job.archived_at, job.status),
            None => bail!("there is no job {id}; it may have been deleted"),
        }
    };
    output.show(&Explanation::of(&gather(store, job).await?))?;
    Ok(ExitCode::SUCCESS)
}

/// Finds an archived job. The archive is read in the order of ids.
async fn archived(store: &dyn JobStore, id: JobId) -> Result<Option<ArchivedJob>> {
    let next = id.as_uuid().as_u128().checked_add(1);
    let before = next.map(|next| JobId::from_uuid(uuid::Uuid::from_u128(next)));
    let filter = ArchiveFilter { before, ..ArchiveFilter::default() };
    Ok(store.archived(&filter, 1).await?.pop().filter(|job| job.id == id))
}

async fn gather(store: &dyn JobStore, job: Job) -> Result<Facts> {
    let (id, now) = (job.spec.id, store.database_time().await?);
    let edges = store.edges_to(&[id]).await?;
    let health = store.queue_health().await?.into_iter().find(|(name, _)| *name == job.spec.queue);
    let batch = store.find_batches(&[BatchId::of(id)]).await?.pop().flatten();
    let batch = batch.filter(|batch| batch.completed_at.is_none());
    Ok(Facts {
        parents: parents(store, edges).await?,
        batch: batch.map(|batch| batch.progress),
        queue: health.map_or_else(QueueHealth::default, |(_, health)| health),
        nodes: store.nodes().await?,
        resource: resource(store, &job).await?,
        ahead: ahead(store, &job, now).await?,
        breaker_open: job.scheduled_time > now
            && last_line(store, id).await?.as_deref() == Some(DEFERRED_BY_BREAKER),
        job,
        now,
    })
}

/// The parents of the undecided edges.
async fn parents(store: &dyn JobStore, edges: Vec<Edge>) -> Result<Vec<Parent>> {
    let open: Vec<_> = edges.into_iter().filter(|edge| edge.state == EdgeState::Open).collect();
    let ids: Vec<_> = open.iter().map(|edge| edge.parent).collect();
    let jobs = find_readable(store, &ids).await?;
    let parent = |(edge, job): (Edge, Option<Job>)| Parent {
        job: edge.parent,
        status: job.map(|job| job.status),
        condition: edge.condition.to_parts().0,
    };
    Ok(open.into_iter().zip(jobs).map(parent).collect())
}

/// The jobs with these ids; `None` for missing and unreadable ones, which do not affect the others.
async fn find_readable(store: &dyn JobStore, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
    let is_corrupt = |error: &StoreError| error.kind() == StoreErrorKind::Corrupt;
    match store.find(ids).await {
        Err(error) if is_corrupt(&error) => {}
        found => return Ok(found?),
    }
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        jobs.push(match store.find(&[*id]).await {
            Err(error) if is_corrupt(&error) => None,
            found => found?.pop().flatten(),
        });
    }
    Ok(jobs)
}

async fn resource(store: &dyn JobStore, job: &Job) -> Result<Option<Resource>> {
    let Some(name) = job.spec.resource.clone() else { return Ok(None) };
    let used = store.resources().await?.into_iter().find(|used| used.limit.name == name);
    let Some(used) = used else { return Ok(Some(Resource { name, limit: None, holders: Vec::new() })) };
    let jobs = find_readable(store, &used.holders).await?.into_iter().flatten();
    let mut nodes: HashMap<_, _> = jobs.map(|job| (job.spec.id, job.picked_by)).collect();
    let holders = used.holders.iter().filter(|holder| **holder != job.spec.id);
    let holders = holders.map(|job| Holder { job: *job, node: nodes.remove(job).flatten() }).collect();
    Ok(Some(Resource { name, limit: Some(used.limit.max_concurrent), holders }))
}

/// The newest line of a job's log.
async fn last_line(store: &dyn JobStore, id: JobId) -> Result<Option<String>> {
    let mut last: Option<LogLine> = None;
    loop {
        let mut lines = store.logs(id, last.as_ref().map(|line| line.seq), PAGE).await?;
        match lines.pop() {
            Some(line) => last = Some(line),
            None => return Ok(last.map(|line| line.message)),
        }
    }
}

/// The number of due jobs of its queue that are claimed before this one.
async fn ahead(store: &dyn JobStore, job: &Job, now: Timestamp) -> Result<Ahead> {
    let mut filter = JobFilter::default();
    filter.statuses = vec![JobStatus::Pending];
    filter.queue = Some(job.spec.queue.clone());
    let place = order(job, now);
    let (mut ahead, mut page) = (Ahead::default(), PageRequest::first(PAGE));
    for _ in 0..MAX_SCANNED / PAGE {
        let read = store.query_jobs(&filter, &page).await?;
        let due = read.jobs.iter().filter(|other| other.blocked_by == 0 && other.scheduled_time <= now);
        let due = due.filter(|other| other.recurrence.is_none());
        ahead.jobs += due.filter(|other| order(other, now) < place).count() as u64;
        page.after = read.next;
        if read.next.is_none() {
            return Ok(ahead);
        }
    }
    Ok(Ahead { or_more: true, ..ahead })
}

/// The claim order of a job among the due ones. An application's own `priority_boost_interval` is not known here, so
/// this uses the default, as most applications do.
fn order(job: &Job, now: Timestamp) -> (Reverse<i64>, Timestamp, JobId) {
    let boost = StoreOptions::default().priority_boost_interval;
    let waited = now.since(job.scheduled_time);
    (Reverse(job.spec.priority.boosted(waited, Some(boost))), job.scheduled_time, job.spec.id)
}
