//! Connections, and running work on them.
//!
//! The driver's own pool asks the server for a sign of life before and after each use: three round trips where one
//! does. Here a connection goes back only after work that ended well or was rolled back; whatever else happens to it
//! (an error of the connection, a timeout, a caller that stopped waiting), it is dropped.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::PostgresStore;
use crate::error::{classify, is_lost_race, leaves_connection_usable, unreachable};

/// A connection that was idle for longer may have died unnoticed, so it is asked first.
const TRUSTED_IDLE: Duration = Duration::from_secs(5);

/// How often a transaction that lost against others is run again before the caller hears of it.
const RERUNS: u32 = 5;

/// A few connections to one server.
pub(crate) struct Sessions {
    options: PgConnectOptions,
    idle: Mutex<Vec<(PgConnection, Instant)>>,
    free: Semaphore,
    acquire_timeout: Duration,
}

/// A connection in use by one operation.
pub(crate) struct Session<'a> {
    store: &'a PostgresStore,
    op: &'static str,
    connection: PgConnection,
    _permit: SemaphorePermit<'a>,
}

impl Sessions {
    pub(crate) fn new(options: PgConnectOptions, size: usize, acquire_timeout: Duration) -> Self {
        Self { options, idle: Mutex::default(), free: Semaphore::new(size.max(1)), acquire_timeout }
    }

    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    async fn connection(&self, op: &'static str) -> StoreResult<PgConnection> {
        while let Some((mut connection, since)) = self.pop_idle() {
            if since.elapsed() < TRUSTED_IDLE || connection.ping().await.is_ok() {
                return Ok(connection);
            }
        }
        PgConnection::connect_with(&self.options).await.map_err(|error| unreachable(op, error))
    }

    fn pop_idle(&self) -> Option<(PgConnection, Instant)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn push_idle(&self, connection: PgConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((connection, Instant::now()));
    }

    async fn open<'a>(&'a self, store: &'a PostgresStore, op: &'static str) -> StoreResult<Session<'a>> {
        let late = |what| StoreError::new(StoreErrorKind::Unavailable, op, what);
        let permit = timeout(self.acquire_timeout, self.free.acquire()).await;
        let permit = permit
            .map_err(|_| late("every connection of the store is in use; raise `connections`"))?
            .map_err(|_| late("the store is closed"))?;
        let connection = timeout(self.acquire_timeout, self.connection(op)).await;
        let connection = connection.map_err(|_| late("the server does not answer"))??;
        Ok(Session { store, op, connection, _permit: permit })
    }

    /// Closes every idle connection in good manners.
    pub(crate) async fn close(&self) {
        self.free.close();
        while let Some((connection, _)) = self.pop_idle() {
            // The server will notice at the latest when the socket goes.
            drop(connection.close().await);
        }
    }
}

impl<'a> Session<'a> {
    pub(crate) fn op(&self) -> &'static str {
        self.op
    }

    pub(crate) fn store(&self) -> &'a PostgresStore {
        self.store
    }

    pub(crate) fn sql(&self) -> &'a crate::statement::Statements {
        &self.store.sql
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Runs a text without parameters: `BEGIN`, `SAVEPOINT`, a schema.
    pub(crate) async fn raw(&mut self, text: impl sqlx::SqlSafeStr) -> StoreResult<()> {
        let done = sqlx::raw_sql(text).execute(&mut self.connection).await;
        done.map(drop).map_err(|error| classify(self.op, error))
    }

    fn give_back(self) {
        self.store.sessions.push_idle(self.connection);
    }
}

/// Work on a session: a function of it, because it may run more than once.
pub(crate) trait Work<'a, T>:
    for<'s> Fn(&'s mut Session<'a>) -> BoxFuture<'s, StoreResult<T>> + Send + Sync
{
}
impl<'a, T, F> Work<'a, T> for F where
    F: for<'s> Fn(&'s mut Session<'a>) -> BoxFuture<'s, StoreResult<T>> + Send + Sync
{
}

impl PostgresStore {
    /// Runs single statements, each a transaction of its own.
    pub(crate) async fn run<'a, T>(&'a self, op: &'static str, work: impl Work<'a, T>) -> StoreResult<T> {
        self.attempts(op, false, work).await
    }

    /// Runs statements as one transaction.
    pub(crate) async fn transaction<'a, T>(
        &'a self,
        op: &'static str,
        work: impl Work<'a, T>,
    ) -> StoreResult<T> {
        self.attempts(op, true, work).await
    }

    async fn attempts<'a, T>(&'a self, op: &'static str, tx: bool, work: impl Work<'a, T>) -> StoreResult<T> {
        let mut lost = 0;
        loop {
            let attempt = timeout(self.operation_timeout, self.attempt(op, tx, &work)).await;
            let late = || StoreError::new(StoreErrorKind::Transient, op, "the server did not answer in time");
            match attempt.map_err(|_| late())? {
                Err(error) if lost < RERUNS && is_lost_race(&error) => {
                    lost += 1;
                    tokio::time::sleep(Duration::from_millis(rand::random_range(1..=5 << lost))).await;
                }
                result => return result,
            }
        }
    }

    async fn attempt<'a, T>(&'a self, op: &'static str, tx: bool, work: &impl Work<'a, T>) -> StoreResult<T> {
        let mut session = self.sessions.open(self, op).await?;
        if tx {
            session.raw("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        }
        match work(&mut session).await {
            Ok(value) => {
                if tx {
                    session.raw("COMMIT").await?;
                }
                session.give_back();
                Ok(value)
            }
            Err(error) => {
                let usable =
                    leaves_connection_usable(&error) && (!tx || session.raw("ROLLBACK").await.is_ok());
                if usable {
                    session.give_back();
                }
                Err(error)
            }
        }
    }
}
