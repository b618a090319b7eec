//! Recovery of the jobs of dead owners.

use std::collections::BTreeSet;

use bson::doc;
use bson::oid::ObjectId;
use mongodb::options::FindOptions;
use ratchet_api::{JobId, Owner, StoreResult};

use super::Unit;
use crate::clock::instant;
use crate::codec::{JobDoc, NodeDoc, has_job_id};
use crate::error::During;

impl Unit<'_> {
    /// Moves jobs of dead owners to `to`, lowest id first, and fences the owners that lost any. Both in one
    /// transaction: a node that beats or commits in time keeps its jobs and its lease.
    pub(crate) async fn take_over(
        &mut self,
        dead: &[Owner],
        to: &Owner,
        limit: usize,
        token: ObjectId,
    ) -> StoreResult<Vec<JobId>> {
        let alive = self.alive(dead.iter().chain([to])).await?;
        if !alive.contains(to.as_str()) {
            return Ok(Vec::new());
        }
        let dead: Vec<_> = dead.iter().map(Owner::as_str).filter(|owner| !alive.contains(*owner)).collect();
        let mut orphaned = doc! { "status": "RUNNING", "queue.picked_by": { "$in": dead } };
        orphaned.extend(has_job_id());
        let lowest =
            FindOptions::builder().sort(doc! { "_id": 1 }).limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let jobs = self.store.collections.jobs.clone();
        let orphans = self.read_some::<JobDoc>(&jobs, orphaned, lowest.build()).await?;
        let mut robbed = BTreeSet::new();
        let mut moved = Vec::with_capacity(orphans.len());
        for mut held in orphans {
            let id = held.doc.job_id();
            held.doc.fence = held.doc.fence.saturating_add(1);
            if let Some(queue) = held.doc.queue.as_mut() {
                robbed.extend(queue.picked_by.replace(to.to_string()));
                queue.token = Some(token);
            }
            self.jobs.insert(id, held);
            moved.push(id);
        }
        self.fence_off(robbed).await?;
        Ok(moved)
    }

    /// The owners among these whose lease is running.
    async fn alive(&mut self, owners: impl Iterator<Item = &Owner>) -> StoreResult<BTreeSet<String>> {
        let owners: Vec<_> = owners.map(Owner::as_str).collect();
        let nodes = self.store.collections.nodes.clone();
        let filter = doc! { "_id": { "$in": owners }, "reaped": false };
        let known = self.read::<NodeDoc>(&nodes, filter).await?.into_iter().map(|held| held.doc);
        Ok(known.filter(|node| instant(node.lease_until) > self.now).map(|node| node.owner).collect())
    }

    async fn fence_off(&mut self, owners: BTreeSet<String>) -> StoreResult<()> {
        if owners.is_empty() {
            return Ok(());
        }
        let owners: Vec<_> = owners.into_iter().collect();
        let nodes = self.store.collections.nodes.clone();
        let reaped = doc! { "$set": { "reaped": true } };
        nodes
            .update_many(doc! { "_id": { "$in": owners } }, reaped)
            .session(&mut *self.session)
            .await
            .during(self.op)?;
        Ok(())
    }
}
