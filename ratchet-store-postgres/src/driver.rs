//! sqlx's PostgreSQL as a driver.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::TryStreamExt as _;
use ratchet_api::Timestamp;
use ratchet_store_core::driver::{Connection, Driver, Problem, Rare, Row, Work};
use ratchet_store_core::{Dialect, Statement, Value};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{
    Arguments as _, Column as _, Connection as _, Decode, PgConnection, Postgres, Row as _, SqlStr, Type,
    ValueRef as _,
};
use uuid::Uuid;

use crate::Pooler;
use crate::rare::RareCells;
use crate::session::{self, Plans};

/// Opens connections to one server.
pub(crate) struct PgDriver {
    server: PgConnectOptions,
    pooler: Pooler,
    /// The statement that begins transactions behind a pooler without sessions, once the server's abilities are known.
    begin: OnceLock<&'static str>,
}

impl PgDriver {
    pub(crate) fn new(server: PgConnectOptions, pooler: Pooler) -> Self {
        let server = match pooler {
            Pooler::None => session::marked(server),
            Pooler::Session | Pooler::Transaction => server,
        };
        Self { server, pooler, begin: OnceLock::new() }
    }
}

impl fmt::Debug for PgDriver {
    /// Shows where the server is, without the user and the password.
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

    /// Every file is one statement, and one statement is a transaction, unless a pooler reassigns the connection
    /// between the two messages that a statement without a name needs.
    fn begin(&self, work: Work) -> Option<&'static str> {
        match (self.pooler, work) {
            (Pooler::Transaction, _) => Some(self.begin.get().copied().unwrap_or(session::BEGIN)),
            (_, Work::Transaction) => Some("BEGIN ISOLATION LEVEL READ COMMITTED"),
            (_, Work::Read | Work::Write) => None,
        }
    }

    async fn connect(&self, _: Work) -> Result<Box<dyn Connection>, sqlx::Error> {
        let connected = PgConnection::connect_with(&self.server).await;
        let link = match self.pooler {
            Pooler::None => {
                let mut connection = connected.map_err(session::suspect_pooler)?;
                session::settle_in(&mut connection).await?;
                PgLink::Named(connection, Plans::default())
            }
            Pooler::Session => PgLink::Named(connected?, Plans::default()),
            Pooler::Transaction => {
                let mut connection = connected?;
                if self.begin.get().is_none() {
                    let begin = session::begin_of(&mut connection).await?;
                    self.begin.get_or_init(|| begin);
                }
                PgLink::Unnamed(connection)
            }
        };
        Ok(Box::new(link))
    }
}

/// A connection.
pub(crate) enum PgLink<'c> {
    /// Of the store; statements are prepared once, under a name.
    Named(PgConnection, Plans),
    /// Of the store, to a server connection that changes with every transaction.
    Unnamed(PgConnection),
    /// Of a transaction that a user began. Names in it are the user's, and there may be a pooler behind it.
    Theirs(&'c mut PgConnection),
}

impl PgLink<'_> {
    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Named(connection, _) | Self::Unnamed(connection) => connection,
            Self::Theirs(connection) => connection,
        }
    }

    /// Builds the query of a statement for this connection.
    async fn query(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<PgQuery, sqlx::Error> {
        if let Self::Named(connection, plans) = self {
            plans.renew(connection).await?;
        }
        Ok(query(statement, values)?.persistent(matches!(self, Self::Named(..))))
    }

    fn note_use(&mut self, took: Duration) {
        if let Self::Named(_, plans) = self {
            plans.note_use(took);
        }
    }
}

type PgQuery = Query<'static, Postgres, PgArguments>;

#[async_trait]
impl Connection for PgLink<'_> {
    async fn fetch(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Box<dyn Row>>, sqlx::Error> {
        let query = self.query(statement, values).await?;
        let begun = Instant::now();
        let rows = query.fetch_all(self.connection()).await?;
        self.note_use(begun.elapsed());
        Ok(rows.into_iter().map(|row| Box::new(PgCells::new(row)) as Box<dyn Row>).collect())
    }

    async fn each(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        show: &mut (dyn for<'r> FnMut(&'r dyn Row) + Send),
    ) -> Result<(), sqlx::Error> {
        let query = self.query(statement, values).await?;
        let begun = Instant::now();
        let mut rows = query.fetch(self.connection());
        while let Some(row) = rows.try_next().await? {
            show(&PgCells::new(row));
        }
        drop(rows);
        self.note_use(begun.elapsed());
        Ok(())
    }

    async fn execute(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        let query = self.query(statement, values).await?;
        let begun = Instant::now();
        let done = query.execute(self.connection()).await?;
        self.note_use(begun.elapsed());
        Ok(done.rows_affected())
    }

    async fn raw(&mut self, text: SqlStr) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(self.connection()).await.map(drop)
    }

    async fn ping(&mut self) -> Result<(), sqlx::Error> {
        self.connection().ping().await
    }

    async fn close(self: Box<Self>) {
        if let Self::Named(connection, _) | Self::Unnamed(connection) = *self {
            // The server notices the end at the latest when the socket closes.
            drop(connection.close().await);
        }
    }
}

