//! Opening the store, and the few ways in which it talks to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::{
    Acknowledgment, AggregateOptions, ClientOptions, FindOptions, ReadConcern, WriteConcern,
};
use mongodb::{Client, Database};
use ratchet_api::{Limits, StoreClock, StoreError, StoreErrorKind, StoreResult, Timestamp};
use serde::de::DeserializeOwned;

use crate::clock::{Present, instant};
use crate::codec::decode;
use crate::collections::{Collections, Raw, check_name};
use crate::error::During;
use crate::{indexes, startup};

/// How to open a [`MongoStore`].
#[derive(Clone, Debug)]
pub struct MongoOptions {
    /// The database.
    pub database: String,
    /// What every collection's name starts with, so that several applications can share a database.
    pub prefix: String,
    /// Whether opening also makes collections and indexes that are missing. Else a database without them is refused,
    /// with a message that names `ratchet migrate`.
    pub migrate: bool,
    /// The clock that decides.
    pub clock: StoreClock,
    /// How big the parts of a job may be.
    pub limits: Limits,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            database: "ratchet".to_owned(),
            prefix: String::new(),
            migrate: true,
            clock: StoreClock::Server,
            limits: Limits::default(),
        }
    }
}

/// The store on MongoDB. Clones share one connection pool.
#[derive(Clone)]
pub struct MongoStore {
    pub(crate) client: Client,
    pub(crate) database: Database,
    pub(crate) collections: Collections,
    pub(crate) clock: StoreClock,
    pub(crate) limits: Limits,
    connection: ClientOptions,
    prefix: String,
    latest: Arc<AtomicI64>,
}

impl MongoStore {
    /// Connects, and makes collections and indexes that are missing, unless told not to.
    ///
    /// Every write waits until a majority of the replica set has it in its journal, whatever the address says: a job
    /// that was accepted must outlive any one server.
    ///
    /// # Errors
    /// Says what is wrong and what to do: no server answers, the user is refused or lacks a right, the server has no
    /// transactions, the collections are missing or of another version.
    pub async fn connect(url: &str, options: MongoOptions) -> StoreResult<Self> {
        const OP: &str = "connect";
        check_name("database", &options.database)?;
        check_name("prefix", &options.prefix)?;
        let mut connection = ClientOptions::parse(url).await.during(OP)?;
        connection.write_concern = Some(durable());
        connection.read_concern = Some(ReadConcern::majority());
        connection.retry_writes = Some(true);
        connection.app_name.get_or_insert_with(|| "ratchet".to_owned());
        connection.server_selection_timeout.get_or_insert(Duration::from_secs(5));
        let migrate = options.migrate;
        let store = Self::open(connection, options)?;
        indexes::ensure(&store, migrate).await?;
        startup::check(&store).await?;
        Ok(store)
    }

    fn open(connection: ClientOptions, options: MongoOptions) -> StoreResult<Self> {
        let client = Client::with_options(connection.clone()).during("connect")?;
        let database = client.database(&options.database);
        Ok(Self {
            collections: Collections::new(&database, &options.prefix),
            client,
            database,
            clock: options.clock,
            limits: options.limits,
            connection,
            prefix: options.prefix,
            latest: Arc::default(),
        })
    }

    /// The same data over connections of its own, made on the caller's runtime.
    pub(crate) fn separate(&self) -> StoreResult<Self> {
        let options = MongoOptions {
            database: self.database.name().to_owned(),
            prefix: self.prefix.clone(),
            migrate: false,
            clock: self.clock.clone(),
            limits: self.limits,
        };
        Self::open(self.connection.clone(), options)
    }

    pub(crate) fn present(&self) -> Present {
        Present::of(&self.clock)
    }

    /// The present, for what is decided here and not by the server. Costs a round trip unless the clock is manual.
    pub(crate) async fn now(&self, op: &'static str) -> StoreResult<Timestamp> {
        if let Some(now) = self.present().known() {
            return Ok(now);
        }
        let hello = self.database.run_command(doc! { "hello": 1 }).await.during(op)?;
        let told = hello.get_datetime("localTime").map_err(|_| {
            StoreError::new(StoreErrorKind::Other, op, "the server's greeting does not tell the time")
        })?;
        Ok(self.never_back(instant(*told)))
    }

