//! The settings of the store's sessions, the detection of poolers, and the plans that a server caches for a session.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, Row as _};

/// A setting that a connection sends at its start and that a server behind a pooler never receives, which reveals a
/// pooler.
const MARK: (&str, &str) = ("ratchet.direct", "on");
const IS_MARKED: &str = "SELECT coalesce(current_setting('ratchet.direct', true), '') = 'on'";

/// Makes the planner find rows by their keys and places, however small the tables were when the server made its plans:
/// a plan that reads a whole table because it was empty at the start is cached for a long time. A query that has no
/// other way still reads the whole table, and is not compiled for looking expensive.
const BY_KEY: [(&str, &str); 2] = [("enable_seqscan", "off"), ("jit", "off")];

/// The isolation level that the statements were proved on, whatever the default of the server, the database or the
/// role.
const ISOLATION: (&str, &str) = ("default_transaction_isolation", "read committed");

const POOLED: &str = "a pooler may stand before the server; say which kind in the option `pooler`";
/// The SQLSTATEs with which poolers refuse an unknown startup parameter: a protocol violation, or not supported.
const REFUSALS: [&str; 2] = ["08P01", "0A000"];

/// Begins a transaction that has no session to set things in: all in one message.
pub(crate) const BEGIN: &str = "\
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_seqscan = off;
SET LOCAL jit = off;
SET LOCAL idle_in_transaction_session_timeout = '60s'";
/// Begins it where the server can also detect that its client is gone.
const BEGIN_WATCHFUL: &str = "\
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_seqscan = off;
SET LOCAL jit = off;
SET LOCAL idle_in_transaction_session_timeout = '60s';
SET LOCAL client_connection_check_interval = '2s'";

/// Ends idle transactions: a node that vanishes without a word must not hold its locks for hours.
const END_IDLE: &str = "\
SELECT set_config(name, '60s', false)
FROM pg_settings
WHERE name = 'idle_in_transaction_session_timeout' AND setting = '0'";
/// Makes the server end a statement whose client is gone. Not every version and system can.
const NOTICE_DEATH: &str = "\
SELECT set_config(name, '2s', false)
FROM pg_settings
WHERE name = 'client_connection_check_interval' AND setting = '0'";

/// Marks the sessions that these options open, and sets their planner options and isolation level.
pub(crate) fn marked(server: PgConnectOptions) -> PgConnectOptions {
    server.options([MARK, ISOLATION]).options(BY_KEY)
}

/// Replaces an error that may come from a pooler by advice. The error's own words may name the user.
pub(crate) fn suspect_pooler(error: sqlx::Error) -> sqlx::Error {
    let code = error.as_database_error().and_then(|error| error.code());
    match code.filter(|code| REFUSALS.contains(&code.as_ref())) {
        Some(code) => {
            let advice =
                format!("{POOLED} (it answered {code}; it may also not know the user or the database)");
            sqlx::Error::Configuration(advice.into())
        }
        None => error,
    }
}

/// Refuses a session behind a pooler, and applies the settings of the store to any other.
pub(crate) async fn settle_in(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let marked = sqlx::raw_sql(IS_MARKED).fetch_one(&mut *connection).await?;
    if !marked.try_get::<bool, _>(0)? {
        return Err(sqlx::Error::Configuration(POOLED.into()));
    }
    sqlx::raw_sql(END_IDLE).execute(&mut *connection).await?;
    if let Err(error) = sqlx::raw_sql(NOTICE_DEATH).execute(connection).await
        && error.as_database_error().is_none()
    {
        return Err(error);
    }
    Ok(())
}

/// Finds the statement that begins transactions behind a pooler without sessions.
pub(crate) async fn begin_of(connection: &mut PgConnection) -> Result<&'static str, sqlx::Error> {
    let tried = sqlx::raw_sql(BEGIN_WATCHFUL).execute(&mut *connection).await;
    sqlx::raw_sql("ROLLBACK").execute(connection).await?;
    match tried {
        Ok(_) => Ok(BEGIN_WATCHFUL),
        Err(error) if error.as_database_error().is_some() => Ok(BEGIN),
        Err(error) => Err(error),
    }
}

/// The duration beyond which a statement may have a plan from the time when the tables were empty...
const SLOW: Duration = Duration::from_millis(50);
/// ... and gets a new one, but not before so many statements have run.
const PLANS_LAST: u32 = 20;

/// The state of the plans that the server caches for a connection.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    uses: u32,
    slow: bool,
}

impl Plans {
    pub(crate) fn note_use(&mut self, took: Duration) {
        self.uses = self.uses.saturating_add(1);
        self.slow = took >= SLOW;
    }

    /// Makes the server plan anew, if there is reason to.
    pub(crate) async fn renew(&mut self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.slow && self.uses >= PLANS_LAST {
            sqlx::raw_sql("DISCARD PLANS").execute(connection).await?;
            *self = Self::default();
        }
        Ok(())
    }
}
