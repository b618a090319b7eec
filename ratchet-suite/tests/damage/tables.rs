//! Stored rows as seen through a database shell, and ways to damage them.

use std::sync::Arc;

use async_trait::async_trait;
use mongodb::bson::Bson;
use ratchet_api::JobId;
use ratchet_api::store::JobStore;

/// A place whose rows can be read and damaged behind the store's back.
#[async_trait]
pub(crate) trait Tables: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether every value is tried in rows of every state. Otherwise each value is tried in one state, and the values
    /// of a column in different ones.
    fn in_every_state(&self) -> bool {
        true
    }

    /// Opens one more connection of the store.
    async fn connect(&self) -> Arc<dyn JobStore>;

    /// Reads every row of every table in the database's catalogue.
    async fn rows(&self) -> Vec<Row>;

    /// Writes wrong values; returns which of them the server accepted.
    async fn damage(&self, hits: &[Hit<'_>]) -> Vec<bool>;

    /// Returns a job's id as cells write it.
    fn id(&self, job: JobId) -> String;

    /// Returns a text as cells write it.
    fn text(&self, text: &str) -> String;

    async fn remove(&self);
}

/// A value that a column can take and that no store writes there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wrong {
    /// A SQL expression.
    Sql(&'static str),
    /// A value of a document.
    Bson(Bson),
    /// The field is removed from its document.
    Missing,
}

/// A row. Cells are texts, as their database quotes them.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) table: String,
    /// The address of the row: a condition, or an id.
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
    /// The wrong values that the cell accepts.
    pub(crate) wrong: Arc<Vec<Wrong>>,
}

/// One value for one cell.
pub(crate) struct Hit<'a> {
    pub(crate) row: &'a Row,
    pub(crate) column: &'a str,
    pub(crate) value: &'a Wrong,
}