    /// The clocks of two servers differ, so an election may set time back a little; what this store tells is not. More than
    /// that is a clock that was set, of which a node has to know.
    pub(crate) fn never_back(&self, now: Timestamp) -> Timestamp {
        const A_LITTLE: Duration = Duration::from_secs(1);
        let before = Timestamp::from_millis(self.latest.fetch_max(now.as_millis(), Ordering::SeqCst));
        if before.since(now) > A_LITTLE {
            self.latest.store(now.as_millis(), Ordering::SeqCst);
            return now;
        }
        now.max(before)
    }

    /// Reads documents and decodes each. One that cannot be read is logged and hides no other.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        op: &'static str,
        from: &Raw,
        filter: Document,
        options: FindOptions,
    ) -> StoreResult<Vec<T>> {
        let raw: Vec<_> =
            from.find(filter).with_options(options).await.during(op)?.try_collect().await.during(op)?;
        Ok(readable(op, &raw))
    }

    /// Runs a pipeline and decodes what comes out, likewise.
    pub(crate) async fn aggregate<T: DeserializeOwned>(
        &self,
        op: &'static str,
        from: &Raw,
        pipeline: Vec<Document>,
    ) -> StoreResult<Vec<T>> {
        let cursor = from.aggregate(pipeline).with_type::<RawDocumentBuf>().await.during(op)?;
        let rows: Vec<RawDocumentBuf> = cursor.try_collect().await.during(op)?;
        Ok(readable(op, &rows))
    }

    /// The newest that the primary has, on a majority or not: for a look that decides nothing.
    pub(crate) async fn glance<T: DeserializeOwned>(
        &self,
        op: &'static str,
        from: &Raw,
        pipeline: Vec<Document>,
    ) -> StoreResult<Vec<T>> {
        let options = AggregateOptions::builder().read_concern(ReadConcern::local()).build();
        let cursor =
            from.aggregate(pipeline).with_options(options).with_type::<RawDocumentBuf>().await.during(op)?;
        let rows: Vec<RawDocumentBuf> = cursor.try_collect().await.during(op)?;
        Ok(readable(op, &rows))
    }

    /// Many single-document updates in one round trip. Answers how many documents they found.
    ///
    /// Client-side bulk writes need MongoDB 8, so this is the plain command.
    pub(crate) async fn update_each(
        &self,
        op: &'static str,
        raw: &Raw,
        updates: Vec<Document>,
    ) -> StoreResult<u64> {
        let command = doc! {
            "update": raw.name(), "updates": updates, "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let reply = self.database.run_command(command).await.during(op)?;
        matched(op, &reply)
    }
}

fn readable<T: DeserializeOwned>(op: &'static str, rows: &[RawDocumentBuf]) -> Vec<T> {
    let unreadable = |error: &StoreError| tracing::error!(op, %error, "a document cannot be read");
    rows.iter().filter_map(|row| decode(op, row).inspect_err(unreadable).ok()).collect()
}

/// How many documents an update command found, if nothing was refused.
pub(crate) fn matched(op: &'static str, reply: &Document) -> StoreResult<u64> {
    if let Ok(errors) = reply.get_array("writeErrors") {
        let code =
            errors.first().and_then(|error| error.as_document()?.get_i32("code").ok()).unwrap_or_default();
        let kind = if code == 11000 { StoreErrorKind::Conflict } else { StoreErrorKind::Transient };
        return Err(StoreError::new(kind, op, format!("the server refused an update with code {code}")));
    }
    if reply.contains_key("writeConcernError") {
        let detail = "the write is not known to be on a majority";
        return Err(StoreError::new(StoreErrorKind::Transient, op, detail));
    }
    Ok(reply.get_i32("n").map_or(0, i32::unsigned_abs).into())
}

pub(crate) fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}
