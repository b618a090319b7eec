//! Stored rows, as somebody with a shell sees them, and ways to damage them.

use std::sync::Arc;

use async_trait::async_trait;
use mongodb::bson::Bson;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;

/// A place whose rows can be read and damaged behind the store's back.
#[async_trait]
pub(crate) trait Tables: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether every value is tried in rows of every state. Else each is tried in one, and the values of a column in
    /// different ones.
    fn in_every_state(&self) -> bool {
        true
    }

    /// One more connection of the store.
    async fn connect(&self) -> Arc<dyn JobStore>;

    /// Every row of every table that the database's own catalogue lists.
    async fn rows(&self) -> Vec<Row>;

    /// Puts values where none of ours belongs; tells which of them the server took.
    async fn damage(&self, hits: &[Hit<'_>]) -> Vec<bool>;

    /// How cells write a job's id.
    fn id(&self, job: JobId) -> String;

    /// How cells write a text.
    fn text(&self, text: &str) -> String;

    async fn remove(&self);
}

/// A value that a column can take and that no store writes there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wrong {
    /// An expression of SQL.
    Sql(&'static str),
    /// A value in a document.
    Bson(Bson),
    /// The field is removed from its document.
    Missing,
}

/// A row. Cells are texts as their database quotes them.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) table: String,
    /// Which row: a condition, or an id.
    pub(crate) key: Key,
    pub(crate) cells: Vec<Cell>,
}

#[derive(Clone, Debug)]
pub(crate) enum Key {
    Sql(String),
    Bson(Bson),
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) column: String,
    pub(crate) in_key: bool,
    pub(crate) content: String,
    /// What else could stand here.
    pub(crate) wrong: Arc<Vec<Wrong>>,
}

/// One value for one cell.
pub(crate) struct Hit<'a> {
    pub(crate) row: &'a Row,
    pub(crate) column: &'a str,
    pub(crate) value: &'a Wrong,
}
