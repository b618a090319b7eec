//! Permits: how many jobs may use a resource at once.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use ratchet_api::store::{Permit, PermitRequest, ResourcePermitStore};
use ratchet_api::{
    JobId, JobStatus, Owner, ResourceLimit, ResourceName, ResourceUse, StoreResult, whole_millis,
};

use super::SqlStore;
use crate::store::lock_rows::{LockedJob, RowState, ids_of, lock_rows};
use crate::store::row::{Cells, Problem, read_readable};
use crate::store::session::Session;

#[async_trait]
impl ResourcePermitStore for SqlStore {
    async fn acquire(&self, owner: &Owner, requests: &[PermitRequest]) -> StoreResult<Vec<Permit>> {
        self.transaction("acquire", |session| Box::pin(acquire(session, owner, requests))).await
    }

    async fn configure_resource(&self, limit: &ResourceLimit) -> StoreResult<()> {
        self.write("configure_resource", |session| {
            Box::pin(async move {
                let configure = session.sql().configure_resource.bind();
                configure
                    .arg("resource", limit.name.as_str())
                    .arg("max_concurrent", i64::from(limit.max_concurrent))
                    .arg("retry_delay_ms", whole_millis(limit.retry_delay))
                    .arg("now", session.store().now())
                    .run(session)
                    .await
                    .map(drop)
            })
        })
        .await
    }

    async fn resources(&self) -> StoreResult<Vec<ResourceUse>> {
        self.read("resources", |session| {
            Box::pin(async move {
                let rows = session.sql().resources.bind().rows(session).await?;
                Ok(read_readable(session.op(), "a resource", &rows, |cells| {
                    Ok(ResourceUse::new(limit(cells)?, cells.get("holders")?))
                }))
            })
        })
        .await
    }
}

/// Acquires permits. It locks the jobs, so that none ends meanwhile, then the limits, so that no other call counts
/// meanwhile.
async fn acquire(
    session: &mut Session<'_>,
    owner: &Owner,
    requests: &[PermitRequest],
) -> StoreResult<Vec<Permit>> {
    let ids: Vec<JobId> = requests.iter().map(|request| request.id).collect();
    let jobs = lock_rows(session, &ids).await?;
    let resources: Vec<&str> = requests.iter().map(|request| request.resource.as_str()).collect();
    let limits = lock_limits(session, &resources).await?;
    let (mut in_use, held) = in_use(session, &resources, &ids).await?;

    let mut granted: Vec<&PermitRequest> = Vec::new();
    let mut answers = Vec::with_capacity(requests.len());
    for request in requests {
        let is_ours =
            jobs.get(&request.id).is_some_and(|job| is_held_by(job, owner) && job.fence == request.fence);
        let in_use = in_use.entry(request.resource.clone()).or_default();
        answers.push(match limits.get(&request.resource) {
            _ if !is_ours => Permit::Lost,
            None => Permit::Unknown,
            Some(_) if held.contains(&(request.resource.clone(), request.id)) => Permit::Granted,
            Some(limit) if *in_use >= u64::from(limit.max_concurrent) => {
                Permit::Full { retry_in: limit.retry_delay }
            }
            Some(_) => {
                *in_use += 1;
                granted.push(request);
                Permit::Granted
            }
        });
    }
    grant(session, owner, &granted).await?;
    Ok(answers)
}

fn is_held_by(job: &LockedJob, owner: &Owner) -> bool {
    matches!(&job.place, RowState::Queue(queued)
        if queued.status == JobStatus::Running && queued.picked_by.as_ref() == Some(owner))
}

async fn lock_limits(
    session: &mut Session<'_>,
    resources: &[&str],
) -> StoreResult<HashMap<ResourceName, ResourceLimit>> {
    let rows = session.sql().lock_limits.bind().arg("resources", resources).rows(session).await?;
    let limits = read_readable(session.op(), "a resource", &rows, limit);
    Ok(limits.into_iter().map(|limit| (limit.name.clone(), limit)).collect())
}

/// The number of permits in use by resource, and those of them that some jobs hold.
type InUse = (HashMap<ResourceName, u64>, HashSet<(ResourceName, JobId)>);

/// Reads how many permits of these resources are in use, and which of them these jobs hold.
async fn in_use(session: &mut Session<'_>, resources: &[&str], jobs: &[JobId]) -> StoreResult<InUse> {
    let in_use = session.sql().permits_in_use.bind().arg("resources", resources);
    let rows = in_use.arg("job_ids", ids_of(jobs)).rows(session).await?;
    let (mut counts, mut held) = (HashMap::new(), HashSet::new());
    let permit =
        |cells: Cells<'_>| Ok((cells.get("resource_name")?, cells.opt("job_id")?, cells.get("permits")?));
    for (resource, job, permits) in read_readable(session.op(), "a permit", &rows, permit) {
        match job {
            Some(job) => drop(held.insert((resource, job))),
            None => drop(counts.insert(resource, permits)),
        }
    }
    Ok((counts, held))
}

async fn grant(session: &mut Session<'_>, owner: &Owner, granted: &[&PermitRequest]) -> StoreResult<()> {
    if granted.is_empty() {
        return Ok(());
    }
    let grant = session.sql().grant_permits.bind();
    grant
        .arg("owner", owner.as_str())
        .arg("now", session.store().now())
        .arg("resources", granted.iter().map(|request| request.resource.as_str()).collect::<Vec<_>>())
        .arg("job_ids", ids_of(granted.iter().map(|request| &request.id)))
        .run(session)
        .await?;
    Ok(())
}

/// A row of `scheduler_resource_limit`.
fn limit(cells: Cells<'_>) -> Result<ResourceLimit, Problem> {
    let mut limit = ResourceLimit::new(cells.get("resource_name")?, cells.get("max_concurrent")?);
    limit.retry_delay = cells.get("retry_delay_ms")?;
    Ok(limit)
}
