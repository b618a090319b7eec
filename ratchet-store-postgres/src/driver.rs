//! sqlx's PostgreSQL as a driver.

use std::fmt;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use ratchet_api::Timestamp;
use ratchet_store_core::driver::{Connection, Driver, Problem, Row, Work};
use ratchet_store_core::{Dialect, Statement, Value};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{
    Arguments as _, Connection as _, Decode, PgConnection, Postgres, Row as _, SqlStr, Type, TypeInfo as _,
    ValueRef as _,
};
use uuid::Uuid;

/// Opens connections to one server.
pub(crate) struct PgDriver {
    server: PgConnectOptions,
}

impl PgDriver {
    pub(crate) const fn new(server: PgConnectOptions) -> Self {
        Self { server }
    }
}

impl fmt::Debug for PgDriver {
    /// Says where the server is, without the user and the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgDriver")
            .field("host", &self.server.get_host())
            .field("port", &self.server.get_port())
            .field("database", &self.server.get_database())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Driver for PgDriver {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    /// Every file is one statement, and one statement is a transaction.
    fn begin(&self, work: Work) -> Option<&'static str> {
        match work {
            Work::Read | Work::Write => None,
            Work::Transaction => Some("BEGIN ISOLATION LEVEL READ COMMITTED"),
        }
    }

    async fn connect(&self, _: Work) -> Result<Box<dyn Connection>, sqlx::Error> {
        Ok(Box::new(PgLink::Ours(PgConnection::connect_with(&self.server).await?)))
    }
}

/// A connection.
pub(crate) enum PgLink<'c> {
    /// Of the store.
    Ours(PgConnection),
    /// Of a transaction that a user began.
    Theirs(&'c mut PgConnection),
}

impl PgLink<'_> {
    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Ours(connection) => connection,
            Self::Theirs(connection) => connection,
        }
    }
}

#[async_trait]
impl Connection for PgLink<'_> {
    async fn fetch(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Box<dyn Row>>, sqlx::Error> {
        let rows = query(statement, values)?.fetch_all(self.connection()).await?;
        Ok(rows.into_iter().map(|row| Box::new(PgCells(row)) as Box<dyn Row>).collect())
    }

    async fn execute(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        Ok(query(statement, values)?.execute(self.connection()).await?.rows_affected())
    }

    async fn raw(&mut self, text: SqlStr) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(self.connection()).await.map(drop)
    }

    async fn ping(&mut self) -> Result<(), sqlx::Error> {
        self.connection().ping().await
    }

    async fn close(self: Box<Self>) {
        if let Self::Ours(connection) = *self {
            // The server will notice at the latest when the socket goes.
            drop(connection.close().await);
        }
    }
}

fn query(
    statement: &Statement,
    values: &[Value<'_>],
) -> Result<Query<'static, Postgres, PgArguments>, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for value in values {
        bind(&mut arguments, value).map_err(sqlx::Error::Encode)?;
    }
    Ok(sqlx::query_with(statement.sql(), arguments))
}

fn bind(arguments: &mut PgArguments, value: &Value<'_>) -> Result<(), sqlx::error::BoxDynError> {
    match value {
        Value::Flag(flag) => arguments.add(flag),
        Value::Int(int) => arguments.add(int),
        Value::Text(text) => arguments.add(text),
        Value::Bytes(bytes) => arguments.add(bytes),
        Value::Id(id) => arguments.add(id),
        Value::Time(time) => arguments.add(time.map(Timestamp::to_datetime)),
        Value::Flags(flags) => arguments.add(flags),
        Value::Ints(ints) => arguments.add(ints),
        Value::Texts(texts) => arguments.add(texts),
        Value::ByteStrings(strings) => arguments.add(strings),
        Value::Ids(ids) => arguments.add(ids),
        Value::Times(times) => {
            arguments.add(times.iter().map(|time| time.map(Timestamp::to_datetime)).collect::<Vec<_>>())
        }
        Value::Json(json) => arguments.add(json),
        _ => Err("this kind of value is not known to PostgreSQL's driver".into()),
    }
}

/// A row that sqlx read.
struct PgCells(PgRow);

impl PgCells {
    fn cell<T>(&self, column: &str) -> Result<Option<T>, Problem>
    where
        T: for<'d> Decode<'d, Postgres> + Type<Postgres>,
    {
        Ok(self.0.try_get(column)?)
    }
}

impl Row for PgCells {
    fn flag(&self, column: &str) -> Result<Option<bool>, Problem> {
        self.cell(column)
    }

    fn int(&self, column: &str) -> Result<Option<i64>, Problem> {
        let raw = self.0.try_get_raw(column)?;
        match raw.type_info().name() {
            "INT2" => Ok(self.cell::<i16>(column)?.map(i64::from)),
            "INT4" => Ok(self.cell::<i32>(column)?.map(i64::from)),
            _ => self.cell(column),
        }
    }

    fn text(&self, column: &str) -> Result<Option<String>, Problem> {
        self.cell(column)
    }

    fn id(&self, column: &str) -> Result<Option<Uuid>, Problem> {
        self.cell(column)
    }

    fn time(&self, column: &str) -> Result<Option<Timestamp>, Problem> {
        Ok(self.cell::<DateTime<Utc>>(column)?.map(Timestamp::from))
    }

    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, Problem> {
        self.cell(column)
    }

    fn ints(&self, column: &str) -> Result<Option<Vec<i64>>, Problem> {
        self.cell(column)
    }

    fn ids(&self, column: &str) -> Result<Option<Vec<Uuid>>, Problem> {
        self.cell(column)
    }
}
