//! Permits: how many jobs may use a resource at once.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Fence, JobId, Owner, ResourceLimit, ResourceName, ResourceUse, StoreResult};

/// A running job's request for a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitRequest {
    /// The job.
    pub id: JobId,
    /// The fence of its claim.
    pub fence: Fence,
    /// The resource.
    pub resource: ResourceName,
}

/// The answer to a request for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The job holds a permit until it leaves RUNNING.
    Granted,
    /// Every permit is taken: ask again after this.
    Full {
        /// The resource's own delay.
        retry_in: Duration,
    },
    /// The resource is not configured.
    Unknown,
    /// The job is no longer held under this fence.
    Lost,
}

/// Resource limits. Permits are freed by outcomes alone.
#[async_trait]
pub trait ResourcePermitStore: Send + Sync + 'static {
    /// Asks for permits; one answer for each, in order.
    ///
    /// # Contract
    /// - `permit.capacity`: never more holders than the limit, under any race.
    /// - `permit.idempotent`: a job that holds a permit of the resource gets `Granted` again and counts once.
    /// - `permit.fenced`: only the present claim of a running job gets one.
    /// - `permit.unknown`: a resource that is not configured answers `Unknown`.
    async fn acquire(&self, owner: &Owner, requests: &[PermitRequest]) -> StoreResult<Vec<Permit>>;

    /// Sets the limit of a resource. Lowering it takes no permit away.
    ///
    /// # Contract
    /// - `permit.configure`: the newest limit and delay hold for the next request; a limit of 0 grants nothing.
    async fn configure_resource(&self, limit: &ResourceLimit) -> StoreResult<()>;

    /// Every configured resource with its holders, by name.
    ///
    /// # Contract
    /// - `permit.listed`: exactly the jobs that hold a permit now.
    async fn resources(&self) -> StoreResult<Vec<ResourceUse>>;
}
