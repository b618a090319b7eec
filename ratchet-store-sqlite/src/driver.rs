//! sqlx's SQLite as a driver.

use std::fmt;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use ratchet_api::Timestamp;
use ratchet_store_core::driver::{Connection, Driver, Problem, Row, Work};
use ratchet_store_core::{Dialect, Namespace, Statement, TextError, Value};
use serde::de::DeserializeOwned;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow};
use sqlx::{
    Arguments as _, Column as _, Connection as _, Decode, Either, Executor as _, Row as _, SqlStr, Sqlite,
    SqliteConnection, TypeInfo as _, ValueRef as _,
};
use uuid::Uuid;

use crate::packed::{PackedRow, unpack};

/// The tables in which the steps of a script hand on their results.
pub(crate) const SCRATCH_TABLES: &str = include_str!("../queries/connect/tables.sql");

const CHOOSE_BEST: &str = include_str!("../queries/connect/choose_best.sql");
const CHOOSE_PARKED: &str = include_str!("../queries/connect/choose_parked.sql");

/// The page cache, 16 MB, so that a backlog in random order is not read again and again.
const CACHE: &str = "-16000";

/// The pages in the log before they are copied into the file, 16 MB: a page that is written often is copied once.
const CHECKPOINT: &str = "4000";

/// Opens connections to one file.
pub(crate) struct SqliteDriver {
    writer: SqliteConnectOptions,
    reader: SqliteConnectOptions,
    /// The statements that a writer needs before its first script.
    prepare: [Statement; 3],
}

impl SqliteDriver {
    pub(crate) fn new(file: &SqliteConnectOptions, namespace: &Namespace) -> Result<Self, TextError> {
        let compile = |text| Statement::compile(text, Dialect::Sqlite, namespace);
        Ok(Self {
            writer: file.clone().pragma("cache_size", CACHE).pragma("wal_autocheckpoint", CHECKPOINT),
            reader: file.clone().pragma("query_only", "on"),
            prepare: [compile(SCRATCH_TABLES)?, compile(CHOOSE_BEST)?, compile(CHOOSE_PARKED)?],
        })
    }
}

impl fmt::Debug for SqliteDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDriver").field("file", &self.writer.get_filename()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Driver for SqliteDriver {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    /// Begins as a writer, so that writers wait for each other here. A transaction that began as a reader could not: it
    /// would be refused.
    fn begin(&self, work: Work) -> Option<&'static str> {
        match work {
            Work::Read => None,
            Work::Write | Work::Transaction => Some("BEGIN IMMEDIATE"),
        }
    }

    async fn connect(&self, work: Work) -> Result<Box<dyn Connection>, sqlx::Error> {
        if work == Work::Read {
            return Ok(Box::new(Link::Ours(SqliteConnection::connect_with(&self.reader).await?)));
        }
        let mut connection = SqliteConnection::connect_with(&self.writer).await?;
        for statement in &self.prepare {
            sqlx::raw_sql(statement.sql()).execute(&mut connection).await?;
        }
        Ok(Box::new(Link::Ours(connection)))
    }
}

/// A connection.
pub(crate) enum Link<'c> {
    /// Of the store.
    Ours(SqliteConnection),
    /// Of a transaction that a user began.
    Theirs(&'c mut SqliteConnection),
}

impl Link<'_> {
    fn connection(&mut self) -> &mut SqliteConnection {
        match self {
            Self::Ours(connection) => connection,
            Self::Theirs(connection) => connection,
        }
    }
}

#[async_trait]
impl Connection for Link<'_> {
    async fn fetch(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Box<dyn Row>>, sqlx::Error> {
        let answer = self.connection().fetch_all(query(statement, values)?).await?;
        let mut rows: Vec<Box<dyn Row>> = Vec::with_capacity(answer.len());
        for row in answer {
            match packed(&row)? {
                Some(unpacked) => rows.extend(unpacked.into_iter().map(|row| Box::new(row) as Box<dyn Row>)),
                None => rows.push(Box::new(Cells(row))),
            }
        }
        Ok(rows)
    }

    async fn execute(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        let mut steps = self.connection().fetch_many(query(statement, values)?);
        let mut changed = 0;
        while let Some(step) = steps.try_next().await? {
            if let Either::Left(done) = step {
                changed = done.rows_affected();
            }
        }
        Ok(changed)
    }

    async fn raw(&mut self, text: SqlStr) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(self.connection()).await.map(drop)
    }

    async fn ping(&mut self) -> Result<(), sqlx::Error> {
        self.connection().ping().await
    }

    async fn close(self: Box<Self>) {
        if let Self::Ours(connection) = *self {
            // The file is intact without a proper close.
            drop(connection.close().await);
        }
    }
}

