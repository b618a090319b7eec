//! Notifies other nodes of new work by `LISTEN` and `NOTIFY`.
//!
//! - `line`: the connection, what is sent over it and what comes back;
//! - this file: when the connection is opened, when a notice is sent, and which listeners are called.
//!
//! A notice is only a hint: nothing here is needed for a job to run, so no trouble here reaches the caller.
//!
//! `NOTIFY` takes a lock of the whole server, so at most one is in flight: a notice goes out at once, and all notices
//! that are told before the server has answered go out as one afterwards.

mod line;
mod notice;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_api::spi::{ClusterCoordinator, WakeupKind, WakeupListener, WakeupListeners};
use ratchet_api::{JobPriority, StoreResult};
use ratchet_store_core::{ConnectError, Dialect, Namespace, transient};
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};

use crate::{Pooler, connect};
use line::{By, Line};
use notice::Notice;

/// The silence after which the server is pinged, and the time that it has to answer. Together ten seconds, and rare
/// enough for an idle node to send no more than 0.3 messages a second in all.
const QUIET: Duration = Duration::from_secs(9);
const PATIENCE: Duration = Duration::from_secs(1);
/// The bounds of the pause between two tries to connect: at random, so that nodes that lost the same server do not come
/// back at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a shutdown waits for the last notice and for the connection to close.
const CLOSING: Duration = Duration::from_secs(2);

/// The server and channel of the notices.
#[derive(Clone)]
pub(crate) struct WakeupChannel {
    server: PgConnectOptions,
    pooler: Pooler,
    channel: String,
}

impl WakeupChannel {
    pub(crate) fn new(server: PgConnectOptions, pooler: Pooler, namespace: &Namespace) -> Self {
        let channel = channel(namespace);
        let server = server.application_name(&format!("ratchet-wakeup {channel}"));
        Self { server, pooler, channel }
    }
}

/// The channel of a namespace: installations in one database must not wake each other.
fn channel(namespace: &Namespace) -> String {
    namespace.schema_name().map_or_else(|| namespace.table("ratchet_wakeup"), str::to_owned)
}

/// Notifies other nodes of new work by `LISTEN` and `NOTIFY`, over one connection of its own. A
/// [`PostgresStore`](crate::PostgresStore) brings it along; make one yourself if jobs come through a pooler in
/// transaction mode, where `LISTEN` does not work, and there is a direct connection as well:
///
/// ```no_run
/// # fn example(direct: &str) -> ratchet_api::StoreResult<()> {
/// use ratchet_store_postgres::{Namespace, PgNotifyCoordinator};
///
/// let coordinator = PgNotifyCoordinator::new(direct, &Namespace::default())?;
/// // Ratchet::builder(store).cluster(coordinator) …
/// # Ok(()) }
/// ```
pub struct PgNotifyCoordinator {
    shared: Arc<Shared>,
    /// The task that sends and listens, once there is something to do.
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    place: WakeupChannel,
    listeners: WakeupListeners,
    state: Mutex<State>,
    /// Notified when the state has changed.
    bell: Notify,
    hearing: watch::Sender<Hearing>,
}

#[derive(Default)]
struct State {
    /// The notice that the other nodes have not been sent.
    notice: Notice,
    /// Whether `LISTEN` is known not to work here.
    deaf: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    NotTried,
    Yes,
    No,
}

impl PgNotifyCoordinator {
    /// Creates a coordinator for the nodes of this namespace in the database at `url`. It connects when it has to.
    ///
    /// # Errors
    /// If the URL is not one of PostgreSQL.
    pub fn new(url: &str, namespace: &Namespace) -> StoreResult<Self> {
        Ok(Self::at(WakeupChannel::new(connect::server(url)?, Pooler::None, namespace)))
    }

    pub(crate) fn at(place: WakeupChannel) -> Self {
        let deaf = place.pooler == Pooler::Transaction;
        let shared = Shared {
            place,
            listeners: WakeupListeners::default(),
            state: Mutex::new(State { deaf, ..State::default() }),
            bell: Notify::new(),
            hearing: watch::Sender::new(Hearing::NotTried),
        };
        Self { shared: Arc::new(shared), task: Mutex::new(None) }
    }

