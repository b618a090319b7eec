//! Opening the store, and the few ways in which it talks to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::options::{
    Acknowledgment, AggregateOptions, ClientOptions, DatabaseOptions, FindOptions, ReadConcern,
    ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Database};
use ratchet_api::{StoreClock, StoreError, StoreErrorKind, StoreResult, Timestamp};
use serde::de::DeserializeOwned;

use crate::clock::{Present, instant};
use crate::codec::decode;
use crate::collections::{Collections, Raw, check_name};
use crate::error::{During, NOT_ON_A_MAJORITY, refused_write, unreadable_url};
use crate::store::claim::{Backlog, Contention};
use crate::unit::driver_info;
use crate::wakeup::Notices;
use crate::{indexes, reach, startup};

const OP: &str = "connect";
/// `max_pool_size`: the driver's default, and its value for no limit.
const USUAL_POOL: u32 = 10;
const UNLIMITED: u32 = 0;
/// A batch size above the number of documents that a call asks for: by default the first batch has 101. The server
/// still ends a batch at 16 MB.
pub(crate) const ONE_ANSWER: u32 = 100_000;

/// Options for opening a [`MongoStore`].
///
/// ```
/// use ratchet_store_mongodb::MongoOptions;
///
/// let options = MongoOptions::default().database("shop").prefix("jobs_").migrate(false);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub struct MongoOptions {
    /// The name of the database.
    pub database: String,
    /// The prefix of every collection's name, so that several applications can share a database.
    pub prefix: String,
    /// Whether opening also creates missing collections and indexes. Otherwise a database without them is refused with
    /// a message that names `ratchet migrate`.
    pub migrate: bool,
    /// Whether nodes notify each other of new work. A node that listens occupies one connection.
    pub wakeups: bool,
    /// The clock that decides what is due.
    pub clock: StoreClock,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            database: "ratchet".to_owned(),
            prefix: String::new(),
            migrate: true,
            wakeups: true,
            clock: StoreClock::Server,
        }
    }
}

impl MongoOptions {
    /// Sets the name of the database.
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = name.into();
        self
    }

    /// Sets the prefix of every collection's name.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets whether opening also creates missing collections and indexes.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Sets whether nodes notify each other of new work.
    pub fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// Sets the clock that decides what is due.
    pub fn clock(mut self, clock: StoreClock) -> Self {
        self.clock = clock;
        self
    }
}

/// The store on MongoDB. Clones share one connection pool.
#[derive(Clone)]
pub struct MongoStore {
    pub(crate) client: Client,
    pub(crate) database: Database,
    pub(crate) collections: Collections,
    pub(crate) clock: StoreClock,
    /// The notices by which nodes tell each other about new work.
    pub(crate) notices: Notices,
    /// Whether this store sends and follows notices.
    pub(crate) wakeups: bool,
    /// The options for more connections; `None` if only a client was given.
    connection: Option<ClientOptions>,
    prefix: String,
    latest: Arc<AtomicI64>,
    pub(crate) contention: Arc<Contention>,
    pub(crate) backlog: Arc<Backlog>,
}

impl MongoStore {
    /// Connects, and creates missing collections and indexes unless told not to.
    ///
    /// Every write waits until a majority of the replica set has it in its journal, and every read goes to the primary,
    /// whatever the address says: a job that was accepted must outlive any one server, and a secondary may lag behind.
    ///
    /// # Errors
    /// The message says what is wrong and what to do: no server answers, the user is refused or lacks a right, the
    /// server has no transactions, the collections are missing or of another version.
    pub async fn connect(url: &str, options: MongoOptions) -> StoreResult<Self> {
        if !["mongodb://", "mongodb+srv://"].iter().any(|scheme| url.starts_with(scheme)) {
            let advice = "the URL does not begin with `mongodb://` or `mongodb+srv://`";
            return Err(StoreError::invalid(OP, advice));
        }
        Self::from_options(
            ClientOptions::parse(url).await.map_err(|error| unreadable_url(OP, &error))?,
            options,
        )
        .await
    }