fn query(statement: &Statement, values: &[Value<'_>]) -> Result<PgQuery, sqlx::Error> {
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
        Value::Flags(flags) => arguments.add(unless_null(flags)),
        Value::Ints(ints) => arguments.add(unless_null(ints)),
        Value::Texts(texts) => arguments.add(unless_null(texts)),
        Value::ByteStrings(strings) => arguments.add(unless_null(strings)),
        Value::Ids(ids) => arguments.add(unless_null(ids)),
        Value::Times(times) => {
            let times = unless_null(times).iter().map(|time| time.map(Timestamp::to_datetime));
            arguments.add(times.collect::<Vec<_>>())
        }
        Value::Json(json) => arguments.add(json),
        _ => Err("this kind of value is not known to PostgreSQL's driver".into()),
    }
}

/// An empty array for a column that is all null: beside longer arrays `unnest` gives nulls in its place, for less.
fn unless_null<T>(column: &[Option<T>]) -> &[Option<T>] {
    if column.iter().all(Option::is_none) { &[] } else { column }
}

/// A row that sqlx read.
struct PgCells {
    row: PgRow,
    /// The column after the one that was read last. Rows are mostly read in the order of their columns, and a
    /// comparison costs less than a search.
    next: AtomicUsize,
}

impl PgCells {
    fn new(row: PgRow) -> Self {
        Self { row, next: AtomicUsize::new(0) }
    }

    fn place(&self, column: &str) -> Result<usize, Problem> {
        let next = self.next.load(Ordering::Relaxed);
        let is_next = self.row.columns().get(next).is_some_and(|found| found.name() == column);
        let place = if is_next { next } else { self.row.try_column(column)?.ordinal() };
        self.next.store(place + 1, Ordering::Relaxed);
        Ok(place)
    }

    /// The bytes of a cell. Every statement here is prepared, and its answers are binary.
    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, Problem> {
        let raw = self.row.try_get_raw(self.place(column)?)?;
        if raw.is_null() { Ok(None) } else { raw.as_bytes().map(Some) }
    }

    /// A cell of `N` bytes. The driver would look up its type each time, for a statement that never changes.
    fn fixed<const N: usize>(&self, column: &str) -> Result<Option<[u8; N]>, Problem> {
        Ok(self.bytes(column)?.map(TryInto::try_into).transpose()?)
    }

    fn array<T>(&self, column: &str) -> Result<Option<T>, Problem>
    where
        T: for<'d> Decode<'d, Postgres> + Type<Postgres>,
    {
        Ok(self.row.try_get(self.place(column)?)?)
    }
}

/// The beginning of the year 2000, from which PostgreSQL counts microseconds.
const EPOCH_MILLIS: i64 = 946_684_800_000;

impl Row for PgCells {
    fn flag(&self, column: &str) -> Result<Option<bool>, Problem> {
        Ok(self.fixed(column)?.map(|[byte]| byte != 0))
    }

    fn int(&self, column: &str) -> Result<Option<i64>, Problem> {
        let Some(bytes) = self.bytes(column)? else { return Ok(None) };
        Ok(Some(match *bytes {
            [a, b] => i16::from_be_bytes([a, b]).into(),
            [a, b, c, d] => i32::from_be_bytes([a, b, c, d]).into(),
            _ => i64::from_be_bytes(bytes.try_into()?),
        }))
    }

    fn text(&self, column: &str) -> Result<Option<&str>, Problem> {
        Ok(self.bytes(column)?.map(std::str::from_utf8).transpose()?)
    }

    fn id(&self, column: &str) -> Result<Option<Uuid>, Problem> {
        Ok(self.fixed(column)?.map(Uuid::from_bytes))
    }

    fn time(&self, column: &str) -> Result<Option<Timestamp>, Problem> {
        let millis = |micros: i64| micros.div_euclid(1_000).saturating_add(EPOCH_MILLIS);
        let micros = self.fixed(column)?.map(i64::from_be_bytes);
        Ok(micros.map(|micros| Timestamp::from_millis(millis(micros))))
    }

    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, Problem> {
        self.array(column)
    }

    fn ints(&self, column: &str) -> Result<Option<Vec<i64>>, Problem> {
        self.array(column)
    }

    fn ids(&self, column: &str) -> Result<Option<Vec<Uuid>>, Problem> {
        self.array(column)
    }

    /// In job/load.sql the rare columns are one column, the last.
    fn rare(&self) -> Result<Rare, Problem> {
        match self.row.columns().last() {
            Some(last) if last.name() == "rare" => Ok(match self.row.try_get(last.ordinal())? {
                Some(object) => Rare::Apart(Box::new(RareCells::read(object)?)),
                None => Rare::Nowhere,
            }),
            _ => Ok(Rare::Here),
        }
    }
}