fn query(
    statement: &Statement,
    values: &[Value<'_>],
) -> Result<Query<'static, Sqlite, SqliteArguments>, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    for value in values {
        bind(&mut arguments, value).map_err(sqlx::Error::Encode)?;
    }
    Ok(sqlx::query_with(statement.sql(), arguments))
}

fn bind(arguments: &mut SqliteArguments, value: &Value<'_>) -> Result<(), sqlx::error::BoxDynError> {
    match value {
        Value::Flag(flag) => arguments.add(flag),
        Value::Int(int) => arguments.add(int),
        Value::Text(text) => arguments.add(text.map(str::to_owned)),
        Value::Bytes(bytes) => arguments.add(bytes.map(<[u8]>::to_vec)),
        Value::Id(id) => arguments.add(id),
        Value::Time(time) => arguments.add(time.map(Timestamp::as_millis)),
        Value::Json(json) => arguments.add(json.clone()),
        _ => Err("SQLite has no arrays; a text binds them as JSON".into()),
    }
}

/// The rows inside a row of [`packed`](crate::packed) ones.
fn packed(row: &SqliteRow) -> Result<Option<Vec<PackedRow>>, sqlx::Error> {
    match row.columns() {
        [names, rows] if names.name() == "names" && rows.name() == "rows" => {
            let rows = unpack(row.try_get(0)?, row.try_get(1)?);
            rows.map(Some).map_err(|error| sqlx::Error::Decode(error.into()))
        }
        _ => Ok(None),
    }
}

/// A row that sqlx read.
struct Cells(SqliteRow);

impl Cells {
    /// A cell of this type. SQLite would silently convert another type.
    fn cell<'r, T: Decode<'r, Sqlite>>(&'r self, column: &str, of: &str) -> Result<Option<T>, Problem> {
        let value = self.0.try_get_raw(column)?;
        if value.is_null() {
            return Ok(None);
        }
        let found = value.type_info();
        if found.name() != of {
            return Err(format!("{column}: {} where {of} belongs", found.name()).into());
        }
        T::decode(value).map(Some).map_err(|error| format!("{column}: {error}").into())
    }

    fn json<T: DeserializeOwned>(&self, column: &str) -> Result<Option<T>, Problem> {
        // One of many texts may contain bytes that are not UTF-8, and must not hide the others.
        let text: Option<&[u8]> = self.cell(column, "TEXT")?;
        Ok(text.map(|text| serde_json::from_str(&String::from_utf8_lossy(text))).transpose()?)
    }
}

impl Row for Cells {
    fn flag(&self, column: &str) -> Result<Option<bool>, Problem> {
        flag(column, self.int(column)?)
    }

    fn int(&self, column: &str) -> Result<Option<i64>, Problem> {
        self.cell(column, "INTEGER")
    }

    fn text(&self, column: &str) -> Result<Option<&str>, Problem> {
        self.cell(column, "TEXT")
    }

    fn id(&self, column: &str) -> Result<Option<Uuid>, Problem> {
        self.cell(column, "BLOB")
    }

    fn time(&self, column: &str) -> Result<Option<Timestamp>, Problem> {
        Ok(self.int(column)?.map(Timestamp::from_millis))
    }

    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, Problem> {
        self.json(column)
    }

    fn ints(&self, column: &str) -> Result<Option<Vec<i64>>, Problem> {
        self.json(column)
    }

    fn ids(&self, column: &str) -> Result<Option<Vec<Uuid>>, Problem> {
        self.json(column)
    }
}

/// A boolean, which SQLite keeps as a number.
pub(crate) fn flag(column: &str, cell: Option<i64>) -> Result<Option<bool>, Problem> {
    match cell {
        None => Ok(None),
        Some(0) => Ok(Some(false)),
        Some(1) => Ok(Some(true)),
        Some(other) => Err(format!("{column}: {other} is neither 0 nor 1").into()),
    }
}
