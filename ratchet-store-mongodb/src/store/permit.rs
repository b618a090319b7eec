use std::collections::BTreeMap;

use async_trait::async_trait;
use bson::doc;
use mongodb::options::FindOptions;
use ratchet_api::store::{Permit, PermitRequest, ResourcePermitStore};
use ratchet_api::{JobId, Owner, ResourceLimit, ResourceUse, StoreError, StoreResult};
use serde::Deserialize;

use crate::MongoStore;
use crate::codec::{LimitDoc, PermitId, job_id, millis};
use crate::error::During;
use crate::unit::in_unit;

#[async_trait]
impl ResourcePermitStore for MongoStore {
    async fn acquire(&self, owner: &Owner, requests: &[PermitRequest]) -> StoreResult<Vec<Permit>> {
        in_unit!(self, "acquire", |unit| unit.acquire(owner, requests))
    }

    async fn configure_resource(&self, limit: &ResourceLimit) -> StoreResult<()> {
        let set = doc! {
            "$set": {
                "max_concurrent": i64::from(limit.max_concurrent), "retry_delay_ms": millis(limit.retry_delay),
            },
            "$setOnInsert": { "in_use": 0_i64 },
        };
        let id = doc! { "_id": limit.name.as_str() };
        self.collections.limits.update_one(id, set).upsert(true).await.during("configure_resource")?;
        Ok(())
    }

    async fn resources(&self) -> StoreResult<Vec<ResourceUse>> {
        const OP: &str = "resources";
        #[derive(Deserialize)]
        struct PermitDoc {
            #[serde(rename = "_id")]
            id: PermitId,
        }
        let by_id = || FindOptions::builder().sort(doc! { "_id": 1 }).build();
        let limits: Vec<LimitDoc> = self.find(OP, &self.collections.limits, doc! {}, by_id()).await?;
        let permits: Vec<PermitDoc> = self.find(OP, &self.collections.permits, doc! {}, by_id()).await?;
        let mut holders: BTreeMap<String, Vec<JobId>> = BTreeMap::new();
        for permit in permits {
            holders.entry(permit.id.resource).or_default().push(job_id(permit.id.job));
        }
        let mut with_holders = |limit: LimitDoc| {
            let unreadable = |error: &StoreError| tracing::error!(%error, "a resource cannot be read");
            let read = limit.read(OP).inspect_err(unreadable).ok()?;
            Some(ResourceUse::new(read, holders.remove(&limit.name).unwrap_or_default()))
        };
        Ok(limits.into_iter().filter_map(&mut with_holders).collect())
    }
}
