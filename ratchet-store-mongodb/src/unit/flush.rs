//! The writes of a unit: only what changed.

use bson::{Bson, Document, doc};
use ratchet_api::StoreResult;
use serde::Serialize;

use super::{Held, Unit};
use crate::client::matched;
use crate::codec::{JobDoc, PermitId, encode};
use crate::collections::Raw;
use crate::error::During;

impl Unit<'_> {
    /// Writes the differences.
    pub(super) async fn flush(&mut self) -> StoreResult<()> {
        self.spill();
        self.settle_permits().await?;
        let c = self.store.collections.clone();
        // Updates go first, and among them those that free a business key: the next holder may be written right after.
        let mut jobs = changes(self.op, self.jobs.values())?;
        jobs.updates.sort_by_key(|update| !frees_key(update));
        self.write(&c.jobs, jobs).await?;
        let edges = changes(self.op, self.edges.values())?;
        self.write(&c.edges, edges).await?;
        let batches = changes(self.op, self.batches.values())?;
        self.write(&c.batches, batches).await?;
        let keys = changes(self.op, self.keys.values())?;
        self.write(&c.keys, keys).await?;
        let limits = changes(self.op, self.limits.values())?;
        self.write(&c.limits, limits).await?;
        let fires = with_id(self.op, &self.fires)?;
        self.write(&c.fires, fires).await?;
        let permits = granted(self.op, &self.permits)?;
        self.write(&c.permits, permits).await?;
        let executions = self.spilled_executions()?;
        self.write(&c.executions, executions).await
    }

    async fn write(&mut self, to: &Raw, changes: Changes) -> StoreResult<()> {
        if !changes.updates.is_empty() {
            let command = doc! { "update": to.name(), "updates": changes.updates, "ordered": true };
            let database = self.store.database.clone();
            let reply = database.run_command(command).session(&mut *self.session).await.during(self.op)?;
            matched(self.op, &reply)?;
        }
        if !changes.inserts.is_empty() {
            let raw: Vec<_> =
                changes.inserts.iter().map(|doc| encode(self.op, doc)).collect::<StoreResult<_>>()?;
            to.insert_many(raw).session(&mut *self.session).await.during(self.op)?;
        }
        Ok(())
    }

    /// Moves attempts that no longer fit into their job's document to the collection of executions.
    fn spill(&mut self) {
        for job in self.jobs.values_mut().map(|held| &mut held.doc) {
            if job.history.len() > JobDoc::HISTORY {
                let newest = job.history.pop();
                self.spilled.extend(job.history.drain(..).map(|execution| (job.id, execution)));
                job.history.extend(newest);
                job.spilled = true;
            }
        }
    }

    fn spilled_executions(&self) -> StoreResult<Changes> {
        let inserts = self.spilled.iter().map(|(job, execution)| {
            let mut stored = bson::serialize_to_document(execution).during(self.op)?;
            stored.insert("_id", doc! { "job": *job, "fence": execution.fence });
            Ok(stored)
        });
        Ok(Changes { inserts: inserts.collect::<StoreResult<_>>()?, updates: Vec::new() })
    }

    /// Deletes the permits of jobs that left RUNNING and gives their resources the capacity back.
    async fn settle_permits(&mut self) -> StoreResult<()> {
        let freed = std::mem::take(&mut self.freed);
        if freed.is_empty() {
            return Ok(());
        }
        self.load_limits(freed.iter().map(|permit| permit.resource.clone()).collect()).await?;
        for permit in &freed {
            if let Some(held) = self.limits.get_mut(&permit.resource) {
                held.doc.in_use = held.doc.in_use.saturating_sub(1);
            }
        }
        let ids: Vec<Bson> = freed
            .iter()
            .map(|permit| bson::serialize_to_bson(permit).during(self.op))
            .collect::<StoreResult<_>>()?;
        let permits = self.store.collections.permits.clone();
        permits
            .delete_many(doc! { "_id": { "$in": ids } })
            .session(&mut *self.session)
            .await
            .during(self.op)?;
        Ok(())
    }
}

#[derive(Default)]
struct Changes {
    updates: Vec<Document>,
    inserts: Vec<Document>,
}

fn changes<'a, T: Serialize + 'a>(
    op: &'static str,
    held: impl Iterator<Item = &'a Held<T>>,
) -> StoreResult<Changes> {
    let mut changes = Changes::default();
    for held in held {
        let new = bson::serialize_to_document(&held.doc).during(op)?;
        match &held.stored {
            None => changes.inserts.push(new),
            Some(old) => changes.updates.extend(difference(old, &new)),
        }
    }
    Ok(changes)
}

fn with_id<T: Serialize>(op: &'static str, ids: &[T]) -> StoreResult<Changes> {
    let inserts = ids.iter().map(|id| Ok(doc! { "_id": bson::serialize_to_bson(id).during(op)? }));
    Ok(Changes { inserts: inserts.collect::<StoreResult<_>>()?, updates: Vec::new() })
}

/// The upserts of granted permits. One may exist already, if another program removed it from its job.
fn granted(op: &'static str, ids: &[PermitId]) -> StoreResult<Changes> {
    let updates = ids.iter().map(|id| {
        let id = bson::serialize_to_bson(id).during(op)?;
        Ok(doc! { "q": { "_id": id }, "u": {}, "upsert": true })
    });
    Ok(Changes { updates: updates.collect::<StoreResult<_>>()?, inserts: Vec::new() })
}

/// The update from `old` to `new`, field by field, so that a job's payload is not sent again.
fn difference(old: &Document, new: &Document) -> Option<Document> {
    let set: Document = new
        .iter()
        .filter(|(field, value)| !old.get(field).is_some_and(|before| same(before, value)))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let unset: Document = old
        .keys()
        .filter(|field| !new.contains_key(field))
        .map(|field| (field.clone(), Bson::from("")))
        .collect();
    let mut change = Document::new();
    if !set.is_empty() {
        change.insert("$set", set);
    }
    if !unset.is_empty() {
        change.insert("$unset", unset);
    }
    let id = new.get("_id")?.clone();
    (!change.is_empty()).then(|| doc! { "q": { "_id": id }, "u": change })
}

/// Whether two values are equal: a number may be stored in either width.
fn same(a: &Bson, b: &Bson) -> bool {
    let number = |value: &Bson| value.as_i64().or_else(|| value.as_i32().map(i64::from));
    match (a, b) {
        (Bson::Document(a), Bson::Document(b)) => {
            a.len() == b.len()
                && a.iter().all(|(field, value)| b.get(field).is_some_and(|other| same(value, other)))
        }
        (Bson::Array(a), Bson::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b || (number(a).is_some() && number(a) == number(b)),
    }
}

fn frees_key(update: &Document) -> bool {
    update
        .get_document("u")
        .and_then(|change| change.get_document("$unset"))
        .is_ok_and(|unset| unset.contains_key("queue"))
}
