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
/// What the driver takes for `max_pool_size` if nothing is said, and as no limit.
const USUAL_POOL: u32 = 10;
const UNLIMITED: u32 = 0;
/// More documents than a call asks for: unless told, the first answer of the server has 101. It still ends at 16 MB.
pub(crate) const ONE_ANSWER: u32 = 100_000;

/// How to open a [`MongoStore`].
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
    /// The database.
    pub database: String,
    /// What every collection's name starts with, so that several applications can share a database.
    pub prefix: String,
    /// Whether opening also makes collections and indexes that are missing. Else a database without them is refused,
    /// with a message that names `ratchet migrate`.
    pub migrate: bool,
    /// Whether nodes tell each other about new work. A node that listens occupies one connection.
    pub wakeups: bool,
    /// The clock that decides.
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
    /// The database.
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = name.into();
        self
    }

    /// What every collection's name starts with.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Whether opening also makes collections and indexes that are missing.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Whether nodes tell each other about new work.
    pub fn wakeups(mut self, wakeups: bool) -> Self {
        self.wakeups = wakeups;
        self
    }

    /// The clock that decides.
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
    /// How nodes tell each other about new work.
    pub(crate) notices: Notices,
    /// Whether they do.
    pub(crate) wakeups: bool,
    /// How to open more connections; `None` if only a client was given.
    connection: Option<ClientOptions>,
    prefix: String,
    latest: Arc<AtomicI64>,
    pub(crate) contention: Arc<Contention>,
    pub(crate) backlog: Arc<Backlog>,
}

impl MongoStore {
    /// Connects, and makes collections and indexes that are missing, unless told not to.
    ///
    /// Every write waits until a majority of the replica set has it in its journal, and every read goes to the primary,
    /// whatever the address says: a job that was accepted must outlive any one server, and a secondary may lag behind.
    ///
    /// # Errors
    /// Says what is wrong and what to do: no server answers, the user is refused or lacks a right, the server has no
    /// transactions, the collections are missing or of another version.
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

    /// Likewise with the driver's own options: for certificates, or a password that is not in a URL.
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

    /// Likewise over a client that the application has anyway, for one pool of connections in all.
    ///
    /// The heartbeat then shares them as well, and with them the runtime on which the client was made: a body that blocks
    /// that runtime for a whole lease costs the node its jobs. Over [`connect`](Self::connect) and
    /// [`from_options`](Self::from_options) the heartbeat has connections of its own.
    ///
    /// Each node that listens for wakeups keeps one connection of the client's pool busy. Where `max_pool_size` leaves none to
    /// spare, turn [`wakeups`](MongoOptions::wakeups) off.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn from_client(client: Client, options: MongoOptions) -> StoreResult<Self> {
        let migrate = options.migrate;
        Self::open(None, Some(client), options)?.ready(migrate).await
    }

    /// The client, whose sessions can take jobs into their transactions: the driver refuses those of another one.
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
        // A client of somebody else's may be content with less.
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

    /// The same data over connections of its own, made on the caller's runtime, if it is known how to open some.
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
        let options =
            AggregateOptions::builder().read_concern(ReadConcern::local()).batch_size(ONE_ANSWER).build();
        let cursor =
            from.aggregate(pipeline).with_options(options).with_type::<RawDocumentBuf>().await.during(op)?;
        let rows: Vec<RawDocumentBuf> = cursor.try_collect().await.during(op)?;
        Ok(readable(op, &rows))
    }

    /// Many single-document updates in one round trip. Answers how many documents they changed: one that the server refuses,
    /// because of what is in its document, fails none of the others.
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

/// How many documents an update command found, if nothing was refused.
pub(crate) fn matched(op: &'static str, reply: &Document) -> StoreResult<u64> {
    if let Ok(errors) = reply.get_array("writeErrors") {
        let code = errors.first().and_then(|error| error.as_document()?.get_i32("code").ok());
        return Err(refused_write(op, code.unwrap_or_default()));
    }
    checked(op, reply)
}

/// How many documents an update command found, if it is known to last.
fn checked(op: &'static str, reply: &Document) -> StoreResult<u64> {
    if reply.contains_key("writeConcernError") {
        return Err(StoreError::new(StoreErrorKind::Transient, op, NOT_ON_A_MAJORITY));
    }
    Ok(reply.get_i32("n").map_or(0, i32::unsigned_abs).into())
}

pub(crate) fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

/// A secondary may lag behind, and most of what is read decides something.
pub(crate) fn primary() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::Primary)
}