    /// Connects with the driver's own options: for certificates, or a password that is not in a URL.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn from_options(mut connection: ClientOptions, options: MongoOptions) -> StoreResult<Self> {
        connection.write_concern = Some(durable());
        connection.read_concern = Some(ReadConcern::majority());
        connection.selection_criteria = Some(primary());
        connection.retry_writes = Some(true);
        connection.driver_info = Some(driver_info());
        connection.app_name.get_or_insert_with(|| "ratchet".to_owned());
        connection.server_selection_timeout.get_or_insert(Duration::from_secs(5));
        if options.wakeups {
            // One more for the node that listens.
            let most = connection.max_pool_size.unwrap_or(USUAL_POOL);
            connection.max_pool_size = Some(if most == UNLIMITED { most } else { most + 1 });
        }
        let migrate = options.migrate;
        Self::open(Some(connection), None, options)?.ready(migrate).await
    }

    /// Opens the store over the application's own client, for one connection pool in all.
    ///
    /// The heartbeat then shares them as well, and with them the runtime on which the client was made: a body that
    /// blocks that runtime for a whole lease costs the node its jobs. Over [`connect`](Self::connect) and
    /// [`from_options`](Self::from_options) the heartbeat has connections of its own.
    ///
    /// Each node that listens for wakeups keeps one connection of the client's pool busy. Where `max_pool_size` leaves
    /// none to spare, turn [`wakeups`](MongoOptions::wakeups) off.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn from_client(client: Client, options: MongoOptions) -> StoreResult<Self> {
        let migrate = options.migrate;
        Self::open(None, Some(client), options)?.ready(migrate).await
    }

    /// The client, whose sessions can take jobs into their transactions: the driver refuses sessions of another client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    async fn ready(mut self, migrate: bool) -> StoreResult<Self> {
        let ready = async {
            indexes::ensure(&self, migrate).await?;
            startup::check(&self).await
        };
        match (ready.await, &self.connection) {
            (Ok(wakeups), _) => {
                self.wakeups = wakeups;
                Ok(self)
            }
            (Err(error), Some(connection)) => Err(reach::explain(error, connection).await),
            (Err(error), None) => Err(error),
        }
    }

    fn open(
        connection: Option<ClientOptions>,
        client: Option<Client>,
        options: MongoOptions,
    ) -> StoreResult<Self> {
        check_name("database", &options.database)?;
        check_name("prefix", &options.prefix)?;
        let client = match client {
            Some(client) => client,
            None => Client::with_options(connection.clone().unwrap_or_default()).during(OP)?,
        };
        // A client of the application may be configured with weaker concerns.
        let sure = DatabaseOptions::builder()
            .write_concern(durable())
            .read_concern(ReadConcern::majority())
            .selection_criteria(primary());
        let database = client.database_with_options(&options.database, sure.build());
        Ok(Self {
            collections: Collections::new(&database, &options.prefix),
            client,
            clock: options.clock,
            notices: Notices::new(&database, &options.prefix),
            wakeups: options.wakeups,
            connection,
            prefix: options.prefix,
            database,
            latest: Arc::default(),
            contention: Arc::default(),
            backlog: Arc::default(),
        })
    }

    /// The same store over connections of its own, made on the caller's runtime. A store over a given client shares
    /// that client.
    pub(crate) fn separate(&self) -> StoreResult<Self> {
        let options = MongoOptions {
            database: self.database.name().to_owned(),
            prefix: self.prefix.clone(),
            migrate: false,
            wakeups: false,
            clock: self.clock.clone(),
        };
        let shared = self.connection.is_none().then(|| self.client.clone());
        Self::open(self.connection.clone(), shared, options)
    }

    pub(crate) fn present(&self) -> Present {
        Present::of(&self.clock)
    }

    /// The present time, for decisions made here and not by the server. Costs a round trip unless the clock is manual.
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

    /// The given time, or the latest one told if that is at most a second later: the clocks of two servers differ, so
    /// an election may set time back a little. A larger step means that the clock was set, which a node has to know.
    pub(crate) fn never_back(&self, now: Timestamp) -> Timestamp {
        const A_LITTLE: Duration = Duration::from_secs(1);
        let before = Timestamp::from_millis(self.latest.fetch_max(now.as_millis(), Ordering::SeqCst));
        if before.since(now) > A_LITTLE {
            self.latest.store(now.as_millis(), Ordering::SeqCst);
            return now;
        }
        now.max(before)
    }

    /// Reads documents and decodes each. An unreadable one is logged and skipped.
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

    /// Runs a pipeline and decodes its results. An unreadable one is logged and skipped.
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

    /// Runs a pipeline on the newest data of the primary, on a majority or not: for reads that decide nothing.
    pub(crate) async fn glance<T: DeserializeOwned>(
        &self,
        op: &'static str,
        from: &Raw,
        pipeline: Vec<Document>,
    ) -> StoreResult<Vec<T>> {
        let options =
            AggregateOptions::builder().read_concern(ReadConcern::local()).batch_size(ONE_ANSWER).build();
        let cursor =
            from.aggregate(pipeline).with_options(options).with_type::<RawDocumentBuf>().await.during(op)?;
        let rows: Vec<RawDocumentBuf> = cursor.try_collect().await.during(op)?;
        Ok(readable(op, &rows))
    }

    /// Sends many single-document updates in one round trip. Returns how many documents they changed. An update that
    /// the server refuses because of its document's content fails none of the others.
    ///
    /// Client-side bulk writes need MongoDB 8, so this is the plain `update` command.
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
        if let Ok(errors) = reply.get_array("writeErrors") {
            tracing::debug!(op, ?errors, "some updates were refused");
        }
        checked(op, &reply)
    }
}

fn readable<T: DeserializeOwned>(op: &'static str, rows: &[RawDocumentBuf]) -> Vec<T> {
    let unreadable = |error: &StoreError| tracing::error!(op, %error, "a document cannot be read");
    rows.iter().filter_map(|row| decode(op, row).inspect_err(unreadable).ok()).collect()
}

/// The number of documents that an update command matched, or its first write error.
pub(crate) fn matched(op: &'static str, reply: &Document) -> StoreResult<u64> {
    if let Ok(errors) = reply.get_array("writeErrors") {
        let code = errors.first().and_then(|error| error.as_document()?.get_i32("code").ok());
        return Err(refused_write(op, code.unwrap_or_default()));
    }
    checked(op, reply)
}

/// The number of documents that an update command matched, if the write is known to be on a majority.
fn checked(op: &'static str, reply: &Document) -> StoreResult<u64> {
    if reply.contains_key("writeConcernError") {
        return Err(StoreError::new(StoreErrorKind::Transient, op, NOT_ON_A_MAJORITY));
    }
    Ok(reply.get_i32("n").map_or(0, i32::unsigned_abs).into())
}

pub(crate) fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

/// Reads from the primary: a secondary may lag behind, and most reads decide something.
pub(crate) fn primary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::Primary)
}
