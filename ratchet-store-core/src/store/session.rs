//! Connection pools, and running work on their connections.
//!
//! The driver's own pool pings the server before and after each use: three round trips where one is enough. Here a
//! connection goes back only after work that ended well or was rolled back; in all other cases (an error of the
//! connection, a timeout, a caller that stopped waiting) it is dropped.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use ratchet_api::{StoreError, StoreErrorKind, StoreResult};
use sqlx::SqlSafeStr;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::error::{classify, is_lost_race, leaves_connection_usable, unreachable};
use super::statement::Statements;
use super::{SqlOptions, SqlStore};
use crate::driver::{Connection, Driver, Work};
use crate::{Dialect, transient};

/// A connection that was idle for longer may have died unnoticed, so it is pinged first.
const TRUSTED_IDLE: Duration = Duration::from_secs(5);

/// The connection pools of one database.
pub(super) struct Sessions {
    writers: Pool,
    /// Connections for reading alone, for a database with one writer.
    readers: Option<Pool>,
    acquire_timeout: Duration,
}

struct Pool {
    idle: Mutex<Vec<(Box<dyn Connection>, Instant)>>,
    free: Semaphore,
}

/// A connection in use by one operation.
pub(crate) struct Session<'a> {
    store: &'a SqlStore,
    op: &'static str,
    connection: Link<'a>,
    /// Each file brings its own transaction.
    alone: bool,
}

/// A connection, of the store or of a transaction of a user.
enum Link<'a> {
    /// A connection of the store.
    Ours(Box<dyn Connection>),
    /// The connection of a transaction that a user began and will end.
    Theirs(Box<dyn Connection + 'a>),
}

impl Sessions {
    pub(super) fn new(options: &SqlOptions) -> Self {
        Self {
            writers: Pool::new(options.connections),
            readers: options.readers.map(Pool::new),
            acquire_timeout: options.acquire_timeout,
        }
    }

    fn pool(&self, work: Work) -> &Pool {
        match (&self.readers, work) {
            (Some(readers), Work::Read) => readers,
            _ => &self.writers,
        }
    }

    /// Closes every idle connection properly.
    pub(super) async fn close(&self) {
        for pool in [Some(&self.writers), self.readers.as_ref()].into_iter().flatten() {
            pool.free.close();
            while let Some((connection, _)) = pool.pop() {
                connection.close().await;
            }
        }
    }
}

impl Pool {
    fn new(size: usize) -> Self {
        Self { idle: Mutex::default(), free: Semaphore::new(size.max(1)) }
    }

    fn pop(&self) -> Option<(Box<dyn Connection>, Instant)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn push(&self, connection: Box<dyn Connection>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((connection, Instant::now()));
    }

    fn clear(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn permit(&self, op: &'static str, wait: Duration) -> StoreResult<SemaphorePermit<'_>> {
        let unavailable = |what| StoreError::new(StoreErrorKind::Unavailable, op, what);
        let permit = timeout(wait, self.free.acquire()).await;
        permit
            .map_err(|_| unavailable("every connection of the store is in use; raise `connections`"))?
            .map_err(|_| unavailable("the store is closed"))
    }

    async fn connection(
        &self,
        driver: &dyn Driver,
        op: &'static str,
        work: Work,
    ) -> StoreResult<Box<dyn Connection>> {
        while let Some((mut connection, since)) = self.pop() {
            if since.elapsed() < TRUSTED_IDLE || connection.ping().await.is_ok() {
                return Ok(connection);
            }
        }
        driver.connect(work).await.map_err(|error| unreachable(driver.dialect(), op, error))
    }
}

impl<'a> Session<'a> {
    pub(crate) fn op(&self) -> &'static str {
        self.op
    }

    pub(crate) fn store(&self) -> &'a SqlStore {
        self.store
    }

    pub(crate) fn sql(&self) -> &'a Statements {
        &self.store.sql
    }

    pub(crate) fn connection(&mut self) -> &mut (dyn Connection + 'a) {
        match &mut self.connection {
            Link::Ours(connection) => &mut **connection,
            Link::Theirs(connection) => &mut **connection,
        }
    }

    /// Whether each file brings its own transaction.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.store.driver.dialect()
    }

    /// Classifies an error of the driver.
    pub(crate) fn classify(&self, error: sqlx::Error) -> StoreError {
        classify(self.dialect(), self.op, matches!(self.connection, Link::Theirs(_)), error)
    }

    /// Runs a text without parameters, such as a savepoint.
    pub(crate) async fn raw(&mut self, text: impl SqlSafeStr + Send) -> StoreResult<()> {
        let done = self.connection().raw(text.into_sql_str()).await;
        done.map_err(|error| self.classify(error))
    }
}

