//! Indexes, created at start-up. If one cannot be created, the store does not open.

use bson::{Document, doc};
use futures::future::try_join_all;
use mongodb::IndexModel;
use mongodb::options::{CreateCollectionOptions, IndexOptions};
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};

use crate::client::MongoStore;
use crate::collections::{Collections, Raw};
use crate::error::During;
use crate::wakeup::Notices;

/// The version of the layout, raised whenever collections or indexes change.
const VERSION: i32 = 1;
const OP: &str = "connect";

/// Creates collections and indexes unless this version of them exists, or reports that they are missing.
pub(crate) async fn ensure(store: &MongoStore, migrate: bool) -> StoreResult<()> {
    let c = &store.collections;
    let schema = c.schema.clone_with_type::<Document>();
    let stored = schema.find_one(doc! { "_id": "version" }).await.during(OP)?;
    match stored.and_then(|stored| stored.get_i32("version").ok()) {
        Some(VERSION) => return Ok(()),
        Some(newer) if newer > VERSION => {
            let detail = format!(
                "the database has version {newer}, this program knows {VERSION}: upgrade the program"
            );
            return Err(StoreError::new(StoreErrorKind::NotMigrated, OP, detail));
        }
        _ if !migrate => {
            let detail = format!(
                "version {VERSION} of the collections and indexes is not in database {}; run `ratchet migrate`",
                store.database.name()
            );
            return Err(StoreError::new(StoreErrorKind::NotMigrated, OP, detail));
        }
        _ => {}
    }
    // Two transactions may not create the same collection at the same time, so all of them are created first.
    let names = store.database.list_collection_names().await.during(OP)?;
    let missing = |name: &str| !names.iter().any(|known| known == name);
    let plain = c.all().map(Raw::name).filter(|name| missing(name));
    try_join_all(plain.map(|name| create(store, name, CreateCollectionOptions::default()))).await?;
    if missing(store.notices.name()) {
        match create(store, store.notices.name(), Notices::layout()).await {
            // A store works without the notices; `startup` reports it.
            Err(error) if error.kind() == StoreErrorKind::Other => {}
            made => made?,
        }
    }
    try_join_all(
        models(c).into_iter().map(|(raw, models)| async move { raw.create_indexes(models).await.during(OP) }),
    )
    .await?;
    let version = doc! { "$set": { "version": VERSION } };
    schema.update_one(doc! { "_id": "version" }, version).upsert(true).await.during(OP)?;
    Ok(())
}

async fn create(store: &MongoStore, name: &str, layout: CreateCollectionOptions) -> StoreResult<()> {
    const NAMESPACE_EXISTS: i32 = 48;
    match store.database.create_collection(name).with_options(layout).await {
        Err(error) => match error.kind.as_ref() {
            mongodb::error::ErrorKind::Command(command) if command.code == NAMESPACE_EXISTS => Ok(()),
            _ => Err(error).during(OP),
        },
        Ok(()) => Ok(()),
    }
}

fn models(c: &Collections) -> Vec<(&Raw, Vec<IndexModel>)> {
    vec![
        (
            &c.jobs,
            vec![
                // The heads of a queue's five priorities. Only claimable jobs are indexed, so nothing precedes them.
                partial(
                    "claim_executable",
                    doc! { "queue.name": 1, "queue.priority": 1, "scheduled_time": 1, "_id": 1 },
                    claimable(),
                ),
                // The parked heads of each reason, by priority, and the expired parked jobs. Mostly empty.
                partial(
                    "parked",
                    doc! {
                        "queue.name": 1, "queue.parked_on": 1, "queue.priority": 1, "scheduled_time": 1, "_id": 1,
                    },
                    parked(),
                ),
                partial("parked_expiry", doc! { "queue.name": 1, "spec.expires_at": 1, "_id": 1 }, {
                    let mut expiring = parked();
                    expiring.insert("spec.expires_at", doc! { "$exists": true });
                    expiring
                }),
                // The earliest due time of any queue, for the heartbeat.
                partial("next_due", doc! { "scheduled_time": 1 }, claimable_anywhere()),
                // Jobs of an owner: those that it holds, and those that a dead owner left.
                partial("orphan", doc! { "queue.picked_by": 1, "_id": 1 }, doc! { "status": "RUNNING" }),
                // One live job per business key. Strings compare by bytes: no collation is set.
                unique_partial(
                    "business_key",
                    doc! { "queue.business_key": 1 },
                    doc! { "queue.business_key": { "$exists": true } },
                ),
                partial(
                    "next_fire",
                    doc! { "recurrence.next_fire": 1, "_id": 1 },
                    doc! { "recurrence.next_fire": { "$exists": true }, "status": "PENDING" },
                ),
                partial(
                    "batch",
                    doc! { "spec.batch": 1, "_id": 1 },
                    doc! { "spec.batch": { "$exists": true } },
                ),
                partial("tag", doc! { "spec.tags": 1, "_id": 1 }, doc! { "spec.tags": { "$exists": true } }),
                // Ended jobs for the archive, dead letters for operators.
                partial(
                    "ended",
                    doc! { "status": 1, "ending.terminated_at": 1 },
                    doc! { "ending.terminated_at": { "$exists": true } },
                ),
            ],
        ),
        (&c.edges, vec![plain("parent", doc! { "_id.parent": 1 }), plain("child", doc! { "_id.child": 1 })]),
        (&c.executions, vec![plain("job", doc! { "_id.job": 1, "_id.fence": 1 })]),
        (&c.logs, vec![unique("line", doc! { "job": 1, "seq": 1 }), plain("age", doc! { "at": 1 })]),
        (&c.permits, vec![plain("resource", doc! { "_id.resource": 1 })]),
        (&c.nodes, vec![plain("lease", doc! { "lease_until": 1 })]),
        (&c.alerts, vec![plain("job", doc! { "job": 1, "at": 1 })]),
        (&c.archive, vec![plain("age", doc! { "archived_at": 1 })]),
    ]
}

/// A filter for jobs that could be claimed once they are due. Schedules have no queue name.
pub(crate) fn claimable() -> Document {
    doc! {
        "status": "PENDING", "blocked_by": 0, "queue.name": { "$exists": true }, "queue.parked_on": null,
    }
}

/// The same filter with one more condition, which no claim uses: otherwise each claim would also try `next_due`.
pub(crate) fn claimable_anywhere() -> Document {
    let mut claimable = claimable();
    claimable.insert("created_at", doc! { "$exists": true });
    claimable
}

/// A filter for parked jobs, claimable by an owner that has what they lack.
pub(crate) fn parked() -> Document {
    doc! { "status": "PENDING", "blocked_by": 0, "queue.parked_on": { "$exists": true } }
}

/// The same in any queue: the first field of an index has to be named, or all jobs are read.
pub(crate) fn parked_anywhere() -> Document {
    let mut parked = parked();
    parked.insert("queue.name", doc! { "$exists": true });
    parked
}

fn model(name: &str, keys: Document, only: Option<Document>, unique: bool) -> IndexModel {
    let options =
        IndexOptions::builder().name(name.to_owned()).unique(unique).partial_filter_expression(only).build();
    IndexModel::builder().keys(keys).options(options).build()
}

fn plain(name: &str, keys: Document) -> IndexModel {
    model(name, keys, None, false)
}

fn unique(name: &str, keys: Document) -> IndexModel {
    model(name, keys, None, true)
}

fn partial(name: &str, keys: Document, only: Document) -> IndexModel {
    model(name, keys, Some(only), false)
}

fn unique_partial(name: &str, keys: Document, only: Document) -> IndexModel {
    model(name, keys, Some(only), true)
}
