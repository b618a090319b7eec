//! What the store asks of its sessions, whether it has any, and the plans that a server keeps for them.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, Row as _};

/// What a connection is told at its start, and a server behind a pooler never hears: so it shows whether there is one.
const MARK: (&str, &str) = ("ratchet.direct", "on");
const IS_MARKED: &str = "SELECT coalesce(current_setting('ratchet.direct', true), '') = 'on'";

/// Rows are found by their keys and places, however small the tables were when the server made its plans: a plan that
/// reads a whole table because it was empty at the start is kept for a long time. What has no other way still does so,
/// and is not compiled for looking expensive.
const BY_KEY: [(&str, &str); 2] = [("enable_seqscan", "off"), ("jit", "off")];

/// The level that the statements were proved on, whatever the server, the database or the role has for a default.
const ISOLATION: (&str, &str) = ("default_transaction_isolation", "read committed");

const POOLED: &str = "a pooler may stand before the server; say which kind in the option `pooler`";
/// SQLSTATEs of what poolers say to a startup parameter that they do not know: a violation, or not supported.
const REFUSALS: [&str; 2] = ["08P01", "0A000"];

/// How a transaction begins that has no session to set things in: in one message.
pub(crate) const BEGIN: &str = "\
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_seqscan = off;
SET LOCAL jit = off;
SET LOCAL idle_in_transaction_session_timeout = '60s'";
/// The same where the server can notice that nobody waits any more.
const BEGIN_WATCHFUL: &str = "\
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_seqscan = off;
SET LOCAL jit = off;
SET LOCAL idle_in_transaction_session_timeout = '60s';
SET LOCAL client_connection_check_interval = '2s'";

/// A node that vanishes without a word must not hold its locks for hours.
const END_IDLE: &str = "\
SELECT set_config(name, '60s', false)
FROM pg_settings
WHERE name = 'idle_in_transaction_session_timeout' AND setting = '0'";
/// The server ends a statement that nobody waits for any more. Not every version and system can.
const NOTICE_DEATH: &str = "\
SELECT set_config(name, '2s', false)
FROM pg_settings
WHERE name = 'client_connection_check_interval' AND setting = '0'";

/// Marks the sessions that these options open, and says how they plan and what they see of others.
pub(crate) fn marked(server: PgConnectOptions) -> PgConnectOptions {
    server.options([MARK, ISOLATION]).options(BY_KEY)
}

/// Gives advice in place of an error that may come from a pooler. Its words may name the user.
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

/// Makes a session the store's own.
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

/// How transactions begin behind a pooler that has no sessions to give.
pub(crate) async fn begin_of(connection: &mut PgConnection) -> Result<&'static str, sqlx::Error> {
    let tried = sqlx::raw_sql(BEGIN_WATCHFUL).execute(&mut *connection).await;
    sqlx::raw_sql("ROLLBACK").execute(connection).await?;
    match tried {
        Ok(_) => Ok(BEGIN_WATCHFUL),
        Err(error) if error.as_database_error().is_some() => Ok(BEGIN),
        Err(error) => Err(error),
    }
}

/// A statement that takes longer than this may have a plan from the time when the tables were empty...
const SLOW: Duration = Duration::from_millis(50);
/// ... and gets a new one, but not more often than after so many statements.
const PLANS_LAST: u32 = 20;

/// How the plans that the server keeps for a connection do.
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

    /// Has the server plan anew, if there is reason to.
    pub(crate) async fn renew(&mut self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.slow && self.uses >= PLANS_LAST {
            sqlx::raw_sql("DISCARD PLANS").execute(connection).await?;
            *self = Self::default();
        }
        Ok(())
    }
}
