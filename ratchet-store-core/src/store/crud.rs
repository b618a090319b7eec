//! Reading single jobs.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_api::store::{JobCrudStore, Loaded};
use ratchet_api::{BusinessKey, Edge, Fence, IdempotencyKey, Job, JobClaim, JobId, Owner, StoreResult};

use super::SqlStore;
use crate::driver::Row;
use crate::store::cascade::edges_from;
use crate::store::insert::key_hash;
use crate::store::lock_rows::ids_of;
use crate::store::row::{self, Cells, Problem, read_all};
use crate::store::session::Session;

#[async_trait]
impl JobCrudStore for SqlStore {
    async fn load(&self, owner: &Owner, claims: &[JobClaim]) -> StoreResult<Vec<Loaded>> {
        self.read("load", |session| Box::pin(load(session, owner, claims))).await
    }

    async fn find(&self, jobs: &[JobId]) -> StoreResult<Vec<Option<Job>>> {
        self.read("find", |session| Box::pin(find(session, jobs))).await
    }

    async fn find_by_idempotency_key(&self, key: &IdempotencyKey) -> StoreResult<Option<JobId>> {
        self.read("find_by_idempotency_key", |session| {
            Box::pin(async move {
                let hash = key_hash(key);
                let find = session.sql().find_by_idempotency_key.bind().arg("key_hash", hash.as_slice());
                first_id(session.op(), &find.rows(session).await?)
            })
        })
        .await
    }

    async fn find_active_by_business_key(&self, key: &BusinessKey) -> StoreResult<Option<JobId>> {
        self.read("find_active_by_business_key", |session| {
            Box::pin(async move {
                let find = session.sql().find_by_business_key.bind().arg("business_key", key.as_str());
                first_id(session.op(), &find.rows(session).await?)
            })
        })
        .await
    }
}

fn first_id(op: &'static str, rows: &[Box<dyn Row>]) -> StoreResult<Option<JobId>> {
    rows.first().map(|row| Cells(row).must(op, "job_id")).transpose()
}

/// The position, in the call, of the request that this row answers.
fn place(op: &'static str, cells: Cells<'_>) -> StoreResult<usize> {
    Ok(cells.must::<u32>(op, "place")? as usize - 1)
}

async fn find(session: &mut Session<'_>, jobs: &[JobId]) -> StoreResult<Vec<Option<Job>>> {
    let rows = session.sql().find.bind().arg("job_ids", ids_of(jobs)).rows(session).await?;
    let mut found = vec![None; jobs.len()];
    for (row, job) in rows.iter().zip(read_all(session.op(), &rows, row::job)?) {
        found[place(session.op(), Cells(row))?] = Some(job);
    }
    Ok(found)
}

async fn load(session: &mut Session<'_>, owner: &Owner, claims: &[JobClaim]) -> StoreResult<Vec<Loaded>> {
    let op = session.op();
    let mut places: Vec<(JobId, usize)> = claims.iter().map(|claim| claim.id).zip(0..).collect();
    places.sort_unstable();
    let mut loaded = vec![Loaded::Lost; claims.len()];
    let load = session.sql().load.bind();
    load.arg("owner", owner.as_str())
        .arg("job_ids", ids_of(claims.iter().map(|claim| &claim.id)))
        .each(session, |cells| {
            let (job, fence): (JobId, Fence) = (cells.must(op, "job_id")?, cells.must(op, "version")?);
            let first = places.partition_point(|(id, _)| *id < job);
            let asked = places[first..].iter().take_while(|(id, _)| *id == job).map(|(_, place)| *place);
            for place in asked.filter(|place| claims[*place].fence == fence) {
                loaded[place] = loaded_row(cells, owner, &claims[place]);
            }
            Ok(())
        })
        .await?;
    add_edges(session, &mut loaded).await?;
    Ok(loaded)
}

fn loaded_row(cells: Cells<'_>, owner: &Owner, claim: &JobClaim) -> Loaded {
    let read = |cells: Cells<'_>| match (cells.or_none("cancel_requested")?, &claim.corrupt) {
        (true, _) => Ok(Loaded::CancelRequested),
        (false, None) => Ok(Loaded::Job(Box::new(row::held(cells, owner, claim)?), Vec::new())),
        (false, Some(problem)) => Err(problem.as_str().into()),
    };
    read(cells).unwrap_or_else(|problem: Problem| Loaded::Corrupt {
        problem: problem.to_string(),
        on_failure: row::on_failure(cells),
    })
}

/// Adds the edges. Most jobs have none; then no statement runs.
async fn add_edges(session: &mut Session<'_>, loaded: &mut [Loaded]) -> StoreResult<()> {
    let parents = loaded.iter().filter_map(|loaded| match loaded {
        Loaded::Job(job, _) if job.edge_count > 0 => Some(job.spec.id),
        _ => None,
    });
    let parents: Vec<JobId> = parents.collect();
    if parents.is_empty() {
        return Ok(());
    }
    let mut edges: HashMap<JobId, Vec<Edge>> = HashMap::new();
    for edge in edges_from(session, &parents).await? {
        edges.entry(edge.parent).or_default().push(edge);
    }
    for answer in loaded {
        if let Loaded::Job(job, found) = answer {
            found.clone_from(edges.get(&job.spec.id).unwrap_or(&Vec::new()));
        }
    }
    Ok(())
}
