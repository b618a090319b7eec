//! The interface between a store and its database's driver. Everything else about a SQL store is the same for all of
//! them.

use std::error::Error;
use std::fmt;

use async_trait::async_trait;
use ratchet_api::Timestamp;
use sqlx::SqlStr;
use uuid::Uuid;

use crate::value::Value;
use crate::{Dialect, Statement};

/// The reason why a cell cannot be read.
pub type Problem = Box<dyn Error + Send + Sync>;

/// The kind of a piece of work, which decides on which connection it runs and whether it needs a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Statements that only read, each independent of the others.
    Read,
    /// One statement file that writes. A file of a single statement is a transaction of its own.
    Write,
    /// Several statement files that must happen together or not at all.
    Transaction,
}

/// Opens connections to one database.
#[async_trait]
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// The language of its statements.
    fn dialect(&self) -> Dialect;

    /// The statement that begins a transaction for such work, if it needs one; `COMMIT` and `ROLLBACK` end it. For
    /// SQLite's [`Work::Write`], beginning and end are part of the statement's text.
    fn begin(&self, work: Work) -> Option<&'static str>;

    /// Opens a connection for such work.
    async fn connect(&self, work: Work) -> Result<Box<dyn Connection>, sqlx::Error>;
}

/// A connection. It is dropped, not used again, after an error of its own or when its caller stops waiting.
#[async_trait]
pub trait Connection: Send {
    /// Runs a statement and reads all its rows. The values are in the order of [`Statement::binds`].
    ///
    /// On SQLite it may be several statements in one text; then the last one has the rows.
    async fn fetch(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Box<dyn Row>>, sqlx::Error>;

    /// Runs a statement and passes each row on at once. A driver that can does so while the next rows are still
    /// arriving.
    async fn each(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        show: &mut (dyn for<'r> FnMut(&'r dyn Row) + Send),
    ) -> Result<(), sqlx::Error> {
        self.fetch(statement, values).await?.iter().for_each(|row| show(row));
        Ok(())
    }

    /// Runs a statement; returns how many rows it changed, or the last one changed if it is several.
    async fn execute(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<u64, sqlx::Error>;

    /// Runs a text without parameters.
    async fn raw(&mut self, text: SqlStr) -> Result<(), sqlx::Error>;

    /// Checks that the server still answers.
    async fn ping(&mut self) -> Result<(), sqlx::Error>;

    /// Closes the connection properly.
    async fn close(self: Box<Self>);
}

/// A row of a result: cells by the name of their column.
///
/// A cell that is null is `None`. A cell of another type, or one that is missing, is an error.
pub trait Row: Send + Sync {
    /// A boolean, or the number 0 or 1.
    fn flag(&self, column: &str) -> Result<Option<bool>, Problem>;
    /// A whole number of any size.
    fn int(&self, column: &str) -> Result<Option<i64>, Problem>;
    /// Text.
    fn text(&self, column: &str) -> Result<Option<&str>, Problem>;
    /// An id.
    fn id(&self, column: &str) -> Result<Option<Uuid>, Problem>;
    /// An instant.
    fn time(&self, column: &str) -> Result<Option<Timestamp>, Problem>;
    /// An array of texts, or JSON text of one.
    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, Problem>;
    /// An array of numbers, or JSON text of one.
    fn ints(&self, column: &str) -> Result<Option<Vec<i64>>, Problem>;
    /// An array of ids, or JSON text of one with ids in hexadecimal.
    fn ids(&self, column: &str) -> Result<Option<Vec<Uuid>>, Problem>;

    /// Where the rare columns are, in which most jobs have nothing. A driver that can tell that all of them are null
    /// saves reading each.
    fn rare(&self) -> Result<Rare, Problem> {
        Ok(Rare::Here)
    }
}

/// The location of a row's rare columns.
pub enum Rare {
    /// Among the others.
    Here,
    /// All of them are null.
    Nowhere,
    /// In a row of their own.
    Apart(Box<dyn Row>),
}

/// Implements `Row` for a boxed row.
macro_rules! boxed_row {
    ($($cell:ident -> $type:ty;)*) => {
        impl Row for Box<dyn Row> {
            $(fn $cell(&self, column: &str) -> Result<Option<$type>, Problem> { (**self).$cell(column) })*

            fn rare(&self) -> Result<Rare, Problem> { (**self).rare() }
        }
    };
}

boxed_row! {
    flag -> bool;
    int -> i64;
    text -> &str;
    id -> Uuid;
    time -> Timestamp;
    texts -> Vec<String>;
    ints -> Vec<i64>;
    ids -> Vec<Uuid>;
}
