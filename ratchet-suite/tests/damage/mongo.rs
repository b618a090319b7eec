//! MongoDB documents as rows: a column is the path of a field, including fields that contain others.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use mongodb::Database;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use ratchet_api::JobId;
use ratchet_api::store::JobStore;
use ratchet_suite::test_store::{Collections, TestStore as _};

use crate::tables::{Cell, Hit, Key, Row, Tables, Wrong};
use crate::values;

#[derive(Default)]
pub(crate) struct Mongo(Collections);

fn content(value: &Bson) -> String {
    match value {
        Bson::Binary(binary) => format!("{:02x?}", binary.bytes),
        Bson::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn cells(path: &str, value: &Bson, wrong: &Arc<Vec<Wrong>>, found: &mut Vec<Cell>) {
    if !path.is_empty() {
        let (column, in_key) = (path.to_owned(), path == "_id" || path.starts_with("_id."));
        found.push(Cell { column, in_key, content: content(value), wrong: Arc::clone(wrong) });
    }
    let inner = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Bson::Document(document) => {
            document.iter().for_each(|(name, value)| cells(&inner(name), value, wrong, found));
        }
        Bson::Array(values) => {
            let first = values.iter().take(1).enumerate();
            first.for_each(|(at, value)| cells(&inner(&at.to_string()), value, wrong, found));
        }
        _ => {}
    }
}

/// Moves a document to another id: an id cannot be updated, but a document can be deleted and inserted again.
async fn move_to(database: &Database, hit: &Hit<'_>, id: &Bson) -> mongodb::error::Result<bool> {
    let Key::Bson(key) = &hit.row.key else { return Ok(false) };
    let (documents, old) = (database.collection::<Document>(&hit.row.table), doc! { "_id": key });
    let Some(mut document) = documents.find_one_and_delete(old).await? else { return Ok(false) };
    let before = document.clone();
    match hit.column.strip_prefix("_id.") {
        None => drop(document.insert("_id", id)),
        Some(field) => drop(document.get_document_mut("_id").map(|inner| inner.insert(field, id))),
    }
    if documents.insert_one(document).await.is_ok() {
        return Ok(true);
    }
    documents.insert_one(before).await.map(|_| false)
}

/// Applies changes of one collection in one call; returns which of them were accepted.
async fn write(database: &Database, table: &str, hits: &[&Hit<'_>]) -> Vec<bool> {
    let change = |hit: &&Hit<'_>| {
        let Key::Bson(key) = &hit.row.key else { panic!("a row of a SQL store") };
        let change = match hit.value {
            Wrong::Bson(value) => doc! { "$set": { hit.column: value } },
            _ => doc! { "$unset": { hit.column: "" } },
        };
        doc! { "q": { "_id": key }, "u": change }
    };
    let changes: Vec<Document> = hits.iter().map(change).collect();
    let command = doc! { "update": table, "updates": changes, "ordered": false };
    let reply = database.run_command(command).await.expect("an answer");
    let mut taken = vec![true; hits.len()];
    for error in reply.get_array("writeErrors").into_iter().flatten().filter_map(Bson::as_document) {
        let at = error.get_i32("index").ok().and_then(|at| usize::try_from(at).ok()).expect("an index");
        taken[at] = false;
    }
    taken
}

#[async_trait]
impl Tables for Mongo {
    fn name(&self) -> &'static str {
        "MongoDB"
    }

    /// A document accepts so many values that trying all of them in every state would take minutes.
    fn in_every_state(&self) -> bool {
        false
    }

    async fn connect(&self) -> Arc<dyn JobStore> {
        self.0.connect().await
    }

    async fn rows(&self) -> Vec<Row> {
        let (database, wrong) = (self.0.database().await, Arc::new(values::documents()));
        let mut rows = Vec::new();
        for table in database.list_collection_names().await.expect("the catalogue") {
            let documents = database.collection::<Document>(&table).find(doc! {}).await.expect("the rows");
            for document in documents.try_collect::<Vec<_>>().await.expect("the rows") {
                let key = Key::Bson(document.get("_id").cloned().unwrap_or(Bson::Null));
                let mut found = Vec::new();
                cells("", &document.into(), &wrong, &mut found);
                rows.push(Row { table: table.clone(), key, cells: found });
            }
        }
        rows
    }

    async fn damage(&self, hits: &[Hit<'_>]) -> Vec<bool> {
        let database = self.0.database().await;
        let mut taken = vec![false; hits.len()];
        let mut plain: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, hit) in hits.iter().enumerate() {
            match hit.value {
                Wrong::Bson(value) if hit.column.starts_with("_id") => {
                    taken[at] = move_to(&database, hit, value).await.unwrap_or(false);
                }
                _ if hit.column.starts_with("_id") => {}
                _ => plain.entry(&hit.row.table).or_default().push(at),
            }
        }
        for (table, places) in plain {
            for part in places.chunks(500) {
                let some: Vec<&Hit<'_>> = part.iter().map(|at| &hits[*at]).collect();
                for (at, was) in part.iter().zip(write(&database, table, &some).await) {
                    taken[*at] = was;
                }
            }
        }
        taken
    }

    fn id(&self, job: JobId) -> String {
        content(&Binary { subtype: BinarySubtype::Uuid, bytes: job.as_uuid().as_bytes().to_vec() }.into())
    }

    fn text(&self, text: &str) -> String {
        text.to_owned()
    }

    async fn remove(&self) {
        self.0.remove().await;
    }
}