    /// Whether notices of other nodes arrive at present.
    pub fn is_listening(&self) -> bool {
        *self.shared.hearing.borrow() == Hearing::Yes
    }

    fn tell(&self, notice: Notice) {
        if self.shared.note(notice) {
            self.attend();
        }
    }

    /// Makes sure that the task runs, and wakes it. A runtime that has ended took its task along.
    fn attend(&self) {
        let mut task = self.task();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(attend(Arc::clone(&self.shared))));
        }
        self.shared.bell.notify_one();
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ClusterCoordinator for PgNotifyCoordinator {
    async fn notify_new_work(&self, priority: JobPriority) -> StoreResult<()> {
        self.tell(Notice::new_work(priority));
        Ok(())
    }

    async fn notify_cancel_requested(&self) -> StoreResult<()> {
        self.tell(Notice::CANCEL_REQUESTED);
        Ok(())
    }

    async fn register_wakeup_listener(&self, listener: WakeupListener) -> StoreResult<()> {
        let mut hearing = self.shared.hearing.subscribe();
        if self.shared.add(listener) {
            self.attend();
            // A task that cannot listen now goes on trying.
            let _ = hearing.wait_for(|hearing| *hearing != Hearing::NotTried).await;
        }
        Ok(())
    }

    async fn shutdown(&self) {
        self.shared.stop();
        let task = self.task().take();
        if let Some(mut task) = task
            && timeout(CLOSING, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

impl Drop for PgNotifyCoordinator {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl fmt::Debug for PgNotifyCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgNotifyCoordinator")
            .field("channel", &self.shared.place.channel)
            .field("listening", &self.is_listening())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the pending notice; returns whether there was none, so that the task must be woken.
    fn note(&self, notice: Notice) -> bool {
        let mut state = self.state();
        if self.is_stopped() {
            return false;
        }
        let news = state.notice.is_empty();
        state.notice = state.notice.and(notice);
        news
    }

    /// Adds a listener; returns whether it can be called at all.
    fn add(&self, listener: WakeupListener) -> bool {
        if !self.listeners.add(listener) {
            return false;
        }
        let deaf = self.state().deaf;
        if deaf {
            tracing::info!("LISTEN is off behind this pooler: work of other nodes is found by polling");
        }
        !deaf
    }

    fn stop(&self) {
        self.listeners.close();
        self.bell.notify_one();
    }

    fn is_stopped(&self) -> bool {
        self.listeners.is_closed()
    }

    fn wants_to_listen(&self) -> bool {
        !self.state().deaf && !self.listeners.is_empty()
    }

    /// Waits until a connection is needed; `false` once it is shut down.
    async fn is_needed(&self) -> bool {
        loop {
            if !self.state().notice.is_empty() || self.wants_to_listen() {
                return true;
            }
            if self.is_stopped() {
                return false;
            }
            self.bell.notified().await;
        }
    }

    /// The way to send. Where `LISTEN` does not work, a pooler reassigns connections.
    fn by(&self) -> By {
        if self.state().deaf { By::Transaction } else { By::Session }
    }

    /// Gives up listening, once and for all.
    fn deafen(&self) {
        tracing::warn!(
            "LISTEN does not work here: a pooler in transaction mode may stand before the server. Work of other nodes is \
             found by polling; a `PgNotifyCoordinator` with a direct URL would hear of it at once"
        );
        self.state().deaf = true;
        self.hearing.send_replace(Hearing::No);
    }
}

/// The reason why a connection ended that was not lost.
enum End {
    Stopped,
    Deaf,
}

/// Keeps a connection while one is needed.
async fn attend(shared: Arc<Shared>) {
    let (mut failed, mut proven) = (0, false);
    shared.hearing.send_replace(Hearing::NotTried);
    while shared.is_needed().await {
        let error = match Line::open(&shared.place, shared.by()).await {
            Ok(mut line) => match serve(&shared, &mut line, &mut failed, &mut proven).await {
                Ok(End::Stopped) => return line.close().await,
                Ok(End::Deaf) => {
                    shared.deafen();
                    line.close().await;
                    continue;
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        if shared.is_stopped() {
            return;
        }
        if failed == 0 {
            let error = ConnectError::new(Dialect::Postgres, error);
            tracing::warn!(%error, "wakeup connection lost: work is found by polling until it is back");
        }
        shared.hearing.send_replace(Hearing::No);
        failed += 1;
        tokio::select! {
            () = sleep(transient::jittered(FIRST_PAUSE, LONGEST_PAUSE, failed, rand::random())) => {}
            () = stopped(&shared) => {}
        }
    }
}

async fn stopped(shared: &Shared) {
    while !shared.is_stopped() {
        shared.bell.notified().await;
    }
}

/// Sends and hears over one connection, until it is lost or no longer needed.
async fn serve(
    shared: &Shared,
    line: &mut Line,
    failed: &mut u32,
    proven: &mut bool,
) -> Result<End, sqlx::Error> {
    loop {
        if shared.wants_to_listen() && !line.listens() {
            if !*proven && !line.can_listen(&shared.place).await? {
                return Ok(End::Deaf);
            }
            *proven = true;
            line.listen(&shared.place).await?;
            shared.hearing.send_replace(Hearing::Yes);
            if std::mem::take(failed) > 0 {
                // Notices that were sent while this node did not listen are lost.
                shared.listeners.call(WakeupKind::ALL);
            }
        }
        let stopped = shared.is_stopped();
        let notice = std::mem::take(&mut shared.state().notice);
        if !notice.is_empty() {
            line.send(&shared.place, notice).await.inspect_err(|_| {
                shared.note(notice);
            })?;
            if !line.listens() {
                *failed = 0;
            }
        }
        if stopped {
            return Ok(End::Stopped);
        }
        tokio::select! {
            () = shared.bell.notified() => {}
            () = sleep_until(line.last_sign() + QUIET), if line.listens() => line.ask_for_sign().await?,
            heard = line.hear(), if line.listens() => shared.listeners.call(heard?.kinds()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installations_in_one_database_have_channels_of_their_own() {
        let schema = |name: &str| channel(&Namespace::schema(name).expect("a name"));
        let prefix = |name: &str| channel(&Namespace::prefix(name).expect("a name"));
        let channels = [
            channel(&Namespace::default()),
            schema("billing"),
            prefix("billing_"),
            prefix("shop_"),
            channel(&Namespace::bare()),
        ];
        assert_eq!(
            channels,
            ["ratchet", "billing", "billing_ratchet_wakeup", "shop_ratchet_wakeup", "ratchet_wakeup"]
        );
        assert!(schema(&"x".repeat(Namespace::MAX_SCHEMA)).len() < 64, "the server takes no longer name");
    }

    #[test]
    fn an_idle_node_says_little() {
        let options = ratchet_api::options::RatchetOptions::default();
        let per_second = |every: Duration| 1.0 / every.as_secs_f64();
        let beats = per_second(options.node.beat) + per_second(options.polling.deep_idle_delay);
        assert!(beats <= 0.2, "{beats}");
        assert!(beats + per_second(QUIET) <= 0.3, "{}", beats + per_second(QUIET));
        assert!(
            QUIET + PATIENCE <= Duration::from_secs(10),
            "a dead connection is noticed within ten seconds"
        );
    }

    #[test]
    fn the_most_urgent_of_many_notices_goes_out_and_only_the_first_rings() {
        let server = connect::server("postgres://nobody@localhost/nothing").expect("a URL");
        let coordinator =
            PgNotifyCoordinator::at(WakeupChannel::new(server, Pooler::None, &Namespace::default()));
        let work = |priority| coordinator.shared.note(Notice::new_work(priority));
        assert_eq!(
            [JobPriority::Low, JobPriority::Critical, JobPriority::Normal].map(work),
            [true, false, false]
        );
        let told = std::mem::take(&mut coordinator.shared.state().notice);
        assert_eq!(told, Notice::new_work(JobPriority::Critical));
        assert!(coordinator.shared.note(Notice::CANCEL_REQUESTED), "the next one rings again");
        coordinator.shared.stop();
        assert!(!work(JobPriority::High));
    }
}
