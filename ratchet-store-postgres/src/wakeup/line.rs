//! The connection over which notices go out and come in.

use std::io;

use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{Acquire as _, Connection as _, PgConnection, PgPool, Row as _};
use tokio::time::{Duration, Instant, timeout};

use super::{Notice, PATIENCE, WakeupChannel};

/// How long the server may take to accept a connection, and to pass a notice on.
const LIMIT: Duration = Duration::from_secs(5);
/// How long closing the connection may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// One statement, so one transaction. A hint need not survive a power cut, so nobody waits for the disk: neither this
/// node nor those who wait for the lock that `NOTIFY` takes.
const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
/// How often, and how long, to wait for a notice of our own before `LISTEN` counts as not working.
const PROOFS: usize = 2;
const PROOF: Duration = Duration::from_secs(3);

/// An open connection.
pub(super) struct Line {
    listener: PgListener,
    /// The pool of this one connection.
    pool: PgPool,
    /// The server's process that serves the connection, once it listens.
    process: Option<u32>,
    last_sign: Instant,
    by: By,
}

/// How a notice is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A prepared statement of the session.
    Session,
    /// A transaction, for a connection that a pooler reassigns between two of them.
    Transaction,
}

impl Line {
    pub(super) async fn open(place: &WakeupChannel, by: By) -> Result<Self, sqlx::Error> {
        let one = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = one.acquire_timeout(LIMIT).connect_lazy_with(place.server.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // A lost connection is reported at once; the caller opens a new one after a pause.
        listener.eager_reconnect(false);
        listener.ignore_pool_close_event(true);
        Ok(Self { listener, pool, process: None, last_sign: Instant::now(), by })
    }

    pub(super) const fn listens(&self) -> bool {
        self.process.is_some()
    }

    pub(super) const fn last_sign(&self) -> Instant {
        self.last_sign
    }

    pub(super) async fn listen(&mut self, place: &WakeupChannel) -> Result<(), sqlx::Error> {
        in_time(LIMIT, self.listener.listen(&place.channel)).await?;
        let process = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(&mut self.listener);
        let process: i32 = in_time(LIMIT, process).await?.try_get(0)?;
        self.process = Some(process.unsigned_abs());
        self.last_sign = Instant::now();
        Ok(())
    }

    /// Waits for the next notice. It is empty if this node sent it, which knows it already.
    ///
    /// # Cancellation safety
    /// No notice is lost.
    pub(super) async fn hear(&mut self) -> Result<Notice, sqlx::Error> {
        let Some(notice) = self.listener.try_recv().await? else {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        };
        self.last_sign = Instant::now();
        let is_echo = Some(notice.process_id()) == self.process;
        Ok(if is_echo { Notice::default() } else { Notice::read(notice.payload()) })
    }

    /// Whether notices reach a listener on this connection. A pooler in transaction mode accepts a `LISTEN` and leaves
    /// it to the next client of its server connection. So it is tried on a channel that no other node has, and with a
    /// notice from another connection, since even a pooler passes on a notice that comes with an answer.
    pub(super) async fn can_listen(&mut self, place: &WakeupChannel) -> Result<bool, sqlx::Error> {
        let channel = format!("ratchet_proof_{:016x}", rand::random::<u64>());
        in_time(LIMIT, self.listener.listen(&channel)).await?;
        for _ in 0..PROOFS {
            let mut other = Self::open(place, By::Transaction).await?;
            in_time(LIMIT, notify(other.listener.acquire().await?, other.by, &channel, "")).await?;
            other.close().await;
            if let Ok(heard) = timeout(PROOF, self.hear()).await {
                heard?;
                in_time(LIMIT, self.listener.unlisten(&channel)).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn send(&mut self, place: &WakeupChannel, notice: Notice) -> Result<(), sqlx::Error> {
        let connection = self.listener.acquire().await?;
        in_time(LIMIT, notify(connection, self.by, &place.channel, &notice.to_string())).await
    }

    /// Pings the server. A connection whose other end vanished stays silent for ever.
    pub(super) async fn ask_for_sign(&mut self) -> Result<(), sqlx::Error> {
        let connection = self.listener.acquire().await?;
        in_time(PATIENCE, connection.ping()).await?;
        self.last_sign = Instant::now();
        Ok(())
    }

    pub(super) async fn close(self) {
        let Self { listener, pool, .. } = self;
        drop(listener);
        // A server that does not answer is not waited for any longer.
        let _ = timeout(GOODBYE, pool.close()).await;
    }
}

async fn notify(connection: &mut PgConnection, by: By, channel: &str, text: &str) -> Result<(), sqlx::Error> {
    let statement = sqlx::query(NOTIFY).bind(channel).bind(text);
    match by {
        By::Session => statement.execute(connection).await.map(drop),
        // The two messages of the statement reach the same server connection only inside a transaction.
        By::Transaction => {
            let mut tx = sqlx::Connection::begin(connection).await?;
            statement.persistent(false).execute(&mut *tx).await?;
            tx.commit().await
        }
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}
