//! The reads of a unit: each document once.

use bson::{Binary, Bson, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::FindOptions;
use ratchet_api::{JobId, StoreResult};

use super::{Held, Unit};
use crate::codec::{BatchDoc, EdgeDoc, JobDoc, KeyDoc, LimitDoc, Salvage, salvage, uuids};
use crate::collections::Raw;
use crate::error::During;

impl Unit<'_> {
    pub(super) fn job(&self, id: JobId) -> Option<&JobDoc> {
        self.jobs.get(&id).map(|held| &held.doc)
    }

    pub(super) fn job_mut(&mut self, id: JobId) -> Option<&mut JobDoc> {
        self.jobs.get_mut(&id).map(|held| &mut held.doc)
    }

    /// The live job that holds the key, unless it is `but`; among what was read with `load_holders`.
    pub(super) fn holder(&self, key: Option<&str>, but: Option<JobId>) -> Option<JobId> {
        let key = key?;
        let holds =
            |job: &&JobDoc| job.queue.as_ref().and_then(|queue| queue.business_key.as_deref()) == Some(key);
        let holder = self.jobs.values().map(|held| &held.doc).find(holds).map(JobDoc::job_id);
        holder.filter(|holder| Some(*holder) != but)
    }

    pub(super) async fn read<T: Salvage>(
        &mut self,
        from: &Raw,
        filter: Document,
    ) -> StoreResult<Vec<Held<T>>> {
        self.read_some(from, filter, FindOptions::default()).await
    }

    /// Reads documents; a damaged one is [salvaged](crate::codec::salvage()).
    pub(super) async fn read_some<T: Salvage>(
        &mut self,
        from: &Raw,
        filter: Document,
        options: FindOptions,
    ) -> StoreResult<Vec<Held<T>>> {
        let op = self.op;
        let find = from.find(filter).with_options(options);
        let mut cursor = find.session(&mut *self.session).await.during(op)?;
        let raw: Vec<RawDocumentBuf> = cursor.stream(&mut self.session).try_collect().await.during(op)?;
        let held = |raw: &RawDocumentBuf| {
            let stored = Document::try_from(raw.as_ref()).ok()?;
            Some(Held { stored: Some(stored), doc: salvage(op, raw)? })
        };
        Ok(raw.iter().filter_map(held).collect())
    }

    pub(super) async fn load_jobs(&mut self, ids: impl IntoIterator<Item = JobId>) -> StoreResult<()> {
        let new: Vec<_> = ids.into_iter().filter(|id| self.asked_jobs.insert(*id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let from = self.store.collections.jobs.clone();
        let found = self.read(&from, doc! { "_id": { "$in": uuids(new) } }).await?;
        self.keep_jobs(found);
        Ok(())
    }

    /// Reads the live jobs that hold these keys.
    pub(super) async fn load_holders(&mut self, keys: Vec<String>) -> StoreResult<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let from = self.store.collections.jobs.clone();
        let found = self.read(&from, doc! { "queue.business_key": { "$in": keys } }).await?;
        self.keep_jobs(found);
        Ok(())
    }

    /// Reads live schedules that match.
    pub(super) async fn load_masters(&mut self, filter: Document) -> StoreResult<Vec<JobId>> {
        let from = self.store.collections.jobs.clone();
        let live = doc! { "recurrence": { "$exists": true }, "status": { "$in": ["PENDING", "PAUSED"] } };
        let found = self.read::<JobDoc>(&from, doc! { "$and": [live, filter] }).await?;
        let mut ids: Vec<_> = found.iter().map(|held| held.doc.job_id()).collect();
        ids.sort();
        self.keep_jobs(found);
        Ok(ids)
    }

    /// Adds jobs to the unit. A document that is already here is newer than the one that was read.
    fn keep_jobs(&mut self, found: Vec<Held<JobDoc>>) {
        for held in found {
            let id = held.doc.job_id();
            self.asked_jobs.insert(id);
            self.jobs.entry(id).or_insert(held);
        }
    }

    /// Reads all edges from these jobs to their children.
    pub(super) async fn load_edges_from(
        &mut self,
        parents: impl IntoIterator<Item = JobId>,
    ) -> StoreResult<()> {
        let new: Vec<_> = parents.into_iter().filter(|id| self.asked_edges.insert(*id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let from = self.store.collections.edges.clone();
        let found = self.read::<EdgeDoc>(&from, doc! { "_id.parent": { "$in": uuids(new) } }).await?;
        for held in found {
            self.edges.entry((held.doc.parent(), held.doc.child())).or_insert(held);
        }
        Ok(())
    }

    /// The edges of one parent: by priority, then in the order they were stored.
    pub(super) fn edges_from(&self, parent: JobId) -> Vec<&EdgeDoc> {
        let (lowest, highest) = (JobId::from_uuid(uuid::Uuid::nil()), JobId::from_uuid(uuid::Uuid::max()));
        let range = (parent, lowest)..=(parent, highest);
        let mut edges: Vec<_> = self.edges.range(range).map(|(_, held)| &held.doc).collect();
        edges.sort_by_key(|edge| (edge.priority, edge.stored_order()));
        edges
    }

    pub(super) async fn load_batches(&mut self, ids: impl IntoIterator<Item = JobId>) -> StoreResult<()> {
        let new: Vec<_> = ids.into_iter().filter(|id| self.asked_batches.insert(*id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let from = self.store.collections.batches.clone();
        let found = self.read::<BatchDoc>(&from, doc! { "_id": { "$in": uuids(new) } }).await?;
        for held in found {
            self.batches.entry(crate::codec::job_id(held.doc.id)).or_insert(held);
        }
        Ok(())
    }

    pub(super) async fn load_keys(&mut self, hashes: Vec<Binary>) -> StoreResult<()> {
        if hashes.is_empty() {
            return Ok(());
        }
        let from = self.store.collections.keys.clone();
        let found = self.read::<KeyDoc>(&from, doc! { "_id": { "$in": hashes } }).await?;
        for held in found {
            self.keys.entry(held.doc.hash.bytes.clone()).or_insert(held);
        }
        Ok(())
    }

    pub(super) async fn load_limits(&mut self, names: Vec<String>) -> StoreResult<()> {
        let new: Vec<_> = names.into_iter().filter(|name| !self.limits.contains_key(name)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let from = self.store.collections.limits.clone();
        let found = self.read::<LimitDoc>(&from, doc! { "_id": { "$in": new } }).await?;
        for held in found {
            self.limits.entry(held.doc.name.clone()).or_insert(held);
        }
        Ok(())
    }

    /// Whether a document with this `_id` exists.
    pub(super) async fn exists(&mut self, from: &Raw, id: impl Into<Bson>) -> StoreResult<bool> {
        let found =
            from.find_one(doc! { "_id": id.into() }).session(&mut *self.session).await.during(self.op)?;
        Ok(found.is_some())
    }
}