/// Work to do on a session: a function of it, because it may run more than once.
pub(super) trait Task<'a, T>:
    for<'s> Fn(&'s mut Session<'a>) -> BoxFuture<'s, StoreResult<T>> + Send + Sync
{
}
impl<'a, T, F> Task<'a, T> for F where
    F: for<'s> Fn(&'s mut Session<'a>) -> BoxFuture<'s, StoreResult<T>> + Send + Sync
{
}

impl SqlStore {
    /// Runs statements that only read.
    pub(super) async fn read<'a, T>(&'a self, op: &'static str, task: impl Task<'a, T>) -> StoreResult<T> {
        self.run(op, Work::Read, task).await
    }

    /// Runs one statement that writes.
    pub(super) async fn write<'a, T>(&'a self, op: &'static str, task: impl Task<'a, T>) -> StoreResult<T> {
        self.run(op, Work::Write, task).await
    }

    /// Runs statements in one transaction.
    pub(super) async fn transaction<'a, T>(
        &'a self,
        op: &'static str,
        task: impl Task<'a, T>,
    ) -> StoreResult<T> {
        self.run(op, Work::Transaction, task).await
    }

    /// Runs a task, and again as a whole if it lost a race against others. Each try has its own timeout.
    async fn run<'a, T>(&'a self, op: &'static str, work: Work, task: impl Task<'a, T>) -> StoreResult<T> {
        let dialect = self.driver.dialect();
        let once = || async {
            let late =
                || StoreError::new(StoreErrorKind::Transient, op, "the database did not answer in time");
            let done = timeout(self.options.operation_timeout, self.once(op, work, &task)).await;
            done.unwrap_or_else(|_| {
                // The other connections may be dead as well.
                self.sessions.pool(work).clear();
                Err(late())
            })
        };
        transient::rerun(|error| is_lost_race(dialect, error), once).await
    }

    async fn once<'a, T>(&'a self, op: &'static str, work: Work, task: &impl Task<'a, T>) -> StoreResult<T> {
        let pool = self.sessions.pool(work);
        let wait = self.sessions.acquire_timeout;
        let _permit = pool.permit(op, wait).await?;
        let connection = timeout(wait, pool.connection(&*self.driver, op, work)).await;
        let late = |_| StoreError::new(StoreErrorKind::Unavailable, op, "the server does not answer");
        let connection = Link::Ours(connection.map_err(late)??);
        let alone = work == Work::Write && self.driver.dialect().takes_whole_texts();
        let mut session = Session { store: self, op, connection, alone };
        let (result, usable) = session.work(self.driver.begin(work), task).await;
        match session.connection {
            Link::Ours(connection) if usable => pool.push(connection),
            // The cause may have broken the other connections as well.
            _ => pool.clear(),
        }
        result
    }

    /// Runs a task once, inside a transaction that a user began: only the user may commit it, or run it again.
    pub(super) async fn enlisted<'a, T>(
        &'a self,
        op: &'static str,
        connection: Box<dyn Connection + 'a>,
        task: impl Task<'a, T>,
    ) -> StoreResult<T> {
        task(&mut Session { store: self, op, connection: Link::Theirs(connection), alone: false }).await
    }
}

impl<'a> Session<'a> {
    /// Runs a task, in a transaction if there is something to begin. Also returns whether the connection is still
    /// usable.
    async fn work<T>(
        &mut self,
        begin: Option<&'static str>,
        task: &impl Task<'a, T>,
    ) -> (StoreResult<T>, bool) {
        let done = self.try_work(begin, task).await;
        let usable = match &done {
            Ok(_) => true,
            Err(error) => {
                leaves_connection_usable(self.dialect(), error)
                    && (begin.is_none() || self.raw("ROLLBACK").await.is_ok())
            }
        };
        (done, usable)
    }

    async fn try_work<T>(&mut self, begin: Option<&'static str>, task: &impl Task<'a, T>) -> StoreResult<T> {
        let Some(begin) = begin.filter(|_| !self.alone) else { return task(self).await };
        self.raw(begin).await?;
        let answer = task(self).await?;
        self.raw("COMMIT").await?;
        Ok(answer)
    }
}
